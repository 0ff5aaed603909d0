"""Daemons that die where they are told: how a test starts one, gives it orders, and learns of its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.integration.daemons import Daemon, clean_environment, eventually

if TYPE_CHECKING:
    from types import TracebackType

REPOSITORY = Path(__file__).parents[2]
STARTS_S = 60.0
QUIET_S = 0.5
"""A process that came to no new point for so long has done what there was to do."""


class Forked:
    """One process; fits what `Daemon` wants of the one that it runs."""

    def __init__(self, pid: int, output: Path) -> None:
        self.pid = pid
        self.output = output
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def exit_code(self) -> int | None:
        """None while it runs; negative where a signal ended it."""
        return self.ended.result() if self.ended.done() else None

    def tail(self, lines: int = 20) -> str:
        """The end of what it wrote."""
        return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])

    async def stop(self) -> int:
        """End it as a power cut does: what it left behind is what the tests look at."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        return await self.ended


class Dooms:
    """Where such processes come from; use it with `async with`."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._source: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._started: asyncio.Queue[int] = asyncio.Queue()
        self._ended: dict[int, asyncio.Future[int]] = {}
        self._one_at_a_time = asyncio.Lock()

    async def __aenter__(self) -> Self:
        """Import everything once."""
        with self._output.open("ab") as errors:
            self._source = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tests.crash.doomed",
                cwd=REPOSITORY,
                env=clean_environment() | {"PYTHONPATH": str(REPOSITORY)},
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        assert self._source.stdout is not None
        first = await asyncio.wait_for(self._source.stdout.readline(), STARTS_S)
        assert first, self._output.read_text()
        self._reader = asyncio.create_task(self._read(self._source.stdout))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it; whatever still runs dies with it."""
        assert self._source is not None
        assert self._source.stdin is not None
        self._source.stdin.close()
        await self._source.wait()
        if self._reader is not None:
            await self._reader

    async def fork(self, argv: list[str], env: dict[str, str], output: Path) -> Forked:
        """Start one process on a command line."""
        assert self._source is not None
        assert self._source.stdin is not None
        async with self._one_at_a_time:
            order = {"argv": argv, "env": env, "output": str(output)}
            self._source.stdin.write(json.dumps(order).encode() + b"\n")
            await self._source.stdin.drain()
            pid = await self._started.get()
        forked = Forked(pid, output)
        forked.ended = self._ending(pid)
        return forked

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            match json.loads(line):
                case {"started": pid}:
                    self._started.put_nowait(pid)
                case {"ended": pid, "code": code}:
                    self._ending(pid).set_result(code)

    def _ending(self, pid: int) -> asyncio.Future[int]:
        return self._ended.setdefault(pid, asyncio.get_running_loop().create_future())


class DoomedDaemon(Daemon):
    """A daemon as a user runs it, but for its points."""

    def __init__(self, dooms: Dooms, folder: Path, **more: Any) -> None:
        super().__init__(folder, **more)
        self._dooms = dooms
        self._orders = folder / "orders.json"
        for route in self.config["routes"].values():
            route["reactions"] = "accept"  # a keycap more or less is not what this is about

    async def start(self, *, until_ready: bool = True) -> None:
        """Write the file and run the daemon on it, without orders."""
        self.write()
        argv = ["run", "--config", str(self.path)]
        self._forked = await self._dooms.fork(argv, {"DOOMED": str(self._orders)}, self.log)
        self._running = self._forked  # type: ignore[assignment]  # fits what is asked of it
        if until_ready:
            await self.ready()

    async def order(self, **orders: str) -> None:
        """Give it orders; they are in force when this returns."""
        unfinished = self._orders.with_suffix(".new")
        unfinished.write_text(json.dumps(orders))
        unfinished.rename(self._orders)
        os.kill(self._forked.pid, signal.SIGUSR1)

        async def taken_over() -> bool:
            return not self._orders.exists()

        await eventually(taken_over)

    async def recorded(self, path: Path) -> list[str]:
        """Every point of a record, once nothing is added to it any more."""
        points: list[str] = []
        while len(found := _lines(path)) > len(points):
            points = found
            await asyncio.sleep(QUIET_S)
        return points

    async def died(self, *, within_s: float) -> bool:
        """Whether it killed itself by then."""
        await asyncio.wait({self._forked.ended}, timeout=within_s)
        if not self._forked.ended.done():
            return False
        assert self._forked.ended.result() == -signal.SIGKILL, self._forked.tail()
        return True


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
