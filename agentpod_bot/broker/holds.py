"""Questions whose call holds them: where it drops and does not come back, nobody needs the answer any more.

Which calls are connected is known to this process alone. After a restart none is: every
such question counts as dropped, and its time runs from when the daemon is ready.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.change import After, Means, audit, change, edit_again
from agentpod_bot.broker.commit import Bell
from agentpod_bot.core.lifecycle import Cancelled
from agentpod_bot.core.model import Outcome
from agentpod_bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.core.ids import ClientName, Row
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Store, Tx

log = structlog.get_logger(__name__)

GRACE_S = 10.0
"""How long a call that dropped may take to come back."""
STOPPED_WAITING = "the agent had stopped waiting"
RETRY_S = 1.0
KEPT = 4_096
"""Allowed calls remembered until they are said to have run."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """A question whose call has dropped. `since` is monotonic, None while the daemon is not ready."""

    row: Row
    client: ClientName
    harness: str
    twin: str | None
    since: float | None


class Holds:
    """Who still holds which question."""

    def __init__(self, store: Store, means: Means, commit: Commit) -> None:
        self._store = store
        self._means = means
        self._commit = commit
        self._calls: Counter[Row] = Counter()
        self._expected: Counter[Row] = Counter()
        self._gate = threading.Lock()  # what is expected is known to the store's thread and to the loop
        self._dropped: dict[Row, Dropped] = {}
        self._allowed: OrderedDict[Row, Question] = OrderedDict()
        self._bell = Bell()
        self._ready = False

    def expect(self, row: Row) -> None:
        """A call is about to wait for this question; may be said from the store's thread, in its transaction."""
        with self._gate:
            self._expected[row] += 1

    def expect_no_more(self, row: Row) -> None:
        """That call does not come: its transaction failed, and the row may be given to another question."""
        with self._gate:
            self._expected[row] -= 1
            self._expected += Counter()  # drops what is not above zero

    def attach(self, question: Question) -> None:
        """A call waits for this question."""
        self._calls[question.row] += 1
        self.expect_no_more(question.row)
        self._dropped.pop(question.row, None)

    def detach(self, question: Question, *, answered: bool) -> None:
        """That call is over; `answered` where its harness was told how the question ended."""
        row = question.row
        self._calls[row] -= 1
        if self._calls[row] > 0:
            return
        del self._calls[row]
        if not answered and question.asked.hold is not None:
            self._drop(question)

    def allowed(self, question: Question) -> None:
        """The harness was told that it may go on, so that this call will run."""
        self._allowed[question.row] = question
        if len(self._allowed) > KEPT:
            self._allowed.popitem(last=False)

    def use_up(self, fits: Callable[[Question], bool], *, every: bool) -> bool:
        """Whether a call that ran was one that had been allowed: then it says nothing about one that is open.

        With `every`, all that fit are forgotten: their session goes on without them.
        """
        for row in [row for row, question in self._allowed.items() if fits(question)]:
            del self._allowed[row]
            if not every:
                return True
        return False

    def claim(self, client: ClientName, harness: str, twin: str) -> Dropped | None:
        """Take the oldest dropped question that asked the same; it counts as dropped no longer."""
        for dropped in self._dropped.values():
            if (dropped.client, dropped.harness, dropped.twin) == (client, harness, twin):
                return self._dropped.pop(dropped.row)
        return None

    def give_back(self, dropped: Dropped) -> None:
        """What was claimed was not joined after all."""
        if dropped.row not in self._calls:
            self._dropped.setdefault(dropped.row, dropped)
            self._bell.ring()

    async def recover(self) -> None:
        """Learn, at the start, of the questions that calls of an earlier run held. Raises `StoreUnavailable`."""
        for question in await self._store.run(lambda tx: tx.held()):
            if question.row not in self._calls:
                self._drop(question)

    async def run(self) -> None:
        """From readiness on, let go of what nobody came back for, until cancelled."""
        self._ready = True
        now = self._means.clock.monotonic()
        self._dropped = {row: replace(dropped, since=now) for row, dropped in self._dropped.items()}
        while True:
            try:
                next_s = await self.lapse()
            except StoreUnavailable as error:
                log.warning("holds_wait_for_the_store", error=str(error))
                await self._means.clock.sleep(RETRY_S)
                continue
            await self._bell.heard(up_to_s=next_s)

    async def lapse(self) -> float | None:
        """Let go of every question whose time is over; returns the seconds to the next one, if there is one."""
        now = self._means.clock.monotonic()
        for dropped in [each for each in self._dropped.values() if _lapses(each) <= now]:
            await self._let_go(dropped)
        lapses = min((_lapses(dropped) for dropped in self._dropped.values()), default=float("inf"))
        return None if lapses == float("inf") else max(0.0, lapses - now)

    def _drop(self, question: Question) -> None:
        asked = question.asked
        self._dropped[question.row] = Dropped(
            row=question.row,
            client=question.key.client,
            harness=asked.harness,
            twin=None if asked.hold is None else asked.hold.twin,
            since=self._means.clock.monotonic() if self._ready else None,
        )
        self._bell.ring()

    async def _let_go(self, dropped: Dropped) -> None:
        def work(tx: Tx, after: After) -> None:
            with self._gate:
                comes_back = dropped.row in self._expected
            if comes_back or dropped.row in self._calls:
                return  # it came back while this was waiting for its turn
            question = tx.question(dropped.row)
            if question is None or question.delivered_at_ms is not None or question.gave_up:
                return
            if question.is_open:
                self._give_up(tx, question)  # the outcome is rendered later, and says so
                change(tx, question, Cancelled(STOPPED_WAITING), after, self._means)
            elif question.closing is not None and question.closing.outcome is Outcome.SELECTED:
                self._give_up(tx, question)
                edit_again(tx, question, after, self._means)

        await self._commit(work)
        if self._dropped.get(dropped.row) is dropped:
            del self._dropped[dropped.row]

    def _give_up(self, tx: Tx, question: Question) -> None:
        tx.give_up(question.row)
        audit(tx, question, "gave_up", self._means.clock.now_ms())


def _lapses(dropped: Dropped) -> float:
    return float("inf") if dropped.since is None else dropped.since + GRACE_S
