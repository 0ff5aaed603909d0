"""A bridge: an agent as a child process, its lines and its client's passed on, its questions put to people."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.text import visible_line
from agentpod_bot.proxy.framing import crowd_of, is_plain
from agentpod_bot.proxy.pipes import CHUNK, LineTooLong, Stream, lines
from agentpod_bot.proxy.signals import signalled
from agentpod_bot.proxy.stopped import ExitCode, Stopped
from agentpod_bot.proxy.talk import Asked, Over, Passed, Replied

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from agentpod_bot.proxy.pipes import Readable, Writable
    from agentpod_bot.proxy.questions import Questions
    from agentpod_bot.proxy.talk import FromAgent, Talk

GRACE_S = 5.0
"""How long an agent has to end after its client went away or a signal came, before it is told harder."""
DRAIN_S = 2.0
"""How long the last words of an agent that ended are waited for."""
NOT_ALONE = "it does not stand alone on its line"


class _Exit(asyncio.subprocess.SubprocessStreamProtocol):
    """Says at once when the process ended; `Process.wait` also waits for whoever else holds its output open."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=CHUNK, loop=loop)
        self.ended = asyncio.Event()

    def process_exited(self) -> None:
        """Wake up who waits."""
        super().process_exited()
        self.ended.set()


class Agent:
    """A child process in a process group of its own, which ends with it. Its standard error is ours."""

    def __init__(self, process: asyncio.subprocess.Process, ended: asyncio.Event) -> None:
        if process.stdin is None or process.stdout is None:  # see `start`
            raise ValueError("an agent has two pipes")
        self.input = Stream(process.stdin)
        self.output = process.stdout
        self._process, self._ended = process, ended
        self._over = False

    @classmethod
    async def start(cls, words: Sequence[str]) -> Agent:
        """Start a program. Raises `Stopped` (2) where it cannot be."""
        loop, pipe = asyncio.get_running_loop(), asyncio.subprocess.PIPE
        try:
            transport, protocol = await loop.subprocess_exec(
                lambda: _Exit(loop), *words, stdin=pipe, stdout=pipe, stderr=None, process_group=0
            )
        except OSError as fault:
            program = visible_line(words[0])
            raise Stopped(ExitCode.USAGE, f"cannot start {program}: {fault.strerror}") from fault
        return cls(asyncio.subprocess.Process(transport, protocol, loop), protocol.ended)

    async def ended(self) -> int:
        """Its exit code; 128 and the number of the signal that ended it, as shells say it."""
        await self._ended.wait()
        code = self._process.returncode or 0
        return code if code >= 0 else 128 - code

    def signal(self, number: int) -> None:
        """Send a signal to the agent and everything that it started and that did not leave its group."""
        if not self._over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def kill(self) -> None:
        """End what is left of the group, once: its number may soon be another's."""
        self.signal(signal.SIGKILL)
        self._over = True


class Bridge:
    """Carries lines both ways until one side ends."""

    def __init__(
        self,
        talk: Talk,
        agent: Agent,
        client: tuple[Readable, Writable],
        questions: Questions,
        say: Callable[[str], None],
    ) -> None:
        self._talk, self._agent, self._questions, self._say = talk, agent, questions, say
        self._client_in, self._client_out = client
        self._writing = False

    async def run(self) -> int:
        """Carry lines until the agent has ended; return its exit code. Nothing of it is left running."""
        down = asyncio.create_task(self._from_agent())
        up = asyncio.create_task(self._from_client())
        ended = asyncio.create_task(self._agent.ended())
        try:
            with signalled() as stop:
                first: set[asyncio.Future[Any]] = {down, up, ended, stop}
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
                await self._questions.farewell("the agent's client or the agent ended", answered=not ended.done())
                self._agent.input.close()
                if stop.done():
                    self._agent.signal(stop.result())
                await self._until_ended(ended)
                self._agent.kill()  # what it started, and left behind
                await self._last_words(down, stop)
        finally:
            self._agent.kill()
            for pump in (down, up):
                pump.cancel()
            await asyncio.wait({down, up})
        for pump in (down, up):
            if not pump.cancelled() and (fault := pump.exception()) is not None:
                raise fault
        return ended.result()

    async def _from_agent(self) -> None:
        async for line in lines_of(self._agent.output, "agent"):
            for part in await self._for_client(line):
                if not await self._to_client(part):
                    return

    async def _for_client(self, line: bytes) -> list[bytes]:
        """What of a line of the agent goes on: all of it, but for the questions in it."""
        crowd = crowd_of(line)
        if not crowd:
            return [line] if await self._passes(self._talk.from_agent(line)) else []
        left = [part for part in crowd if await self._passes(in_crowd(self._talk.from_agent(part)))]
        return left if len(left) < len(crowd) else [line]

    async def _passes(self, heard: FromAgent) -> bool:
        match heard:
            case Passed():
                return True
            case Asked() as asked:
                return not await self._questions.put(asked)
            case Over() as over:
                await self._questions.end(over)
                return over.passed

    async def _to_client(self, line: bytes) -> bool:
        self._writing = True
        try:
            await self._client_out.write(line)
        except OSError:  # the client is gone
            return False
        finally:
            self._writing = False
        return True

    async def _from_client(self) -> None:
        async for line in lines_of(self._client_in, "client"):
            if self._questions.any_open and not is_plain(line):
                # The agent might find an answer in it that nobody in the room gave.
                self._say("a line of the client was dropped: it is not one message, and a question is open")
                continue
            match self._talk.from_client(line):
                case Replied(key=key) if self._questions.has(key):
                    continue
                case Over() as over:
                    await self._questions.end(over)
                case Passed() | Replied():
                    pass
            try:
                await self._agent.input.write(line)
            except OSError:  # the agent reads no more; its end says the rest
                return

    async def _until_ended(self, ended: asyncio.Task[int]) -> None:
        for harder in (signal.SIGTERM, signal.SIGKILL):
            await asyncio.wait({ended}, timeout=GRACE_S)
            if ended.done():
                return
            self._agent.signal(harder)
        await ended

    async def _last_words(self, down: asyncio.Task[None], stop: asyncio.Future[int]) -> None:
        """Wait until the client has everything, but not on a pipe that something outside the group holds open."""
        either: set[asyncio.Future[Any]] = {down, stop}
        while not down.done() and not stop.done():
            await asyncio.wait(either, timeout=DRAIN_S, return_when=asyncio.FIRST_COMPLETED)
            if not self._writing:
                return


def in_crowd(heard: FromAgent) -> FromAgent:
    """What is heard on a line that is not one message: a question there might reach the client as well, or not us."""
    return replace(heard, fault=NOT_ALONE) if isinstance(heard, Asked) else heard


async def lines_of(source: Readable, who: str) -> AsyncIterator[bytes]:
    """The lines of one side. Raises `Stopped` where one of them is too long to be read."""
    try:
        async for line in lines(source):
            yield line
    except LineTooLong as fault:
        raise Stopped(ExitCode.NO_ANSWER, f"the {who} cannot be followed: {fault}") from fault
