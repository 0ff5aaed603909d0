"""Which question an answer is for. The numbers in brackets are those of the stories that began it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.answer import Selected
from agentpod_bot.core.ids import Code, EventId, RoomId, RouteName
from agentpod_bot.core.judge import judge_reacted, judge_said
from agentpod_bot.core.model import Meaning, Option, Outcome, Question, Status, Via
from agentpod_bot.core.policy import Reactions
from agentpod_bot.core.room import Foreign, Names, Reacted, Structured
from agentpod_bot.core.scene import (
    Accept,
    AskWhich,
    Hint,
    Ignore,
    Late,
    ListOpen,
    NamesLost,
    NamesOther,
    NamesQuestion,
    NotApprover,
    NotKnown,
    Refuse,
    RejectSeveral,
    Scene,
    Verdict,
)
from agentpod_bot.core.structured import judge_structured
from tests.examples import (
    AGENT,
    FOUR,
    MALLORY,
    MINUTE,
    OPS,
    OPS_ROUTE,
    OWNER,
    POD,
    POLICY,
    REJECT,
    ROOM,
    ROUTE,
    SECOND,
    START,
    closed,
    question,
    said,
    scene,
)

R1 = question(1, code="K7")
R2 = question(2, code="M3")


def accepted(verdict: Verdict) -> tuple[Question, int]:
    assert isinstance(verdict, Accept)
    return verdict.question, verdict.selected.option.position


def foreign(**changes: Any) -> Foreign:
    other = Foreign(
        event_id=EventId("$foreign"),
        room_id=OPS,
        sender=AGENT,
        code=Code("X9"),
        shown_ts=START - MINUTE,
        expires_at_ms=START + 20 * MINUTE,
        closed_ts=None,
    )
    return replace(other, **changes)


def test_a_lone_bare_number_after_a_lone_question_decides_it() -> None:
    assert accepted(judge_said(said("1"), scene(R1))) == (R1, 1)


def test_a_reply_decides_the_question_that_it_names_and_never_the_oldest() -> None:
    here = scene(R1, R2, named=NamesQuestion(R2))
    assert accepted(judge_said(said("3", names=Names(reply_to=EventId("$question2"))), here)) == (R2, 3)


def test_two_open_questions_and_a_bare_answer_decide_nothing_and_are_asked_about() -> None:
    for text in ("1", "Allow once", "3: no", "7", "1 but only for tests"):
        assert judge_said(said(text), scene(R1, R2)) == AskWhich(), text


def test_talk_between_two_open_questions_is_left_alone() -> None:
    assert judge_said(said("see you at 2"), scene(R1, R2)) == Ignore()


def test_a_code_says_which_of_two_is_meant() -> None:
    assert accepted(judge_said(said("2 m3"), scene(R1, R2))) == (R2, 2)
    verdict = judge_said(said("K7 reject: too early"), scene(R1, R2))
    assert accepted(verdict) == (R1, 3)
    assert isinstance(verdict, Accept)
    assert verdict.selected.comment == "too early"


@pytest.mark.parametrize(
    "text", ["1: only the tests", "Always allow:x", "1 K7: only the tests", "K7 Allow once\nfor now"]
)
def test_a_reason_behind_what_approves_decides_nothing_and_its_writer_is_told_that(text: str) -> None:
    for here in (scene(R1), scene(R1, named=NamesQuestion(R1))):
        assert judge_said(said(text), here) == Hint(R1, reasoned=True)


@pytest.mark.parametrize("text", ["9: only the tests", "1 but only the tests", "K7 M3 1: x"])
def test_any_other_try_is_told_the_options_alone(text: str) -> None:
    assert judge_said(said(text), scene(R1, named=NamesQuestion(R1))) == Hint(R1)


def test_two_codes_decide_nothing() -> None:
    """No answer ever approves several at once."""
    for text in ("K7 1 M3", "1 K7 M3"):
        assert not isinstance(judge_said(said(text), scene(R1, R2)), Accept), text


def test_a_code_that_contradicts_the_named_question_decides_nothing() -> None:
    assert judge_said(said("1 K7"), scene(R1, R2, named=NamesQuestion(R2))) == Hint(R2)
    assert accepted(judge_said(said("1 M3"), scene(R1, R2, named=NamesQuestion(R2)))) == (R2, 1)


def test_the_code_of_a_closed_question_is_late() -> None:
    gone = closed(code="M3", at_ms=START - MINUTE)
    here = scene(R1, spent={Code("M3"): gone})
    assert judge_said(said("1 M3"), here) == Late(gone)


def test_another_accounts_code_is_that_accounts_business() -> None:
    assert judge_said(said("1 X9"), scene(R1, foreign=(foreign(),))) == Ignore()


def test_a_code_that_two_accounts_use_needs_the_event_named() -> None:
    here = scene(R1, foreign=(foreign(code=Code("K7")),))
    assert judge_said(said("1 K7"), here) == AskWhich()
    assert accepted(judge_said(said("1 K7"), replace(here, named=NamesQuestion(R1)))) == (R1, 1)


# Case 6


def test_6a_a_bare_answer_soon_after_another_question_expired_is_asked_about() -> None:
    expired = closed(at_ms=START - 3_000, shown_closed_ts=START - 2_900)
    assert judge_said(said("1", at=START + 1_000), scene(R2, recent=(expired,))) == AskWhich()
    assert judge_said(said("1", at=START + 27_100), scene(R2, recent=(expired,))) == AskWhich()
    assert accepted(judge_said(said("1", at=START + 27_200), scene(R2, recent=(expired,)))) == (R2, 1)


def test_6b_who_closed_the_other_question_may_answer_the_next_after_two_seconds() -> None:
    mine = closed(at_ms=START - 100, by=OWNER)
    assert accepted(judge_said(said("1", at=START + 4_000), scene(R2, recent=(mine,)))) == (R2, 1)
    assert judge_said(said("1", at=START + 1_999), scene(R2, recent=(mine,))) == AskWhich()
    assert accepted(judge_said(said("1", at=START + 2_000), scene(R2, recent=(mine,)))) == (R2, 1)


def test_6b_somebody_elses_answer_keeps_the_half_minute() -> None:
    theirs = closed(at_ms=START - 100, by=SECOND, shown_closed_ts=START)
    assert judge_said(said("1", at=START + 4_000), scene(R2, recent=(theirs,))) == AskWhich()


def test_6c_an_answer_from_before_the_question_was_shown_never_answers_it() -> None:
    unseen = question(2, code="M3", status=Status.PENDING, shown_ts=None)
    expired = closed(at_ms=START)
    assert judge_said(said("1", at=START - MINUTE), scene(unseen, recent=(expired,))) == Late(expired)
    assert judge_said(said("1", at=START - 1), scene(R2)) == AskWhich()


def test_6d_an_answer_to_an_expired_question_is_late_whatever_else_is_open() -> None:
    expired = closed(at_ms=START - MINUTE)
    for names in (Names(reply_to=EventId("$question9")), Names(thread=EventId("$question9"))):
        assert judge_said(said("1", names=names), scene(R2, named=NamesQuestion(expired))) == Late(expired)


def test_6e_a_number_as_a_reply_to_somebodys_chat_is_nothing() -> None:
    names = Names(reply_to=EventId("$chat"))
    assert judge_said(said("1", names=names), scene(R1, named=NamesOther(ours=False))) == Ignore()
    assert accepted(judge_said(said("1 K7", names=names), scene(R1, named=NamesOther(ours=False)))) == (R1, 1)


def test_6f_a_question_of_another_account_makes_a_bare_answer_ambiguous() -> None:
    assert judge_said(said("1"), scene(R1, foreign=(foreign(),))) == AskWhich()
    ended = foreign(closed_ts=START - MINUTE)
    assert accepted(judge_said(said("1"), scene(R1, foreign=(ended,)))) == (R1, 1)
    lapsed = foreign(expires_at_ms=START - MINUTE)
    assert accepted(judge_said(said("1"), scene(R1, foreign=(lapsed,)))) == (R1, 1)


def test_6g_a_reply_to_the_notice_that_lists_two_is_asked_again() -> None:
    names = Names(reply_to=EventId("$which"))
    assert judge_said(said("1", names=names), scene(R1, R2, named=NamesOther(ours=True))) == AskWhich()
    assert judge_said(said("thanks", names=names), scene(R1, R2, named=NamesOther(ours=True))) == Ignore()


def test_6h_a_bare_answer_just_after_the_only_question_expired_is_told_so() -> None:
    expired = closed(at_ms=START)
    assert judge_said(said("1", at=START + 4_000), scene(recent=(expired,))) == Late(expired)
    assert judge_said(said("1", at=START + 11 * MINUTE), scene(recent=(expired,))) == Ignore()
    assert judge_said(said("hello", at=START + 4_000), scene(recent=(expired,))) == Ignore()


def test_a_bare_answer_with_only_another_accounts_question_open_is_not_ours() -> None:
    assert judge_said(said("1"), scene(recent=(closed(at_ms=START),), foreign=(foreign(),))) == Ignore()


def test_a_question_whose_end_the_room_does_not_show_yet_counts_as_open_until_it_says_it_expires() -> None:
    unshown = closed(at_ms=START - MINUTE, outcome=Outcome.CANCELLED, expires_at_ms=START + 10 * MINUTE)
    assert judge_said(said("1"), scene(R1, recent=(unshown,))) == AskWhich()
    shown = replace(unshown, shown_closed_ts=START - MINUTE)
    assert accepted(judge_said(said("1"), scene(R1, recent=(shown,)))) == (R1, 1)


def test_an_earlier_revision_is_another_question() -> None:
    old = closed(1, at_ms=START - 1_000, outcome=Outcome.SUPERSEDED, shown_closed_ts=START - 900)
    assert judge_said(said("1"), scene(R2, recent=(old,))) == AskWhich()


# Who


@pytest.mark.parametrize("text", ["1", "Allow once", "reject_once"])
def test_somebody_who_may_not_answer_is_told_so_and_decides_nothing(text: str) -> None:
    assert judge_said(said(text, MALLORY), scene(R1)) == NotApprover(R1)
    assert judge_said(said(text, MALLORY), scene(R1, named=NamesQuestion(R1))) == NotApprover(R1)
    assert judge_said(said(f"{text} K7", MALLORY), scene(R1, R2)) == NotApprover(R1)


def test_talk_of_others_is_left_alone() -> None:
    assert judge_said(said("1 beer please", MALLORY), scene(R1)) == Ignore()
    assert judge_said(said("what is this?", MALLORY), scene(R1)) == Ignore()


def test_an_approver_who_is_not_in_the_room_decides_nothing() -> None:
    empty = replace(ROOM, joined=frozenset({POD, SECOND}))
    assert judge_said(said("1"), scene(R1, room=empty)) == NotApprover(R1)


@pytest.mark.parametrize("sender", [POD, AGENT])
def test_bots_are_never_heard_even_as_approvers(sender: Any) -> None:
    route = replace(OPS_ROUTE, approvers=OPS_ROUTE.approvers | {sender})
    policy = replace(POLICY, routes={ROUTE: route})
    room = replace(ROOM, joined=ROOM.joined | {sender})
    for body in ("1", "!open"):
        assert judge_said(said(body, sender), scene(R1, policy=policy, room=room)) == Ignore()


def test_where_it_is_not_known_whether_a_room_is_encrypted_nothing_answers() -> None:
    room = replace(ROOM, encrypted=None)
    assert judge_said(said("1"), scene(R1, room=room)) == Ignore()
    assert judge_reacted(reaction("1\u20e3"), scene(R1, room=room, named=NamesQuestion(R1))) == Ignore()
    assert judge_structured(structured(R1), scene(R1, room=room)) == Ignore()


@pytest.mark.parametrize("sender", ["@0wner:hs.example", "@Owner:hs.example", "@owner:hs.example ", "owner"])
def test_only_the_exact_id_is_an_approver(sender: Any) -> None:
    room = replace(ROOM, joined=ROOM.joined | {sender})
    assert judge_said(said("1", sender), scene(R1, room=room)) == NotApprover(R1)


def test_a_question_of_a_route_that_is_gone_or_moved_has_no_approver() -> None:
    orphan = question(1, route="gone")
    assert judge_said(said("1"), scene(orphan)) == NotApprover(orphan)
    moved = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, room_id=RoomId("!new"))})
    assert judge_said(said("1", names=Names()), scene(R1, policy=moved, named=NamesQuestion(R1))) == NotApprover(R1)


def test_two_routes_in_one_room_have_their_own_approvers() -> None:
    other = replace(OPS_ROUTE, name=RouteName("prod"), approvers=frozenset({SECOND}))
    policy = replace(POLICY, routes={ROUTE: OPS_ROUTE, other.name: other})
    prod = question(2, code="M3", route="prod")
    assert judge_said(said("1 M3"), scene(R1, prod, policy=policy)) == NotApprover(prod)
    assert accepted(judge_said(said("1 M3", SECOND), scene(R1, prod, policy=policy))) == (prod, 1)


# Text


def test_a_try_that_matches_nothing_gets_a_hint() -> None:
    assert judge_said(said("yes"), scene(R1)) == Ignore()
    assert judge_said(said("yes", names=Names(reply_to=EventId("$q"))), scene(R1, named=NamesQuestion(R1))) == Hint(R1)
    for text in ("7", "allow", "1 but only for tests", "yes K7", "0"):
        assert judge_said(said(text), scene(R1)) == Hint(R1), text


def test_a_replys_quotation_is_no_answer_and_an_own_line_is_no_quotation() -> None:
    names = Names(reply_to=EventId("$question1"))
    quoted = "> <@pod:hs.example> Permission needed\n> 1. Allow once\n\n2"
    assert accepted(judge_said(said(quoted, names=names), scene(R1, named=NamesQuestion(R1)))) == (R1, 2)
    assert not isinstance(judge_said(said("> 1\n\n2"), scene(R1)), Accept)


def test_what_is_open_is_listed_for_approvers_only() -> None:
    assert judge_said(said("!open"), scene(R1, R2)) == ListOpen()
    assert judge_said(said("!open", MALLORY), scene(R1)) == Ignore()
    assert (
        judge_said(said("!open", names=Names(reply_to=EventId("$x"))), scene(named=NamesOther(ours=False)))
        == ListOpen()
    )


def test_a_label_that_holds_another_questions_code_is_asked_about() -> None:
    deploy = Option(FOUR[0].option_id, "Deploy M3", Meaning.CHOOSE, None)
    choice = question(1, code="K7", options=(deploy, replace(REJECT, meaning=Meaning.CHOOSE, scope=None)))
    assert not isinstance(judge_said(said("Deploy M3"), scene(choice, R2)), Accept)


# Reactions


def reaction(key: str, sender: Any = OWNER) -> Reacted:
    return Reacted(event_id=EventId("$reaction"), sender=sender, ts=START + 1, target=EventId("$question1"), key=key)


def test_a_keycap_on_the_question_decides_it() -> None:
    verdict = judge_reacted(reaction("3\ufe0f\u20e3"), scene(R1, R2, named=NamesQuestion(R1)))
    assert accepted(verdict) == (R1, 3)
    assert isinstance(verdict, Accept)
    assert verdict.selected.via is Via.REACTION


def test_other_reactions_do_nothing() -> None:
    for key in ("👍", "✅", "5\u20e3", "1"):
        assert judge_reacted(reaction(key), scene(R1, named=NamesQuestion(R1))) == Ignore()
    assert judge_reacted(reaction("1\u20e3"), scene(R1, named=NamesOther(ours=True))) == Ignore()


def test_a_keycap_by_somebody_else_or_too_late_decides_nothing() -> None:
    assert judge_reacted(reaction("1\u20e3", MALLORY), scene(R1, named=NamesQuestion(R1))) == NotApprover(R1)
    gone = closed(at_ms=START)
    assert judge_reacted(reaction("1\u20e3"), scene(R1, named=NamesQuestion(gone))) == Late(gone)


def test_a_route_without_reactions_does_not_heed_them() -> None:
    policy = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, reactions=Reactions.OFF)})
    assert judge_reacted(reaction("1\u20e3"), scene(R1, named=NamesQuestion(R1), policy=policy)) == Ignore()


# Structured answers


def structured(about: Question, sender: Any = OWNER, **changes: Any) -> Structured:
    fields = {
        "suite_event_type": "dev.agentpod.permission.answer.v2",
        "schema_version": 1,
        "request_id": about.key.request_id,
        "option_id": "allow_once",
        "msgtype": "m.text",
        "body": "Reject",
    }
    fields = {name: value for name, value in (fields | changes).items() if value is not ...}
    return Structured(event_id=EventId("$structured"), sender=sender, ts=START + 1, fields=fields)


def test_a_structured_answer_decides_by_its_ids_and_never_by_its_body() -> None:
    verdict = judge_structured(structured(R2), scene(R1, R2))
    assert accepted(verdict) == (R2, 1)
    assert judge_structured(structured(R2, option_id=...), scene(R2)) == Refuse(R2, "option_id is missing")


@pytest.mark.parametrize(
    "changes",
    [
        {"schema_version": 2},
        {"schema_version": True},
        {"schema_version": ...},
        {"option_id": "other"},
        {"option_id": ["allow_once"]},
        {"comment": 3},
        {"session_id": "another"},
        {"request_seq": 99},
        {"request_seq": True},
        {"code": "M3"},
        {"subject": {"digest": "c0ffee"}},
        {"subject": {"revision": 2}},
        {"subject": {"revision": True}},
        {"subject": {"revision": 1.0}},
        {"subject": {"id": "another", "revision": 1}},
        {"subject": {}},
        {"subject": None},
    ],
)
def test_one_disagreement_refuses_a_structured_answer(changes: dict[str, Any]) -> None:
    assert isinstance(judge_structured(structured(R1, **changes), scene(R1)), Refuse)


def test_a_structured_answer_that_agrees_in_everything_decides() -> None:
    agreed = {
        "subject": {"id": R1.key.request_id, "digest": R1.asked.digest, "revision": 1},
        "session_id": R1.asked.session_id,
        "request_seq": R1.asked.request_seq,
        "code": "K7",
        "comment": " why not ",
    }
    verdict = judge_structured(structured(R1, **agreed), scene(R1, named=NamesQuestion(R1)))
    assert isinstance(verdict, Accept)
    assert verdict.selected == Selected(R1.asked.offered[0], Via.STRUCTURED, "why not")


def test_from_the_second_revision_on_the_subject_must_be_there() -> None:
    second = question(1, revision=2)
    assert isinstance(judge_structured(structured(second), scene(second)), Refuse)
    assert accepted(judge_structured(structured(second, subject={"revision": 2}), scene(second))) == (second, 1)


def test_two_clients_requests_of_one_id_need_the_event_named() -> None:
    mine, theirs = question(1, request_id="same"), question(2, code="M3", client="ci", request_id="same")
    assert isinstance(judge_structured(structured(mine), scene(mine, theirs)), Refuse)
    named = scene(mine, theirs, named=NamesQuestion(theirs))
    assert accepted(judge_structured(structured(theirs), named)) == (theirs, 1)


def test_a_structured_answer_to_another_event_than_its_request_is_refused() -> None:
    assert isinstance(judge_structured(structured(R1), scene(R1, R2, named=NamesQuestion(R2))), Refuse)


def test_a_structured_answer_to_something_unknown_is_left_alone() -> None:
    assert judge_structured(structured(R2), scene(R1)) == Ignore()
    theirs = replace(structured(R1), names=Names(reference=EventId("$foreign")))
    assert judge_structured(theirs, scene(R1, foreign=(foreign(),), named=NamesOther(ours=False))) == Ignore()


def test_a_structured_answer_with_our_request_id_that_refers_to_another_event_is_refused() -> None:
    elsewhere = replace(structured(R1), names=Names(reference=EventId("$elsewhere")))
    assert isinstance(judge_structured(elsewhere, scene(R1, named=NamesOther(ours=False))), Refuse)


def test_a_structured_answer_to_a_closed_request_is_late_and_to_an_open_one_by_others_refused() -> None:
    gone = closed(9, at_ms=START)
    assert judge_structured(structured(gone), scene(R1, recent=(gone,))) == Late(gone)
    assert judge_structured(structured(R1, MALLORY), scene(R1)) == NotApprover(R1)


# What the store lost


LOST = foreign(sender=POD)


@pytest.mark.parametrize("text", ["1", "1 K7", "yes", "X9 1"])
def test_whatever_replies_to_a_question_that_was_lost_decides_nothing_and_is_told_that(text: str) -> None:
    here = scene(R1, foreign=(LOST,), named=NamesLost(LOST))
    assert judge_said(said(text, names=Names(reply_to=LOST.event_id)), here) == NotKnown(LOST)
    assert judge_said(said(text, MALLORY, names=Names(reply_to=LOST.event_id)), here) == Ignore()
    assert judge_structured(structured(R1), here) == NotKnown(LOST)


def test_a_keycap_on_a_question_that_was_lost_is_told_that_and_any_other_reaction_is_not() -> None:
    here = scene(R1, named=NamesLost(LOST))
    assert judge_reacted(reaction("9\ufe0f\u20e3"), here) == NotKnown(LOST)
    assert judge_reacted(reaction("9\ufe0f\u20e3", MALLORY), here) == Ignore()
    assert judge_reacted(reaction("👍"), here) == Ignore()


def test_the_code_of_a_question_that_was_lost_is_told_that_unless_another_accounts_question_has_it_too() -> None:
    assert judge_said(said("1 X9"), scene(R1, foreign=(LOST,))) == NotKnown(LOST)
    assert judge_said(said("1 X9", MALLORY), scene(R1, foreign=(LOST,))) == Ignore()
    theirs = foreign(event_id=EventId("$theirs"))
    assert judge_said(said("1 X9"), scene(R1, foreign=(LOST, theirs))) == Ignore()


def test_a_bare_number_where_nothing_is_open_but_what_was_lost_is_told_that() -> None:
    assert judge_said(said("1"), scene(foreign=(LOST,))) == NotKnown(LOST)
    assert judge_said(said("thanks"), scene(foreign=(LOST,))) == Ignore()
    assert judge_said(said("1"), scene(foreign=(LOST, foreign(event_id=EventId("$theirs"))))) == Ignore()
    assert judge_said(said("1"), scene(R1, foreign=(LOST,))) == AskWhich()


# Everything


BODIES = st.sampled_from(
    ["1", "2", "3: no", "Allow once", "K7 1", "1 M3", "M3 reject", "yes", "!open", "hello", "7", ""]
)
SENDERS = st.sampled_from([OWNER, SECOND, MALLORY, AGENT, POD])
NAMED = st.sampled_from(
    [
        None,
        NamesQuestion(R1),
        NamesQuestion(R2),
        NamesOther(ours=True),
        NamesOther(ours=False),
        NamesLost(foreign(sender=POD)),
    ]
)


@given(BODIES, SENDERS, NAMED, st.integers(-MINUTE, 40 * MINUTE), st.lists(st.sampled_from([R1, R2]), unique=True))
def test_only_an_approver_and_only_an_open_question_is_ever_accepted(
    body: str, sender: Any, named: Any, offset: int, open_now: list[Question]
) -> None:
    here: Scene = scene(*open_now, named=named, recent=(closed(at_ms=START - 5_000),))
    verdict = judge_said(said(body, sender, at=START + offset), here)
    if isinstance(verdict, Accept):
        assert sender in {OWNER, SECOND}
        assert verdict.question.is_open
        assert not isinstance(named, NamesLost)
        assert named is None or verdict.question == getattr(named, "question", verdict.question)
        assert len(open_now) == 1 or named is not None or verdict.question.asked.code in body


@pytest.mark.parametrize("text", ["1 K7", "K7 1", "!reject K7"])
@pytest.mark.parametrize("open_twice", [True, False])
def test_a_code_that_two_questions_of_ours_have_decides_neither(text: str, *, open_twice: bool) -> None:
    one, other = question(1, code="K7"), question(2, code="K7")
    gone = closed(3, at_ms=START, code="K7")
    room = scene(one, other) if open_twice else scene(one, spent={Code("K7"): gone})
    verdict = judge_said(said(text, at=START + 3_600_000), room)
    match verdict:
        case RejectSeveral(rejected=rejected):
            assert rejected == ()
        case _:
            assert isinstance(verdict, AskWhich)
    named = replace(room, named=NamesQuestion(one))
    assert isinstance(judge_said(said("1"), named), Accept)
