"""The accounts of the fake homeserver, and their devices: who calls, logging in and out."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.matrix.fake_faults import Faults

if TYPE_CHECKING:
    from collections.abc import Mapping

SERVER = "hs.example"
PASSWORD = "correct horse"
CLIENT = "/_matrix/client/v3"


class Refusal(Exception):
    """A Matrix error answer; without a code where it is none, as in user-interactive authentication."""

    def __init__(self, status: int, errcode: str | None, **more: Any) -> None:
        super().__init__(errcode)
        self.status = status
        self.body = more if errcode is None else {"errcode": errcode, "error": f"fake: {errcode}", **more}


class Accounts(Faults):
    """Users, their tokens and their devices."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        self._passwords: dict[str, str] = {}
        self._devices: dict[str, tuple[str, str]] = {}  # token: (user, device)
        self._refreshing: dict[str, tuple[str, str]] = {}  # refresh token: (user, device)
        self._rotated: dict[str, str] = {}  # access token: the refresh token that it makes worthless once used
        self._revoked: dict[str, bool] = {}  # token: soft_logout
        self._changed = asyncio.Event()

    # Script.

    def user(self, localpart: str, *, password: str | None = None, server: str = SERVER) -> str:
        """A new account, with `PASSWORD` unless one is given; returns its MXID."""
        user_id = f"@{localpart}:{server}"
        self._passwords[user_id] = password or PASSWORD
        return user_id

    def token(self, user_id: str, device_id: str | None = None) -> str:
        """A new access token of an account, on a device of its own unless one is named."""
        number = next(self._numbers)
        token = f"token{number:012}"  # a configuration takes no shorter secret
        self._devices[token] = (user_id, device_id or f"DEVICE{number}")
        return token

    def revoke(self, token: str, *, soft_logout: bool = False) -> None:
        """From now on the token is answered with `M_UNKNOWN_TOKEN`."""
        self._revoked[token] = soft_logout
        self._notify()

    def refresh_token(self, user_id: str, device_id: str) -> str:
        """A refresh token of a session; each use gives another, and it ends once what it gave is used."""
        token = f"refresh{next(self._numbers):012}"
        self._refreshing[token] = (user_id, device_id)
        return token

    def restore(self, token: str) -> None:
        """The token is good again."""
        del self._revoked[token]

    def devices(self, user_id: str) -> list[str]:
        """The devices of an account that are logged in, the oldest first."""
        return list(dict.fromkeys(device for user, device in self._devices.values() if user == user_id))

    def delete_device(self, user_id: str, device_id: str) -> None:
        """Delete a device: its tokens are unknown, and what was kept for it is gone."""
        for tokens in (self._devices, self._refreshing):
            for token in [token for token, of in tokens.items() if of == (user_id, device_id)]:
                del tokens[token]
        self._device_deleted(user_id, device_id)
        self._notify()

    # For the routes.

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _device_deleted(self, user_id: str, device_id: str) -> None:
        """What else ends with a device."""

    def _who(self, request: web.Request) -> tuple[str, str]:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            raise Refusal(401, "M_MISSING_TOKEN")
        if token in self._revoked or token not in self._devices:
            raise Refusal(401, "M_UNKNOWN_TOKEN", soft_logout=self._revoked.get(token, False))
        self._refreshing.pop(self._rotated.pop(token, ""), None)
        return self._devices[token]

    def _confirmed(self, user_id: str, asked: Mapping[str, Any]) -> None:
        """Refuse what is not confirmed with the account's password (user-interactive authentication)."""
        auth = asked.get("auth")
        flows = {"flows": [{"stages": ["m.login.password"]}], "params": {}, "session": "uia"}
        match auth:
            case None:
                raise Refusal(401, None, **flows)
            case {"type": "m.login.password", "session": "uia", "password": password, "identifier": {"user": name}}:
                if password != self._passwords[user_id] or self._user_id(name) != user_id:
                    raise Refusal(401, "M_FORBIDDEN", **flows)
            case _:
                raise Refusal(401, "M_FORBIDDEN", **flows)

    @staticmethod
    def _user_id(name: str) -> str:
        return name if name.startswith("@") else f"@{name}:{SERVER}"

    def _account_routes(self) -> list[web.RouteDef]:
        return [
            web.post(f"{CLIENT}/login", self._login),
            web.post(f"{CLIENT}/refresh", self._refresh),
            web.post(f"{CLIENT}/logout", self._logout),
            web.get(f"{CLIENT}/account/whoami", self._whoami),
            web.get(f"{CLIENT}/devices", self._list_devices),
            web.delete(f"{CLIENT}/devices/{{device}}", self._delete_device),
            web.post(f"{CLIENT}/delete_devices", self._delete_devices),
        ]

    async def _login(self, request: web.Request) -> web.Response:
        asked = await request.json()
        user_id = self._user_id(asked["identifier"]["user"])
        if user_id not in self._passwords or self._passwords[user_id] != asked.get("password"):
            raise Refusal(403, "M_FORBIDDEN")
        token = self.token(user_id, asked.get("device_id"))
        device = self._devices[token][1]
        further = {"refresh_token": self.refresh_token(user_id, device)} if asked.get("refresh_token") else {}
        return web.json_response({"user_id": user_id, "device_id": device, "access_token": token, **further})

    async def _refresh(self, request: web.Request) -> web.Response:
        used = (await request.json())["refresh_token"]
        if used not in self._refreshing:
            raise Refusal(401, "M_UNKNOWN_TOKEN", soft_logout=False)
        user_id, device = self._refreshing[used]
        token = self.token(user_id, device)
        self._rotated[token] = used
        return web.json_response({"access_token": token, "refresh_token": self.refresh_token(user_id, device)})

    async def _logout(self, request: web.Request) -> web.Response:
        self.delete_device(*self._who(request))
        return web.json_response({})

    async def _whoami(self, request: web.Request) -> web.Response:
        user_id, device = self._who(request)
        return web.json_response({"user_id": user_id, "device_id": device, "is_guest": False})

    async def _list_devices(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        return web.json_response({"devices": [{"device_id": device} for device in self.devices(user_id)]})

    async def _delete_device(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        self._confirmed(user_id, json.loads(await request.read() or b"{}"))
        self.delete_device(user_id, request.match_info["device"])
        return web.json_response({})

    async def _delete_devices(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        asked = await request.json()
        self._confirmed(user_id, asked)
        for device in asked["devices"]:
            self.delete_device(user_id, device)
        return web.json_response({})
