from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.envelope import Receipt
from agentpod_bot.core.ids import OptionId, UserId
from agentpod_bot.core.model import Claim, Meaning, NewQuestion, Option, Outcome, Progress, Question
from agentpod_bot.core.votes import Tally
from agentpod_bot.errors import Invalid, TooLarge
from agentpod_bot.render.content import MAX_EVENT_BYTES, event_size
from agentpod_bot.render.outcome import outcome
from tests.examples import ALLOW, REJECT
from tests.unit.core.test_text import hides
from tests.unit.render.samples import ASKED, ASKED_MS, MINUTE, ended, golden, posted, selected
from tests.unit.render.test_question import LONG, LONG_TEXT, QUESTIONS, is_clean

CLAIM = Claim(option_id="allow_once", by="@owner:example.org")
STAGING = Option(OptionId("staging"), "Use staging", Meaning.CHOOSE, None)
CHOICE = replace(ASKED, options=(ALLOW, STAGING, REJECT))
EVERY_END = [
    selected(1),
    selected(2),
    selected(3),
    selected(4),
    ended(Outcome.EXPIRED, minutes=30),
    ended(Outcome.CANCELLED, reason="session_cancelled"),
    ended(Outcome.SUPERSEDED),
    ended(Outcome.ANSWERED_ELSEWHERE, claim=CLAIM),
    ended(Outcome.UNDELIVERABLE, reason="redacted"),
]


def first_line(question: Question) -> str:
    line: str = outcome(question)["m.new_content"]["body"].split("\n")[0]
    return line


def test_votes_that_were_too_few_in_time_are_told_where_it_expired_and_nowhere_else() -> None:
    expired = ended(Outcome.EXPIRED, minutes=30)
    one, two = (Tally(expired.asked.offered[at], (UserId("@owner:example.org"),), 2) for at in (0, 1))
    assert outcome(expired, [one])["m.new_content"]["body"].split("\n")[0] == (
        "Expired at 10:30 UTC with only 1 of 2 votes for Allow once by then; nothing was allowed: Run the test suite"
    )
    both = "with only 1 of 2 votes for Allow once and 1 of 2 votes for Always allow by then; nothing was allowed"
    assert both in outcome(expired, [one, two])["m.new_content"]["body"]
    for question in EVERY_END:
        if question.closing != expired.closing:
            assert outcome(question, [one]) == outcome(question)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("outcome_allowed", replace(selected(1), delivered_at_ms=ASKED_MS + 12 * MINUTE + 400)),
        ("outcome_rejected_with_reason", selected(3, comment="use the\nstaging database")),
        ("outcome_expired", ended(Outcome.EXPIRED, minutes=30)),
        ("outcome_elsewhere", ended(Outcome.ANSWERED_ELSEWHERE, claim=CLAIM)),
    ],
)
def test_an_outcome_looks_as_agreed(name: str, question: Question) -> None:
    assert outcome(question) == golden(name)


@pytest.mark.parametrize(
    ("question", "line"),
    [
        (selected(1), "Allowed once by @owner:example.org at 10:12 UTC: Run the test suite"),
        (selected(2), "Allowed always by @owner:example.org at 10:12 UTC: Run the test suite"),
        (selected(3), "Rejected by @owner:example.org at 10:12 UTC: Run the test suite"),
        (selected(4), "Rejected always by @owner:example.org at 10:12 UTC: Run the test suite"),
        (selected(2, CHOICE), "Answered by @owner:example.org at 10:12 UTC: Run the test suite"),
        (
            ended(Outcome.EXPIRED, minutes=30),
            "Expired at 10:30 UTC, no answer came in time; nothing was allowed: Run the test suite",
        ),
        (
            ended(Outcome.EXPIRED, minutes=24 * 60),
            "Expired at 2026-11-08 10:00 UTC, no answer came in time; nothing was allowed: Run the test suite",
        ),
        (
            ended(Outcome.CANCELLED, reason="x"),
            "Cancelled at 10:12 UTC, the agent no longer needs an answer; nothing was allowed: Run the test suite",
        ),
        (
            ended(Outcome.SUPERSEDED),
            "Closed at 10:12 UTC, replaced by a newer question; nothing was allowed: Run the test suite",
        ),
        (
            ended(Outcome.ANSWERED_ELSEWHERE, claim=CLAIM),
            (
                "At 10:12 UTC closed by client laptop: says it was answered there; nothing was decided here: "
                "Run the test suite"
            ),
        ),
        (
            replace(selected(1), delivered_at_ms=ASKED_MS + 13 * MINUTE),
            "Allowed once by @owner:example.org at 10:12 UTC: Run the test suite · delivered 10:13 UTC",
        ),
        (
            replace(selected(1), gave_up=True),
            "Allowed once by @owner:example.org at 10:12 UTC: Run the test suite · the agent had stopped waiting",
        ),
    ],
)
def test_the_outcome_line_says_what_happened_when_and_by_whom(question: Question, line: str) -> None:
    assert first_line(question) == line
    assert outcome(question)["body"] == f"* {line}"


