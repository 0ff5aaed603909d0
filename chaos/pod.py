"""The daemon under test: the real program on one configuration and one store, killed again and again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from agentpod_bot.core.ids import UserId
from agentpod_bot.demo.process import POLL_S, Leashed, free_port
from agentpod_bot.matrix.e2e.making import NewDevice, make_keys
from agentpod_bot.matrix.e2e.vault import new_pickle_key
from chaos.plan import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chaos.town import Citizen

KILLED = 128 + signal.SIGKILL
READY_S = 60.0


class Pod:
    """One store, and the processes that run on it one after another."""

    def __init__(
        self,
        folder: Path,
        *,
        homeserver: str,
        bot: Citizen,
        agents: list[str],
        rooms: Mapping[str, tuple[str, str, list[str]]],
    ) -> None:
        """`rooms` are routes: room id, client, approvers."""
        folder.mkdir()
        (folder / "store").mkdir(mode=0o700)
        self._folder = folder
        self.log = folder / "daemon.log"
        self.store = folder / "store" / "agentpod.db"
        self.tokens = {client: secrets.token_urlsafe(24) for client in CLIENTS}
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self.kills = 0
        self.deaths: list[int] = []
        """Exit codes of processes that ended without being killed."""
        self._running: Leashed | None = None
        self._config: dict[str, Any] = {
            "homeserver": {
                "url": homeserver,
                "user_id": bot.user_id,
                "access_token_file": self._secret("access_token", bot.token),
                "agents": agents,
            },
            "http": {"listen": f"127.0.0.1:{port}", "max_waits_per_token": 1000},
            "clients": {
                client: {
                    "token_file": self._secret(client, token),
                    "routes": [route for route, (_, of_client, _) in rooms.items() if of_client == client],
                }
                for client, token in self.tokens.items()
            },
            "routes": {
                route: {
                    "room": room_id,
                    "approvers": approvers,
                    "max_pending": 10_000,
                    "reactions": "seed" if number % 5 == 0 else "accept",
                }
                for number, (route, (room_id, _, approvers)) in enumerate(rooms.items())
            },
            "requests": {
                "max_pending": 10_000,
                "max_pending_per_session": 10_000,
                "max_pending_per_token": 10_000,
                "max_time_to_live": "24h",
            },
            "store": {"path": str(self.store)},
            "log": {"level": "info", "format": "json"},
        }

    async def give_keys(self, homeserver: str, bot: Citizen) -> None:
        """Make keys for the bot's device, as `login` makes them; from then on it can encrypt."""
        folder, pickle_key = self._folder / "store" / "crypto", new_pickle_key()
        device = NewDevice(
            url=homeserver,
            user_id=UserId(bot.user_id),
            device_id=bot.device_id,
            access_token=bot.token,
            password=bot.password,
        )
        if (refused := await make_keys(device, folder, pickle_key)) is not None:
            raise RuntimeError(refused)
        self._config["homeserver"]["device_id"] = bot.device_id
        self._config["e2e"] = {"store": str(folder), "pickle_key_file": self._secret("pickle_key", pickle_key)}

    @property
    def runs(self) -> bool:
        """Whether there is a process now."""
        return self._running is not None and self._running.exit_code() is None

    def start(self) -> None:
        """Run the daemon; it need not be ready yet."""
        path = self._folder / "config.json"
        path.write_text(json.dumps(self._config, indent=1))
        command = [sys.executable, "-m", "agentpod_bot", "run", "--config", str(path)]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENTPOD_BOT_")}
        self._running = Leashed(command, output=self.log, env=kept)

    async def ready(self) -> None:
        """Wait until it says that it is ready, or has ended by itself. Raises TimeoutError with its last words."""
        deadline = time.monotonic() + READY_S
        async with aiohttp.ClientSession() as session:
            while self.runs and time.monotonic() < deadline:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{self.url}/readyz") as response:
                        if response.status == 200:  # noqa: PLR2004 - HTTP
                            return
                await asyncio.sleep(POLL_S)
        if self.runs:
            raise TimeoutError(f"not ready after {READY_S:g} s:\n{self.tail()}")

    async def kill(self) -> None:
        """End it as a power cut does, and wait until it is gone; one that had ended by itself is counted as that."""
        running = self._running
        if running is None:
            return
        for child in _children(running.pid) if running.exit_code() is None else ():  # else the number may be another's
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        code = await running.stop()
        self._running = None
        if code == KILLED:
            self.kills += 1
        else:
            self.deaths.append(code)

    async def stop(self) -> None:
        """End it in order."""
        if self._running is not None:
            await self._running.stop()
            self._running = None

    def tail(self) -> str:
        """The end of its log."""
        return "" if self._running is None else self._running.tail()

    def logged(self) -> Counter[str]:
        """How often each line stands in the log of all runs; what is no JSON counts as that."""
        found: Counter[str] = Counter()
        for line in self.log.read_text(errors="replace").splitlines():
            try:
                found[str(json.loads(line).get("event"))] += 1
            except ValueError:  # a kill may cut the last line of a run
                found["no JSON"] += 1
        return found

    def _secret(self, name: str, value: str) -> str:
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_text(value)
        return str(path)


def _children(pid: int) -> list[int]:
    """The processes that a leash holds (Linux)."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:  # it has ended by itself
        return []
