from __future__ import annotations

import asyncio
import os
import select
import socket
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.proxy.signals import deserted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TURNS = 20
"""Turns of the event loop: what looks every 0 seconds has looked several times then."""
NEVER_S = 3_600.0


class Ends:
    """Both ends of what a hook writes its answer to."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer

    def close_reader(self) -> None:
        os.close(self.reader)
        self.reader = -1


@contextmanager
def ends(kind: str) -> Iterator[Ends]:
    if kind == "pipe":
        both = Ends(*os.pipe())
    else:
        one, other = socket.socketpair()
        both = Ends(one.detach(), other.detach())
    try:
        yield both
    finally:
        os.close(both.writer)
        if both.reader >= 0:
            both.close_reader()


def stop_writing(reader: int) -> None:
    """Close the other direction of a socket, as a reader does who has nothing to say."""
    with socket.socket(fileno=os.dup(reader)) as half:
        half.shutdown(socket.SHUT_WR)


def fill(writer: int) -> None:
    """Write until nothing more is taken."""
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writer, b"x" * 4_096)


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


KINDS = pytest.mark.parametrize("kind", ["pipe", "socket"])


@KINDS
async def test_an_output_is_deserted_once_its_reader_is_gone(kind: str) -> None:
    with ends(kind) as both, deserted(both.writer, every_s=0) as gone:
        await turns()
        assert not gone.done()
        both.close_reader()
        await asyncio.wait_for(gone, 20)


@KINDS
async def test_an_output_that_was_deserted_before_is_so_at_once(kind: str) -> None:
    with ends(kind) as both:
        both.close_reader()
        with deserted(both.writer, every_s=NEVER_S) as gone:
            assert gone.done()


@KINDS
async def test_an_output_that_is_full_is_not_deserted(kind: str) -> None:
    with ends(kind) as both, deserted(both.writer, every_s=0) as gone:
        fill(both.writer)
        await turns()
        assert not gone.done()
        both.close_reader()
        await asyncio.wait_for(gone, 20)


@pytest.mark.parametrize("said", [b"", b"unasked for"])
async def test_a_reader_that_writes_or_stops_writing_is_still_there_and_is_still_looked_for(said: bytes) -> None:
    with ends("socket") as both:
        os.write(both.reader, said)
        with deserted(both.writer, every_s=0) as gone:
            stop_writing(both.reader)
            await turns()
            assert not gone.done()
            both.close_reader()
            await asyncio.wait_for(gone, 20)


async def test_another_reader_of_the_same_pipe_is_one() -> None:
    with ends("pipe") as both, deserted(both.writer, every_s=0) as gone:
        other = os.dup(both.reader)
        both.close_reader()
        await turns()
        assert not gone.done()
        os.close(other)
        await asyncio.wait_for(gone, 20)


async def test_a_file_is_never_deserted(tmp_path: Path) -> None:
    with (tmp_path / "answer").open("wb") as file, deserted(file.fileno(), every_s=0) as gone:
        await turns()
        assert not gone.done()


async def test_nowhere_is_never_deserted() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with deserted(nowhere, every_s=0) as gone:
        await turns()
        assert not gone.done()
    os.close(nowhere)


async def test_a_terminal_is_never_deserted_for_it_sends_a_signal() -> None:
    screen, terminal = os.openpty()
    with deserted(terminal, every_s=0) as gone:
        os.close(screen)
        await turns()
        assert not gone.done()
    os.close(terminal)


class Counting:
    """A poll that counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self._poll = select.poll()
        self.register = self._poll.register

    def poll(self, timeout: float) -> list[tuple[int, int]]:
        self.asked += 1
        return self._poll.poll(timeout)


async def test_nobody_looks_in_between_whatever_the_reader_does(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    monkeypatch.setattr("agentpod_bot.proxy.signals.select.poll", lambda: counting)
    with ends("socket") as both, deserted(both.writer, every_s=NEVER_S) as gone:
        os.write(both.reader, b"x")
        stop_writing(both.reader)
        await turns()
        both.close_reader()
        await turns()
        assert counting.asked == 1
        assert not gone.done()


async def test_nobody_looks_once_the_wait_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting()
    monkeypatch.setattr("agentpod_bot.proxy.signals.select.poll", lambda: counting)
    with ends("pipe") as both:
        with deserted(both.writer, every_s=0):
            await turns()
        looked = counting.asked
        assert looked > 1
        await turns()
        assert counting.asked == looked
