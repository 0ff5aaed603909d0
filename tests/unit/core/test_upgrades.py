"""When a route follows into the room that replaced its own, as rules without any room at hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentpod_bot import errors
from agentpod_bot.core.ids import RoomId, RouteName, UserId
from agentpod_bot.core.policy import Escalation, check_reachable
from agentpod_bot.core.room import Powers
from agentpod_bot.core.upgrades import (
    NotFollowed,
    Origin,
    Successor,
    link_fault,
    settled,
    stations,
    target_fault,
)
from tests.examples import AGENT, MALLORY, OPS, OPS_ROUTE, OWNER, POD, POLICY, ROOM, ROUTE, SECOND

NEW = RoomId("!new")
NEWER = RoomId("!newer")
FOLLOWS = replace(OPS_ROUTE, follow_upgrades=True)
BY_POWER = replace(FOLLOWS, approvers=frozenset({OWNER}), approver_level=50)
THERE = replace(ROOM, room_id=NEW)
TOMBSTONE = Successor(NEW, OWNER)
ORIGIN = Origin(predecessor=OPS, creators=frozenset({OWNER}), speaks=True)
POLICY_THERE = replace(POLICY, routes={ROUTE: FOLLOWS})


def fault(route: Any = FOLLOWS, *, old: Any = ROOM, new: Any = THERE, **changes: Any) -> NotFollowed | None:
    origin = replace(ORIGIN, **{name: value for name, value in changes.items() if name != "sender"})
    tombstone = replace(TOMBSTONE, sender=changes.get("sender", OWNER))
    return link_fault(route, old, new, origin, tombstone)


# Where a route lives


def test_a_route_lives_at_the_end_of_its_moves_and_only_if_it_follows() -> None:
    moves = {(ROUTE, OPS): NEW, (ROUTE, NEW): NEWER, (RouteName("other"), NEWER): OPS}
    assert stations(FOLLOWS, moves) == (OPS, NEW, NEWER)
    assert settled(POLICY_THERE, moves, {}).routes[ROUTE].room_id == NEWER
    assert settled(POLICY, moves, {}).routes[ROUTE].room_id == OPS


def test_moves_in_a_circle_end() -> None:
    assert stations(FOLLOWS, {(ROUTE, OPS): NEW, (ROUTE, NEW): OPS}) == (OPS, NEW)


@pytest.mark.parametrize("why", NotFollowed)
def test_whoever_asks_hears_why_a_route_is_not_followed(why: NotFollowed) -> None:
    route = settled(POLICY_THERE, {}, {ROUTE: why}).routes[ROUTE]
    with pytest.raises(errors.RoomReplaced, match=why.said):
        check_reachable(POLICY_THERE, route, replace(ROOM, replaced=True), can_encrypt=False)


# One step


def test_a_room_that_names_the_old_one_exactly_is_followed() -> None:
    assert fault() is None


@pytest.mark.parametrize("predecessor", [None, NEW, RoomId(f"{OPS} "), RoomId(OPS.upper()), RoomId(f"{OPS}:hs")])
def test_any_other_predecessor_is_none(predecessor: RoomId | None) -> None:
    assert fault(predecessor=predecessor) is NotFollowed.PREDECESSOR


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (False, False, None),
        (False, True, None),
        (True, True, None),
        (True, False, NotFollowed.ENCRYPTION_LOST),
        (None, False, NotFollowed.ENCRYPTION_UNKNOWN),
        (None, True, NotFollowed.ENCRYPTION_UNKNOWN),
        (True, None, NotFollowed.ENCRYPTION_UNKNOWN),
        (False, None, NotFollowed.ENCRYPTION_UNKNOWN),
    ],
)
def test_no_step_leads_to_less_secrecy_or_to_an_unknown_one(old: Any, new: Any, why: NotFollowed | None) -> None:
    assert fault(old=replace(ROOM, encrypted=old), new=replace(THERE, encrypted=new)) is why


# Power

OLD_POWERS = Powers(users={OWNER: 100, SECOND: 50})
STRONG = replace(ROOM, powers=OLD_POWERS)


@pytest.mark.parametrize(
    "users", [{OWNER: 100, SECOND: 50}, {OWNER: 100}, {}, {OWNER: 100, MALLORY: 49}, {SECOND: 100}]
)
def test_who_had_the_power_before_may_have_it_again(users: dict[UserId, int]) -> None:
    assert fault(BY_POWER, old=STRONG, new=replace(THERE, powers=Powers(users=users))) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"new": replace(THERE, powers=Powers(users={MALLORY: 50}))},
        {"new": replace(THERE, powers=Powers(users={}, default=50))},
        {"new": replace(THERE, powers=Powers(users={}), creators=frozenset({MALLORY}))},
        {"new": replace(THERE, powers=OLD_POWERS), "creators": frozenset({MALLORY})},
        {"new": replace(THERE, powers=OLD_POWERS), "creators": frozenset({OWNER, AGENT})},
        {"new": replace(THERE, powers=OLD_POWERS), "sender": MALLORY},
        {"new": replace(THERE, powers=OLD_POWERS), "sender": None},
        {"new": replace(THERE, powers=None)},
        {"new": replace(THERE, powers=OLD_POWERS), "old": replace(ROOM, powers=None)},
        {"new": replace(THERE, powers=Powers(users={})), "old": replace(ROOM, powers=None)},
        {"new": replace(THERE, powers=Powers(users={}, default=50)), "old": replace(ROOM, powers=None)},
    ],
)
def test_nobody_becomes_an_approver_by_an_upgrade(changes: dict[str, Any]) -> None:
    given = {"old": STRONG, **changes}
    assert fault(BY_POWER, **given) is NotFollowed.POWERS


def test_everybody_may_have_the_power_where_everybody_had_it() -> None:
    old = replace(ROOM, powers=Powers(users={}, default=50))
    assert fault(BY_POWER, old=old, new=replace(THERE, powers=Powers(users={MALLORY: 100}, default=50))) is None


def test_an_approver_of_the_list_gains_nothing_by_power() -> None:
    old = replace(ROOM, powers=Powers(users={}))
    assert fault(BY_POWER, old=old, new=replace(THERE, powers=Powers(users={OWNER: 100}))) is None


def test_power_matters_only_where_approvers_go_by_it() -> None:
    assert fault(new=replace(THERE, powers=Powers(users={MALLORY: 100})), sender=MALLORY) is None


# The last room


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, None),
        ({"joined": frozenset({POD, OWNER})}, NotFollowed.APPROVERS),
        ({"joined": frozenset({POD, OWNER, MALLORY, AGENT})}, NotFollowed.APPROVERS),
        ({"joined": frozenset({POD})}, NotFollowed.APPROVERS),
        ({"bot_joined": False}, NotFollowed.APPROVERS),
        ({"encrypted": True}, NotFollowed.CANNOT_ENCRYPT),
    ],
)
def test_as_many_approvers_as_decide_are_there(changes: dict[str, Any], why: NotFollowed | None) -> None:
    route = replace(FOLLOWS, room_id=NEW, quorum=2)
    assert target_fault(POLICY_THERE, route, replace(THERE, **changes), can_encrypt=False) is why


def test_an_encrypted_room_is_gone_into_with_keys() -> None:
    route = replace(FOLLOWS, room_id=NEW)
    assert target_fault(POLICY_THERE, route, replace(THERE, encrypted=True), can_encrypt=True) is None


def test_a_route_that_is_configured_no_more_is_in_nobodys_way() -> None:
    route = replace(FOLLOWS, room_id=NEW, escalation=Escalation(1_000, RouteName("gone")))
    assert target_fault(replace(POLICY, routes={ROUTE: route}), route, THERE, can_encrypt=False) is None


@pytest.mark.parametrize("goes", [ROUTE, RouteName("leads")])
def test_two_routes_of_which_one_asks_what_the_other_did_do_not_come_into_one_room(goes: RouteName) -> None:
    leads = replace(FOLLOWS, name=RouteName("leads"), room_id=RoomId("!leads"))
    first = replace(FOLLOWS, escalation=Escalation(1_000, leads.name))
    other, there = (leads, first) if goes == ROUTE else (first, leads)
    policy = replace(POLICY, routes={first.name: first, leads.name: leads})
    policy = replace(policy, routes={**policy.routes, other.name: replace(other, room_id=NEW)})
    assert target_fault(policy, replace(there, room_id=NEW), THERE, can_encrypt=False) is NotFollowed.ASKED_THERE
