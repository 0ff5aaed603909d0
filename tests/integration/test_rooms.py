from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.e2e_person import switch_on
from tests.integration import said
from tests.integration.daemons import REJECT, Harness, eventually

if TYPE_CHECKING:
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast, House, Place
    from tests.integration.daemons import Daemon

pytestmark = pytest.mark.synapse

without_keys = pytest.mark.parametrize("sealed", [False], ids=["without keys"])
"""For what a bot does that cannot encrypt."""
UNSENDABLE = [{"id": "allow_once", "kind": "allow_once", "label": "very " * 50}, REJECT]
"""What no room can be asked (413): so whether a room can be asked is found out without asking."""


async def refused_with(harness: Harness, code: str, **fields: Any) -> None:
    """Asking is refused so, as soon as the daemon knows."""

    async def is_so() -> bool:
        reply = await harness.ask(options=UNSENDABLE, **fields)
        being_read = reply.status == 503 and reply.body["code"] == "matrix_unavailable" != code
        if reply.status == 413 or being_read:  # what is known of a room is asked for anew where a send was refused
            return False
        assert (reply.status, reply.body["code"]) == (503, code), reply
        assert int(reply.headers["Retry-After"]) > 0
        return True

    await eventually(is_so)


async def sendable(harness: Harness, **fields: Any) -> None:
    """Return once the room can be asked."""

    async def is_so() -> bool:
        return (await harness.ask(options=UNSENDABLE, **fields)).status == 413

    await eventually(is_so)


async def membership(person: Person, room_id: str, user_id: str) -> str:
    path = f"rooms/{quote(room_id, safe='')}/state/m.room.member/{quote(user_id, safe='')}"
    told: str = (await person.call("GET", path))["membership"]
    return told


