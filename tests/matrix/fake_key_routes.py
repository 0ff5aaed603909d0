"""The routes of the fake homeserver for keys, signatures and messages to devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from tests.matrix.fake_accounts import CLIENT, Accounts
from tests.matrix.fake_keys import Keys, Move

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.matrix.fake_keys import Json, Message, Of
    from tests.matrix.fake_rooms import Rooms


class KeyRoutes(Accounts):
    """Keys of the accounts' devices, and the script for them. Where nobody uses it, nothing of it shows."""

    _rooms: Rooms

    def __init__(self, tick: Callable[[], int]) -> None:
        super().__init__()
        self._keys = Keys(tick)
        self._taken: set[tuple[Of, str]] = set()
        self.signing_needs_password = False
        """Whether even the first upload of an account's signing keys asks for its password."""

    # Script and look.

    @property
    def to_device(self) -> list[Message]:
        """Every message to a device that was taken, in order, whether passed on or dropped."""
        return self._keys.taken

    def drop_to_device(self, user_id: str, device_id: str, *, times: int = 1) -> None:
        """Lose the next so many messages to a device, though their senders are told that they were taken."""
        self._keys.drop((user_id, device_id), times)

    def send_to_device(self, sender: str, kind: str, user_id: str, device_id: str, content: Json) -> None:
        """A message from somebody to one device."""
        self._pass_on(sender, kind, {user_id: {device_id: content}})

    def one_time_keys(self, user_id: str, device_id: str) -> int:
        """How many one-time keys of a device are left."""
        return sum(self._keys.device((user_id, device_id)).counts().values())

    def use_up_keys(self, user_id: str, device_id: str, *, fallback: bool = False) -> None:
        """Take all one-time keys of a device, and its fallback key too if it shall have none left at all."""
        device = self._keys.device((user_id, device_id))
        device.one_time.clear()
        if fallback:
            device.fallback.clear()
            device.unused.clear()

    def lose_server(self, server: str) -> None:
        """From now on the keys of that server's accounts cannot be had: answers have it under `failures`."""
        self._keys.lost_servers.add(server)

    def find_server(self, server: str) -> None:
        """That server is there again."""
        self._keys.lost_servers.discard(server)

    def identity_keys(self, user_id: str, device_id: str) -> Json | None:
        """The keys of a device as it uploaded them, with all signatures."""
        return self._keys.device((user_id, device_id)).identity

    # For the routes.

    def _device_deleted(self, user_id: str, device_id: str) -> None:
        self._keys.forget((user_id, device_id))

    def _key_news(self, of: Of, since: int | None) -> Json:
        """What a sync response has beside its rooms."""
        user_id = of[0]
        rooms = [room for room in self._rooms.rooms.values() if user_id in room.member_at]
        joined = [room for room in rooms if room.membership(user_id) == "join"]
        shared = {user_id} | {member for room in joined for member in room.joined}
        moves = []
        for room in rooms:
            own, here = room.member_at[user_id], room.membership(user_id) == "join"
            for member, number in room.member_at.items():
                match here, room.membership(member):
                    case True, "join":
                        moves.append(Move(max(number, own), member, came=True))
                    case False, "join":
                        moves.append(Move(own, member, came=False))
                    case True, "leave" | "ban" if number > own:
                        moves.append(Move(number, member, came=False))
        return self._keys.part(of, since, shared.__contains__, moves)

    def _pass_on(self, sender: str, kind: str, messages: Json) -> None:
        self._keys.send(sender, kind, messages, list(dict.fromkeys(self._devices.values())))
        self._notify()

    def _key_routes(self) -> list[web.RouteDef]:
        return [
            web.post(f"{CLIENT}/keys/upload", self._keys_upload),
            web.post(f"{CLIENT}/keys/query", self._keys_query),
            web.post(f"{CLIENT}/keys/claim", self._keys_claim),
            web.post(f"{CLIENT}/keys/device_signing/upload", self._signing_upload),
            web.post(f"{CLIENT}/keys/signatures/upload", self._signatures_upload),
            web.put(f"{CLIENT}/sendToDevice/{{type}}/{{txn}}", self._send_to_device),
        ]

    async def _keys_upload(self, request: web.Request) -> web.Response:
        of = self._who(request)
        return web.json_response(self._keys.upload(of, await request.json()))

    async def _keys_query(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        return web.json_response(self._keys.query(user_id, (await request.json())["device_keys"]))

    async def _keys_claim(self, request: web.Request) -> web.Response:
        self._who(request)
        return web.json_response(self._keys.claim((await request.json())["one_time_keys"]))

    async def _signing_upload(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        asked = await request.json()
        first = not self._keys.has_identity(user_id)
        if self.signing_needs_password if first else self._keys.is_new_identity(user_id, asked):
            self._confirmed(user_id, asked)
        return web.json_response(self._keys.upload_signing(user_id, asked))

    async def _signatures_upload(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        return web.json_response(self._keys.upload_signatures(user_id, await request.json()))

    async def _send_to_device(self, request: web.Request) -> web.Response:
        of = self._who(request)
        if (of, request.path) not in self._taken:
            self._pass_on(of[0], request.match_info["type"], (await request.json())["messages"])
            self._taken.add((of, request.path))
        return web.json_response({})
