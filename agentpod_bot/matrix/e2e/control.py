"""The door through which `agentpod-bot verify` speaks with the running daemon: a Unix socket in the vault's folder.

Whoever can open it is the daemon's own user, who could read the keys as well.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from agentpod_bot.errors import ConfigurationError, StoreUnavailable
from agentpod_bot.matrix.e2e.exchange import Accepted, Cancelled, Code, Finished, Shown, Waiting

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
LONGEST_PATH: Final = 107
"""Longest path of a Unix socket on Linux (`sun_path` less its final NUL)."""
OWNER_ONLY: Final = 0o600
NOT_FOR_OTHERS: Final = 0o177
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
        listening = bound(self.path)
        await self._runner.setup()
        await web.SockSite(self._runner, listening).start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and remove the socket."""
        self.path.unlink(missing_ok=True)
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


def is_short(path: Path) -> bool:
    """Whether a Unix socket can have this path."""
    return len(str(path).encode()) <= LONGEST_PATH


def bound(path: Path) -> socket.socket:
    """A Unix socket of mode 0600, in the place of one that was left behind. Raises `ConfigurationError`."""
    if not is_short(path):
        raise ConfigurationError(
            f"e2e.store: {path} is longer than the {LONGEST_PATH} bytes that a Unix socket's path may have"
        )
    _make_way(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must be right before anyone can connect, so the umask makes it and not a later chmod.
    umask = os.umask(NOT_FOR_OTHERS)
    try:
        listening.settimeout(0)
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"e2e.store: cannot listen on {path}: {error.strerror or error}") from error
    finally:
        os.umask(umask)
    path.chmod(OWNER_ONLY)
    return listening


def _make_way(path: Path) -> None:
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigurationError(f"e2e.store: cannot look at {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(f"e2e.store: {path} exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as error:
            raise ConfigurationError(f"e2e.store: {path} is in use: {error.strerror}") from error
    raise ConfigurationError(f"e2e.store: another process listens on {path}")


def _taken() -> web.Response:
    return web.json_response({})


def _problem(status: int, detail: str) -> web.Response:
    return web.json_response({"detail": detail}, status=status)
