"""Attacks on the reading of an answer: what a malicious agent, a room member or a late event could make of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentpod_bot.core.answer import LONGEST_COMMENT, Selected, match_text, readings
from agentpod_bot.core.ids import Code, EventId, OptionId
from agentpod_bot.core.judge import judge_said
from agentpod_bot.core.model import Closing, Meaning, Option, Outcome, Scope, Status
from agentpod_bot.core.room import Foreign, Names, Said, Structured
from agentpod_bot.core.scene import Accept, AskWhich, Hint, Ignore, NamesQuestion, Refuse
from agentpod_bot.core.structured import judge_structured
from agentpod_bot.matrix.events import parse
from tests.examples import (
    ALLOW,
    MALLORY,
    MINUTE,
    OPS,
    OWNER,
    POD,
    REJECT,
    START,
    closed,
    offered,
    question,
    said,
    scene,
)

DAY = 24 * 60 * MINUTE
R1 = question(1, code="K7")
R2 = question(2, code="M3")
TO_R1 = Names(reply_to=EventId("$question1"))


def approving(label: str, option_id: str = "x") -> Option:
    return Option(OptionId(option_id), label, Meaning.APPROVE, Scope.ALWAYS)


def rejecting(label: str, option_id: str = "r") -> Option:
    return Option(OptionId(option_id), label, Meaning.REJECT, Scope.ONCE)


def foreign(code: str, *, expires_at_ms: int) -> Foreign:
    return Foreign(
        event_id=EventId("$foreign"),
        room_id=OPS,
        sender=MALLORY,
        code=Code(code),
        shown_ts=START - 10 * DAY,
        expires_at_ms=expires_at_ms,
        closed_ts=None,
    )


def structured(request_id: object, *, at: int = START + 1, **changes: Any) -> Structured:
    fields = {
        "suite_event_type": "dev.agentpod.permission.answer.v2",
        "schema_version": 1,
        "request_id": request_id,
        "option_id": "allow_once",
        "msgtype": "m.text",
        "body": "Allow once",
    }
    return Structured(event_id=EventId("$structured"), sender=OWNER, ts=at, fields=fields | changes)


# Allowing what nobody allowed


@pytest.mark.parametrize(
    ("options", "body"),
    [
        ((approving("3: wait"), ALLOW, REJECT), "3: wait"),
        ((approving("3\nlater"), ALLOW, REJECT), "3\nlater"),
        ((rejecting("Ablehnen"), approving("Ablehnen: jetzt warten")), "Ablehnen: jetzt warten"),
    ],
)
def test_a_refusal_with_its_reason_never_approves_the_option_whose_label_copies_it(
    options: tuple[Option, ...], body: str
) -> None:
    verdict = judge_said(said(body), scene(question(1, options=options)))
    assert not isinstance(verdict, Accept) or verdict.selected.option.option.meaning is Meaning.REJECT


@pytest.mark.parametrize(
    "label",
    [
        *("Rejected", "denied", "Declined", "refused", "Cancelled", "canceled", "Disapprove", "Veto", "N"),
        *("option 3", "3 please", "3x", "三", "#3 then", "3 K7!"),
    ],
)
def test_a_label_that_one_who_refuses_would_type_never_approves_by_being_typed(label: str) -> None:
    match = match_text(label, offered(approving(label), ALLOW, REJECT))
    assert not isinstance(match, Selected) or match.option.option.meaning is Meaning.REJECT


def test_a_label_that_is_another_options_label_but_for_signs_never_approves_by_being_typed() -> None:
    match = match_text("Ablehnen!", offered(rejecting("Ablehnen"), approving("Ablehnen!")))
    assert not isinstance(match, Selected) or match.option.option.meaning is Meaning.REJECT


def test_a_code_in_a_message_that_is_days_older_than_the_question_means_an_earlier_question() -> None:
    """A code is given again after a day; a message can be under way between servers for longer."""
    assert not isinstance(judge_said(said("1 K7", at=START - 3 * DAY), scene(R1)), Accept)


def test_a_structured_answer_to_a_closed_request_never_answers_another_clients_open_one_of_that_id() -> None:
    gone = closed(9, at_ms=START - 1_000, outcome=Outcome.CANCELLED)
    trap = question(2, code="M3", client="ci", request_id=str(gone.key.request_id))
    verdict = judge_structured(structured(gone.key.request_id), scene(trap, recent=(gone,)))
    assert not isinstance(verdict, Accept)


def test_a_structured_answer_that_is_older_than_the_question_and_names_no_event_decides_nothing() -> None:
    """An id is free again once its request was forgotten."""
    verdict = judge_structured(structured(R1.key.request_id, at=START - 8 * DAY), scene(R1))
    assert not isinstance(verdict, Accept)


def test_a_question_that_is_not_in_the_room_yet_cannot_be_answered_by_code_or_request_id() -> None:
    """The notice that lists what is open gives its code away before anybody can have read it."""
    for unseen in (question(1, status=Status.QUEUED), question(1, shown_ts=None)):
        assert not isinstance(judge_said(said("1 K7"), scene(unseen)), Accept)
        assert not isinstance(judge_structured(structured(unseen.key.request_id), scene(unseen)), Accept)


def test_a_label_that_holds_another_questions_code_is_asked_about_also_just_after_its_question_closed() -> None:
    """The agent cancels the one whose printed label is being typed."""
    bait = question(2, code="M3", options=(ALLOW, rejecting("1 K7")))
    assert judge_said(said("1 K7"), scene(R1, bait)) == AskWhich()
    gone = replace(bait, status=Status.CANCELLED, closing=Closing(Outcome.CANCELLED, at_ms=START + 4_900))
    assert not isinstance(judge_said(said("1 K7"), scene(R1, recent=(gone,))), Accept)


def test_a_structured_answer_that_replies_to_one_question_and_refers_to_another_is_refused() -> None:
    answer = replace(
        structured(R1.key.request_id),
        names=Names(reply_to=EventId("$question1"), reference=EventId("$question2")),
    )
    assert isinstance(judge_structured(answer, scene(R1, R2, named=NamesQuestion(R1))), Refuse)


@pytest.mark.parametrize("relation", [{"event_id": "$chat"}, {"rel_type": None, "event_id": "$chat"}])
def test_a_relation_without_a_type_still_names_its_event(relation: dict[str, Any]) -> None:
    event = {
        "event_id": "$e",
        "sender": OWNER,
        "origin_server_ts": START,
        "type": "m.room.message",
        "content": {"msgtype": "m.text", "body": "1", "m.relates_to": relation},
    }
    read = parse(event, own=POD)
    assert isinstance(read, Said)
    assert read.names.named is not None


# Losing an answer


@pytest.mark.parametrize("sign", ["\n", ":"])
def test_a_message_of_nothing_but_cuts_is_read_in_little_memory(sign: str) -> None:
    """One message of any room member must not need gigabytes, again at each start: 60,000 cuts would hold 3.6 GB."""
    body = "a" + sign * 16_000 + "a"
    held = sum(len(reading.text) + len(reading.comment or "") for reading in readings(body, frozenset()))
    assert held < 5_000_000


@pytest.mark.parametrize(
    ("code", "body", "position"), [("1", "1", 1), ("REJECT", "Reject", 3), ("ALLOW", "Allow once", 1)]
)
def test_a_room_member_cannot_make_an_answering_word_a_code(code: str, body: str, position: int) -> None:
    content = {"msgtype": "m.text", "body": "x", "suite_event_type": "dev.agentpod.permission.v2", "code": code}
    event = {"event_id": "$e", "sender": MALLORY, "origin_server_ts": START, "type": "m.room.message"}
    read = parse(event | {"content": content}, own=POD)
    fake = foreign(code, expires_at_ms=START - 5 * DAY)
    fake = replace(fake, code=getattr(read, "code", None))
    verdict = judge_said(said(body, names=TO_R1), scene(R1, foreign=(fake,), named=NamesQuestion(R1)))
    assert isinstance(verdict, Accept)
    assert verdict.selected.option.position == position


def test_the_code_of_another_accounts_question_that_ended_days_ago_stands_in_nobodys_way() -> None:
    verdict = judge_said(said("1 K7"), scene(R1, R2, foreign=(foreign("K7", expires_at_ms=START - 3 * DAY),)))
    assert isinstance(verdict, Accept)


def test_a_reason_that_ends_with_what_was_a_code_once_is_a_reason() -> None:
    """A code stands directly before or after the number; this one stands in the reason."""
    spent = {Code("A4"): closed(9, at_ms=START - 60 * MINUTE, code="A4")}
    bare = judge_said(said("3: print on A4"), scene(R1, spent=spent))
    reply = judge_said(said("3: print on A4", names=TO_R1), scene(R1, spent=spent, named=NamesQuestion(R1)))
    for verdict in (bare, reply):
        assert isinstance(verdict, Accept)
        assert verdict.selected.option.option == REJECT
        assert verdict.selected.comment == "print on A4"


def test_a_structured_reason_is_bounded_and_cleaned_like_any_other() -> None:
    verdict = judge_structured(
        structured(R1.key.request_id, option_id="reject_once", comment="a\0b\ud800" + "x" * 20_000), scene(R1)
    )
    assert isinstance(verdict, Accept)
    assert len(verdict.selected.comment or "") <= LONGEST_COMMENT
    assert (verdict.selected.comment or "").startswith("ab?")


# Silence where a reason is owed


@pytest.mark.parametrize("body", ["K7: 1", "K7, 1", "(K7) 1", "1 (K7)", "K7:1", "K7 - 1"])
def test_a_try_whose_code_has_a_sign_beside_it_is_not_met_with_silence(body: str) -> None:
    assert judge_said(said(body), scene(R1)) in (Hint(R1), AskWhich())
    assert judge_said(said(body), scene(R1, R2)) != Ignore()
