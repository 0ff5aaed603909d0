"""`!reject K7 M3`: several questions rejected in one message, and never approved so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.ids import Code, EventId, OptionId, RouteName
from agentpod_bot.core.judge import judge_said
from agentpod_bot.core.model import Meaning, Option, Scope, Status, Via
from agentpod_bot.core.rejecting import rejecting_option, rejection_in
from agentpod_bot.core.room import Foreign, Names
from agentpod_bot.core.scene import (
    Accept,
    Ignore,
    Left,
    NamesOther,
    NamesQuestion,
    NotApprover,
    RejectSeveral,
    Unheard,
    WhyLeft,
    WhyUnheard,
)
from tests.examples import (
    AGENT,
    ALLOW,
    ALWAYS,
    MALLORY,
    MINUTE,
    NEVER,
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
    offered,
    question,
    said,
    scene,
)

R1 = question(1, code="K7")
R2 = question(2, code="M3")
R3 = question(3, code="Q9")
LATER = Option(OptionId("later"), "Later", Meaning.CHOOSE, None)


def rejected(verdict: object) -> list[str]:
    assert isinstance(verdict, RejectSeveral)
    for each in verdict.rejected:
        assert each.selected.option.option.meaning is Meaning.REJECT
        assert each.selected.via is Via.NAME
    return [each.question.asked.code for each in verdict.rejected]


def left(verdict: object) -> list[tuple[str, WhyLeft]]:
    assert isinstance(verdict, RejectSeveral)
    return [(each.code, each.why) for each in verdict.left]


@pytest.mark.parametrize(
    "text",
    ["!reject K7 M3", "!REJECT k7, m3", "  !reject  M3,K7 K7 ", "\uff01reject \uff2b7 m3", "!reject K7\u200b M3."],
)
def test_every_question_that_is_named_is_rejected_and_no_other(text: str) -> None:
    assert sorted(rejected(judge_said(said(text), scene(R1, R2, R3)))) == ["K7", "M3"]


@pytest.mark.parametrize(
    "text", ["!reject K7 M3: too early", "!reject K7 M3\ntoo early", "!reject K7 M3\uff1atoo early"]
)
def test_one_reason_goes_to_all(text: str) -> None:
    verdict = judge_said(said(text), scene(R1, R2))
    assert isinstance(verdict, RejectSeveral)
    assert [each.selected.comment for each in verdict.rejected] == ["too early", "too early"]


@pytest.mark.parametrize(
    "text", ["!reject", "!reject:", "!reject: K7", "!reject \n", "!reject ,", "!reject " + "K7 " * 2000]
)
def test_a_rejection_that_names_no_code_rejects_nothing_and_is_told(text: str) -> None:
    assert judge_said(said(text), scene(R1)) == RejectSeveral((), ())


@pytest.mark.parametrize(
    "text", ["!rejected K7", "!reject-K7", "please !reject K7", "!approve K7 M3", "!allow K7", "!1 K7"]
)
def test_nothing_else_is_a_rejection_of_several(text: str) -> None:
    assert rejection_in(text) is None


@given(
    st.lists(st.sampled_from(["!approve", "!allow", "!reject", "K7", "M3", "1", "2", "3", "always", ":", ",", "yes"]))
)
def test_no_message_ever_approves_two(words: list[str]) -> None:
    verdict = judge_said(said(" ".join(words)), scene(R1, R2))
    if isinstance(verdict, RejectSeveral):
        rejected(verdict)


def test_what_cannot_be_rejected_is_told_and_the_rest_is_rejected() -> None:
    theirs = Foreign(
        event_id=EventId("$f"),
        room_id=OPS,
        sender=MALLORY,
        code=Code("X4"),
        shown_ts=START,
        expires_at_ms=START + 90 * MINUTE,
        closed_ts=None,
    )
    gone = closed(9, at_ms=START + 1, code="C2")
    other = question(4, code="D5", route="night")
    night = replace(OPS_ROUTE, name=RouteName("night"), approvers=frozenset({SECOND}))
    policy = replace(POLICY, routes={**POLICY.routes, night.name: night})
    dropped = question(6, code="F7", route="dropped")
    past = closed(10, at_ms=START + 1, code="G8")
    past = replace(past, asked=replace(past.asked, route=RouteName("dropped")))
    no_reject = question(5, code="E6", options=(LATER,))
    spent = {Code("C2"): gone, Code("G8"): past}
    shown = scene(R1, R2, other, no_reject, dropped, foreign=(theirs,), spent=spent, policy=policy)
    verdict = judge_said(said("!reject K7 X4 C2 D5 F7 G8 E6 Z8 please M3: no"), shown)
    assert rejected(verdict) == ["K7", "M3"]
    assert left(verdict) == [
        ("X4", WhyLeft.FOREIGN),
        ("C2", WhyLeft.CLOSED),
        ("D5", WhyLeft.NOT_APPROVER),
        ("F7", WhyLeft.NOT_ASKED_HERE),
        ("G8", WhyLeft.NOT_APPROVER),
        ("E6", WhyLeft.NO_REJECTION),
        ("Z8", WhyLeft.UNKNOWN),
        ("please", WhyLeft.UNKNOWN),
    ]


def test_a_code_that_another_accounts_question_has_too_rejects_nothing() -> None:
    theirs = Foreign(
        event_id=EventId("$f"),
        room_id=OPS,
        sender=MALLORY,
        code=R1.asked.code,
        shown_ts=START,
        expires_at_ms=START + 90 * MINUTE,
        closed_ts=None,
    )
    verdict = judge_said(said("!reject K7"), scene(R1, foreign=(theirs,)))
    assert verdict == RejectSeveral((), (Left("K7", WhyLeft.FOREIGN),))


def test_a_message_of_before_the_question_rejects_it_not() -> None:
    old = judge_said(said("!reject K7", at=START - 10 * MINUTE), scene(R1))
    assert old == RejectSeveral((), (Left("K7", WhyLeft.UNKNOWN),))
    queued = question(1, code="K7", status=Status.QUEUED)
    assert judge_said(said("!reject K7"), scene(queued)) == RejectSeveral((), (Left("K7", WhyLeft.UNKNOWN),))


def test_a_reply_or_thread_changes_nothing_about_which_are_rejected() -> None:
    reply = said("!reject M3", names=Names(reply_to=EventId("$question1")))
    assert rejected(judge_said(reply, scene(R1, R2, named=NamesQuestion(R1)))) == ["M3"]
    thread = said("!reject", names=Names(thread=EventId("$question1")))
    assert judge_said(thread, scene(R1, R2, named=NamesQuestion(R1))) == RejectSeveral((), ())
    elsewhere = said("!reject K7", names=Names(reply_to=EventId("$chat")))
    assert rejected(judge_said(elsewhere, scene(R1, named=NamesOther(ours=False)))) == ["K7"]


def test_somebody_who_approves_nothing_rejects_nothing() -> None:
    assert judge_said(said("!reject K7 M3", MALLORY), scene(R1, R2)) == NotApprover(R1)
    assert judge_said(said("!reject", MALLORY), scene(R1)) == Ignore()
    assert judge_said(said("!reject Z8", MALLORY), scene(R1)) == Ignore()
    gone = replace(ROOM, joined=ROOM.joined - {OWNER})
    assert judge_said(said("!reject K7"), scene(R1, room=gone)) == NotApprover(R1)


@pytest.mark.parametrize("sender", [POD, AGENT])
def test_no_bot_rejects(sender: str) -> None:
    assert judge_said(said("!reject K7", sender), scene(R1)) == Ignore()  # type: ignore[arg-type]  # a user id


def test_clear_text_in_an_encrypted_room_rejects_nothing() -> None:
    encrypted, unknown = replace(ROOM, encrypted=True), replace(ROOM, encrypted=None)
    assert judge_said(said("!reject K7"), scene(R1, room=unknown)) == Ignore()
    assert judge_said(said("!reject K7"), scene(R1, room=encrypted)) == Unheard(WhyUnheard.CLEAR, R1)
    assert judge_said(said("!reject X9"), scene(R1, room=encrypted)) == Unheard(WhyUnheard.CLEAR)


def test_the_requester_may_reject_several() -> None:
    policy = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, not_requester=True)})
    mine = replace(R1, asked=replace(R1.asked, requester=OWNER))
    assert rejected(judge_said(said("!reject K7 M3"), scene(mine, R2, policy=policy))) == ["K7", "M3"]


def test_a_label_cannot_turn_a_rejection_into_an_approval() -> None:
    sly = Option(OptionId("a"), "!reject M3", Meaning.APPROVE, Scope.ONCE)
    verdict = judge_said(said("!reject M3"), scene(question(1, code="K7", options=(sly, REJECT)), R2))
    assert rejected(verdict) == ["M3"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((NEVER, ALLOW, REJECT), REJECT),
        ((ALLOW, NEVER), NEVER),
        ((LATER,), None),
        ((Option(OptionId("no"), "No", Meaning.REJECT, None), NEVER), "no"),
    ],
)
def test_a_question_is_rejected_for_once_if_it_can_be(options: tuple[Option, ...], wanted: Option | str | None) -> None:
    found = rejecting_option(offered(*options))
    assert (None if found is None else found.option.option_id) == (
        wanted.option_id if isinstance(wanted, Option) else wanted
    )


def test_the_bots_own_rejection_is_one() -> None:
    verdict = judge_said(said("!reject K7"), scene(question(1, code="K7", options=(ALLOW, ALWAYS))))
    assert isinstance(verdict, RejectSeveral)
    assert isinstance(verdict.rejected[0], Accept)
    assert verdict.rejected[0].selected.option.option.option_id == "agentpod.reject"
