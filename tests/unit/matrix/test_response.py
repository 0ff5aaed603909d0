from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.core.room import Invite, Membered, Said
from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.response import SYNC_FILTER, invites_of, next_batch_of, parts_of, room_batch

POD = UserId("@pod:hs.example")
OWNER = "@owner:hs.example"
OPS = RoomId("!ops")


def said(event_id: str, body: str = "1") -> dict[str, Any]:
    content = {"msgtype": "m.text", "body": body}
    return {"type": "m.room.message", "event_id": event_id, "sender": OWNER, "origin_server_ts": 1, "content": content}


def joined(event_id: str) -> dict[str, Any]:
    return said(event_id) | {"type": "m.room.member", "state_key": OWNER, "content": {"membership": "join"}}


def response(**kinds: Any) -> dict[str, Any]:
    return {"next_batch": "s2", "rooms": kinds}


def test_only_configured_rooms_are_taken_from_a_response() -> None:
    part = {
        "timeline": {"events": [said("$1")], "limited": True, "prev_batch": "p"},
        "state": {"events": [joined("$0")]},
    }
    (found,) = parts_of(response(join={"!ops": part, "!other": part}), frozenset({OPS}))
    assert (found.room_id, found.limited, found.prev_batch, found.left) == (OPS, True, "p", False)
    batch = room_batch(found, [], POD)
    assert [type(value) for value in (*batch.state, *batch.timeline)] == [Membered, Said]


def test_a_left_room_comes_with_what_was_said_before() -> None:
    (found,) = parts_of(response(leave={"!ops": {"timeline": {"events": [said("$1")]}}}), frozenset({OPS}))
    batch = room_batch(found, [], POD)
    assert batch.left
    assert [value.event_id for value in batch.timeline] == ["$1"]


def test_the_past_stands_before_the_timeline_and_nothing_twice() -> None:
    (found,) = parts_of(response(join={"!ops": {"timeline": {"events": [said("$3"), said("$4")]}}}), frozenset({OPS}))
    batch = room_batch(found, [said("$1"), said("$2"), said("$1"), said("$3"), None, {}], POD)
    assert [value.event_id for value in batch.timeline] == ["$1", "$2", "$3", "$4"]


def test_an_invitation_to_any_room_tells_who_invited() -> None:
    state = {"events": [joined("$1") | {"sender": OWNER, "state_key": POD, "content": {"membership": "invite"}}]}
    rooms = {"!new": {"invite_state": state}, "!silent": {"invite_state": {"events": []}}}
    assert invites_of(response(invite=rooms), POD) == (Invite(room_id=RoomId("!new"), sender=UserId(OWNER)),)


@pytest.mark.parametrize("broken", [{}, {"next_batch": None}, {"next_batch": ""}, {"next_batch": 7}])
def test_a_response_without_a_position_is_unusable(broken: dict[str, Any]) -> None:
    with pytest.raises(HomeserverUnavailable):
        next_batch_of(broken)


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["!ops", "events", "timeline", "state", "invite_state"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(rooms=JSON | st.fixed_dictionaries({"join": JSON, "leave": JSON, "invite": JSON}))
def test_no_shape_of_a_response_raises(rooms: Any) -> None:
    for part in parts_of({"rooms": rooms}, frozenset({OPS})):
        room_batch(part, [], POD)
    invites_of({"rooms": rooms}, POD)


def test_the_filter_asks_for_nothing_that_could_hide_an_answer_or_an_invitation() -> None:
    room = SYNC_FILTER["room"]
    assert not {"rooms", "not_rooms"} & (room.keys() | room["timeline"].keys())
    assert not {"senders", "not_senders", "lazy_load_members"} & (room["timeline"].keys() | room["state"].keys())
    assert set(room["timeline"]["types"]) == {
        "m.room.message",
        "m.reaction",
        "m.room.encrypted",
        "m.key.verification.*",
        "m.room.redaction",
        "m.room.member",
        "m.room.encryption",
        "m.room.tombstone",
        "m.room.power_levels",
        "m.room.create",
    }
