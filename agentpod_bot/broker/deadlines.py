"""What time alone does: questions are closed at their deadline, asked once more before it, and forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.change import After, Means, change
from agentpod_bot.broker.commit import Bell
from agentpod_bot.broker.escalation import due_at
from agentpod_bot.broker.unreadable import KEPT_MS
from agentpod_bot.core.lifecycle import Lapsed
from agentpod_bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.broker.escalation import Escalations
    from agentpod_bot.core.journal import Link
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Store, Tx

log = structlog.get_logger(__name__)

LONGEST_S = 30.0
"""The wall clock may be set while we wait; so often it is looked at anyway."""
PRUNE_EVERY_MS = 3_600_000
TELL_HEAD_EVERY_MS = 86_400_000


class Deadlines:
    """One loop for every deadline. A decision checks the deadline itself and does not rely on it."""

    def __init__(self, store: Store, means: Means, commit: Commit, escalations: Escalations) -> None:
        self._store = store
        self._means = means
        self._commit = commit
        self._escalations = escalations
        self._bell = Bell()
        self._next_ms: int | None = None
        self._pruned_ms = 0
        self._head_told_ms = 0

    def notice(self, question: Question) -> None:
        """A question was stored, with its deadline."""
        due_ms = due_at(self._means.world.policy, question)
        first_ms = question.asked.expires_at_ms if due_ms is None else due_ms
        if self._next_ms is None or first_ms < self._next_ms:
            self._bell.ring()

    async def expire(self) -> None:
        """Close every question whose deadline is reached, and learn the next deadline."""

        def work(tx: Tx, after: After) -> int | None:
            for question in tx.due(self._means.clock.now_ms()):
                change(tx, question, Lapsed(), after, self._means)
            return tx.next_deadline()

        self._next_ms = await self._commit(work)

    async def escalate(self) -> None:
        """Ask every question once more whose time for it has come, and learn when the next one's does."""
        due_ms = await self._escalations.look()
        if due_ms is not None:
            self._next_ms = due_ms if self._next_ms is None else min(self._next_ms, due_ms)

    async def prune(self) -> None:
        """Forget what is older than its retention, at most once an hour; once a day, tell where the audit ends."""
        now_ms = self._means.clock.now_ms()
        if now_ms - self._pruned_ms < PRUNE_EVERY_MS:
            return
        self._pruned_ms = now_ms
        limits = self._means.world.policy.limits

        def work(tx: Tx) -> tuple[int, int, Link]:
            # An event that came before an open question ended must be known again while it is open.
            asked_ms = [question.asked.created_at_ms for question in tx.open_questions()]
            gone = tx.prune(min((now_ms - limits.retention_ms, *asked_ms)))
            tx.prune_undecrypted(now_ms - KEPT_MS)
            if limits.audit_retention_ms is None:
                return gone, 0, tx.head()
            return gone, tx.prune_audit(min((now_ms - limits.audit_retention_ms, *asked_ms))), tx.head()

        gone, lines_gone, head = await self._store.run(work)
        if gone:
            log.info("closed_requests_forgotten", count=gone)
        if lines_gone:
            log.info("audit_lines_forgotten", count=lines_gone)
        if now_ms - self._head_told_ms >= TELL_HEAD_EVERY_MS:
            self._head_told_ms = now_ms
            # Kept outside, it shows later that nothing up to here was changed or taken away.
            log.info("audit_head", seq=head.seq, hash=head.hash)

    async def run(self) -> None:
        """Expire, escalate and prune until cancelled."""
        while True:
            try:
                await self.expire()
                await self.escalate()
                await self.prune()
            except StoreUnavailable as error:
                log.warning("deadlines_wait_for_the_store", error=str(error))
                await self._means.clock.sleep(1)
                continue
            wait_s = LONGEST_S
            if self._next_ms is not None:
                wait_s = min(wait_s, max(0.0, (self._next_ms - self._means.clock.now_ms()) / 1000))
            await self._bell.heard(up_to_s=wait_s)
