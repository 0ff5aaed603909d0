from __future__ import annotations

from types import SimpleNamespace

from structlog.testing import capture_logs

from agentpod_bot.broker.rooms import Rooms
from agentpod_bot.broker.world import World
from agentpod_bot.core.ids import RoomId
from agentpod_bot.core.room import Invite
from tests.examples import MALLORY, OPS, OWNER, POLICY


def test_an_invitation_into_a_routes_room_by_no_approver_is_told_and_one_to_anywhere_else_is_not() -> None:
    world = World(POLICY, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]  # neither is asked
    rooms = Rooms(world, SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]  # likewise
    elsewhere = RoomId("!elsewhere:hs.example")
    with capture_logs() as logged:
        rooms.follow(
            Invite(room_id=room_id, sender=sender) for room_id in (OPS, elsewhere) for sender in (MALLORY, OWNER)
        )
    assert [(line["event"], line["room_id"], line["sender"]) for line in logged] == [
        ("invitation_by_no_approver", OPS, MALLORY)
    ]
