"""Who has which power in a room, whatever its state holds."""

from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.ids import EventId, UserId
from agentpod_bot.core.room import Created, Powered, Powers, Unheeded
from agentpod_bot.matrix.events import parse, parse_state
from agentpod_bot.matrix.powers import creators_of, first_powers, level_to_send, powers_of

POD = UserId("@pod:hs.example")
OWNER = UserId("@owner:hs.example")
SECOND = UserId("@second:hs.example")
TS = 1_800_000_000_000


def state(kind: str, content: Any, state_key: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "state_key": state_key,
        "event_id": "$e",
        "sender": OWNER,
        "origin_server_ts": TS,
        "content": content,
    }


@pytest.mark.parametrize("level", ["50", "100", 50.0, True, None, [50], {}, 2**53, -(2**53)])
def test_a_level_that_is_no_whole_number_counts_as_0(level: Any) -> None:
    powers = powers_of({"users": {OWNER: level}, "users_default": level})
    assert powers == Powers(users={OWNER: 0}, default=0)


@pytest.mark.parametrize("content", [{}, {"users": []}, {"users": "x"}, {"users": None, "users_default": None}])
def test_broken_power_levels_give_nobody_any_power(content: dict[str, Any]) -> None:
    assert powers_of(content) == Powers(users={}, default=0)


def test_levels_and_the_default_are_taken_as_they_are() -> None:
    content = {"users": {OWNER: 100, SECOND: -5}, "users_default": 7}
    assert powers_of(content) == Powers(users={OWNER: 100, SECOND: -5}, default=7)


@pytest.mark.parametrize("version", ["12", "13", "120"])
def test_creators_outrank_since_version_12(version: str) -> None:
    content = {"room_version": version, "additional_creators": [SECOND, 7, None]}
    assert creators_of(content, OWNER) == {OWNER, SECOND}
    assert creators_of({"room_version": version, "additional_creators": "x"}, None) == frozenset()
    assert first_powers(content, OWNER) == Powers(users={})


@pytest.mark.parametrize("version", ["11", "1", "", "12.0", "v12", "-12", "\u0661\u0662", "012", 12, None])
def test_nobody_outranks_in_an_older_or_unknown_version(version: Any) -> None:
    content = {"room_version": version, "additional_creators": [SECOND]}
    assert creators_of(content, OWNER) == frozenset()
    assert creators_of({}, OWNER) == frozenset()


def test_the_creator_of_an_older_room_without_levels_has_100() -> None:
    assert first_powers({"creator": SECOND, "room_version": "6"}, OWNER) == Powers(users={SECOND: 100})
    assert first_powers({"room_version": "11"}, OWNER) == Powers(users={OWNER: 100})
    assert first_powers({"creator": 7}, OWNER) == Powers(users={})
    assert first_powers({}, None) == Powers(users={})


def test_power_levels_and_creation_are_read_from_a_sync() -> None:
    seen: dict[str, Any] = {"event_id": EventId("$e"), "sender": OWNER, "ts": TS}
    levels = state("m.room.power_levels", {"users": {SECOND: 50}})
    assert parse_state(levels) == parse(levels, own=POD) == Powered(**seen, powers=Powers(users={SECOND: 50}))
    created = state("m.room.create", {"room_version": "12"})
    assert parse_state(created) == parse(created, own=POD) == Created(**seen, creators=frozenset({OWNER}))


@pytest.mark.parametrize("kind", ["m.room.power_levels", "m.room.create"])
def test_state_under_another_key_or_no_state_gives_no_power(kind: str) -> None:
    other = state(kind, {"users": {OWNER: 100}, "room_version": "12"}, state_key="x")
    assert parse_state(other) is None
    del other["state_key"]
    assert isinstance(parse(other, own=POD), Unheeded)


@pytest.mark.parametrize(
    ("content", "level"),
    [
        (None, 0),
        ({}, 0),
        ({"events_default": 50}, 50),
        ({"events_default": 50, "events": {"m.reaction": 100}}, 50),
        ({"events_default": 50, "events": {"m.room.message": 0}}, 0),
        ({"events": {"m.room.message": "50"}}, 0),
        ({"events_default": "50", "events": []}, 0),
    ],
)
def test_sending_takes_the_level_of_its_type_or_else_the_usual_one(content: Any, level: int) -> None:
    assert level_to_send(content, "m.room.message") == level
