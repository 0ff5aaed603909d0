"""The store against a model of it: what decides, and in which order things are said."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentpod_bot.core.ids import EventId, RoomId, Row
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import OPEN, Closing, Outcome, Status
from tests.unit.store.examples import (
    OTHER_ROOM,
    ROOM,
    T0,
    effect,
    ended,
    migrated_engine,
    question,
    rows,
    selected,
    undone,
)

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

SETTINGS = settings(
    max_examples=20,
    stateful_step_count=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate, Phase.shrink],  # explaining a failure takes longer than a test may
)
times = st.integers(0, 6).map(lambda step: T0 + step)
rooms = st.sampled_from([ROOM, OTHER_ROOM])


@dataclass(frozen=True)
class Asked:
    expires_at_ms: int
    status: Status = Status.QUEUED
    closing: Closing | None = None


@dataclass(frozen=True)
class Queued:
    row: Row | None
    room_id: RoomId
    name: str
    priority: Priority
    not_before_ms: int
    attempts: int = 0
    state: str = "unsent"


class Model(RuleBasedStateMachine):
    """Random works, each compared with what a dictionary would say."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.transaction = undone(engine)
        self.tx = self.transaction.__enter__()
        self.asked: dict[Row, Asked] = {}
        self.queued: dict[int, Queued] = {}

    def teardown(self) -> None:
        self.transaction.__exit__(None, None, None)

    asked_rows = Bundle("asked_rows")

    @rule(target=asked_rows, expires_at_ms=times)
    def ask(self, expires_at_ms: int) -> Row:
        stored = self.tx.insert(question(len(self.asked) + 1, expires_at_ms=expires_at_ms))
        self.asked[stored.row] = Asked(expires_at_ms)
        return stored.row

    @rule(row=asked_rows)
    def post(self, row: Row) -> None:
        was_queued = self.asked[row].status is Status.QUEUED
        assert self.tx.post(row, EventId(f"$q{row}")) is was_queued
        if was_queued:
            self.asked[row] = replace(self.asked[row], status=Status.PENDING)

    @rule(
        row=asked_rows,
        outcome=st.sampled_from(Outcome),
        from_status=st.sampled_from([OPEN, OPEN, frozenset(Status), frozenset({Status.QUEUED})]),
        revision=st.sampled_from([1, 1, 1, 2]),
        now_ms=times,
    )
    def close(self, row: Row, outcome: Outcome, from_status: frozenset[Status], revision: int, now_ms: int) -> None:
        before = self.asked[row]
        closing = selected(now_ms) if outcome is Outcome.SELECTED else ended(outcome, now_ms)
        wins = revision == 1 and before.status in OPEN & from_status
        if outcome is Outcome.SELECTED:
            wins = wins and before.status is Status.PENDING and now_ms < before.expires_at_ms
        assert self.tx.close(row, closing, from_status=from_status, revision=revision, now_ms=now_ms) is wins
        if wins:
            self.asked[row] = replace(before, status=outcome.status, closing=closing)

    @invariant()
    def every_question_is_as_the_model_says_and_open_exactly_until_it_is_closed(self) -> None:
        for row, asked in self.asked.items():
            stored = self.tx.question(row)
            assert stored is not None
            assert (stored.status, stored.closing) == (asked.status, asked.closing)
        still_open = [row for row, asked in self.asked.items() if asked.closing is None]
        assert rows(self.tx.open_questions()) == still_open
        assert self.tx.next_deadline() == min((self.asked[row].expires_at_ms for row in still_open), default=None)

    @rule(
        row=st.one_of(st.none(), asked_rows),
        room_id=rooms,
        name=st.sampled_from(["question", "outcome", "hint"]),
        priority=st.sampled_from(Priority),
        not_before_ms=times,
    )
    def enqueue(self, row: Row | None, room_id: RoomId, name: str, priority: Priority, not_before_ms: int) -> None:
        if row is None and name == "question":
            return
        room_id = room_id if row is None else ROOM
        same = [
            old
            for old in self.queued.values()
            if (old.row, old.name) == (row, name) and (row is not None or old.room_id == room_id)
        ]
        new = effect(
            name,
            row=row,
            room_id=room_id,
            priority=priority,
            not_before_ms=not_before_ms,
            txn=f"t{len(self.queued)}" if not same else "again",
        )
        assert self.tx.enqueue(new) is (not same)
        if not same:
            stored = self.tx.effect_of_txn(new.txn_id)
            assert stored is not None
            self.queued[stored.effect_id] = Queued(row, room_id, name, priority, not_before_ms)

    def unsent(self) -> dict[int, Queued]:
        return {effect_id: old for effect_id, old in self.queued.items() if old.state == "unsent"}

    def free(self) -> dict[int, Queued]:
        """Those that do not wait for their own question."""
        unsent = self.unsent()
        waiting = {old.row for old in unsent.values() if old.name == "question"}
        return {
            effect_id: old
            for effect_id, old in unsent.items()
            if old.row is None or old.name == "question" or old.row not in waiting
        }

    @rule(room_id=rooms, now_ms=times, then=st.sampled_from(["crash", "sent", "abandoned", "postponed"]), later=times)
    def say(self, room_id: RoomId, now_ms: int, then: str, later: int) -> None:
        due = {
            effect_id: old
            for effect_id, old in self.free().items()
            if old.room_id == room_id and old.not_before_ms <= now_ms
        }
        begun = self.tx.begin(room_id, now_ms)
        if begun is None:
            assert not due
            return
        effect_id = min(due, key=lambda effect_id: (due[effect_id].priority, effect_id))
        tried = replace(due[effect_id], attempts=due[effect_id].attempts + 1)
        assert (begun.effect_id, begun.attempts) == (effect_id, tried.attempts)
        self.queued[effect_id] = tried
        match then:
            case "sent":
                self.tx.sent(effect_id, EventId(f"$e{effect_id}"), now_ms)
                self.queued[effect_id] = replace(tried, state=then)
            case "abandoned":
                self.tx.abandon(effect_id, "why")
                self.queued[effect_id] = replace(tried, state=then)
            case "postponed":
                self.tx.postpone(effect_id, later)
                self.queued[effect_id] = replace(tried, not_before_ms=later)

    @rule(row=asked_rows, name=st.sampled_from(["question", "outcome"]))
    def drop(self, row: Row, name: str) -> None:
        untried = [
            effect_id for effect_id, old in self.unsent().items() if (old.row, old.name, old.attempts) == (row, name, 0)
        ]
        assert self.tx.drop_unsent(row, ROOM, name) is bool(untried)
        for effect_id in untried:
            self.queued[effect_id] = replace(self.queued[effect_id], state="dropped", name="dropped")

    @invariant()
    def rooms_are_due_when_something_of_theirs_can_be_said(self) -> None:
        due: dict[RoomId, int] = {}
        for old in self.free().values():
            due[old.room_id] = min(due.get(old.room_id, old.not_before_ms), old.not_before_ms)
        assert self.tx.rooms_due() == due


@pytest.mark.hypothesis
def test_the_store_decides_and_orders_as_a_simple_model_does(tmp_path: Path) -> None:
    engine = migrated_engine(tmp_path)
    run_state_machine_as_test(lambda: Model(engine), settings=SETTINGS)
