"""What becomes of an effect that the homeserver did not take: it is tried again later, or never."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.change import QUESTION, After, Means, audit, change, show_again
from agentpod_bot.broker.rendered import question_of
from agentpod_bot.core.kept import Effect, Priority
from agentpod_bot.core.lifecycle import Undelivered

if TYPE_CHECKING:
    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.errors import Refused
    from agentpod_bot.ports import Meter, Store, Tx

log = structlog.get_logger(__name__)

FIRST_RETRY_MS = 500
LONGEST_RETRY_MS = 60_000
FIRST_EDIT_MS = 60_000
LONGEST_EDIT_MS = 3_600_000
MOST_EDITS = 30
"""So often, for about a day, an edit that shows a question's end is tried where the homeserver refuses it."""
ROOM_TROUBLE = frozenset({403, 404})
"""What is known of a room that answers so may be wrong."""


class FailedSends:
    """Says in the store what is tried again and when, and what never is."""

    def __init__(self, store: Store, means: Means, commit: Commit, meter: Meter) -> None:
        self._store = store
        self._means = means
        self._commit = commit
        self._meter = meter

    async def later(self, effect: Effect, wait_ms: int, kind: str, why: str, *, counted: bool = True) -> None:
        """Have it tried again after so long; `counted` says whether this try was one of those that it has."""
        self._meter.send_failed(kind, why)
        log.warning("event_postponed", kind=kind, room_id=effect.room_id, error=why, wait_ms=wait_ms)
        not_before_ms = self._means.clock.now_ms() + wait_ms
        await self._store.run(lambda tx: tx.postpone(effect.effect_id, not_before_ms, counted=counted))

    async def refused(self, effect: Effect, kind: str, error: Refused) -> None:
        """The homeserver will never take it. A question is then undeliverable, and its client is told at once."""
        self._meter.send_failed(kind, error.code)
        log.error("event_refused", kind=kind, room_id=effect.room_id, errcode=error.errcode, status=error.status)
        if error.status in ROOM_TROUBLE:
            self._means.world.forget(effect.room_id)

        def work(tx: Tx, after: After) -> None:
            if effect.priority is Priority.EDIT and effect.attempts < MOST_EDITS:
                # The room would show the question as open for good; who may send there can change.
                wait_ms = min(LONGEST_EDIT_MS, FIRST_EDIT_MS << effect.attempts - 1)
                tx.postpone(effect.effect_id, self._means.clock.now_ms() + wait_ms)
                return
            tx.abandon(effect.effect_id, error.errcode)
            question = question_of(tx, effect)
            if question is not None and question.left_at_ms is not None:
                return  # it is asked in another room now
            if effect.effect == QUESTION and question is not None and question.original is not None:
                now_ms = self._means.clock.now_ms()
                tx.withdraw_copy(question.row, now_ms)  # it stays open where it was asked first
                audit(tx, question, "copy_refused", now_ms, detail=error.errcode)
                show_again(tx, question.whole, after, self._means)  # there they hear that nobody else was asked
            elif effect.effect == QUESTION and question is not None:
                change(tx, question, Undelivered(error.errcode), after, self._means)

        await self._commit(work)

    def backoff_ms(self, attempts: int) -> int:
        """How long to wait after so many tries: exponential, with the second half left to chance.

        So rooms do not come back all at once.
        """
        full: int = min(LONGEST_RETRY_MS, FIRST_RETRY_MS << min(attempts, 10))
        half = full // 2
        return half + half * int(self._means.chance.hex(16), 16) // 0xFFFF
