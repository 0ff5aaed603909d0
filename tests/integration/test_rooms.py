from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from tests.integration import said
from tests.integration.daemons import Harness, eventually

if TYPE_CHECKING:
    from agentpod_bot.demo.homeserver import PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import House, Place

pytestmark = pytest.mark.synapse

MEGOLM = {"algorithm": "m.megolm.v1.aes-sha2"}


async def refused_with(harness: Harness, code: str) -> None:
    """Asking is, or very soon will be, refused so; where it is not yet, the question is withdrawn."""

    async def is_so() -> bool:
        reply = await harness.ask()
        if reply.status == 201:
            await harness.call("POST", f"/v1/requests/{reply.body['request_id']}/cancel")
            return False
        assert (reply.status, reply.body["code"]) == (503, code), reply
        assert int(reply.headers["Retry-After"]) > 0
        return True

    await eventually(is_so)


async def membership(person: Person, room_id: str, user_id: str) -> str:
    path = f"rooms/{quote(room_id, safe='')}/state/m.room.member/{quote(user_id, safe='')}"
    told: str = (await person.call("GET", path))["membership"]
    return told


async def test_into_a_room_that_became_encrypted_nothing_is_said_and_nothing_counts_there(place: Place) -> None:
    asked = await place.harness.asked(request_id="r1")
    question = await said.question(place.owner, place.room_id, "r1")
    path = f"rooms/{quote(place.room_id, safe='')}/state/m.room.encryption"
    switch = (await place.owner.call("PUT", path, MEGOLM))["event_id"]
    await refused_with(place.harness, "room_encrypted_without_crypto")
    await place.owner.reply(place.room_id, question["event_id"], "1")
    clear = await place.owner.send(place.room_id, f"1 {asked['code']}")
    await place.owner.react(place.room_id, question["event_id"], "9️⃣")
    await place.daemon.until_logged("http_request_answered")
    assert clear
    assert (await place.harness.view("r1", wait_s=1.5))["status"] == "pending"
    await place.harness.call("POST", "/v1/requests/r1/cancel")
    assert (await place.harness.view("r1"))["status"] == "cancelled"
    await refused_with(place.harness, "room_encrypted_without_crypto")
    events = await place.owner.history(place.room_id)
    since = [event["event_id"] for event in events].index(switch)
    assert [event for event in events[since:] if event["sender"] == place.pod.user_id] == []


async def test_thrown_out_of_the_room_it_says_so_and_invited_by_an_approver_it_is_back(place: Place) -> None:
    await place.harness.asked(request_id="r1")
    question = await said.question(place.owner, place.room_id, "r1")
    path = f"rooms/{quote(place.room_id, safe='')}"
    await place.owner.call("POST", f"{path}/kick", {"user_id": place.pod.user_id})
    await refused_with(place.harness, "not_in_room")
    await place.owner.reply(place.room_id, question["event_id"], "1")
    await place.owner.invite(place.room_id, place.pod.user_id)

    async def asks_again() -> bool:
        return (await place.harness.ask(request_id="r2")).status in {200, 201}

    await eventually(asks_again)
    await said.question(place.owner, place.room_id, "r2")
    # the reply was given while the bot was out, to a question that was still open: it is owed its effect
    assert (await place.harness.view("r1", wait_s=10))["decision"]["option_id"] == "allow_once"


async def test_a_strangers_invitation_is_not_followed_and_an_approvers_is(
    synapse: PrivateSynapse, house: House, place: Place
) -> None:
    async with (
        house.daemon.harness() as harness,
        synapse.person(house.stranger) as stranger,
        synapse.person(house.approver) as approver,
    ):
        await refused_with(harness, "not_in_room")
        await stranger.invite(house.elsewhere, house.pod.user_id)
        # an answer that comes after the invitation has its effect: the invitation was seen
        asked = await place.harness.asked()
        await said.question(place.owner, place.room_id, asked["request_id"])
        await place.owner.send(place.room_id, "2")
        assert (await place.harness.view(asked["request_id"], wait_s=20))["status"] == "decided"
        assert await membership(stranger, house.elsewhere, house.pod.user_id) == "invite"
        await refused_with(harness, "not_in_room")

        await approver.invite(house.elsewhere, house.pod.user_id)

        async def asks() -> bool:
            return (await harness.ask(request_id="r1")).status in {200, 201}

        await eventually(asks)
        question = await said.question(approver, house.elsewhere, "r1")
        await stranger.reply(house.elsewhere, question["event_id"], "1")
        await said.notice(approver, house.elsewhere, "not an approver")
        await approver.reply(house.elsewhere, question["event_id"], "2")
        assert (await harness.view("r1", wait_s=20))["decision"]["answered_by"] == house.approver.user_id
