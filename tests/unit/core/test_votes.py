"""Options that need several people, and people whose approval does not count."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.answer import Selected
from agentpod_bot.core.ids import EventId, OptionId, RoomId, UserId
from agentpod_bot.core.judge import judge_reacted, judge_said
from agentpod_bot.core.lifecycle import Answered, step
from agentpod_bot.core.model import Meaning, Option, Question, Scope, Status, Via, Vote
from agentpod_bot.core.policy import Trust
from agentpod_bot.core.room import Device, Powers, Reacted, RoomState
from agentpod_bot.core.scene import Accept, FromRequester, NamesQuestion, NotApprover
from agentpod_bot.core.votes import check_decidable, tallies, voters_for, votes_needed
from agentpod_bot.errors import ApproverNotInRoom
from tests.examples import (
    AGENT,
    ALLOW,
    ALWAYS,
    FOUR,
    MALLORY,
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
    offered,
    question,
    said,
    scene,
)

if TYPE_CHECKING:
    from agentpod_bot.core.policy import Policy

LATER = Option(OptionId("later"), "Later", Meaning.CHOOSE, None)
VAGUE = Option(OptionId("ok"), "OK", Meaning.APPROVE, None)


def with_route(**changes: object) -> Policy:
    return replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, **changes)})  # type: ignore[arg-type]  # real fields


TWO = with_route(quorum=2)
NOT_OWN = with_route(not_requester=True)


def asked_for(person: UserId | None, *options: Option) -> Question:
    made = question(options=options or FOUR)
    return replace(made, asked=replace(made.asked, requester=person))


def nobody(_device: Device) -> bool:
    """No device is verified."""
    return False


def vote(sender: UserId, option: Option = ALWAYS) -> Vote:
    return Vote(
        sender=sender,
        option_id=option.option_id,
        room_id=OPS,
        event_id=EventId(f"${sender}"),
        ts=START + 1,
        at_ms=START + 2,
    )


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (FOUR, (1, 2, 1, 1)),
        ((VAGUE, REJECT), (2, 1)),
        ((ALLOW, LATER, REJECT), (1, 2, 1)),
        ((LATER,), (1,)),
    ],
)
def test_only_what_approves_or_may_approve_for_always_needs_several_people(
    options: tuple[Option, ...], needed: tuple[int, ...]
) -> None:
    one = question(options=options)
    assert tuple(votes_needed(TWO, one, each) for each in one.asked.offered) == needed
    assert {votes_needed(POLICY, one, each) for each in one.asked.offered} == {1}


def test_votes_for_different_options_do_not_add_up() -> None:
    wider = Option(OptionId("wider"), "Always allow everything", Meaning.APPROVE, Scope.ALWAYS)
    one = question(options=(ALWAYS, wider, REJECT))
    votes = [vote(OWNER, ALWAYS), vote(SECOND, wider)]
    assert [tally.voters for tally in tallies(TWO, ROOM, one, votes, vouches=nobody)] == [(OWNER,), (SECOND,)]


@pytest.mark.parametrize(
    "room",
    [
        replace(ROOM, joined=ROOM.joined - {OWNER}),
        replace(ROOM, room_id=RoomId("!elsewhere")),
    ],
)
def test_a_vote_of_somebody_who_is_not_there_now_does_not_count(room: RoomState) -> None:
    assert OWNER not in voters_for(
        TWO, room, question(), [vote(OWNER), vote(SECOND)], offered(*FOUR)[1], vouches=nobody
    )


@pytest.mark.parametrize(
    "policy",
    [
        with_route(quorum=2, approvers=frozenset({SECOND})),
        replace(TWO, agents=frozenset({OWNER})),
        replace(TWO, own=OWNER),
        replace(TWO, routes={}),
        with_route(quorum=2, room_id=RoomId("!elsewhere")),
        with_route(quorum=2, not_requester=True),
    ],
)
def test_a_vote_of_somebody_who_may_not_approve_now_does_not_count(policy: Policy) -> None:
    asked = asked_for(OWNER)
    assert OWNER not in voters_for(policy, ROOM, asked, [vote(OWNER), vote(SECOND)], offered(*FOUR)[1], vouches=nobody)


def test_who_voted_last_comes_last() -> None:
    assert voters_for(TWO, ROOM, question(), [vote(SECOND), vote(OWNER)], offered(*FOUR)[1], vouches=nobody) == (
        SECOND,
        OWNER,
    )


@pytest.mark.parametrize("voters", [(), (OWNER,), (OWNER, OWNER), (SECOND, MALLORY)])
def test_fewer_people_than_needed_or_others_than_who_answers_decide_nothing(voters: tuple[UserId, ...]) -> None:
    one = question()
    answer = Answered(
        Selected(one.asked.offered[1], Via.NUMBER), OWNER, EventId("$a"), START + 1, needed=2, voters=voters
    )
    assert step(one, answer, START + 2) == (one, ())


def test_enough_people_decide_and_all_of_them_are_kept() -> None:
    one = question()
    answer = Answered(
        Selected(one.asked.offered[1], Via.NUMBER), OWNER, EventId("$a"), START + 1, needed=2, voters=(SECOND, OWNER)
    )
    decided, _ = step(one, answer, START + 2)
    assert decided.status is Status.DECIDED
    assert decided.closing is not None
    assert (decided.closing.answered_by, decided.closing.voters) == (OWNER, (SECOND, OWNER))


def test_a_request_with_an_option_that_too_few_could_choose_is_refused() -> None:
    """Read strictly: that another option could be chosen is not enough."""
    alone = replace(ROOM, joined=frozenset({POD, OWNER, MALLORY}))
    route = TWO.routes[ROUTE]
    check_decidable(TWO, route, ROOM, question().asked)
    check_decidable(TWO, route, alone, question(options=(ALLOW, REJECT)).asked)
    for options in (FOUR, (ALLOW, LATER, REJECT), (VAGUE, REJECT)):
        with pytest.raises(ApproverNotInRoom):
            check_decidable(TWO, route, alone, question(options=options).asked)


def test_the_requester_is_nobody_who_could_approve() -> None:
    alone = replace(ROOM, joined=frozenset({POD, OWNER}))
    check_decidable(NOT_OWN, NOT_OWN.routes[ROUTE], alone, asked_for(SECOND).asked)
    for person in (OWNER, None):
        with pytest.raises(ApproverNotInRoom):
            check_decidable(NOT_OWN, NOT_OWN.routes[ROUTE], alone, asked_for(person).asked)
    both = with_route(not_requester=True, quorum=2)
    with pytest.raises(ApproverNotInRoom):
        check_decidable(both, both.routes[ROUTE], ROOM, asked_for(OWNER).asked)


@pytest.mark.parametrize("text", ["1", "2", "Allow once", "always allow"])
def test_the_requester_cannot_approve_what_was_asked_for_them(text: str) -> None:
    mine = asked_for(OWNER)
    assert judge_said(said(text), scene(mine, policy=NOT_OWN)) == FromRequester(mine)
    assert isinstance(judge_said(said(text, SECOND), scene(mine, policy=NOT_OWN)), Accept)
    assert isinstance(judge_said(said(text), scene(mine)), Accept)


@pytest.mark.parametrize("text", ["3", "4", "Reject: no"])
def test_the_requester_may_reject(text: str) -> None:
    assert isinstance(judge_said(said(text), scene(asked_for(OWNER), policy=NOT_OWN)), Accept)


@pytest.mark.parametrize("options", [(LATER, REJECT), (LATER,), (VAGUE,)])
def test_the_requester_can_choose_nothing_that_may_be_an_approval(options: tuple[Option, ...]) -> None:
    mine = asked_for(OWNER, *options)
    reaction = Reacted(
        event_id=EventId("$r"), sender=OWNER, ts=START + 1, target=EventId("$question1"), key="1\ufe0f\u20e3"
    )
    assert judge_reacted(reaction, scene(mine, named=NamesQuestion(mine), policy=NOT_OWN)) == FromRequester(mine)


def test_where_nobody_knows_who_asked_nobody_approves() -> None:
    asked = asked_for(None)
    assert judge_said(said("1"), scene(asked, policy=NOT_OWN)) == FromRequester(asked)
    assert isinstance(judge_said(said("3"), scene(asked, policy=NOT_OWN)), Accept)


BY_LEVEL = with_route(approver_level=50)


def powered(**changes: object) -> RoomState:
    return replace(ROOM, **({"powers": Powers(users={MALLORY: 50})} | changes))  # type: ignore[arg-type]  # real fields


@pytest.mark.parametrize(
    "room",
    [
        powered(),
        powered(powers=Powers(users={}, default=50)),
        powered(powers=Powers(users={OWNER: 100}, default=51)),
        powered(powers=Powers(users={}), creators=frozenset({MALLORY})),
    ],
)
def test_a_member_with_enough_power_is_an_approver_too(room: RoomState) -> None:
    assert isinstance(judge_said(said("1", MALLORY), scene(question(), policy=BY_LEVEL, room=room)), Accept)
    assert isinstance(judge_said(said("1"), scene(question(), policy=BY_LEVEL, room=room)), Accept)


@pytest.mark.parametrize(
    ("room", "policy"),
    [
        (powered(), POLICY),
        (powered(powers=Powers(users={MALLORY: 49}, default=100)), BY_LEVEL),
        (powered(powers=Powers(users={MALLORY: -1})), BY_LEVEL),
        (powered(powers=Powers(users={OWNER: 100})), BY_LEVEL),
        (powered(powers=None), BY_LEVEL),
        (powered(powers=None, creators=frozenset({MALLORY})), BY_LEVEL),
        (powered(joined=ROOM.joined - {MALLORY}), BY_LEVEL),
    ],
)
def test_too_little_power_or_one_that_is_not_known_approves_nothing(room: RoomState, policy: Policy) -> None:
    assert isinstance(judge_said(said("1", MALLORY), scene(question(), policy=policy, room=room)), NotApprover)
    assert isinstance(judge_said(said("1"), scene(question(), policy=policy, room=room)), Accept)


def test_no_power_makes_a_bot_an_approver() -> None:
    room = powered(powers=Powers(users={}, default=100), joined=ROOM.joined | {AGENT}, creators=frozenset({AGENT, POD}))
    assert not BY_LEVEL.is_approver(AGENT, BY_LEVEL.routes[ROUTE], room)
    assert not BY_LEVEL.is_approver(POD, BY_LEVEL.routes[ROUTE], room)


def test_never_allow_needs_one_person_only() -> None:
    one = question(options=(ALWAYS, NEVER))
    assert votes_needed(TWO, one, one.asked.offered[1]) == 1


PHONE = Device(SECOND, "PHONE", "key")


def vouched() -> tuple[Vote, Vote]:
    """Two votes; the second one came from a device that was verified."""
    return vote(OWNER), replace(vote(SECOND), device=PHONE)


@pytest.mark.parametrize("trust", Trust)
def test_a_vote_that_came_in_another_way_counts_only_while_every_way_does(trust: Trust) -> None:
    """Rules may change between a vote and the last one: at the commit each is looked at anew."""
    here, policy, encrypted = question(), replace(TWO, trust=trust), replace(ROOM, encrypted=True)
    always = here.asked.offered[1]
    strict = (SECOND,) if trust is not Trust.ALL else (OWNER, SECOND)
    assert voters_for(policy, ROOM, here, vouched(), always, vouches=nobody) == (OWNER, SECOND)
    for room in (encrypted, replace(ROOM, encrypted=None)):
        assert voters_for(policy, room, here, vouched(), always, vouches={PHONE}.__contains__) == strict


@pytest.mark.parametrize(
    "device",
    [Device(SECOND, "PHONE", "another key"), Device(SECOND, "LAPTOP", "key"), Device(OWNER, "PHONE", "key"), None],
)
def test_a_vote_whose_device_does_not_vouch_any_more_counts_only_where_none_has_to(device: Device | None) -> None:
    here, verified = question(), {device}
    always, encrypted = here.asked.offered[1], replace(ROOM, encrypted=True)
    strict = replace(TWO, trust=Trust.APPROVERS_VERIFIED)
    assert voters_for(strict, encrypted, here, vouched(), always, vouches=verified.__contains__) == ()
    assert tallies(strict, encrypted, here, vouched(), vouches=verified.__contains__) == ()
    assert voters_for(TWO, encrypted, here, vouched(), always, vouches=verified.__contains__) == (OWNER, SECOND)
