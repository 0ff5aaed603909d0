from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.answer import Selected
from agentpod_bot.core.ids import EventId
from agentpod_bot.core.lifecycle import (
    Answered,
    AnsweredElsewhere,
    Cancelled,
    Effect,
    Event,
    Lapsed,
    Posted,
    Superseded,
    Undelivered,
    step,
)
from agentpod_bot.core.model import Claim, Outcome, Question, Status, Via
from tests.examples import FOUR, MINUTE, OWNER, START, offered, question

PENDING = question()
QUEUED = question(status=Status.QUEUED)
END = PENDING.asked.expires_at_ms
ANSWER = Answered(Selected(PENDING.asked.offered[0], Via.NUMBER), OWNER, EventId("$answer"), START + 1)
CLOSING: list[tuple[Event, Outcome]] = [
    (Cancelled("why"), Outcome.CANCELLED),
    (Superseded(), Outcome.SUPERSEDED),
    (AnsweredElsewhere(Claim("allow_once", "@owner:hs.example")), Outcome.ANSWERED_ELSEWHERE),
    (Undelivered("M_FORBIDDEN"), Outcome.UNDELIVERABLE),
]


def test_a_posted_question_is_pending_and_may_be_offered_keycaps() -> None:
    posted, effects = step(QUEUED, Posted(EventId("$question1")), START)
    assert (posted.status, posted.event_id) == (Status.PENDING, "$question1")
    assert effects == (Effect.OFFER_KEYCAPS,)
    assert step(posted, Posted(EventId("$again")), START) == (posted, ())


def test_an_answer_decides_a_pending_question_and_releases_who_waits() -> None:
    decided, effects = step(PENDING, ANSWER, START + 2)
    assert decided.status is Status.DECIDED
    assert decided.closing is not None
    assert decided.closing.outcome is Outcome.SELECTED
    assert (decided.closing.answered_by, decided.closing.answer_ts, decided.closing.at_ms) == (
        OWNER,
        START + 1,
        START + 2,
    )
    assert effects == (Effect.RELEASE, Effect.SHOW_OUTCOME)


@pytest.mark.parametrize("now_ms", [END, END + 1, END + MINUTE])
def test_an_answer_at_or_past_the_deadline_changes_nothing(now_ms: int) -> None:
    assert step(PENDING, ANSWER, now_ms) == (PENDING, ())


def test_an_answer_to_a_question_that_is_not_in_the_room_changes_nothing() -> None:
    assert step(QUEUED, ANSWER, START + 2) == (QUEUED, ())


def test_an_answer_with_an_option_that_was_not_offered_changes_nothing() -> None:
    foreign = replace(ANSWER, selected=Selected(offered(*FOUR[2:])[0], Via.NUMBER))
    assert step(PENDING, foreign, START + 2) == (PENDING, ())


def test_a_question_lapses_at_its_deadline_and_not_before() -> None:
    for asked in (PENDING, QUEUED):
        assert step(asked, Lapsed(), END - 1) == (asked, ())
        lapsed, effects = step(asked, Lapsed(), END)
        assert lapsed.status is Status.EXPIRED
        assert effects == (Effect.RELEASE, Effect.SHOW_OUTCOME)


@pytest.mark.parametrize(("event", "outcome"), CLOSING)
def test_every_other_end_carries_no_option_and_no_person(event: Event, outcome: Outcome) -> None:
    for asked in (PENDING, QUEUED):
        ended, effects = step(asked, event, START)
        assert ended.closing is not None
        assert ended.closing.outcome is outcome
        assert ended.closing.option is None
        assert ended.closing.answered_by is None
        assert Effect.RELEASE in effects


def test_a_claim_is_kept_as_a_claim() -> None:
    ended, _ = step(PENDING, AnsweredElsewhere(Claim("allow_once", "@owner:hs.example")), START)
    assert ended.closing is not None
    assert ended.closing.claim == Claim("allow_once", "@owner:hs.example")
    assert ended.status is Status.ANSWERED_ELSEWHERE


EVENTS = st.sampled_from([ANSWER, Lapsed(), Posted(EventId("$question1")), *(event for event, _ in CLOSING)])


@given(st.lists(st.tuples(EVENTS, st.integers(START, END + MINUTE)), max_size=8))
def test_a_question_closes_at_most_once_and_is_approved_only_by_an_answer(events: list[tuple[Event, int]]) -> None:
    now: Question = QUEUED
    releases = 0
    for event, now_ms in events:
        before = now
        now, effects = step(now, event, now_ms)
        releases += Effect.RELEASE in effects
        if not before.is_open:
            assert now is before
        if now.status is Status.DECIDED and before.is_open:
            assert isinstance(event, Answered)
            assert now_ms < END
    assert releases == (0 if now.is_open else 1)
