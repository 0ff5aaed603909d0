"""One transaction, and what follows its commit: waiting calls get their answer, the outbox hears of work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog

from agentpod_bot.broker.change import After

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agentpod_bot.broker.streams import Streams
    from agentpod_bot.broker.waiters import Waiters
    from agentpod_bot.core.ids import RoomId
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Meter, Store, T, Tx

log = structlog.get_logger(__name__)


LATER_S = 0.02


class Bell:
    """Tells a loop that there is work; rings that come while it is busy are kept."""

    def __init__(self) -> None:
        self._rooms: set[RoomId] = set()
        self._rung = asyncio.Event()

    def ring(self, rooms: Iterable[RoomId] = ()) -> None:
        """Wake the loop; `rooms` have new work."""
        self._rooms.update(rooms)
        self._rung.set()

    async def heard(self, *, up_to_s: float | None) -> frozenset[RoomId]:
        """Wait for a ring, or for `up_to_s`, and return the rooms rung for since the last call."""
        try:
            async with asyncio.timeout(up_to_s):
                await self._rung.wait()
        except TimeoutError:
            pass  # nobody rang: the caller looks by the clock
        self._rung.clear()
        rooms = frozenset(self._rooms)
        self._rooms.clear()
        return rooms


class Commit:
    """Runs transactions; what one leaves to do is done after its commit and never before."""

    def __init__(
        self,
        store: Store,
        waiters: Waiters,
        bell: Bell,
        meter: Meter,
        streams: Streams,
        *,
        call_back: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._call_back = call_back
        self._waiters = waiters
        self._bell = bell
        self._meter = meter
        self._streams = streams
        self._running: set[asyncio.Task[Any]] = set()

    async def __call__(self, work: Callable[[Tx, After], T]) -> T:
        """Run `work` in a transaction, then what it wrote into its `After`; returns what it returned.

        A caller that is cancelled meanwhile (its client hung up) does not keep others from
        being told: what was handed over is committed and followed up all the same.
        """
        task = asyncio.create_task(self._run(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def settled(self) -> None:
        """Return once nothing is under way or left to tell; the failures of each have gone to its caller."""
        await asyncio.gather(*self._running, return_exceptions=True)
        await asyncio.sleep(2 * LATER_S)

    async def _run(self, work: Callable[[Tx, After], T]) -> T:
        after = After()
        result = await self._store.run(lambda tx: work(tx, after))
        self._follow(after)
        return result

    def _follow(self, after: After) -> None:
        for question in after.closed:
            self._waiters.release(question)
        if after.rooms:
            self._bell.ring(after.rooms)
        self._streams.ring(after.clients)
        if after.calls_back and self._call_back is not None:
            self._call_back()
        if after.closed or after.refused or after.unread:  # counted and logged a moment later, for somebody waits
            asyncio.get_running_loop().call_later(LATER_S, self._tell, after)

    def _tell(self, after: After) -> None:
        for question in after.closed:
            self._meter.closed(question)
            _log_closed(question)
        for why in after.refused:
            self._meter.answer_refused(why)
        if after.unread:
            self._meter.unread(after.unread)


def _log_closed(question: Question) -> None:
    closing = question.closing
    if closing is None:
        return
    log.info(
        "permission_request_closed",
        request_id=question.key.request_id,
        client=question.key.client,
        outcome=closing.outcome.value,
        meaning=closing.option.option.meaning.value if closing.option else None,
        via=closing.via.value if closing.via else None,
        sender=closing.answered_by,
        latency_ms=closing.at_ms - question.asked.created_at_ms,
    )
