"""Whose devices are believed: `e2e.trust`, with a real client whose device is verified by emoji, or is not."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import UserId
from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
from agentpod_bot.matrix.e2e.exchange import ACCEPT, DONE, KEY, MAC, READY, START
from tests.e2e_person import ENCRYPTED
from tests.integration import said
from tests.integration.daemons import Daemon, Harness, ran
from tests.unit.matrix.e2e.persons import Person, Requester

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from agentpod_bot.demo.homeserver import Account
    from agentpod_bot.demo.person import Event
    from tests.e2e_person import E2EPerson
    from tests.integration.conftest import Cast
    from tests.integration.people import People

pytestmark = pytest.mark.synapse

ALWAYS = [
    {"id": "allow_always", "label": "Always allow", "meaning": "approve", "scope": "always"},
    {"id": "reject_once", "label": "Reject", "meaning": "reject", "scope": "once"},
]
NOT_VERIFIED = "was not verified"


@pytest.fixture
def sealed() -> bool:
    """Trust is about encrypted rooms."""
    return True


@pytest.fixture
async def strict(daemon: Daemon) -> AsyncIterator[Harness]:
    """A harness of a daemon that believes approvers' verified devices only."""
    daemon.config["e2e"]["trust"] = "approvers-verified"
    await daemon.start()
    async with daemon.harness() as harness:
        yield harness


def structured(question: dict[str, Any], option_id: str) -> dict[str, Any]:
    """A program's answer that names its question in nothing but what is encrypted."""
    content = question["content"]
    return {
        "suite_event_type": "dev.agentpod.permission.answer.v2",
        "schema_version": 1,
        "request_id": content["request_id"],
        "option_id": option_id,
        "subject": {"digest": content["subject"]["digest"], "revision": 1},
        "msgtype": "m.text",
        "body": option_id,
    }


def published(person: E2EPerson) -> Person:
    """The person's identity, and the device, as far as a verification needs them."""
    return Person(UserId(person.user_id), person.device_id)


async def bots_keys(person: E2EPerson, cast: Cast) -> DeviceKeys:
    """The bot's device as the homeserver tells it."""
    pod, device_id = cast.pod.user_id, cast.pod.device_id
    told = await person.call("POST", "keys/query", {"device_keys": {pod: [device_id]}})
    keys = told["device_keys"][pod][device_id]["keys"]
    return DeviceKeys(
        user_id=UserId(pod),
        device_id=device_id,
        ed25519=keys[f"ed25519:{device_id}"],
        curve25519=keys[f"curve25519:{device_id}"],
    )


async def verify(daemon: Daemon, person: E2EPerson, cast: Cast, *, identity: bool = False) -> None:
    """Both sides see the same emoji, and say so; what counts from then on is the device, or the whole identity."""
    bot = await bots_keys(person, cast)
    requester = Requester(published(person), bot, uuid.uuid4().hex)
    before = len(daemon.logged("verification_emoji"))

    async def tell(kind: str, content: dict[str, Any]) -> None:
        await person.tell(bot.user_id, bot.device_id, kind, content)

    await tell(START, requester.start())
    requester.accepted(await person.told(ACCEPT))
    await tell(KEY, requester.key())
    requester.keyed(await person.told(KEY))
    shown = await daemon.until_logged("verification_emoji", times=before + 1)
    assert shown["numbers"] == " ".join(map(str, requester.numbers))
    confirming = asyncio.create_task(ran(daemon.command("verify", "--yes-they-match", shown["verification_id"])))
    master = requester.person.master.public
    keys = {f"ed25519:{master}": master} if identity else {f"ed25519:{person.device_id}": person.ed25519}
    await tell(MAC, requester.mac(keys))
    confirmed = await confirming
    assert confirmed.code == 0, confirmed


