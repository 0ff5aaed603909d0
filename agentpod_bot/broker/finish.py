"""What follows a commit: waiting calls get their answer, and the outbox hears of new work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.broker.change import After
    from agentpod_bot.broker.waiters import Waiters
    from agentpod_bot.core.ids import RoomId
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Meter

log = structlog.get_logger(__name__)


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


class Finish:
    """Runs what a transaction left to do, after its commit and never before."""

    def __init__(self, waiters: Waiters, bell: Bell, meter: Meter) -> None:
        self._waiters = waiters
        self._bell = bell
        self._meter = meter

    def __call__(self, after: After) -> None:
        """Release whoever waits, then wake the outbox."""
        for question in after.closed:
            self._waiters.release(question)
            self._meter.closed(question)
            _log_closed(question)
        for why in after.refused:
            self._meter.answer_refused(why)
        if after.rooms:
            self._bell.ring(after.rooms)


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
