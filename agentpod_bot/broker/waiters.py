"""Calls that wait for a question to close, and the moment in which they are answered."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentpod_bot.errors import ShuttingDown, TooManyWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agentpod_bot.core.ids import ClientName, RoomId, Row
    from agentpod_bot.core.model import Question

KEPT = 4_096
"""Questions closed last: between a caller's reading one and its waiting for it, far fewer close."""


class Waiters:
    """Who waits for which question. Nothing here survives a restart, and nothing needs to."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Row, set[asyncio.Future[Question]]] = defaultdict(set)
        self._of_client: Counter[ClientName] = Counter()
        self._answering: Counter[Row] = Counter()
        self._settled: dict[Row, asyncio.Event] = {}
        self._rooms: dict[Row, RoomId] = {}
        self._closed: OrderedDict[Row, Question] = OrderedDict()
        self._stopping = False
        self._farewells: list[Callable[[], None]] = []

    @property
    def stopping(self) -> bool:
        """Whether the daemon is going down: nothing waits any more."""
        return self._stopping

    def open_waits(self) -> int:
        """How many calls wait now."""
        return self._of_client.total()

    def check(self, client: ClientName, *, limit: int) -> None:
        """Raise what `place` would raise now."""
        if self._stopping:
            raise ShuttingDown(None)
        if self._of_client[client] >= limit:
            raise TooManyWaits(f"this token already holds {limit} waiting calls")

    @contextmanager
    def counted(self, client: ClientName, *, limit: int) -> Iterator[None]:
        """Count a call that waits for no one question. Raises `TooManyWaits`, `ShuttingDown`."""
        self.check(client, limit=limit)
        self._of_client[client] += 1
        try:
            yield
        finally:
            self._of_client[client] -= 1

    def at_stop(self, farewell: Callable[[], None]) -> None:
        """Have this called when every wait is to end."""
        self._farewells.append(farewell)

    @contextmanager
    def place(self, row: Row, client: ClientName, *, limit: int) -> Iterator[asyncio.Future[Question]]:
        """Hold one place in the queue of `row`; the future brings the closed question.

        A question that was open when its caller read it, and closed since, is there at once.
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
        if (closed := self._closed.get(row)) is not None:
            self._give(future, closed)
        try:
            yield future
        finally:
            self._of_client[client] -= 1
            self._leave(row, future)

    def release(self, question: Question) -> None:
        """Give the closed question to every call that waits for it."""
        row = question.row
        self._closed[row] = question
        if len(self._closed) > KEPT:
            self._closed.popitem(last=False)
        for future in self._waiting.get(row, ()):
            self._give(future, question)

    def is_being_answered(self, row: Row) -> bool:
        """Whether a released call of this question is being answered now; may be asked from any thread."""
        return row in self._answering

    def being_answered(self, room_id: RoomId) -> tuple[Row, ...]:
        """Questions of a room of which a released call is being answered now."""
        return tuple(row for row in self._answering if self._rooms[row] == room_id)

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
        for farewell in self._farewells:
            farewell()

    def _give(self, future: asyncio.Future[Question], question: Question) -> None:
        if not future.done():
            future.set_result(question)
            self._answering[question.row] += 1
            self._rooms[question.row] = question.asked.room_id
            self._settled.setdefault(question.row, asyncio.Event())

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
                del self._answering[row], self._rooms[row]
                self._settled.pop(row).set()
