from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentpod_bot.cli.findings import Finding, Grade, Levels, of_clock, of_room, of_store
from agentpod_bot.core.ids import RoomId, RouteName, UserId
from agentpod_bot.core.policy import Escalation, Reactions
from agentpod_bot.core.room import Powers
from agentpod_bot.store.examination import Examined
from tests.examples import MALLORY, OPS_ROUTE, OWNER, POD, POLICY, ROOM, SECOND, START

GOOD = Examined(
    exists=True,
    folder_fault=None,
    file_modes={},
    free_bytes=10**12,
    schema="0001",
    newest_schema="0001",
    checked_whole=True,
    open_questions=2,
    oldest_open_ms=START,
    unsent=1,
    held_by=42,
)
STORE = Path("/var/lib/agentpod-bot/agentpod.db")
POWERFUL = replace(ROOM, powers=Powers(users={POD: 50}))
FREE = Levels(message=0, reaction=0)


def grades(found: list[Finding]) -> list[Grade]:
    return [finding.grade for finding in found]


def store(**changes: Any) -> list[Finding]:
    return list(of_store(STORE, replace(GOOD, **changes), START + 180_000))


def room(levels: Levels | None = FREE, route: Any = OPS_ROUTE, **changes: Any) -> list[Finding]:
    return list(of_room(POLICY, route, replace(POWERFUL, **changes), levels))


def worst(found: list[Finding], grade: Grade) -> Finding:
    """The one finding that is so bad; every bad one says what to do."""
    assert all(finding.remedy for finding in found if finding.grade is not Grade.OK and "folder" not in finding.what)
    [bad] = [finding for finding in found if finding.grade is grade]
    return bad


def test_a_good_store_and_a_good_room_are_ok() -> None:
    assert set(grades(store())) == set(grades(room())) == {Grade.OK}
    assert "2, the oldest 3 min old; 1 events are to be sent; process 42 has it open" in str(store()[-1])
    assert str(room()[-1]) == f"ok    route ops: the bot is in {ROOM.room_id} and may send there"


@pytest.mark.parametrize(
    ("changes", "grade", "said"),
    [
        ({"folder_fault": "the folder x has mode 0755"}, Grade.FAIL, "has mode 0755"),
        ({"fault": "row 3 missing from index"}, Grade.FAIL, "restore a backup"),
        ({"free_bytes": 0}, Grade.FAIL, "make room"),
        ({"free_bytes": 10_000_000}, Grade.WARN, "9765 KiB are left"),
        ({"file_modes": {"agentpod.db-wal": 0o644}}, Grade.WARN, "agentpod.db-wal has mode 0644"),
        ({"exists": False}, Grade.WARN, "the first start makes it"),
        ({"checked_whole": False}, Grade.WARN, "too large to be checked in time"),
        ({"schema": "0000"}, Grade.WARN, "the next start brings it up to date"),
    ],
)
def test_what_is_wrong_with_a_store_is_said_with_what_to_do(changes: dict[str, Any], grade: Grade, said: str) -> None:
    assert said in str(worst(store(**changes), grade))


@pytest.mark.parametrize(
    ("changes", "grade", "said"),
    [
        ({"bot_joined": False}, Grade.FAIL, "have an approver invite it"),
        ({"encrypted": True}, Grade.FAIL, "cannot encrypt"),
        ({"encrypted": None}, Grade.FAIL, "not known"),
        ({"replaced": True}, Grade.FAIL, "was replaced"),
        ({"joined": frozenset({POD, MALLORY})}, Grade.FAIL, f"have them join: {OWNER}, {SECOND}"),
        ({"joined": frozenset({POD, OWNER})}, Grade.WARN, f"not in the room: {SECOND}"),
        ({"levels": Levels(message=51, reaction=0)}, Grade.FAIL, "sending messages takes power level 51"),
        ({"levels": None}, Grade.WARN, "could not be read"),
        ({"powers": None}, Grade.WARN, "could not be read"),
    ],
)
def test_what_is_wrong_with_a_room_is_said_with_what_to_do(changes: dict[str, Any], grade: Grade, said: str) -> None:
    assert said in str(worst(room(**changes), grade))


