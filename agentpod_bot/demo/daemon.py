"""The real daemon, started as a user would start it: a configuration file and one command."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import aiohttp

from agentpod_bot.core.ids import UserId
from agentpod_bot.demo.process import POLL_S, Leashed, free_port
from agentpod_bot.errors import CannotStart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account

READY_S = 45.0
PRIVATE = 0o600


class Daemon:
    """`agentpod-bot run` as a process; see `running`."""

    def __init__(self, folder: Path, *, homeserver: str, bot: Account, approver: Account, room_id: str) -> None:
        """Write a configuration for one room, one approver and one client into `folder`."""
        self.token = secrets.token_urlsafe(32)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.config = folder / "config.json"
        self._folder = folder
        self._bot = bot
        self._homeserver = homeserver
        self._config: dict[str, Any] = {
            "homeserver": {
                "url": homeserver,
                "user_id": bot.user_id,
                "device_id": bot.device_id,
                "access_token_file": str(_secret(folder / "access_token", bot.access_token)),
            },
            "http": {"listen": f"127.0.0.1:{port}"},
            "clients": {
                "laptop": {"token_file": str(_secret(folder / "client_token", self.token)), "routes": ["demo"]}
            },
            "routes": {"demo": {"room": room_id, "approvers": [approver.user_id]}},
            "store": {"path": str(folder / "store" / "agentpod.db")},
            "log": {"level": "info", "format": "json"},
        }
        (folder / "store").mkdir(mode=0o700)
        self._write()

    async def make_keys(self) -> None:
        """Give the bot's device keys, so that the daemon can speak in encrypted rooms."""
        from agentpod_bot.matrix.e2e.making import NewDevice, make_keys  # noqa: PLC0415 - needs the extra
        from agentpod_bot.matrix.e2e.vault import new_pickle_key  # noqa: PLC0415 - likewise

        pickle_key, keys = new_pickle_key(), self._folder / "store" / "crypto"
        device = NewDevice(
            url=self._homeserver,
            user_id=UserId(self._bot.user_id),
            device_id=self._bot.device_id,
            access_token=self._bot.access_token,
            password=self._bot.password,
        )
        await make_keys(device, keys, pickle_key)
        secret = _secret(self._folder / "pickle_key", pickle_key)
        self._config["e2e"] = {"store": str(keys), "pickle_key_file": str(secret)}
        self._write()

    def _write(self) -> None:
        self.config.write_text(json.dumps(self._config, indent=1))  # JSON is YAML

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Leashed]:
        """The process, from when it says that it is ready; ended on leaving.

        Raises `CannotStart` with the end of its log where it does not become ready.
        """
        started = Leashed(
            [sys.executable, "-m", "agentpod_bot", "run", "--config", str(self.config)],
            output=self._folder / "daemon.log",
            env=dict(_clean(os.environ)),
        )
        try:
            await self._ready(started)
            yield started
        finally:
            await started.stop()

    async def _ready(self, started: Leashed) -> None:
        deadline = time.monotonic() + READY_S
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while time.monotonic() < deadline:
                if (code := started.exit_code()) is not None:
                    raise CannotStart(f"the daemon ended with code {code}:\n{started.tail()}")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self.url}/readyz") as response:
                        if response.status == HTTPStatus.OK:
                            return
                await asyncio.sleep(POLL_S)
        raise CannotStart(f"the daemon is not ready after {READY_S:.0f} s:\n{started.tail()}")


def _secret(path: Path, value: str) -> Path:
    """Write a secret so that nobody else ever could read it."""
    path.touch(mode=PRIVATE, exist_ok=False)
    path.write_text(value)
    return path


def _clean(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The environment without what would override the demo's own configuration."""
    for name, value in environ.items():
        if not name.startswith("AGENTPOD_BOT_") and name != "CREDENTIALS_DIRECTORY":
            yield name, value
