"""What tombstones and the beginnings of rooms say, whatever they hold."""

from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.core.upgrades import Origin, Successor
from agentpod_bot.matrix.upgrades import join_request, origin_in, successor_in

POD = UserId("@pod:hs.example")
OWNER = UserId("@owner:hs.example:8448")
SECOND = UserId("@second:hs.example")
OLD, NEW = RoomId("!old"), RoomId("!new")


def event(content: Any, sender: Any = OWNER) -> dict[str, Any]:
    return {"content": content, "sender": sender, "state_key": ""}


def test_a_tombstone_names_the_new_room_and_who_upgraded() -> None:
    found = successor_in(event({"replacement_room": NEW}))
    assert found == Successor(NEW, OWNER)
    assert found.servers == ("hs.example:8448",)


@pytest.mark.parametrize("named", [None, 7, "", [], {}, "!a\nb", "!" + "a" * 300])
def test_what_is_no_room_id_names_no_room(named: Any) -> None:
    assert successor_in(event({"replacement_room": named})) is None
    assert origin_in(event({"predecessor": {"room_id": named}}), None, own=POD).predecessor is None


@pytest.mark.parametrize("sender", [None, 7, "", "nobody"])
def test_without_a_readable_sender_no_server_is_known(sender: Any) -> None:
    found = successor_in(event({"replacement_room": NEW}, sender))
    assert found is not None
    assert found.servers == ()


def test_a_homeserver_that_sends_the_content_alone_leaves_the_sender_unknown() -> None:
    assert successor_in({"replacement_room": NEW}) == Successor(NEW, None)
    found = origin_in({"predecessor": {"room_id": OLD}, "creator": SECOND}, None, own=POD)
    assert (found.predecessor, found.creators) == (OLD, {SECOND})


def test_there_is_no_successor_without_a_tombstone_and_no_predecessor_without_a_beginning() -> None:
    assert successor_in(None) is None
    assert origin_in(None, None, own=POD) == Origin(None, frozenset(), speaks=True)


@pytest.mark.parametrize("predecessor", [None, "!old", [], {}, 7])
def test_a_predecessor_is_an_object_with_a_room_id(predecessor: Any) -> None:
    assert origin_in(event({"predecessor": predecessor}), None, own=POD).predecessor is None


def test_everybody_whom_the_beginning_makes_powerful_is_a_creator() -> None:
    content = {"room_version": "12", "additional_creators": [SECOND], "predecessor": {"room_id": OLD}}
    assert origin_in(event(content), None, own=POD).creators == {OWNER, SECOND}
    assert origin_in(event({**content, "room_version": "11"}), None, own=POD).creators == {OWNER}


@pytest.mark.parametrize(
    ("levels", "speaks"),
    [
        (None, True),
        ({}, True),
        ({"events_default": 50}, False),
        ({"events_default": 50, "users": {POD: 50}}, True),
        ({"events_default": 50, "users_default": 50}, True),
        ({"events": {"m.room.message": 1}}, False),
    ],
)
def test_whether_the_bot_may_speak_goes_by_its_power(levels: dict[str, Any] | None, speaks: bool) -> None:
    assert origin_in(event({"room_version": "11"}), levels, own=POD).speaks is speaks


def test_a_creator_of_a_newer_room_may_always_speak() -> None:
    assert origin_in(event({"room_version": "12"}, POD), {"events_default": 50}, own=POD).speaks


def test_a_room_is_joined_by_its_whole_id_over_the_servers_that_are_named() -> None:
    assert join_request(RoomId("!a/b:c?d"), ()) == ("POST", "/_matrix/client/v3/join/%21a%2Fb%3Ac%3Fd")
    _, path = join_request(NEW, ("hs.example:8448",))
    assert path.endswith("/join/%21new?via=hs.example%3A8448&server_name=hs.example%3A8448")
