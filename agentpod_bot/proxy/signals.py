"""Signals that ask a command to stop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
