"""Whatever is forgotten, nothing that is open, or still has to be said, goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import EventId, RequestId
from agentpod_bot.core.model import OPEN, Vote
from tests.unit.store.examples import (
    LAPTOP,
    OWNER,
    ROOM,
    T0,
    audit_line,
    effect,
    ended,
    insert_pending,
    migrated_engine,
    question,
    undone,
)

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Tx

HOUR = 3_600_000


@dataclass(frozen=True)
class Life:
    """How one question fares: all times in hours after T0."""

    asked: int
    lasted: int | None
    """None: it is open still."""
    posted: bool
    unsent: bool
    """Whether something about it is still to be said."""


LIVES = st.builds(
    Life,
    asked=st.integers(0, 48),
    lasted=st.none() | st.integers(0, 48),
    posted=st.booleans(),
    unsent=st.booleans(),
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("pruning"))


def lived(tx: Tx, number: int, life: Life) -> Question:
    """Store a question with everything that hangs on it."""
    asked_ms = T0 + life.asked * HOUR
    times: dict[str, Any] = {"created_at_ms": asked_ms, "expires_at_ms": asked_ms + 100 * HOUR}
    stored = insert_pending(tx, number, **times) if life.posted else tx.insert(question(number, **times))
    row = stored.row
    tx.audit(audit_line(row=row, at_ms=asked_ms))
    option_id = stored.asked.options[0].option_id
    vote = Vote(
        sender=OWNER, option_id=option_id, event_id=EventId(f"$v{number}"), ts=asked_ms, at_ms=asked_ms, room_id=ROOM
    )
    tx.vote(row, vote)
    tx.enqueue(effect("question", row=row, not_before_ms=asked_ms))
    if not life.unsent:
        begun = tx.unsent(row, ROOM, "question")
        assert begun is not None
        tx.sent(begun.effect_id, EventId(f"$sent{number}"), asked_ms)
    if life.lasted is not None:
        at_ms = asked_ms + life.lasted * HOUR
        assert tx.close(row, ended(at_ms=at_ms), from_status=OPEN, revision=1, now_ms=at_ms)
    found = tx.question(row)
    assert found is not None
    return found


@settings(deadline=None, max_examples=60)
@given(st.lists(LIVES, min_size=1, max_size=12), st.lists(st.integers(-1, 120), min_size=1, max_size=3))
def test_pruning_never_touches_what_is_open_or_has_still_to_be_said(
    engine: Engine, lives: list[Life], bounds: list[int]
) -> None:
    with undone(engine) as tx:
        questions = [lived(tx, number, life) for number, life in enumerate(lives, 1)]
        before = {stored.row: (list(tx.audited(stored.row)), tx.votes(stored.row)) for stored in questions}
        forgotten = sum(tx.prune(T0 + bound * HOUR) for bound in bounds)
        kept = 0
        for stored, life in zip(questions, lives, strict=True):
            over_ms = None if life.lasted is None else T0 + (life.asked + life.lasted) * HOUR
            goes = over_ms is not None and over_ms < T0 + max(bounds) * HOUR and not life.unsent
            now = tx.question(stored.row)
            kept += now is not None
            if goes:
                assert now is None
                assert (list(tx.audited(stored.row)), tx.votes(stored.row)) == (before[stored.row][0], ())
            else:
                assert now == stored
                assert (list(tx.audited(stored.row)), tx.votes(stored.row)) == before[stored.row]
                assert (tx.unsent(stored.row, ROOM, "question") is not None) == life.unsent
        assert forgotten == len(lives) - kept
        assert {open_now.row for open_now in tx.open_questions()} == {
            stored.row for stored, life in zip(questions, lives, strict=True) if life.lasted is None
        }


def test_a_request_id_that_was_forgotten_is_free_again(engine: Engine) -> None:
    with undone(engine) as tx:
        lived(tx, 1, Life(asked=0, lasted=1, posted=True, unsent=False))
        assert tx.prune(T0 + 2 * HOUR) == 1
        assert tx.current(LAPTOP, RequestId("acps_3f0c:1")) is None
        assert tx.newest_seen(ROOM) is None
        insert_pending(tx, 1)
