"""Signs that a command is to stop."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOOK_S = 1.0
"""How often it is looked whether somebody still reads."""


@contextmanager
def signalled() -> Iterator[asyncio.Future[int]]:
    """A future that the first signal to stop fills with its number. Ignored signals stay ignored."""
    loop = asyncio.get_running_loop()
    stop: asyncio.Future[int] = loop.create_future()

    def note(number: int) -> None:
        if not stop.done():
            stop.set_result(number)

    heeded = [each for each in SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    for each in heeded:
        loop.add_signal_handler(each, note, int(each))
    try:
        yield stop
    finally:
        for each in heeded:
            loop.remove_signal_handler(each)


@contextmanager
def deserted(output: int, *, every_s: float = LOOK_S) -> Iterator[asyncio.Future[None]]:
    """A future that is done once nobody is left to read what is written to this pipe or socket.

    A harness that is killed sends no signal to what it started. Of a file or a terminal
    nothing is told: it is never done.
    """
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    ends = select.poll()
    ends.register(output, select.POLLOUT)  # not every system tells of an end to whoever asks for nothing
    timer: asyncio.TimerHandle | None = None

    def look() -> None:
        # Looked at now and then: an end that only stopped writing would be reported again and again.
        nonlocal timer
        if any(state & (select.POLLERR | select.POLLHUP) for _, state in ends.poll(0)):
            gone.set_result(None)
        else:
            timer = loop.call_later(every_s, look)

    mode = os.fstat(output).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        look()
    try:
        yield gone
    finally:
        if timer is not None:
            timer.cancel()
