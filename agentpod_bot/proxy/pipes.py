"""The two ends of a bridge that its client holds, and lines of any length up to a limit.

Standard input and output are read and written on threads of their own, blocking: what this
process was given may be a file, and setting a flag on a terminal or pipe would change it for
everybody who shares it, the agent's standard error among them.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

LONGEST_LINE = 32 * 2**20
CHUNK = 65_536


class LineTooLong(Exception):
    """A line is longer than a bridge can hold, so nobody can say what stands in it."""


class Readable(Protocol):
    """Where bytes come from; `asyncio.StreamReader` fits."""

    async def read(self, n: int = -1, /) -> bytes:
        """Up to `n` bytes; none at the end."""
        ...


class Writable(Protocol):
    """Where bytes go."""

    async def write(self, line: bytes) -> None:
        """Return once there is room for more. Raises `OSError` where nobody reads any longer."""
        ...


async def lines(source: Readable) -> AsyncIterator[bytes]:
    """Every line with its newline, the last one perhaps without. Raises `LineTooLong`."""
    held = bytearray()
    while chunk := await source.read(CHUNK):
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            held += part + b"\n"
            yield bytes(held)
            held.clear()
        held += rest
        if len(held) > LONGEST_LINE:
            raise LineTooLong(f"a line is longer than {LONGEST_LINE // 2**20} MiB")
    if held:
        yield bytes(held)


class _Thread:
    """Does one thing after the other on a thread that nothing has to wait for when the process ends."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._work: queue.SimpleQueue[tuple[Callable[[], bytes], asyncio.Future[bytes]]] = queue.SimpleQueue()
        threading.Thread(target=self._live, name=name, daemon=True).start()

    async def do(self, work: Callable[[], bytes]) -> bytes:
        done: asyncio.Future[bytes] = self._loop.create_future()
        self._work.put((work, done))
        return await done

    def _live(self) -> None:
        while True:
            work, done = self._work.get()
            try:
                result: bytes | OSError = work()
            except OSError as fault:
                result = fault
            try:
                self._loop.call_soon_threadsafe(_settle, done, result)
            except RuntimeError:  # the loop was closed meanwhile: nobody waits
                return


def _settle(done: asyncio.Future[bytes], result: bytes | OSError) -> None:
    if done.done():
        return
    if isinstance(result, OSError):
        done.set_exception(result)
    else:
        done.set_result(result)


class Source:
    """A file descriptor to read from; fits `Readable`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread = _Thread("bridge-input")

    async def read(self, n: int = CHUNK, /) -> bytes:
        """Up to `n` bytes, as soon as there are any; none at the end."""
        return await self._thread.do(lambda: os.read(self._descriptor, n))


class Sink:
    """A file descriptor to write to; fits `Writable`."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._thread = _Thread("bridge-output")

    async def write(self, line: bytes) -> None:
        """Write all of it. Raises `OSError` where nobody reads any longer."""
        await self._thread.do(lambda: self._whole(line))

    def _whole(self, line: bytes) -> bytes:
        left = memoryview(line)
        while left:
            left = left[os.write(self._descriptor, left) :]
        return b""


class Stream:
    """An `asyncio.StreamWriter` to write to; fits `Writable`. Lines of several writers never mix."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, line: bytes) -> None:
        """Return once there is room for more. Raises `OSError` where nobody reads any longer."""
        if self._writer.is_closing():
            raise BrokenPipeError
        self._writer.write(line)
        await self._writer.drain()

    def close(self) -> None:
        """Say that nothing more comes."""
        self._writer.close()