async def verify_in_room(daemon: Daemon, person: E2EPerson, cast: Cast) -> list[dict[str, Any]]:
    """The same as a client does it that asks in the room itself; the events with which the bot answered."""
    bot, room_id = await bots_keys(person, cast), cast.room_id
    requester = Requester(published(person), bot, "", in_room=True)
    requester.transaction_id = await person.send(room_id, requester.request(0))
    heard: list[dict[str, Any]] = []

    async def hears(kind: str) -> dict[str, Any]:
        event = await person.until(room_id, lambda event: event["type"] == kind and event["sender"] == bot.user_id)
        heard.append(event)
        content: dict[str, Any] = event["content"]
        return content

    await hears(READY)
    await person.send(room_id, requester.start(), event_type=START)
    requester.accepted(await hears(ACCEPT))
    await person.send(room_id, requester.key(), event_type=KEY)
    requester.keyed(await hears(KEY))
    shown = await daemon.until_logged("verification_emoji")
    assert shown["numbers"] == " ".join(map(str, requester.numbers))
    confirming = asyncio.create_task(ran(daemon.command("verify", "--yes-they-match", shown["verification_id"])))
    await hears(MAC)
    mac = requester.mac({f"ed25519:{person.device_id}": person.ed25519})
    await person.send(room_id, mac, event_type=MAC)
    await hears(DONE)
    confirmed = await confirming
    assert confirmed.code == 0, confirmed
    return heard


async def publish_identity(owner: E2EPerson) -> None:
    """Give the account an identity: keys that vouch for its devices."""
    me = published(owner)
    answer = me.answer()
    signing = {
        "master_key": answer["master_keys"][me.user_id],
        "self_signing_key": answer["self_signing_keys"][me.user_id],
    }
    await owner.call("POST", "keys/device_signing/upload", signing)


async def sign(identity: Person, device: E2EPerson) -> None:
    """Have the identity vouch for a device."""
    told = await device.call("POST", "keys/query", {"device_keys": {device.user_id: [device.device_id]}})
    keys = told["device_keys"][device.user_id][device.device_id]
    signed = identity.self_signing.signed({**keys, "signatures": {}}, device.user_id)
    told = await device.call("POST", "keys/signatures/upload", {device.user_id: {device.device_id: signed}})
    assert told["failures"] == {}


async def test_where_devices_have_to_be_verified_an_unverified_one_may_only_reject_by_reaction(
    strict: Harness, owner: E2EPerson, cast: Cast
) -> None:
    asked = await strict.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    await owner.reply(cast.room_id, question["event_id"], "1")
    notice = await said.notice(owner, cast.room_id, NOT_VERIFIED)
    assert "agentpod-bot verify" in notice["content"]["body"]
    await owner.send(cast.room_id, f"1 {asked['code']}")
    await owner.send(cast.room_id, f"2 {asked['code']}")
    await owner.send(cast.room_id, structured(question, "allow_once"))
    await owner.react(cast.room_id, question["event_id"], "1️⃣")
    # nothing tells of what is not done: so long an answer never takes
    assert (await strict.view("r1", wait_s=2))["status"] == "pending"
    await owner.react(cast.room_id, question["event_id"], "2️⃣")
    decision = (await strict.view("r1", wait_s=20))["decision"]
    assert (decision["option_id"], decision["via"]) == ("reject_once", "reaction")


@pytest.mark.parametrize("way", ["code", "structured"])
async def test_a_device_that_was_verified_by_emoji_approves_where_it_names_the_question_in_what_is_encrypted(
    daemon: Daemon, strict: Harness, owner: E2EPerson, cast: Cast, way: str
) -> None:
    asked = await strict.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    await verify(daemon, owner, cast)
    await owner.reply(cast.room_id, question["event_id"], "1")
    await said.notice(owner, cast.room_id, asked["code"])
    assert (await strict.view("r1"))["status"] == "pending"
    await owner.send(cast.room_id, structured(question, "allow_once") if way == "structured" else f"1 {asked['code']}")
    decision = (await strict.view("r1", wait_s=20))["decision"]
    assert (decision["option_id"], decision["answered_by"]) == ("allow_once", cast.owner.user_id)

    daemon.kill()
    await daemon.ended()
    await daemon.start()  # what was verified stays so
    again = await strict.asked(request_id="r2")
    await said.question(owner, cast.room_id, "r2")
    await owner.send(cast.room_id, f"1 {again['code']}")
    assert (await strict.view("r2", wait_s=20))["decision"]["option_id"] == "allow_once"


