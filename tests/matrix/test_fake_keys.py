"""The fake homeserver does with keys what a homeserver does: shown with real clients that encrypt."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
import vodozemac

from agentpod_bot.errors import HomeserverUnavailable, Refused
from tests.e2e_person import E2EPerson, Login, logged_in
from tests.matrix.fake_homeserver import PASSWORD, FakeHomeserver
from tests.matrix.fake_keys import canonical

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentpod_bot.core.ids import RoomId, UserId


class People:
    """Opens devices, and closes them at the end."""

    def __init__(self, hs: FakeHomeserver, stack: AsyncExitStack) -> None:
        self.hs = hs
        self._stack = stack

    async def on(self, user_id: str, device_id: str) -> E2EPerson:
        """A person at a new device."""
        person = E2EPerson(self.hs.url, Login(user_id, device_id, self.hs.token(user_id, device_id)))
        return await self._stack.enter_async_context(person)


@pytest.fixture
async def people(hs: FakeHomeserver) -> AsyncIterator[People]:
    async with AsyncExitStack() as stack:
        yield People(hs, stack)


@pytest.fixture
def sealed_room(hs: FakeHomeserver, room: RoomId, owner: UserId) -> RoomId:
    hs.encrypt(room, by=owner)
    return room


def says(text: str) -> Any:
    return lambda event: event["content"].get("body") == text


async def test_what_one_says_the_other_reads_and_the_homeserver_cannot(
    hs: FakeHomeserver, people: People, sealed_room: RoomId, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    asked = await bot.send(sealed_room, "Which?")
    read = await person.until(sealed_room, says("Which?"))
    assert (read["event_id"], read["sender"], read["type"]) == (asked, pod, "m.room.message")
    answer = await person.reply(sealed_room, asked, "this")
    await person.react(sealed_room, asked, "1️⃣")
    heard = await bot.until(sealed_room, says("this"))
    assert heard["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": asked}}
    assert bot.raw[answer]["content"]["sender_key"] == person.curve25519
    assert {event["type"] for event in hs.sent_by(pod, kind="m.room.encrypted")} == {"m.room.encrypted"}
    assert "this" not in str(hs.timeline(sealed_room))
    assert [event["type"] for event in await person.history(sealed_room)][-3:] == [
        "m.room.message",
        "m.room.message",
        "m.reaction",
    ]
    assert (bot.undecryptable, person.undecryptable) == (set(), set())


async def test_a_device_that_comes_later_reads_what_is_said_from_then_on(
    people: People, sealed_room: RoomId, pod: UserId, owner: UserId
) -> None:
    bot, phone = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    before = await bot.send(sealed_room, "before")
    await phone.until(sealed_room, says("before"))
    laptop = await people.on(owner, "LAPTOP")
    await bot.send(sealed_room, "after")
    await laptop.until(sealed_room, says("after"))
    assert laptop.undecryptable == {before}


async def test_a_device_that_is_logged_out_gets_nothing_more_and_its_keys_are_gone(
    hs: FakeHomeserver, people: People, sealed_room: RoomId, pod: UserId, owner: UserId
) -> None:
    bot, phone, laptop = [
        await people.on(user, device) for user, device in ((pod, "POD"), (owner, "PHONE"), (owner, "LAPTOP"))
    ]
    await bot.send(sealed_room, "for both")
    assert {message.to[1] for message in hs.to_device if message.event["type"] == "m.room.encrypted"} == {
        "PHONE",
        "LAPTOP",
    }
    await laptop.log_out()
    assert hs.devices(owner) == ["PHONE"]
    told = await phone.call("POST", "keys/query", {"device_keys": {owner: []}})
    assert list(told["device_keys"][owner]) == ["PHONE"]
    before = len(hs.to_device)
    await bot.send(sealed_room, "for one")
    await phone.until(sealed_room, says("for one"))
    assert {message.to[1] for message in hs.to_device[before:]} == {"PHONE"}
    with pytest.raises(Refused, match="M_UNKNOWN_TOKEN"):
        await laptop.call("GET", "account/whoami")


async def test_a_one_time_key_is_given_once_then_the_fallback_key_then_nothing(
    hs: FakeHomeserver, people: People, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    whole = hs.one_time_keys(owner, "PHONE")
    wanted = {"one_time_keys": {owner: {"PHONE": "signed_curve25519", "NONE": "signed_curve25519"}}}
    claims = [await bot.call("POST", "keys/claim", wanted) for _ in range(2)]
    one, two = [str(claim["one_time_keys"][owner]["PHONE"]) for claim in claims]
    assert one != two
    assert hs.one_time_keys(owner, "PHONE") == whole - 2
    fallback = {"signed_curve25519:AAAAfb": {"key": "k", "fallback": True, "signatures": {}}}
    await person.call("POST", "keys/upload", {"fallback_keys": fallback})
    synced = await person.call("GET", "sync")
    assert synced["device_unused_fallback_key_types"] == ["signed_curve25519"]
    assert synced["device_one_time_keys_count"] == {"signed_curve25519": whole - 2}
    hs.use_up_keys(owner, "PHONE")
    claims = [await bot.call("POST", "keys/claim", wanted) for _ in range(2)]
    assert [claim["one_time_keys"] for claim in claims] == [{owner: {"PHONE": fallback}}] * 2
    synced = await person.call("GET", "sync")
    assert synced["device_unused_fallback_key_types"] == []
    assert synced["device_one_time_keys_count"] == {"signed_curve25519": 0}
    hs.use_up_keys(owner, "PHONE", fallback=True)
    assert await bot.call("POST", "keys/claim", wanted) == {"one_time_keys": {}, "failures": {}}


async def test_keys_of_a_server_that_is_lost_are_told_as_failures(
    hs: FakeHomeserver, people: People, room: RoomId, pod: UserId
) -> None:
    far = hs.user("far", server="far.example")
    hs.join(room, far)
    bot, _ = await people.on(pod, "POD"), await people.on(far, "FAR")
    hs.lose_server("far.example")
    query, claim = {"device_keys": {far: [], pod: []}}, {"one_time_keys": {far: {"FAR": "signed_curve25519"}}}
    queried = await bot.call("POST", "keys/query", query)
    assert (list(queried["device_keys"]), list(queried["failures"])) == ([pod], ["far.example"])
    claimed = await bot.call("POST", "keys/claim", claim)
    assert (claimed["one_time_keys"], list(claimed["failures"])) == ({}, ["far.example"])
    hs.find_server("far.example")
    assert list((await bot.call("POST", "keys/query", query))["device_keys"][far]) == ["FAR"]
    assert list((await bot.call("POST", "keys/claim", claim))["one_time_keys"]) == [far]


async def test_a_message_to_a_device_comes_until_it_is_known_as_received_and_once_for_one_transaction(
    hs: FakeHomeserver, people: People, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    body = {"messages": {owner: {"PHONE": {"n": 1}, "NONE": {"n": 2}}}}
    first = await person.call("GET", "sync")
    for _ in range(2):
        await bot.call("PUT", "sendToDevice/m.test/once", body)
    assert len(hs.to_device) == 1
    message = {"sender": pod, "type": "m.test", "content": {"n": 1}}
    for _ in range(2):  # an answer that was lost on the way is given again
        again = await person.call("GET", "sync", query={"since": first["next_batch"]})
        assert again["to_device"]["events"] == [message]
    later = await person.call("GET", "sync", query={"since": again["next_batch"]})
    assert "to_device" not in later
    assert "to_device" not in await person.call("GET", "sync")
    await bot.call("PUT", "sendToDevice/m.test/all", {"messages": {owner: {"*": {}}, pod: {"*": {}}}})
    assert [message.to for message in hs.to_device[1:]] == [(owner, "PHONE"), (pod, "POD")]


async def test_a_long_poll_ends_with_a_message_and_with_the_news_of_a_device(
    hs: FakeHomeserver, people: People, room: RoomId, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    since = (await person.call("GET", "sync"))["next_batch"]

    async def poll() -> dict[str, Any]:
        arrived, count = hs.count("GET", "/sync"), hs.count
        query = {"since": since, "timeout": "20000"}
        polling = asyncio.create_task(person.call("GET", "sync", query=query))
        await hs.until(lambda: count("GET", "/sync") > arrived)
        return {"task": polling}

    polling = (await poll())["task"]
    await bot.call("PUT", "sendToDevice/m.test/1", {"messages": {owner: {"PHONE": {}}}})
    told = await polling
    assert len(told["to_device"]["events"]) == 1
    since = told["next_batch"]
    polling = (await poll())["task"]
    hs.delete_device(pod, "POD")
    told = await polling
    assert told["device_lists"] == {"changed": [pod], "left": []}
    since = told["next_batch"]
    hs.leave(room, pod)
    told = await person.call("GET", "sync", query={"since": since})
    assert told["device_lists"] == {"changed": [], "left": [pod]}
    hs.join(room, pod)
    told = await person.call("GET", "sync", query={"since": told["next_batch"]})
    assert told["device_lists"] == {"changed": [pod], "left": []}


async def test_a_dropped_message_was_taken_and_leaves_what_it_was_for_undecryptable(
    hs: FakeHomeserver, people: People, sealed_room: RoomId, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    hs.drop_to_device(owner, "PHONE")
    lost = await bot.send(sealed_room, "lost")
    await person.until(sealed_room, lambda event: event["event_id"] == lost)
    assert person.undecryptable == {lost}
    bot.forget_session(sealed_room)
    await bot.send(sealed_room, "read")
    await person.until(sealed_room, says("read"))
    assert person.undecryptable == {lost}


async def test_what_was_sent_without_its_key_is_read_once_the_key_is_given(
    people: People, sealed_room: RoomId, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    sent = await person.send_without_key(sealed_room, {"msgtype": "m.text", "body": "late"})
    await person.send(sealed_room, "in time")
    await bot.until(sealed_room, says("in time"))
    assert bot.undecryptable == {sent}
    await person.give_key(sealed_room)
    await bot.until(sealed_room, says("late"))
    assert bot.undecryptable == set()


PATHS = {
    "upload": ("POST", "keys/upload", {}),
    "query": ("POST", "keys/query", {"device_keys": {}}),
    "claim": ("POST", "keys/claim", {"one_time_keys": {}}),
    "to_device": ("PUT", "sendToDevice/m.test/1", {"messages": {}}),
    "signing": ("POST", "keys/device_signing/upload", {}),
    "signatures": ("POST", "keys/signatures/upload", {}),
}


@pytest.mark.parametrize("name", PATHS)
async def test_each_path_has_every_fault(hs: FakeHomeserver, people: People, pod: UserId, name: str) -> None:
    method, path, body = PATHS[name]
    bot = await people.on(pod, "POD")
    hs.answer_with(method, path, status=429, body={"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1})
    hs.answer_with(method, path, status=500, body="<html>")
    hs.cut(method, path)
    hs.amend(method, path, lambda told: {"status was": told})
    with pytest.raises(Refused, match="M_LIMIT_EXCEEDED"):
        await bot.call(method, path, body)
    for _ in range(2):
        with pytest.raises(HomeserverUnavailable):
            await bot.call(method, path, body)
    if name == "signing":  # nothing that can be signed was uploaded
        with pytest.raises(Refused):
            await bot.call(method, path, body)
    else:
        assert list(await bot.call(method, path, body)) == ["status was"]
    never = asyncio.Event()
    held = hs.hold(method, path, never)
    hanging = asyncio.create_task(bot.call(method, path, body))
    await held.hit.wait()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_signing_keys_are_checked_kept_and_not_replaced_without_the_password(
    hs: FakeHomeserver, people: People, pod: UserId, owner: UserId
) -> None:
    bot, person = await people.on(pod, "POD"), await people.on(owner, "PHONE")
    master, other = Signer(pod, "master"), Signer(pod, "master")
    selfie = Signer(pod, "self_signing")
    unsigned = {"master_key": master.key, "self_signing_key": selfie.key}
    with pytest.raises(Refused, match="M_INVALID_SIGNATURE"):
        await bot.call("POST", "keys/device_signing/upload", unsigned)
    keys = unsigned | {"self_signing_key": master.sign(selfie.key)}
    await bot.call("POST", "keys/device_signing/upload", keys)
    await bot.call("POST", "keys/device_signing/upload", keys)  # the same again is no replacement
    replacing = {"master_key": other.key}
    with pytest.raises(Refused) as refused:
        await bot.call("POST", "keys/device_signing/upload", replacing)
    assert refused.value.status == 401

    device = hs.identity_keys(pod, "POD")
    assert device is not None
    ours, forged = master.sign(device), other.sign(device)
    forged["signatures"][pod] = {master.name: forged["signatures"][pod][other.name]}
    for signed, failed in ((ours, {}), (forged, {pod: ["POD"]}), (other.sign(device), {pod: ["POD"]})):
        told = await bot.call("POST", "keys/signatures/upload", {pod: {"POD": signed}})
        assert {user: list(names) for user, names in told["failures"].items()} == failed
    told = await person.call("POST", "keys/query", {"device_keys": {pod: []}})
    assert told["master_keys"][pod]["keys"] == master.key["keys"]
    assert master.name in told["device_keys"][pod]["POD"]["signatures"][pod]

    auth = {"type": "m.login.password", "session": "uia", "password": PASSWORD}
    auth["identifier"] = {"type": "m.id.user", "user": pod}
    await bot.call("POST", "keys/device_signing/upload", replacing | {"auth": auth})
    told = await person.call("POST", "keys/query", {"device_keys": {pod: []}})
    assert told["master_keys"][pod]["keys"] == other.key["keys"]
    assert pod not in told["self_signing_keys"]


async def test_a_homeserver_can_ask_for_the_password_even_at_the_first_upload(
    hs: FakeHomeserver, people: People, pod: UserId
) -> None:
    hs.signing_needs_password = True
    bot = await people.on(pod, "POD")
    with pytest.raises(Refused) as refused:
        await bot.call("POST", "keys/device_signing/upload", {"master_key": Signer(pod, "master").key})
    assert refused.value.status == 401


async def test_a_login_is_a_device_and_one_is_deleted_with_the_password_only(
    hs: FakeHomeserver, people: People, owner: UserId
) -> None:
    login = await logged_in(hs.url, owner, PASSWORD)
    person = await people.on(owner, "PHONE")
    assert hs.devices(owner) == [login.device_id, "PHONE"]
    with pytest.raises(Refused) as refused:
        await person.call("DELETE", f"devices/{login.device_id}", {})
    assert refused.value.status == 401
    auth = {"type": "m.login.password", "session": "uia", "password": PASSWORD}
    auth["identifier"] = {"type": "m.id.user", "user": "owner"}
    await person.call("DELETE", f"devices/{login.device_id}", {"auth": auth})
    assert (await person.call("GET", "devices"))["devices"] == [{"device_id": "PHONE"}]


class Signer:
    """A signing key of an account."""

    def __init__(self, user_id: str, usage: str) -> None:
        self._account = vodozemac.Account()
        self._user_id = user_id
        public = self._account.ed25519_key.to_base64()
        self.name = f"ed25519:{public}"
        self.key: dict[str, Any] = {"user_id": user_id, "usage": [usage], "keys": {self.name: public}}

    def sign(self, signed: dict[str, Any]) -> dict[str, Any]:
        """The object with this key's signature, and no other."""
        signature = self._account.sign(canonical(signed)).to_base64()
        return {**signed, "signatures": {self._user_id: {self.name: signature}}}
