from __future__ import annotations

import pytest

from agentpod_bot.core.model import Closing, Outcome, Status
from agentpod_bot.harness.reasons import EXPIRED, end_of, unasked
from tests.examples import ALLOW, FOUR, OWNER, REJECT, START, offered, question

OTHERS = [outcome for outcome in Outcome if outcome is not Outcome.SELECTED]
CHOOSING = offered(*FOUR)


def closed(outcome: Outcome, **said: object) -> Closing:
    """How a question ended."""
    return Closing(outcome, at_ms=START, **said)  # type: ignore[arg-type]  # the tests name real fields


def reason(closing: Closing) -> str:
    """What a harness is told of it."""
    return end_of(question(status=closing.outcome.status, closing=closing)).reason


def test_a_decision_names_the_person_and_what_they_chose() -> None:
    closing = closed(Outcome.SELECTED, option=CHOOSING[0], answered_by=OWNER)
    end = end_of(question(status=Status.DECIDED, closing=closing))
    assert end.reason == f"{OWNER} allowed this in Matrix."
    assert (end.outcome, end.option, end.by, end.comment) == (Outcome.SELECTED, ALLOW, OWNER, None)
    assert end.approves
    assert not end.unavailable


def test_a_rejection_carries_the_reason_that_the_person_gave() -> None:
    closing = closed(Outcome.SELECTED, option=CHOOSING[2], answered_by=OWNER, comment="use staging")
    end = end_of(question(status=Status.DECIDED, closing=closing))
    assert end.reason == f"{OWNER} refused this in Matrix: use staging"
    assert (end.option, end.comment) == (REJECT, "use staging")
    assert end.rejects


@pytest.mark.parametrize("outcome", OTHERS)
def test_no_other_end_says_that_somebody_refused_or_allowed(outcome: Outcome) -> None:
    said = reason(closed(outcome, reason="M_FORBIDDEN"))
    assert "othing was allowed" in said
    assert str(OWNER) not in said
    assert "refused" not in said.replace("Nobody refused", "")


@pytest.mark.parametrize("outcome", OTHERS)
def test_each_end_is_told_apart(outcome: Outcome) -> None:
    assert len({reason(closed(other)) for other in OTHERS}) == len(OTHERS)
    end = end_of(question(status=outcome.status, closing=closed(outcome)))
    assert (end.outcome, end.option) == (outcome, None)


@pytest.mark.parametrize("outcome", [Outcome.CANCELLED, Outcome.UNDELIVERABLE])
def test_an_end_says_why_where_that_is_known(outcome: Outcome) -> None:
    assert "(M_FORBIDDEN)" in reason(closed(outcome, reason="M_FORBIDDEN"))
    assert "no reason given" in reason(closed(outcome))


def test_silence_is_no_refusal() -> None:
    assert reason(closed(Outcome.EXPIRED)) == EXPIRED
    assert "Nobody answered" in EXPIRED


def test_an_open_question_has_no_end() -> None:
    with pytest.raises(ValueError, match="open"):
        end_of(question())


def test_a_decision_without_an_option_is_none() -> None:
    with pytest.raises(ValueError, match="option"):
        reason(closed(Outcome.SELECTED, answered_by=OWNER))


@pytest.mark.parametrize("unavailable", [False, True])
def test_a_call_that_was_not_asked_says_so(unavailable: bool) -> None:
    end = unasked("Matrix cannot be reached", unavailable=unavailable)
    assert end.reason == "Nobody was asked, and nothing was allowed: Matrix cannot be reached."
    assert end.outcome is None
    assert end.hands_back is unavailable