async def test_where_only_verified_devices_read_another_one_is_told_that_it_does_not(
    daemon: Daemon, owner: E2EPerson, cast: Cast
) -> None:
    daemon.config["e2e"]["trust"] = "verified"
    await daemon.start()
    async with daemon.harness() as harness:
        unread = await harness.asked(request_id="r1")
        await owner.until(cast.room_id, lambda event: event["type"] == ENCRYPTED)
        assert len(owner.undecryptable) == 1
        await owner.send(cast.room_id, f"1 {unread['code']}")
        assert (await harness.view("r1", wait_s=2))["status"] == "pending"
        await verify(daemon, owner, cast)
        asked = await harness.asked(request_id="r2")
        await said.question(owner, cast.room_id, "r2")
        await owner.send(cast.room_id, f"1 {asked['code']}")
        assert (await harness.view("r2", wait_s=20))["decision"]["option_id"] == "allow_once"


@pytest.mark.parametrize("trust", ["approvers-verified", "verified"])
async def test_what_a_verification_in_the_room_says_is_encrypted_and_read_by_the_device_that_is_not_verified_yet(
    daemon: Daemon, owner: E2EPerson, cast: Cast, trust: str
) -> None:
    daemon.config["e2e"]["trust"] = trust
    await daemon.start()
    async with daemon.harness() as harness:
        await harness.asked(request_id="r1")
        before = await owner.until(cast.room_id, lambda event: owner.raw[event["event_id"]]["type"] == ENCRYPTED)
        heard = await verify_in_room(daemon, owner, cast)
        assert [owner.raw[event["event_id"]]["type"] for event in heard] == [ENCRYPTED] * len(heard)
        assert (before["event_id"] in owner.undecryptable) is (trust == "verified")
        asked = await harness.asked(request_id="r2")
        await said.question(owner, cast.room_id, "r2")
        await owner.send(cast.room_id, f"1 {asked['code']}")
        assert (await harness.view("r2", wait_s=20))["decision"]["option_id"] == "allow_once"


async def test_a_device_for_which_a_verified_identity_vouches_is_believed_and_another_one_is_not(
    daemon: Daemon, strict: Harness, owner: E2EPerson, cast: Cast, people: People
) -> None:
    await publish_identity(owner)
    await verify(daemon, owner, cast, identity=True)
    asked = await strict.asked(request_id="r1")
    await said.question(owner, cast.room_id, "r1")
    async with await people.new_device(cast.owner) as newer:
        await newer.send(cast.room_id, f"1 {asked['code']}")
        await said.notice(owner, cast.room_id, NOT_VERIFIED)
        assert (await strict.view("r1"))["status"] == "pending"
        await sign(published(owner), newer)
        await newer.send(cast.room_id, f"1 {asked['code']}")
        assert (await strict.view("r1", wait_s=20))["decision"]["option_id"] == "allow_once"


async def test_a_vote_whose_device_is_signed_out_counts_no_longer_and_a_vote_from_another_verified_one_does(
    daemon: Daemon, owner: E2EPerson, cast: Cast, people: People, register: Callable[[str], Awaitable[Account]]
) -> None:
    account = await register("second")
    daemon.approve(cast.owner.user_id, account.user_id)
    daemon.config["e2e"]["trust"] = "approvers-verified"
    daemon.config["routes"]["ops"]["quorum"] = 2
    async with await people.new_device(account) as first, people.at(account) as second:
        await owner.invite(cast.room_id, account.user_id)
        await first.join(cast.room_id)
        await daemon.start()
        async with daemon.harness() as harness:
            asked = await harness.asked(request_id="r1", options=ALWAYS)
            question = await said.question(owner, cast.room_id, "r1")
            for person in (owner, first, second):
                await verify(daemon, person, cast)
            vote = f"1 {asked['code']}"
            await first.send(cast.room_id, vote)
            await votes_shown(owner, cast.room_id, question, account.user_id)
            await first.log_out()
            await owner.send(cast.room_id, vote)
            await votes_shown(owner, cast.room_id, question, cast.owner.user_id)
            assert (await harness.view("r1"))["status"] == "pending"
            await second.send(cast.room_id, vote)
            decision = (await harness.view("r1", wait_s=20))["decision"]
            assert decision["option_id"] == "allow_always"


async def votes_shown(reader: E2EPerson, room_id: str, question: dict[str, Any], voter: str) -> None:
    """Return once the question says that this person alone is for the option."""

    def shows(event: Event) -> bool:
        body = event["content"].get("m.new_content", {}).get("body", "")
        return f"1 of 2 votes for Always allow: {voter}" in body

    edit = await reader.until(room_id, shows)
    assert edit["content"]["m.relates_to"]["event_id"] == question["event_id"]
