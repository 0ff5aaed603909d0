"""What an answer needs in an encrypted room, beside what it needs anywhere, to decide anything."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import Code, EventId
from agentpod_bot.core.judge import judge_reacted, judge_said
from agentpod_bot.core.labels import approves
from agentpod_bot.core.model import Meaning
from agentpod_bot.core.policy import Trust
from agentpod_bot.core.room import Device, Foreign, ForeignEdit, Names, Origin, OwnEdit, Reacted, Structured
from agentpod_bot.core.scene import (
    Accept,
    Hint,
    Ignore,
    Late,
    ListOpen,
    NamesNothing,
    NamesOther,
    NamesQuestion,
    NotApprover,
    NotNamed,
    Refuse,
    RejectSeveral,
    Unheard,
    WhyUnheard,
)
from agentpod_bot.core.structured import judge_structured
from agentpod_bot.core.trust import as_vouched, ends_something
from tests.examples import AGENT, MALLORY, MINUTE, OPS, OWNER, POLICY, ROOM, START, closed, question, said, scene

if TYPE_CHECKING:
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.scene import Named, Scene, Verdict

R1 = question(1, code="K7")
R2 = question(2, code="M3")
ENCRYPTED = replace(ROOM, encrypted=True)
STRICT = (Trust.APPROVERS_VERIFIED, Trust.VERIFIED)
KEYCAPS = [f"{number}\u20e3" for number in (1, 2, 3, 4)]


def here(*open_now: Question, trust: Trust = Trust.ALL, **changes: Any) -> Scene:
    return scene(*open_now, room=changes.pop("room", ENCRYPTED), policy=replace(POLICY, trust=trust), **changes)


def text(body: str, origin: Origin, *, sender: Any = OWNER, reply_to: str | None = None) -> Verdict | Any:
    names = Names() if reply_to is None else Names(reply_to=EventId(reply_to))
    return replace(said(body, sender, names=names), origin=origin)


def program(about: Question, origin: Origin, **changes: Any) -> Structured:
    fields: dict[str, Any] = {"schema_version": 1, "request_id": about.key.request_id, "option_id": "allow_once"}
    fields = {name: value for name, value in (fields | changes).items() if value is not ...}
    return Structured(event_id=EventId("$s"), sender=OWNER, ts=START + 1, fields=fields, origin=origin)


def key(keycap: str, origin: Origin = Origin.CLEAR) -> Reacted:
    target = EventId("$question1")
    return Reacted(event_id=EventId("$r"), sender=OWNER, ts=START + 1, target=target, key=keycap, origin=origin)


# Clear text and strangers


@pytest.mark.parametrize("trust", Trust)
@pytest.mark.parametrize(("origin", "why"), [(Origin.CLEAR, WhyUnheard.CLEAR), (Origin.STRANGER, WhyUnheard.STRANGER)])
def test_clear_text_and_what_no_device_of_the_sender_encrypted_decide_nothing_and_are_told_so(
    trust: Trust, origin: Origin, why: WhyUnheard
) -> None:
    lone, named = here(R1, trust=trust), here(R1, R2, trust=trust, named=NamesQuestion(R1))
    for body in ("1", "K7 1", "Allow once", "3: no", "7"):
        assert judge_said(text(body, origin), lone) == Unheard(why, R1), body
    assert judge_said(text("whatever", origin, reply_to="$question1"), named) == Unheard(why, R1)
    assert judge_structured(program(R1, origin), lone) == Unheard(why, R1)
    assert judge_structured(program(R1, origin, option_id="no"), lone) == Unheard(why, R1)
    assert judge_said(text("1", origin), here(R1, R2, trust=trust)) == Unheard(why)
    assert judge_said(text("!open", origin), lone) == Unheard(why)
    assert judge_said(text("!reject M3 K7", origin), here(R1, R2, trust=trust)) == Unheard(why, R2)
    assert judge_said(text("!reject", origin), lone) == Unheard(why)


@pytest.mark.parametrize("origin", [Origin.CLEAR, Origin.STRANGER])
def test_plain_talk_that_came_so_is_left_alone_and_others_are_told_what_they_always_are(origin: Origin) -> None:
    assert judge_said(text("good morning", origin), here(R1)) == Ignore()
    assert judge_said(text("1", origin), here()) == Ignore()
    assert judge_said(text("1", origin, sender=AGENT), here(R1)) == Ignore()
    assert judge_said(text("1", origin, sender=MALLORY), here(R1)) == NotApprover(R1)
    gone = closed(code="M3", at_ms=START - MINUTE)
    assert judge_said(text("1", origin), here(named=NamesQuestion(gone))) == Late(gone)


def test_in_a_clear_room_everything_is_as_ever_but_for_strangers() -> None:
    for trust, origin in product(Trust, (Origin.CLEAR, Origin.DEVICE, Origin.VERIFIED)):
        room = here(R1, trust=trust, room=ROOM)
        assert isinstance(judge_said(text("1", origin), room), Accept)
        assert isinstance(judge_structured(program(R1, origin), room), Accept)
        named = here(R1, trust=trust, room=ROOM, named=NamesQuestion(R1))
        assert isinstance(judge_reacted(key(KEYCAPS[0], origin), named), Accept)
    room = here(R1, room=ROOM)
    assert judge_said(text("1", Origin.STRANGER), room) == Unheard(WhyUnheard.STRANGER, R1)
    named = here(R1, room=ROOM, named=NamesQuestion(R1))
    assert judge_reacted(key(KEYCAPS[0], Origin.STRANGER), named) == Unheard(WhyUnheard.STRANGER, R1)


# All devices


@pytest.mark.parametrize("origin", [Origin.DEVICE, Origin.VERIFIED])
def test_with_trust_in_all_any_device_of_an_approver_answers_in_any_form(origin: Origin) -> None:
    lone = here(R1)
    assert isinstance(judge_said(text("1", origin), lone), Accept)
    assert isinstance(judge_structured(program(R1, origin), lone), Accept)
    assert judge_said(text("!open", origin), lone) == ListOpen()
    assert isinstance(judge_said(text("!reject K7", origin), lone), RejectSeveral)
    assert judge_said(text("9", origin), lone) == Hint(R1)


@pytest.mark.parametrize("origin", [Origin.CLEAR, Origin.DEVICE, Origin.VERIFIED])
def test_with_trust_in_all_a_reaction_counts_as_it_always_does(origin: Origin) -> None:
    verdict = judge_reacted(key(KEYCAPS[0], origin), here(R1, named=NamesQuestion(R1)))
    assert isinstance(verdict, Accept)
    assert verdict.selected.option.position == 1


def test_a_reaction_that_no_device_of_the_sender_encrypted_does_nothing() -> None:
    named = here(R1, named=NamesQuestion(R1))
    for keycap in KEYCAPS:
        assert judge_reacted(key(keycap, Origin.STRANGER), named) == Unheard(WhyUnheard.STRANGER, R1)
    assert judge_reacted(key("👍", Origin.STRANGER), named) == Ignore()


# Verified devices only


@pytest.mark.parametrize("trust", STRICT)
def test_nothing_that_a_device_says_which_was_not_verified_decides_anything(trust: Trust) -> None:
    lone = here(R1, trust=trust)
    for body in ("1", "1 K7", "3", "3: no", "3 K7", "9"):
        assert judge_said(text(body, Origin.DEVICE), lone) == Unheard(WhyUnheard.UNVERIFIED, R1), body
    assert judge_structured(program(R1, Origin.DEVICE), lone) == Unheard(WhyUnheard.UNVERIFIED, R1)
    assert judge_said(text("!reject K7", Origin.DEVICE), lone) == Unheard(WhyUnheard.UNVERIFIED, R1)
    assert judge_said(text("!open", Origin.DEVICE), lone) == Unheard(WhyUnheard.UNVERIFIED)
    assert judge_said(text("1", Origin.DEVICE, sender=MALLORY), lone) == NotApprover(R1)


@pytest.mark.parametrize("trust", STRICT)
def test_an_approval_from_a_verified_device_has_to_name_its_question_itself(trust: Trust) -> None:
    """What a message replies to stands beside its ciphertext, where the homeserver can put another event."""
    named = here(R1, R2, trust=trust, named=NamesQuestion(R1))
    for body in ("1", "Allow once", "2"):
        assert judge_said(text(body, Origin.VERIFIED, reply_to="$question1"), named) == NotNamed(R1), body
        assert judge_said(text(body, Origin.VERIFIED), here(R1, trust=trust)) == NotNamed(R1), body
    for body in ("1 K7", "K7 Allow once", "k7 2"):
        verdict = judge_said(text(body, Origin.VERIFIED, reply_to="$question1"), named)
        assert isinstance(verdict, Accept), body
        assert (verdict.question, verdict.inside) == (R1, True)
        verdict = judge_said(text(body, Origin.VERIFIED), here(R1, R2, trust=trust))
        assert isinstance(verdict, Accept), body
        assert (verdict.question, verdict.inside) == (R1, True)
    assert judge_said(text("1 M3", Origin.VERIFIED, reply_to="$question1"), named) == Hint(R1)


@pytest.mark.parametrize("trust", STRICT)
def test_a_code_that_another_accounts_question_has_too_names_nothing(trust: Trust) -> None:
    other = Foreign(
        event_id=EventId("$f"),
        room_id=OPS,
        sender=AGENT,
        code=Code("K7"),
        shown_ts=START - MINUTE,
        expires_at_ms=START + 90 * MINUTE,
        closed_ts=None,
    )
    named = here(R1, trust=trust, foreign=(other,), named=NamesQuestion(R1))
    assert judge_said(text("1 K7", Origin.VERIFIED, reply_to="$question1"), named) == NotNamed(R1)


@pytest.mark.parametrize("trust", STRICT)
def test_a_refusal_from_a_verified_device_needs_no_code(trust: Trust) -> None:
    named = here(R1, R2, trust=trust, named=NamesQuestion(R1))
    for where in (here(R1, trust=trust), named):
        verdict = judge_said(text("3: not now", Origin.VERIFIED), where)
        assert isinstance(verdict, Accept)
        assert verdict.selected.option.option.meaning is Meaning.REJECT
    assert isinstance(judge_said(text("!reject K7", Origin.VERIFIED), named), RejectSeveral)


@pytest.mark.parametrize("trust", STRICT)
def test_a_structured_answer_names_its_question_by_code_or_digest_and_not_by_an_id_that_others_may_choose(
    trust: Trust,
) -> None:
    twin = question(3, code="P4", client="desk", request_id=R1.key.request_id)
    for others in ((), (R2,), (twin,)):
        where = here(R1, *others, trust=trust, named=NamesQuestion(R1))
        assert judge_structured(program(R1, Origin.VERIFIED), where) == NotNamed(R1)
        assert judge_structured(program(R1, Origin.VERIFIED, subject={"revision": 1}), where) == NotNamed(R1)
        assert isinstance(judge_structured(program(R1, Origin.VERIFIED, option_id="reject_once"), where), Accept)
        for exact in ({"code": "K7"}, {"subject": {"digest": R1.asked.digest}}):
            assert isinstance(judge_structured(program(R1, Origin.VERIFIED, **exact), where), Accept)
            there = here(twin, trust=trust, named=NamesQuestion(twin))
            assert isinstance(judge_structured(program(R1, Origin.VERIFIED, **exact), there), Refuse)


@pytest.mark.parametrize("trust", STRICT)
def test_an_approval_that_was_held_back_is_not_for_another_clients_question_with_the_same_id(trust: Trust) -> None:
    held_back = program(R1, Origin.VERIFIED)
    twin = question(3, code="P4", client="desk", request_id=R1.key.request_id)
    assert judge_structured(held_back, here(twin, trust=trust, named=NamesQuestion(twin))) == NotNamed(twin)


@pytest.mark.parametrize("trust", STRICT)
@pytest.mark.parametrize("origin", [Origin.CLEAR, Origin.DEVICE, Origin.VERIFIED])
def test_a_reaction_rejects_and_never_approves(trust: Trust, origin: Origin) -> None:
    named = here(R1, trust=trust, named=NamesQuestion(R1))
    assert [type(judge_reacted(key(keycap, origin), named)) for keycap in KEYCAPS] == [
        NotNamed,
        NotNamed,
        Accept,
        Accept,
    ]


def test_in_no_way_is_more_accepted_than_its_rule_says() -> None:
    """Every way to come, every rule, every form: an approval is accepted only where the rule names it."""
    names: tuple[Named, ...] = (NamesNothing(), NamesQuestion(R1), NamesOther(ours=True))
    for trust, origin, named in product(Trust, Origin, names):
        where = here(R1, trust=trust, named=named)
        bodies = [text(body, origin) for body in ("1", "2", "Allow once", "1 K7", "3", "3 K7", "!reject K7", "!open")]
        verdicts: list[tuple[Any, Verdict]] = [(event, judge_said(event, where)) for event in bodies]
        verdicts += [(event, judge_reacted(event, where)) for event in (key(cap, origin) for cap in KEYCAPS)]
        structured = [program(R1, origin), program(R1, origin, code="K7"), program(R1, origin, option_id="reject_once")]
        verdicts += [(event, judge_structured(event, where)) for event in structured]
        for event, verdict in verdicts:
            several = verdict.rejected if isinstance(verdict, RejectSeveral) else ()
            for accept in (*several, *((verdict,) if isinstance(verdict, Accept) else ())):
                assert origin is not Origin.STRANGER
                is_reaction = isinstance(event, Reacted)
                assert is_reaction or origin is not Origin.CLEAR
                if trust is Trust.ALL:
                    continue
                assert is_reaction or origin is Origin.VERIFIED
                if approves(accept.selected.option.option, R1.asked.options):
                    assert (origin, accept.inside, is_reaction) == (Origin.VERIFIED, True, False)


# Ends of questions


@pytest.mark.parametrize(
    ("origin", "believed"),
    [(Origin.CLEAR, False), (Origin.STRANGER, False), (Origin.DEVICE, True), (Origin.VERIFIED, True)],
)
def test_an_end_is_believed_in_an_encrypted_room_only_from_a_device_of_who_ends_it(
    origin: Origin, believed: bool
) -> None:
    """A bare answer counts for the one question that is open: nobody may make others look closed."""
    edits = (
        OwnEdit(event_id=EventId("$e"), sender=POLICY.own, ts=START, target=EventId("$q"), closes=True, origin=origin),
        ForeignEdit(event_id=EventId("$e"), sender=AGENT, ts=START, target=EventId("$q"), origin=origin),
    )
    for edit in edits:
        assert ends_something(edit, ENCRYPTED) is believed
        assert ends_something(edit, ROOM)


@pytest.mark.parametrize("origin", Origin)
@pytest.mark.parametrize("device", [None, Device(OWNER, "PHONE", "key"), Device(OWNER, "PHONE", "another key")])
def test_what_a_device_said_that_is_not_verified_any_more_counts_as_of_one_that_never_was(
    origin: Origin, device: Device | None
) -> None:
    event = replace(text("1", origin), device=device)
    for verified in (set[Device](), {Device(OWNER, "PHONE", "key")}):
        still = origin is not Origin.VERIFIED or device in verified
        assert as_vouched(event, verified.__contains__) == (event if still else replace(event, origin=Origin.DEVICE))
