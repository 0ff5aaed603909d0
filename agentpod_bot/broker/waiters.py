"""Calls that wait for a question to close, and the moment in which they are answered."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentpod_bot.errors import ShuttingDown, TooManyWaits

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentpod_bot.core.ids import ClientName, Row
    from agentpod_bot.core.model import Question


class Waiters:
    """Who waits for which question. Nothing here survives a restart, and nothing needs to."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Row, set[asyncio.Future[Question]]] = defaultdict(set)
        self._of_client: Counter[ClientName] = Counter()
        self._answering: Counter[Row] = Counter()
        self._settled: dict[Row, asyncio.Event] = {}
        self._stopping = False

    @property
    def stopping(self) -> bool:
        """Whether the daemon is going down: nothing waits any more."""
        return self._stopping

    def open_waits(self) -> int:
        """How many calls wait now."""
        return self._of_client.total()

    @contextmanager
    def place(self, row: Row, client: ClientName, *, limit: int) -> Iterator[asyncio.Future[Question]]:
        """Hold one place in the queue of `row`; the future brings the closed question.

        The place is held until the body ends, so that `settled` knows when every call that
        was released has been answered. Raises `TooManyWaits`, `ShuttingDown`.
        """
        if self._stopping:
            raise ShuttingDown(row)
        if self._of_client[client] >= limit:
            raise TooManyWaits(f"this token already holds {limit} waiting calls")
        future: asyncio.Future[Question] = asyncio.get_running_loop().create_future()
        self._of_client[client] += 1
        self._waiting[row].add(future)
        try:
            yield future
        finally:
            self._of_client[client] -= 1
            self._leave(row, future)

    def release(self, question: Question) -> None:
        """Give the closed question to every call that waits for it."""
        row = question.row
        for future in self._waiting.get(row, ()):
            if not future.done():
                future.set_result(question)
                self._answering[row] += 1
                self._settled.setdefault(row, asyncio.Event())

    async def settled(self, row: Row, *, up_to_s: float) -> None:
        """Return once every released call of `row` was answered or has gone, or after `up_to_s`."""
        event = self._settled.get(row)
        if event is not None:
            try:
                async with asyncio.timeout(up_to_s):
                    await event.wait()
            except TimeoutError:
                return  # a caller that reads slowly must not hold the room's edit back

    def stop(self) -> None:
        """End every wait with `ShuttingDown`; the questions stay open."""
        self._stopping = True
        for row, futures in self._waiting.items():
            for future in futures:
                if not future.done():
                    future.set_exception(ShuttingDown(row))

    def _leave(self, row: Row, future: asyncio.Future[Question]) -> None:
        futures = self._waiting[row]
        futures.discard(future)
        if not futures:
            del self._waiting[row]
        if not future.done():
            future.cancel()
        elif not future.cancelled() and future.exception() is None:
            self._answering[row] -= 1
            if self._answering[row] == 0:
                del self._answering[row]
                self._settled.pop(row).set()
