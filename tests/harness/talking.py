"""A program that speaks JSON, one message a line, and the client that talks with it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from types import TracebackType

Message = dict[str, Any]

WAIT_S = 90.0
LONGEST_LINE = 16 * 2**20


class Talking:
    """One shell command that speaks so; use it with `async with`. It ends, with all that it started."""

    def __init__(self, line: str, *, folder: Path, env: Mapping[str, str], extra: Message | None = None) -> None:
        """`extra` stands in every message that is sent."""
        self.heard: list[Message] = []
        """Every message that came, oldest first."""
        self._line = line
        self._folder = folder
        self._env = dict(env)
        self._extra = extra or {}
        self._last_id = 0
        self._process: asyncio.subprocess.Process | None = None

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The shell that the command replaced."""
        assert self._process is not None
        return self._process

    async def __aenter__(self) -> Self:
        """Start it."""
        self._process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            f"exec {self._line}",
            cwd=self._folder,
            env=self._env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LONGEST_LINE,
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill what is left of it."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def call(self, method: str, **params: Any) -> Message:
        """The result of one call."""
        number = await self.begin(method, **params)
        answer = await self.until(lambda message: message.get("id") == number and "method" not in message)
        assert "result" in answer, answer
        result: Message = answer["result"]
        return result

    async def begin(self, method: str, **params: Any) -> int:
        """Call without waiting for the result; return the call's id."""
        self._last_id += 1
        await self._send({"id": self._last_id, "method": method, "params": params})
        return self._last_id

    async def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        await self._send({"method": method, "params": params})

    async def until(self, wanted: Callable[[Message], bool]) -> Message:
        """The first message that is wanted, of all that came or will come in time."""
        for message in self.heard:
            if wanted(message):
                return message
        async with asyncio.timeout(WAIT_S):
            while True:
                message = await self._next()
                if wanted(message):
                    return message

    async def end(self) -> int:
        """Say nothing more, as a client does that goes away; return the exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        async with asyncio.timeout(WAIT_S):
            return await self.process.wait()

    def questions(self) -> list[Message]:
        """What the program asked its client."""
        return [message for message in self.heard if "method" in message and "id" in message]

    async def _next(self) -> Message:
        assert self.process.stdout is not None
        line = await self.process.stdout.readline()
        if not line:
            raise EOFError(f"it ended; the last that it said: {self.heard[-3:]}")
        message: Message = json.loads(line)
        self.heard.append(message)
        return message

    async def _send(self, message: Message) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(self._extra | message).encode() + b"\n")
        await self.process.stdin.drain()
