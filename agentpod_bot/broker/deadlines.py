"""Deadlines: questions whose time is over are closed at that moment, and old ones are forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.change import After, Means, change
from agentpod_bot.broker.commit import Bell
from agentpod_bot.core.lifecycle import Lapsed
from agentpod_bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.ports import Store, Tx

log = structlog.get_logger(__name__)

LONGEST_S = 30.0
"""The wall clock may be set while we wait; so often it is looked at anyway."""
PRUNE_EVERY_MS = 3_600_000


class Deadlines:
    """One loop for every deadline. A decision checks the deadline itself and does not rely on it."""

    def __init__(self, store: Store, means: Means, commit: Commit) -> None:
        self._store = store
        self._means = means
        self._commit = commit
        self._bell = Bell()
        self._next_ms: int | None = None
        self._pruned_ms = 0

    def notice(self, deadline_ms: int) -> None:
        """A question with this deadline was stored."""
        if self._next_ms is None or deadline_ms < self._next_ms:
            self._bell.ring()

    async def expire(self) -> None:
        """Close every question whose deadline is reached, and learn the next deadline."""

        def work(tx: Tx, after: After) -> int | None:
            for question in tx.due(self._means.clock.now_ms()):
                change(tx, question, Lapsed(), after, self._means)
            return tx.next_deadline()

        self._next_ms = await self._commit(work)

    async def prune(self) -> None:
        """Forget what is older than the retention, at most once an hour."""
        now_ms = self._means.clock.now_ms()
        if now_ms - self._pruned_ms < PRUNE_EVERY_MS:
            return
        self._pruned_ms = now_ms
        retention_ms = self._means.world.policy.limits.retention_ms

        def work(tx: Tx) -> int:
            # An event that came before an open question ended must be known again while it is open.
            asked_ms = [question.asked.created_at_ms for question in tx.open_questions()]
            return tx.prune(min((now_ms - retention_ms, *asked_ms)))

        gone = await self._store.run(work)
        if gone:
            log.info("closed_requests_forgotten", count=gone)

    async def run(self) -> None:
        """Expire and prune until cancelled."""
        while True:
            try:
                await self.expire()
                await self.prune()
            except StoreUnavailable as error:
                log.warning("deadlines_wait_for_the_store", error=str(error))
                await self._means.clock.sleep(1)
                continue
            wait_s = LONGEST_S
            if self._next_ms is not None:
                wait_s = min(wait_s, max(0.0, (self._next_ms - self._means.clock.now_ms()) / 1000))
            await self._bell.heard(up_to_s=wait_s)
