"""A question as each of its rooms has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot.core.answer import Selected
from agentpod_bot.core.copies import is_gone, offers_alike, places, seen_in
from agentpod_bot.core.ids import EventId, RoomId, RouteName
from agentpod_bot.core.judge import judge_said
from agentpod_bot.core.lifecycle import Answered, Effect, Undelivered, step
from agentpod_bot.core.model import Attachment, Copy, Outcome, Question, Status, Via
from agentpod_bot.core.policy import Escalation, Policy
from agentpod_bot.core.room import Foreign, RoomState
from agentpod_bot.core.scene import Accept, AskWhich, Late, NamesQuestion, NotApprover
from agentpod_bot.core.votes import votes_needed
from tests.examples import (
    ALLOW,
    ALWAYS,
    FOUR,
    MALLORY,
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

LEADS = RoomId("!leads")
COPY = Copy(
    route=RouteName("leads"),
    room_id=LEADS,
    asked_at_ms=START + 1_000,
    offered=offered(*FOUR),
    event_id=EventId("$there"),
    shown_ts=START + 1_000,
)
WHOLE = replace(question(), copy=COPY)
LEADS_ROUTE = replace(OPS_ROUTE, name=RouteName("leads"), room_id=LEADS, approvers=frozenset({MALLORY}), quorum=3)
ASKING = replace(OPS_ROUTE, escalation=Escalation(1, LEADS_ROUTE.name))
BOTH = replace(POLICY, routes={ROUTE: ASKING, LEADS_ROUTE.name: LEADS_ROUTE})
THERE_ROOM = RoomState(room_id=LEADS, joined=frozenset({POD, OWNER, SECOND, MALLORY}), bot_joined=True, encrypted=False)


def there(whole: Question = WHOLE) -> Question:
    found = seen_in(whole, LEADS)
    assert found is not None
    return found


@pytest.mark.parametrize(("own", "other", "needed"), [(1, 3, 3), (2, 1, 2), (3, 2, 3), (1, 1, 1)])
def test_a_copy_takes_as_many_people_as_the_stricter_of_both_routes(own: int, other: int, needed: int) -> None:
    policy = replace(
        BOTH, routes={ROUTE: replace(ASKING, quorum=own), LEADS_ROUTE.name: replace(LEADS_ROUTE, quorum=other)}
    )
    always = next(each for each in COPY.offered if each.option is ALWAYS)
    assert votes_needed(policy, there(), always) == needed
    assert votes_needed(policy, WHOLE, always) == own


def test_its_own_room_has_the_question_itself_and_no_third_room_has_any() -> None:
    assert seen_in(WHOLE, OPS) is WHOLE
    assert seen_in(there(), OPS) is WHOLE
    assert seen_in(WHOLE, RoomId("!else")) is None
    assert seen_in(question(), LEADS) is None
    assert places(WHOLE) == places(there()) == (WHOLE, there())
    assert places(question()) == (question(),)


def test_the_copys_room_has_the_same_question_at_another_place() -> None:
    place = there()
    assert (place.asked.route, place.asked.room_id, place.event_id) == ("leads", LEADS, "$there")
    assert (place.row, place.key, place.asked.code, place.asked.digest) == (
        WHOLE.row,
        WHOLE.key,
        WHOLE.asked.code,
        WHOLE.asked.digest,
    )
    assert place.whole is WHOLE


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({}, Status.PENDING),
        ({"event_id": None}, Status.QUEUED),
        ({"withdrawn_at_ms": START}, Status.UNDELIVERABLE),
        ({"withdrawn_at_ms": START, "event_id": None}, Status.UNDELIVERABLE),
    ],
)
def test_a_copy_is_open_only_while_its_room_shows_it(changes: dict[str, object], status: Status) -> None:
    place = there(replace(WHOLE, copy=replace(COPY, **changes)))  # type: ignore[arg-type]  # real fields
    assert place.status is status
    assert WHOLE.is_open
    assert is_gone(place) is ("withdrawn_at_ms" in changes)


@pytest.mark.parametrize("changes", [{}, {"event_id": None}, {"withdrawn_at_ms": START}])
def test_a_copy_ends_as_its_question_ended(changes: dict[str, object]) -> None:
    ended = replace(closed(at_ms=START, outcome=Outcome.EXPIRED), copy=replace(COPY, **changes))  # type: ignore[arg-type]  # real fields
    place = there(ended)
    assert (place.status, place.closing) == (ended.status, ended.closing)


def test_the_copys_route_says_who_answers_there_and_how_many() -> None:
    policy: Policy = BOTH
    assert policy.may_answer(MALLORY, there(), THERE_ROOM)
    assert not policy.may_answer(OWNER, there(), THERE_ROOM)
    assert not policy.may_answer(MALLORY, WHOLE, ROOM)
    assert policy.may_answer(OWNER, WHOLE, ROOM)
    assert not policy.may_answer(MALLORY, there(), ROOM)
    always = there().asked.offered[1]
    assert (votes_needed(policy, there(), always), votes_needed(policy, WHOLE, always)) == (3, 1)


def test_an_answer_is_judged_by_the_room_in_which_it_was_given() -> None:
    named = NamesQuestion(there())
    room = scene(there(), policy=BOTH, room=THERE_ROOM, named=named)
    assert isinstance(judge_said(said("1", MALLORY), room), Accept)
    assert isinstance(judge_said(said("1", OWNER), room), NotApprover)
    withdrawn = there(replace(WHOLE, copy=replace(COPY, withdrawn_at_ms=START)))
    gone = scene(policy=BOTH, room=THERE_ROOM, named=NamesQuestion(withdrawn))
    assert isinstance(judge_said(said("1", MALLORY), gone), Late)


def test_what_cannot_be_answered_there_cannot_be_closed_by_an_answer_from_there() -> None:
    answered = Answered(Selected(there().asked.offered[0], Via.NUMBER), MALLORY, EventId("$a"), START)
    for changes in ({"event_id": None}, {"withdrawn_at_ms": START}, {"attachment": Attachment.UPLOADED}):
        place = there(replace(WHOLE, copy=replace(COPY, **changes)))  # type: ignore[arg-type]  # real fields
        assert step(place, answered, START + 1)[0] is place
    assert step(there(), answered, START + 1)[0].status is Status.DECIDED


def test_what_can_no_longer_be_shown_in_its_own_room_is_shown_in_the_copys() -> None:
    after, effects = step(WHOLE, Undelivered("redacted"), START + 1)
    assert after.status is Status.UNDELIVERABLE
    assert effects == (Effect.RELEASE, Effect.SHOW_IN_COPY)
    assert [is_gone(place) for place in places(after)] == [True, False]
    assert not any(is_gone(place) for place in places(WHOLE))


def test_offers_are_alike_where_the_same_numbers_mean_the_same() -> None:
    assert offers_alike(offered(ALLOW, REJECT), offered(ALLOW, REJECT))
    assert not offers_alike(offered(ALLOW, REJECT), offered(REJECT, ALLOW))
    assert not offers_alike(offered(*FOUR), offered(ALLOW, REJECT))
    other = replace(offered(ALLOW)[0], printed="Allow once (masked)")
    assert offers_alike((other,), offered(ALLOW)[:1])


def test_the_copys_room_sees_the_option_that_was_taken_as_it_is_printed_there() -> None:
    masked = tuple(replace(each, printed=f"{each.printed} (masked)") for each in COPY.offered)
    ended = replace(closed(at_ms=START, by=OWNER), copy=replace(COPY, offered=masked))
    assert ended.closing is not None
    assert ended.closing.option is not None
    place = there(ended)
    assert place.closing == replace(ended.closing, option=masked[ended.closing.option.position - 1])


def test_whom_the_questions_own_route_keeps_from_approving_cannot_approve_its_copy() -> None:
    barring = replace(BOTH, routes={**BOTH.routes, ROUTE: replace(ASKING, not_requester=True)})
    leads = replace(LEADS_ROUTE, approvers=frozenset({MALLORY, SECOND}))
    barring = replace(barring, routes={**barring.routes, leads.name: leads})
    for requester, allowed in ((MALLORY, {SECOND}), (SECOND, {MALLORY}), (OWNER, {MALLORY, SECOND}), (None, set())):
        place = there(replace(WHOLE, asked=replace(WHOLE.asked, requester=requester)))
        assert {who for who in (MALLORY, SECOND) if barring.may_approve(who, place, THERE_ROOM)} == allowed
        assert barring.may_answer(MALLORY, place, THERE_ROOM)
    own = replace(WHOLE, asked=replace(WHOLE.asked, route=leads.name, room_id=LEADS, requester=MALLORY), copy=None)
    assert barring.may_approve(MALLORY, own, THERE_ROOM)  # a question of the second route itself


def test_a_code_that_another_account_had_before_the_copy_brought_it_is_not_the_copys_alone() -> None:
    earlier = Foreign(
        event_id=EventId("$theirs"),
        room_id=LEADS,
        sender=SECOND,
        code=WHOLE.asked.code,
        shown_ts=START - 600_000,
        expires_at_ms=START + 600_000,
        closed_ts=START - 100_000,
    )
    room = scene(there(), policy=BOTH, room=THERE_ROOM, foreign=(earlier,))
    late = said(f"1 {WHOLE.asked.code}", MALLORY, at=START - 50_000)  # the copy was not there yet
    assert isinstance(judge_said(late, room), AskWhich)
    assert isinstance(judge_said(said("1", MALLORY, at=START + 2_000), room), Accept)
    later = replace(room, foreign=(replace(earlier, shown_ts=START + 2_000, closed_ts=START + 3_000),))
    assert isinstance(judge_said(said(f"1 {WHOLE.asked.code}", MALLORY, at=START + 59_000), later), Accept)


def test_codes_must_differ_beside_every_room_to_which_a_question_may_come() -> None:
    assert POLICY.rooms_beside(OPS_ROUTE) == {OPS}
    assert BOTH.rooms_beside(ASKING) == BOTH.rooms_beside(LEADS_ROUTE) == {OPS, LEADS}
    third = replace(ASKING, name=RouteName("third"), room_id=RoomId("!third"))
    three = replace(BOTH, routes={**BOTH.routes, third.name: third})
    assert three.rooms_beside(third) == three.rooms_beside(ASKING) == {OPS, LEADS, third.room_id}
    nowhere = replace(OPS_ROUTE, escalation=Escalation(1, RouteName("gone")))
    assert replace(BOTH, routes={ROUTE: nowhere}).rooms_beside(nowhere) == {OPS}