@without_keys
async def test_into_a_room_that_became_encrypted_nothing_is_said_and_nothing_counts_there(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    await daemon.start()
    async with daemon.harness() as harness:
        asked, unwanted = await harness.asked(request_id="r1"), await harness.asked(request_id="r2")
        question = await said.question(owner, cast.room_id, "r1")
        await said.question(owner, cast.room_id, "r2")
        switch = await switch_on(owner, cast.room_id)
        await refused_with(harness, "room_encrypted_without_crypto")
        await harness.call("POST", f"/v1/requests/{unwanted['request_id']}/cancel")
        await owner.reply(cast.room_id, question["event_id"], "1")
        await owner.send(cast.room_id, f"1 {asked['code']}")
        # nothing tells of what is not done: so long an answer or an edit never takes
        assert (await harness.view("r1", wait_s=2))["status"] == "pending"
        assert (await harness.view("r2"))["status"] == "cancelled"
    events = await owner.history(cast.room_id)
    since = [event["event_id"] for event in events].index(switch)
    assert [event for event in events[since:] if event["sender"] == cast.pod.user_id] == []


async def test_out_of_the_room_or_left_alone_there_it_says_so_and_invited_by_an_approver_it_is_back(
    place: Place, *, sealed: bool
) -> None:
    await place.harness.asked(request_id="r1")
    question = await said.question(place.owner, place.room_id, "r1")
    path = f"rooms/{quote(place.room_id, safe='')}"
    await place.owner.call("POST", f"{path}/kick", {"user_id": place.pod.user_id})
    await refused_with(place.harness, "not_in_room")
    await place.owner.reply(place.room_id, question["event_id"], "1")
    await place.owner.invite(place.room_id, place.pod.user_id)
    await sendable(place.harness)
    await place.harness.asked(request_id="r2")
    await said.question(place.owner, place.room_id, "r2")
    if sealed:  # nobody gives the key of what they say to who is out, nor later
        await said.notice(place.owner, place.room_id, said.UNREADABLE)
        assert (await place.harness.view("r1"))["status"] == "pending"
        await place.owner.reply(place.room_id, question["event_id"], "1")
    # the reply was given while the bot was out, to a question that was still open: it is owed its effect
    assert (await place.harness.view("r1", wait_s=10))["decision"]["option_id"] == "allow_once"
    await place.owner.leave(place.room_id)
    await refused_with(place.harness, "approver_not_in_room")


async def test_a_strangers_invitation_is_not_followed_and_an_approvers_is(
    house: House, place: Place, *, sealed: bool
) -> None:
    shared = house.of[sealed]
    people, route, room_id = shared.people, shared.route, shared.elsewhere
    request_id = f"r1 of {route}"
    async with (
        house.daemon.harness() as harness,
        people.at(house.stranger) as stranger,
        people.at(house.approver) as approver,
    ):
        await refused_with(harness, "not_in_room", route=route)
        await stranger.invite(room_id, house.pod.user_id)
        # an answer that comes after the invitation has its effect: the invitation was seen
        asked = await place.harness.asked()
        await said.question(place.owner, place.room_id, asked["request_id"])
        await place.owner.send(place.room_id, "2")
        assert (await place.harness.view(asked["request_id"], wait_s=20))["status"] == "decided"
        assert await membership(stranger, room_id, house.pod.user_id) == "invite"
        await refused_with(harness, "not_in_room", route=route)

        await approver.invite(room_id, house.pod.user_id)
        await sendable(harness, route=route)
        await harness.asked(request_id=request_id, route=route)
        question = await said.question(approver, room_id, request_id)
        await stranger.reply(room_id, question["event_id"], "1")
        await said.notice(approver, room_id, "not an approver")
        await approver.reply(room_id, question["event_id"], "2")
        assert (await harness.view(request_id, wait_s=20))["decision"]["answered_by"] == house.approver.user_id

        path = f"rooms/{quote(room_id, safe='')}/state/m.room.tombstone"
        await stranger.call("PUT", path, {"body": "moved", "replacement_room": place.room_id})
        await refused_with(harness, "room_replaced", route=route)
        status, body = await house.daemon.readiness()
        assert (status, body["problems"], body["routes"][route]) == (503, ["room_replaced"], "room_replaced")
        await said.notice(stranger, room_id, "This room was replaced by another one")


@without_keys
async def test_a_room_that_was_encrypted_before_the_start_is_not_asked(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    await switch_on(owner, cast.room_id)
    daemon.config["routes"]["beside"] = daemon.config["routes"]["ops"]
    daemon.config["clients"]["laptop"]["routes"] = ["ops", "beside"]
    await daemon.start()
    async with daemon.harness() as harness:
        await refused_with(harness, "room_encrypted_without_crypto", route="ops")
        assert (await harness.ask()).body["errors"][0]["loc"] == ["route"]
        assert (await harness.call("GET", "/v1/requests")).body["requests"] == []


async def test_an_upgraded_room_is_followed_once_an_approver_invites_and_stays_so_over_a_restart(
    cast: Cast, owner: Person, daemon: Daemon
) -> None:
    daemon.config["routes"]["ops"]["follow_upgrades"] = True
    await daemon.start()
    async with daemon.harness() as harness:
        await harness.asked(request_id="r1")
        waiting = asyncio.create_task(harness.view("r1", wait_s=60))
        question = await said.question(owner, cast.room_id, "r1")
        path = f"rooms/{quote(cast.room_id, safe='')}/upgrade"
        new = (await owner.call("POST", path, {"new_version": "12"}))["replacement_room"]
        await refused_with(harness, "room_replaced")
        # whoever upgraded may still speak in the old room, where nothing counts any more
        await owner.reply(cast.room_id, question["event_id"], "1")
        status, body = await daemon.readiness()
        assert (status, body["problems"], body["routes"]) == (503, ["room_replaced"], {"ops": "room_replaced"})
        await owner.invite(new, cast.pod.user_id)
        await sendable(harness)
        again = await said.question(owner, new, "r1")
        assert again["content"]["subject"] == question["content"]["subject"]
        assert again["content"]["code"] == question["content"]["code"]
        assert (await harness.view("r1"))["status"] == "pending"
        await owner.reply(new, again["event_id"], "2")
        told = await waiting
        assert (told["decision"]["option_id"], told["decision"]["answered_by"]) == ("reject_once", owner.user_id)
    await daemon.stop()
    await daemon.start()
    async with daemon.harness() as harness:
        await harness.asked(request_id="r2")
        await said.question(owner, new, "r2")
        events = await owner.history(new)
        assert [event["content"]["request_id"] for event in said.questions(events)] == ["r1", "r2"]
