"""The door through which `agentpod-bot verify` speaks with the running daemon: a Unix socket in the vault's folder.

Whoever can open it is the daemon's own user, who could read the keys as well.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.matrix.e2e.exchange import Accepted, Cancelled, Code, Finished, Shown, Waiting
from agentpod_bot.unix_socket import Bound, bind, is_short

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
    from agentpod_bot.matrix.e2e.identities import Identities
    from agentpod_bot.matrix.e2e.ongoing import Open
    from agentpod_bot.matrix.e2e.ports import OwnDevice
    from agentpod_bot.matrix.e2e.verification import Verification

NAME: Final = "control.sock"
LONGEST_WAIT_S: Final = 30.0
BODY_BYTES: Final = 4_096


class Control:
    """Serves the socket inside `async with`."""

    def __init__(
        self,
        folder: Path,
        verification: Verification,
        identities: Identities,
        cross_signing: CrossSigning,
        device: OwnDevice,
    ) -> None:
        self.path = folder / NAME
        self._verification = verification
        self._identities = identities
        self._cross_signing = cross_signing
        self._device = device
        self._bound: Bound | None = None
        app = web.Application(client_max_size=BODY_BYTES)
        app.add_routes(
            [
                web.get("/verifications", self._list),
                web.post("/verifications/{id}/confirm", self._confirm),
                web.post("/verifications/{id}/cancel", self._cancel),
                web.get("/verified", self._verified),
                web.post("/verified/forget", self._forget),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)

    @property
    def fits(self) -> bool:
        """Whether the path is short enough for a socket."""
        return is_short(self.path)

    async def __aenter__(self) -> Self:
        """Begin to listen. Raises `ConfigurationError` where the socket cannot be had."""
        self._bound = bind(self.path, setting="e2e.store")
        await self._runner.setup()
        await web.SockSite(self._runner, self._bound.socket).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and remove the socket."""
        if self._bound is not None:
            self._bound.remove()
        await self._runner.cleanup()

    async def _list(self, request: web.Request) -> web.Response:
        """The verifications; with `after`, a version that was given before, once they are others, or after a while."""
        try:
            after = int(request.query.get("after", "-1"))
        except ValueError:
            return _problem(web.HTTPBadRequest.status_code, "after is no number")
        try:
            async with asyncio.timeout(LONGEST_WAIT_S):
                await self._verification.changes(after)
        except TimeoutError:
            pass  # then they are the same, and that is said
        shown = [shown_as(each) for each in self._verification.all()]
        return web.json_response({"version": self._verification.version, "verifications": shown})

    async def _confirm(self, request: web.Request) -> web.Response:
        taken = await self._verification.confirm(request.match_info["id"])
        return _taken() if taken else _problem(web.HTTPConflict.status_code, "there is nothing to confirm")

    async def _cancel(self, request: web.Request) -> web.Response:
        mismatch = request.query.get("mismatch") == "true"
        taken = await self._verification.decline(request.match_info["id"], mismatch=mismatch)
        return _taken() if taken else _problem(web.HTTPConflict.status_code, "there is nothing to cancel")

    async def _verified(self, _request: web.Request) -> web.Response:
        known, own = self._identities.known, self._device.own
        identities = [{"user_id": user_id, "master": master} for user_id, master in sorted(known.masters.items())]
        devices = [
            {"user_id": user_id, "device_id": device_id, "ed25519": ed25519}
            for (user_id, device_id), ed25519 in sorted(known.devices.items())
        ]
        return web.json_response(
            {
                "own": {
                    "user_id": own.user_id,
                    "device_id": own.device_id,
                    "ed25519": own.ed25519,
                    "master": self._cross_signing.master,
                    "trouble": self._cross_signing.trouble,
                },
                "identities": identities,
                "devices": devices,
                "changed": sorted(known.changed),
            }
        )

    async def _forget(self, request: web.Request) -> web.Response:
        try:
            forgotten = await self._identities.forget(request.query.get("user_id", ""))
        except StoreUnavailable as error:
            return _problem(web.HTTPServiceUnavailable.status_code, str(error))
        return _taken() if forgotten else _problem(web.HTTPNotFound.status_code, "nothing of that account is verified")


def shown_as(one: Open) -> dict[str, Any]:
    """A verification as JSON."""
    shown: dict[str, Any] = {
        "id": one.verification_id,
        "user_id": one.other.user_id,
        "device_id": one.other.device_id,
    }
    match one.state:
        case Waiting() | Accepted():
            return shown | {"state": "waiting"}
        case Shown(short=short, confirmed=confirmed, agreed=agreed):
            return shown | {
                "state": "confirmed" if confirmed else "shown",
                "emoji": [list(each) for each in short.emoji] if "emoji" in agreed.strings else [],
                "numbers": list(short.decimals),
            }
        case Finished():
            trusted = one.trusted
            return shown | {
                "state": "waiting" if trusted is None else "verified",
                "device": trusted is not None and trusted.ed25519 is not None,
                "identity": trusted is not None and trusted.master is not None,
            }
        case Cancelled(code=code, by_us=by_us):
            return shown | {"state": "cancelled", "code": code if code in set(Code) else "other", "by_us": by_us}


def _taken() -> web.Response:
    return web.json_response({})


def _problem(status: int, detail: str) -> web.Response:
    return web.json_response({"detail": detail}, status=status)