@pytest.mark.parametrize("question", EVERY_END)
def test_only_a_decision_is_said_to_be_delivered(question: Question) -> None:
    heard = first_line(replace(question, delivered_at_ms=ASKED_MS + 13 * MINUTE))
    decided = question.status.value == "decided"
    assert heard == first_line(question) + (" · delivered 10:13 UTC" if decided else "")


@pytest.mark.parametrize("question", EVERY_END)
def test_an_edit_of_any_end_replaces_pings_nobody_and_carries_a_receipt(question: Question) -> None:
    edit = outcome(question)
    new = edit["m.new_content"]
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$question"}
    assert edit["m.mentions"] == new["m.mentions"] == {}
    assert new.keys() == {"msgtype", "body", "format", "formatted_body", "m.mentions"}
    receipt = Receipt.model_validate(edit)
    assert question.closing is not None
    assert receipt.outcome == question.closing.outcome.value
    assert receipt.subject.digest == question.asked.digest


@pytest.mark.parametrize("question", [end for end in EVERY_END if end.status.value != "decided"])
def test_no_end_but_a_selection_names_a_person_or_says_allowed(question: Question) -> None:
    said = str(outcome(question))
    assert "@owner" not in said
    assert "llowed" not in said.replace("nothing was allowed", "")
    assert "open until" not in said


def test_the_closed_question_still_shows_what_it_was_without_list_and_last_line() -> None:
    body = outcome(selected(1))["m.new_content"]["body"]
    assert body.split("\n")[2:] == [
        "Code K7 · client laptop · asked 10:00 UTC",
        'Calls itself "hermes", session "acps_3f0c"',
        "Tool: Run the test suite",
        "Kind: execute",
        "Command:",
        "    bun test",
        "Location: apps/hub",
    ]


def test_a_choice_and_a_label_of_the_agents_own_are_named_in_a_line_of_their_own() -> None:
    assert "\nAnswer: Use staging (other)\n" in outcome(selected(2, CHOICE))["m.new_content"]["body"]
    own = replace(ASKED, options=(replace(ALLOW, label="Weiter"), REJECT))
    assert "\nAnswer: Weiter (allows once)\n" in outcome(selected(1, own))["m.new_content"]["body"]
    assert "Answer:" not in outcome(selected(1))["m.new_content"]["body"]


def test_a_reason_stands_on_one_line() -> None:
    body = outcome(selected(3, comment="no:\n1. Allow once"))["m.new_content"]["body"]
    assert r"Reason: no:\n1. Allow once" in body.split("\n")


def test_a_question_that_was_cut_stays_cut_and_says_so() -> None:
    body = outcome(selected(1, LONG))["m.new_content"]["body"]
    assert "characters hidden" in body
    assert "not all of what the agent will do could be shown" in body


@pytest.mark.parametrize("question", [posted(), replace(ended(Outcome.EXPIRED), event_id=None)])
def test_an_open_or_unposted_question_has_no_outcome(question: Question) -> None:
    with pytest.raises(ValueError, match="posted and is closed"):
        outcome(question)


@settings(deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(QUESTIONS, LONG_TEXT, st.sampled_from(list(Outcome)))
def test_the_edit_of_every_question_that_was_asked_fits_too(asked: NewQuestion, words: str, end: Outcome) -> None:
    try:
        question = selected(1, asked, comment=words) if end is Outcome.SELECTED else ended(end, asked)
    except (TooLarge, Invalid):
        return
    edit = outcome(replace(question, progress=Progress(failure_reason=words, status=words)))
    assert event_size(edit) <= MAX_EVENT_BYTES
    new: dict[str, Any] = edit["m.new_content"]
    assert not [char for char in new["body"] if hides(char) and char not in "\n\t"]
    assert is_clean(new["formatted_body"])


def test_the_person_who_decided_is_named_by_id_alone() -> None:
    question = selected(1)
    assert question.closing is not None
    other = replace(question, closing=replace(question.closing, answered_by=UserId("@second:example.org")))
    assert "by @second:example.org at" in first_line(other)
    assert outcome(other)["decided_by"] == "@second:example.org"