def test_a_replaced_room_that_is_followed_is_only_worth_a_look() -> None:
    found = room(replaced=True, route=replace(OPS_ROUTE, follow_upgrades=True))
    assert "was replaced by another, which the route follows" in str(worst(found, Grade.WARN))


def test_too_few_approvers_for_the_quorum_are_a_failure() -> None:
    found = room(route=replace(OPS_ROUTE, quorum=3))
    assert "2 approvers are in the room, and some options need 3" in str(worst(found, Grade.FAIL))
    alone = room(route=replace(OPS_ROUTE, quorum=3), joined=frozenset({POD, OWNER}))
    assert "1 approver is in the room, and some options need 3" in str(worst(alone, Grade.FAIL))


@pytest.mark.parametrize(
    ("own_quorum", "joined", "said"),
    [
        (3, ROOM.joined, "in whose room are 2 of the 3 approvers that it takes"),
        (1, frozenset({POD}), "in whose room are 0 of the 1 approvers that it takes"),
    ],
)
def test_questions_that_can_never_be_asked_next_are_a_failure_of_the_route_that_they_come_from(
    own_quorum: int, joined: frozenset[UserId], said: str
) -> None:
    own = replace(
        OPS_ROUTE,
        name=RouteName("night"),
        room_id=RoomId("!night:hs"),
        quorum=own_quorum,
        escalation=Escalation(60_000, OPS_ROUTE.name),
    )
    policy = replace(POLICY, routes={own.name: own, OPS_ROUTE.name: OPS_ROUTE})
    found = list(of_room(policy, OPS_ROUTE, replace(POWERFUL, joined=joined), FREE))
    [bad] = [finding for finding in found if finding.what == "route night"]
    assert (bad.grade, bad.remedy is not None) == (Grade.FAIL, True)
    assert said in str(bad)
    fine = replace(own, quorum=2)
    policy = replace(POLICY, routes={own.name: fine, OPS_ROUTE.name: OPS_ROUTE})
    assert set(grades(list(of_room(policy, OPS_ROUTE, POWERFUL, FREE)))) == {Grade.OK}


def test_a_route_that_asks_next_in_its_own_room_is_a_failure() -> None:
    own = replace(OPS_ROUTE, name=RouteName("night"), escalation=Escalation(60_000, OPS_ROUTE.name))
    policy = replace(POLICY, routes={own.name: own, OPS_ROUTE.name: OPS_ROUTE})
    assert "has the same room" in str(worst(list(of_room(policy, OPS_ROUTE, POWERFUL, FREE)), Grade.FAIL))


def test_reactions_that_the_bot_may_not_send_matter_only_where_it_seeds_them() -> None:
    levels = Levels(message=0, reaction=51)
    seeds = replace(OPS_ROUTE, reactions=Reactions.SEED)
    assert "set routes.ops.reactions to accept" in str(worst(room(levels, route=seeds), Grade.WARN))
    assert set(grades(room(levels))) == {Grade.OK}


@pytest.mark.parametrize(
    ("skew_ms", "grade", "said"),
    [
        (0, Grade.OK, "agrees"),
        (-4_999, Grade.OK, "agrees"),
        (5_000, Grade.WARN, "5 s behind"),
        (-59_999, Grade.WARN, "60 s ahead of"),
        (60_000, Grade.FAIL, "60 s behind"),
        (None, Grade.WARN, "does not say"),
    ],
)
def test_clocks_that_are_apart_are_told(skew_ms: int | None, grade: Grade, said: str) -> None:
    found = of_clock(skew_ms)
    assert found.grade is grade
    assert said in found.said
