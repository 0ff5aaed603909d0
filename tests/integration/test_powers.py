"""Who has which power in a room, as a real homeserver says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.events import parse_state
from agentpod_bot.matrix.response import SYNC_FILTER

if TYPE_CHECKING:
    from agentpod_bot.demo.homeserver import PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast

pytestmark = pytest.mark.synapse

ENCRYPTION = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


@pytest.mark.parametrize(("version", "outranks"), [("11", False), ("12", True)])
async def test_creator_and_levels_are_read_from_the_state_and_from_a_sync(
    synapse: PrivateSynapse, cast: Cast, owner: Person, version: str, *, outranks: bool, sealed: bool
) -> None:
    asked = {
        "room_version": version,
        "power_level_content_override": {"users_default": 7},
        "invite": [cast.pod.user_id],
        "initial_state": [ENCRYPTION] if sealed else [],
    }
    bot, creator = UserId(cast.pod.user_id), UserId(cast.owner.user_id)
    room_id = RoomId((await owner.call("POST", "createRoom", asked))["room_id"])
    client = MatrixClient(synapse.url, bot, cast.pod.access_token)
    try:
        await client.join(room_id)
        state = await client.room_state(room_id)
        synced = await client.sync(None, timeout_ms=0, sync_filter=SYNC_FILTER)
    finally:
        await client.close()
    assert state.encrypted == sealed
    assert state.has_power(creator, 100)
    assert state.has_power(bot, 7)
    assert not state.has_power(bot, 8)
    assert state.creators == ({creator} if outranks else frozenset())
    told = synced["rooms"]["join"][room_id]
    read = [parse_state(event) for event in (*told["state"]["events"], *told["timeline"]["events"])]
    assert state.creators in [getattr(event, "creators", None) for event in read]
    assert state.powers in [getattr(event, "powers", None) for event in read]
