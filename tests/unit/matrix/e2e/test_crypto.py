from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sqlite3
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import RoomId
from agentpod_bot.core.room import Origin
from agentpod_bot.errors import CryptoStoreRefused, HomeserverUnavailable, StoreUnavailable, TokenRefused
from agentpod_bot.matrix.e2e import olm_sessions
from agentpod_bot.matrix.e2e.device_keys import OLM, SenderKeys
from agentpod_bot.matrix.e2e.to_device import Outgoing
from agentpod_bot.matrix.opened import NoKey, Opened, Unreadable
from tests.fakes import FakeClock
from tests.unit.matrix.e2e.key_server import MALLORY, OWNER, POD, ROOM, KeyServer, Requests, device, sealed_room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.ids import UserId
    from agentpod_bot.matrix.e2e.machine import Machine
    from tests.unit.matrix.e2e.key_server import Device

BOTH = sealed_room(POD, OWNER)
ALL = sealed_room(POD, OWNER, MALLORY)
EACH_ANEW = sealed_room(POD, OWNER, rotation_messages=1)


class Cast:
    """The bot, the owner and a third person, each with one device."""

    def __init__(self, server: KeyServer, pod: Device, owner: Device, mallory: Device, clock: FakeClock) -> None:
        self.server, self.pod, self.owner, self.mallory, self.clock = server, pod, owner, mallory, clock


@pytest.fixture
async def cast(tmp_path: Path) -> AsyncIterator[Cast]:
    server, clock = KeyServer(), FakeClock()
    async with AsyncExitStack() as stack:
        pod = await stack.enter_async_context(device(server, tmp_path, POD, "POD", clock=clock))
        owner = await stack.enter_async_context(device(server, tmp_path, OWNER, "PHONE", clock=clock))
        mallory = await stack.enter_async_context(device(server, tmp_path, MALLORY, "EVIL", clock=clock))
        yield Cast(server, pod, owner, mallory, clock)


@contextlib.asynccontextmanager
async def upkeep(made: Device) -> AsyncIterator[None]:
    """A device that keeps up, as it does while the daemon runs."""
    task = asyncio.create_task(made.crypto.upkeep())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(holds: Any) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.002)


# what a device vouches for


async def test_an_answer_is_of_a_device_of_its_sender(cast: Cast) -> None:
    opening = await cast.pod.hear(await cast.owner.say(BOTH, "1"))
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE
    assert opening.event["content"]["body"] == "1"


async def test_an_answer_of_a_verified_device_is_known_as_such(cast: Cast) -> None:
    cast.pod.verdicts.verified.add(cast.owner.own.ed25519)
    opening = await cast.pod.hear(await cast.owner.say(BOTH, "1"))
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.VERIFIED


async def test_a_device_vouches_while_it_is_verified_and_its_account_is_known_to_have_it(cast: Cast) -> None:
    owner = cast.owner.own.named
    cast.pod.verdicts.verified.add(owner.ed25519)
    assert not cast.pod.crypto.vouches(owner)  # nobody asked whether it is there
    await cast.pod.crypto.know({OWNER})
    assert cast.pod.crypto.vouches(owner)
    assert not cast.pod.crypto.vouches(replace(owner, ed25519=cast.mallory.own.ed25519))
    assert not cast.pod.crypto.vouches(replace(owner, device_id="LAPTOP"))
    assert not cast.pod.crypto.vouches(replace(owner, user_id=MALLORY))
    cast.pod.verdicts.verified.clear()
    assert not cast.pod.crypto.vouches(owner)
    cast.pod.verdicts.verified.add(owner.ed25519)
    await cast.pod.sync(device_lists={"changed": [OWNER]})
    assert not cast.pod.crypto.vouches(owner)  # what changed is not known yet
    await cast.pod.crypto.know({OWNER})
    assert cast.pod.crypto.vouches(owner)
    del cast.server.devices[OWNER]["PHONE"]
    await cast.pod.sync(device_lists={"changed": [OWNER]})
    await cast.pod.crypto.know({OWNER})
    assert not cast.pod.crypto.vouches(owner)


async def test_what_is_said_comes_with_the_device_that_said_it(cast: Cast) -> None:
    opening = await cast.pod.hear(await cast.owner.say(BOTH, "1"))
    assert isinstance(opening, Opened)
    assert opening.device == cast.owner.own.named
    assert cast.pod.crypto._devices.has(cast.owner.own.named)
    forged = await cast.pod.hear(await cast.mallory.say(ALL, "1") | {"sender": OWNER})
    assert isinstance(forged, Opened)
    assert forged.device is None


async def test_what_one_device_encrypted_is_a_strangers_under_another_senders_name(cast: Cast) -> None:
    forged = await cast.mallory.say(ALL, "1")
    opening = await cast.pod.hear(forged | {"sender": OWNER})
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.STRANGER


@pytest.mark.parametrize("anew", [False, True], ids=["told of", "not told of, where the position was lost"])
async def test_a_device_that_its_owner_removed_is_a_strangers(cast: Cast, *, anew: bool) -> None:
    said = await cast.owner.say(BOTH, "1")
    assert isinstance(await cast.pod.hear(said), Opened)
    del cast.server.devices[OWNER]["PHONE"]
    await cast.pod.crypto.take({} if anew else {"device_lists": {"changed": [OWNER]}}, anew=anew)
    opening = await cast.pod.crypto.read(ROOM, said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.STRANGER


async def claim_key(cast: Cast) -> None:
    """Have the third person's device name the owner's curve25519 key as its own."""
    claims = cast.server.devices[MALLORY]["EVIL"]
    claims["keys"]["curve25519:EVIL"] = cast.owner.own.curve25519
    del claims["signatures"]
    signature = await cast.mallory.crypto.sign(_canonical(claims))
    claims["signatures"] = {MALLORY: {"ed25519:EVIL": signature}}


@pytest.mark.parametrize("first", [OWNER, MALLORY])
async def test_a_device_that_claims_anothers_key_keeps_it_from_reading_nothing(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: UserId
) -> None:
    """It has one-time keys of its own, with which nobody but the two of them together could read."""

    def claimed(requests: Requests, body: dict[str, Any]) -> dict[str, Any]:
        claims = body["one_time_keys"]
        in_order = sorted(claims, key=lambda user_id: user_id != first)
        return answer(requests, {"one_time_keys": {user_id: claims[user_id] for user_id in in_order}})

    answer = Requests._claim
    monkeypatch.setattr(Requests, "_claim", claimed)
    await claim_key(cast)
    assert isinstance(await cast.owner.hear(await cast.pod.say(ALL, "a question")), Opened)
    await cast.pod.keys.close()
    async with device(cast.server, tmp_path, POD, "POD", make=False) as again:
        assert isinstance(await cast.owner.hear(await again.say(ALL, "another one")), Opened)


async def test_a_device_that_claims_anothers_key_vouches_for_nothing_of_it(cast: Cast) -> None:
    """Keys of a device are signed by its own key alone: a second device can name the first one's curve25519 key."""
    said = await cast.owner.say(BOTH, "1")
    await claim_key(cast)
    opening = await cast.pod.hear(said | {"sender": MALLORY})
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.STRANGER


async def test_the_bots_own_words_come_back_as_its_own(cast: Cast) -> None:
    said = await cast.pod.say(BOTH, "a question")
    opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.VERIFIED


async def test_two_messages_differ_in_what_tells_their_ciphertexts_and_a_replay_does_not(cast: Cast) -> None:
    first, second = await cast.owner.say(BOTH, "1"), await cast.owner.say(BOTH, "1")
    one, two = await cast.pod.hear(first), await cast.pod.hear(second)
    again = await cast.pod.hear(first | {"event_id": "$replayed", "origin_server_ts": 9_000})
    padded = first | {"content": first["content"] | {"ciphertext": first["content"]["ciphertext"] + "="}}
    odd = await cast.pod.hear(padded)
    assert isinstance(one, Opened)
    assert isinstance(two, Opened)
    assert isinstance(again, Opened)
    assert one.ciphertext != two.ciphertext
    assert again.ciphertext == one.ciphertext
    assert isinstance(odd, Unreadable) or (isinstance(odd, Opened) and odd.ciphertext == one.ciphertext)


async def test_what_was_said_in_another_room_is_unreadable_here(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    await cast.pod.sync()
    assert isinstance(await cast.pod.crypto.read(RoomId("!other:example.org"), said), NoKey)
    inside = await cast.owner.crypto.run(
        lambda m: m._olm.outbound_group_sessions[ROOM].encrypt(
            json.dumps({"room_id": "!other:example.org", "type": "m.room.message", "content": {}})
        )
    )
    moved = said | {"content": said["content"] | {"ciphertext": inside}}
    assert isinstance(await cast.pod.crypto.read(ROOM, moved), Unreadable)


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"algorithm": "m.megolm.v1.aes-sha2"},
        {"algorithm": "m.megolm.v1.aes-sha2", "session_id": 1, "ciphertext": "x"},
        {"algorithm": "m.olm.v1.curve25519-aes-sha2", "session_id": "s", "ciphertext": "x"},
        {"algorithm": "m.megolm.v1.aes-sha2", "session_id": "s", "ciphertext": {"a": 1}},
    ],
)
async def test_what_has_not_the_form_of_a_ciphertext_is_unreadable_for_good(
    cast: Cast, content: dict[str, Any]
) -> None:
    assert isinstance(await cast.pod.crypto.read(ROOM, cast.owner.event(content)), Unreadable)


@pytest.mark.parametrize("ciphertext", ["", "????", "AAAA", "ü"])
async def test_a_ciphertext_that_is_none_is_unreadable_for_good(cast: Cast, ciphertext: str) -> None:
    said = await cast.owner.say(BOTH, "1")
    broken = said | {"content": said["content"] | {"ciphertext": ciphertext}}
    assert not isinstance(await cast.pod.hear(broken), Opened)


async def test_an_event_in_clear_is_not_opened(cast: Cast) -> None:
    assert await cast.pod.crypto.read(ROOM, {"type": "m.room.message", "sender": OWNER, "content": {}}) is None


# keys that are missing


async def test_a_missing_key_is_asked_for_once_and_what_came_then_can_be_read(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    (room_key,) = cast.server.waiting.pop((POD, "POD"))
    async with upkeep(cast.pod):
        assert isinstance(await cast.pod.hear(said), NoKey)
        assert isinstance(await cast.pod.hear(said), NoKey)
        await until(lambda: cast.server.waiting.get((OWNER, "PHONE")))
    asked = [event for event in cast.server.waiting[OWNER, "PHONE"] if event["type"] == "m.room_key_request"]
    assert [event["content"]["body"]["session_id"] for event in asked] == [said["content"]["session_id"]]
    cast.server.waiting[POD, "POD"] = [room_key]
    assert await cast.pod.sync() == {(ROOM, said["content"]["session_id"])}
    assert isinstance(await cast.pod.crypto.read(ROOM, said), Opened)


async def forward(made: Device, to: Device, said: dict[str, Any], **changes: Any) -> None:
    """Send a room key on, as a device does that was asked for it."""
    session_id = said["content"]["session_id"]

    def encrypt(machine: Any) -> Any:
        found = [s for s in machine._olm.inbound_group_store if s.id == session_id]
        key = {
            "algorithm": "m.megolm.v1.aes-sha2",
            "room_id": ROOM,
            "session_id": session_id,
            "session_key": found[0].export_session(found[0].first_known_index),
            "sender_key": found[0].sender_key,
            "sender_claimed_ed25519_key": found[0].ed25519,
            "forwarding_curve25519_key_chain": [],
        }
        return machine.encrypt_for([to.own], "m.forwarded_room_key", key | changes)

    await made.crypto.devices_of(to.own.user_id)
    await made.crypto._devices.with_session([to.own])
    await made.crypto.send_to_device(Outgoing("m.room.encrypted", await made.crypto.run(encrypt)))


async def test_a_forwarded_key_is_taken_from_the_device_that_made_it(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    cast.server.waiting.pop((POD, "POD"))
    assert isinstance(await cast.pod.hear(said), NoKey)
    await forward(cast.owner, cast.pod, said)
    opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE


async def test_a_forwarded_key_is_told_so_that_what_waits_for_it_is_read_at_once(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    cast.server.waiting.pop((POD, "POD"))
    assert isinstance(await cast.pod.hear(said), NoKey)
    await forward(cast.owner, cast.pod, said)
    assert await cast.pod.sync() == {(ROOM, said["content"]["session_id"])}


async def test_a_forwarded_key_of_somebody_else_is_not_taken(cast: Cast) -> None:
    said = await cast.owner.say(ALL, "1")
    cast.server.waiting.pop((POD, "POD"))
    assert isinstance(await cast.mallory.hear(said), Opened)
    assert isinstance(await cast.pod.hear(said), NoKey)
    await forward(cast.mallory, cast.pod, said)
    assert isinstance(await cast.pod.hear(said), NoKey)


async def test_a_forwarded_key_that_nobody_asked_for_is_not_taken(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    cast.server.waiting.pop((POD, "POD"))
    await forward(cast.owner, cast.pod, said)
    await cast.pod.sync()
    assert isinstance(await cast.pod.crypto.read(ROOM, said), NoKey)


async def hand_on(to: Device, by: Device, key: dict[str, Any]) -> None:
    """Have a device give a room key that it did not make as its own."""
    await by.crypto.devices_of(to.own.user_id)
    await by.crypto._devices.with_session([to.own])
    messages = await by.crypto.run(lambda m: m.encrypt_for([to.own], "m.room_key", key))
    await by.crypto.send_to_device(Outgoing("m.room.encrypted", messages))


async def test_a_claim_on_a_session_does_not_keep_its_maker_out_even_after_a_restart(
    cast: Cast, tmp_path: Path
) -> None:
    said = await cast.owner.say(ALL, "1")
    (room_key,) = cast.server.waiting.pop((POD, "POD"))
    await hand_on(cast.pod, cast.mallory, await cast.owner.crypto.run(lambda m: m.room_key(ROOM)))
    cast.server.waiting[POD, "POD"].append(room_key)
    opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE
    await cast.pod.keys.close()
    async with device(cast.server, tmp_path, POD, "POD", make=False) as again:
        opening = await again.hear(said)
        assert isinstance(opening, Opened)
        assert opening.origin is Origin.DEVICE


async def test_a_verified_devices_words_stay_its_own_where_another_of_the_account_handed_its_key_on(
    cast: Cast, tmp_path: Path
) -> None:
    cast.pod.verdicts.verified.add(cast.owner.own.ed25519)
    async with device(cast.server, tmp_path, OWNER, "OTHER") as other:
        said = await cast.owner.say(ALL, "1")
        (room_key,) = cast.server.waiting.pop((POD, "POD"))
        await hand_on(cast.pod, other, await cast.owner.crypto.run(lambda m: m.room_key(ROOM)))
        cast.server.waiting[POD, "POD"].append(room_key)
        opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.VERIFIED
    assert opening.device == cast.owner.own.named


@pytest.mark.parametrize("is_verified", [True, False])
async def test_a_key_that_another_device_handed_on_too_late_hides_nothing_of_the_one_that_was_there(
    cast: Cast, tmp_path: Path, *, is_verified: bool
) -> None:
    async with device(cast.server, tmp_path, OWNER, "OTHER") as other:
        cast.pod.verdicts.verified |= {other.own.ed25519, cast.owner.own.ed25519} if is_verified else set()
        assert isinstance(await cast.pod.hear(await other.say(ALL, "hello")), Opened)
        said = await cast.owner.say(ALL, "1")
        await cast.pod.sync()
        await hand_on(cast.pod, other, await cast.owner.crypto.run(lambda m: m.room_key(ROOM)))
        opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.device == cast.owner.own.named


async def test_a_key_that_a_stranger_handed_on_is_not_used_where_its_maker_gave_it(cast: Cast) -> None:
    """It may read more: that is nobody's word, and the maker's key for it may still come."""
    without_pod = sealed_room(OWNER, MALLORY)
    await cast.owner.say(without_pod, "0")
    key = await cast.owner.crypto.run(lambda m: m.room_key(ROOM))
    said = await cast.owner.say(without_pod, "1")
    await cast.owner.say(ALL, "2")
    await hand_on(cast.pod, cast.mallory, key)
    assert isinstance(await cast.pod.hear(said), NoKey)


async def test_what_another_account_says_once_more_uses_up_nothing_of_whoever_said_it(cast: Cast) -> None:
    said = await cast.owner.say(ALL, "1")
    copied = await cast.pod.hear(said | {"event_id": "$copied", "sender": MALLORY})
    original = await cast.pod.hear(said)
    assert isinstance(copied, Opened)
    assert isinstance(original, Opened)
    assert copied.ciphertext != original.ciphertext


@pytest.mark.parametrize(
    "event",
    [
        None,
        7,
        {},
        {"type": "m.room.encrypted", "sender": OWNER, "content": {}},
        {"type": "m.room.encrypted", "sender": OWNER, "content": {"algorithm": "m.olm.v1.curve25519-aes-sha2"}},
        {"type": 1, "sender": OWNER, "content": {}},
        {"type": "m.room_key", "sender": OWNER, "content": {"session_key": "in clear"}},
    ],
)
async def test_a_message_to_the_device_that_has_no_form_changes_nothing(cast: Cast, event: object) -> None:
    assert await cast.pod.crypto.take({"to_device": {"events": [event]}}) == frozenset()
    assert isinstance(await cast.pod.hear(await cast.owner.say(BOTH, "1")), Opened)


@pytest.mark.parametrize("body", ["", "AAAA", "not base64 !", "ü"])
@pytest.mark.parametrize("kind", [0, 1, 2, "0"])
async def test_a_message_to_the_device_that_cannot_be_decrypted_changes_nothing(
    cast: Cast, kind: object, body: str
) -> None:
    content = {
        "algorithm": "m.olm.v1.curve25519-aes-sha2",
        "sender_key": cast.owner.own.curve25519,
        "ciphertext": {cast.pod.own.curve25519: {"type": kind, "body": body}},
    }
    event = {"type": "m.room.encrypted", "sender": OWNER, "content": content}
    assert await cast.pod.crypto.take({"to_device": {"events": [event]}}) == frozenset()
    assert isinstance(await cast.pod.hear(await cast.owner.say(BOTH, "1")), Opened)


async def test_of_devices_that_nobody_knows_only_so_much_is_kept_and_nothing_of_others_goes_for_it(
    cast: Cast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(olm_sessions, "MOST_OF_STRANGERS", 2)
    known = await cast.owner.say(BOTH, "1")
    await cast.pod.crypto.devices_of(OWNER)
    await cast.pod.say(BOTH, "a question")
    said = []
    for number in range(4):
        async with device(cast.server, tmp_path, MALLORY, f"NEW{number}") as stranger:
            said.append(await stranger.say(sealed_room(POD), "hello"))
        cast.server.waiting[POD, "POD"].append(_olm_of(f"never seen {number}"))
        await cast.pod.sync()

    def kept(machine: Machine) -> tuple[int, int, int]:
        [[keys]] = machine._store._connection.execute("SELECT count(*) FROM room_key")
        [[sessions]] = machine._store._connection.execute("SELECT count(*) FROM olm_session")
        assert keys == sum(1 for _ in machine._olm.inbound_group_store)
        assert sessions == sum(1 for _ in machine._olm.session_store)
        return keys, sessions, len(list(machine._olm.session_store.items()))

    keys, sessions, senders = await cast.pod.crypto.run(kept)
    assert keys == 2 + 2, "the bot's own, the owner's, and two of strangers"
    assert sessions == 2 + 2, "with the owner one each way, and two of strangers"
    assert senders == 1 + 2
    await cast.pod.keys.close()
    async with device(cast.server, tmp_path, POD, "POD", make=False) as again:
        read = [isinstance(await again.hear(event), Opened) for event in (known, *said)]
    assert read == [True, False, False, True, True]


async def test_a_key_for_what_is_no_room_is_not_kept(cast: Cast) -> None:
    await cast.owner.say(BOTH, "1")
    key = await cast.owner.crypto.run(lambda m: m.room_key(ROOM)) | {"room_id": "!" + "r" * 300}
    cast.server.waiting.pop((POD, "POD"))
    await hand_on(cast.pod, cast.owner, key)
    assert await cast.pod.sync() == frozenset()
    assert await cast.pod.crypto.run(lambda m: list(m._olm.inbound_group_store)) == []


def _olm_of(sender_key: str) -> dict[str, Any]:
    """A message of some device that cannot be read."""
    key = base64.b64encode(sender_key.encode().ljust(32)).decode().rstrip("=")
    content = {"algorithm": OLM, "sender_key": key, "ciphertext": {}}
    return {"type": "m.room.encrypted", "sender": MALLORY, "content": content}


async def test_a_response_that_comes_again_changes_nothing(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    waiting = {"to_device": {"events": cast.server.waiting.pop((POD, "POD"))}}
    assert await cast.pod.crypto.take(waiting)
    assert not await cast.pod.crypto.take(waiting)
    assert isinstance(await cast.pod.crypto.read(ROOM, said), Opened)


async def test_what_came_is_still_there_after_a_restart(cast: Cast, tmp_path: Path) -> None:
    said = await cast.owner.say(BOTH, "1")
    await cast.pod.sync()
    await cast.pod.keys.close()
    async with device(cast.server, tmp_path, POD, "POD", make=False) as again:
        opening = await again.crypto.read(ROOM, said)
        assert isinstance(opening, Opened)
        assert opening.origin is Origin.DEVICE


async def test_what_cannot_be_kept_is_not_known_and_comes_again(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    said = await cast.owner.say(BOTH, "1")
    waiting = {"to_device": {"events": cast.server.waiting.pop((POD, "POD"))}}

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr("agentpod_bot.matrix.e2e.keys_store.KeysStore.save_inbound_group_session", full)
    with pytest.raises(StoreUnavailable, match="cannot be kept"):
        await cast.pod.crypto.take(waiting)
    assert isinstance(await cast.pod.crypto.read(ROOM, said), NoKey)
    monkeypatch.undo()
    assert await cast.pod.crypto.take(waiting)
    assert isinstance(await cast.pod.crypto.read(ROOM, said), Opened)


# messages to the device about other things


START = {"from_device": "PHONE", "transaction_id": "t"}


def sealed(machine: Machine, to: Device, **changes: Any) -> dict[str, Any]:
    """An encrypted `m.key.verification.start`, as its sender's own client makes it, with changes to what is inside."""
    own, curve25519 = machine.own, to.own.curve25519
    inside = {
        "sender": own.user_id,
        "sender_device": own.device_id,
        "keys": {"ed25519": own.ed25519},
        "recipient": to.own.user_id,
        "recipient_keys": {"ed25519": to.own.ed25519},
        "type": "m.key.verification.start",
        "content": START,
    } | changes
    session = machine._olm.session_store.get(curve25519)
    assert session is not None
    kind, body = session.encrypt(json.dumps(inside)).to_parts()
    ciphertext = {curve25519: {"type": kind, "body": base64.b64encode(body).decode().rstrip("=")}}
    content = {"algorithm": OLM, "sender_key": own.curve25519, "ciphertext": ciphertext}
    return {"type": "m.room.encrypted", "sender": own.user_id, "content": content}


def told_of(made: Device) -> list[tuple[Any, ...]]:
    """What the device hears from now on that is not about keys of rooms."""
    told: list[tuple[Any, ...]] = []
    made.crypto.on_to_device = lambda *message: told.append(message)
    return told


async def test_an_encrypted_message_about_something_else_is_told_with_the_keys_of_who_encrypted_it(cast: Cast) -> None:
    await cast.pod.hear(await cast.owner.say(BOTH, "so that there is an Olm session"))
    told = told_of(cast.pod)
    cast.server.waiting[POD, "POD"] = [await cast.owner.keys.run(lambda m: sealed(m, cast.pod))]
    await cast.pod.sync()
    keys = SenderKeys(curve25519=cast.owner.own.curve25519, ed25519=cast.owner.own.ed25519)
    assert told == [(OWNER, "m.key.verification.start", START, keys)]


async def test_a_message_in_clear_is_told_without_anybodys_keys(cast: Cast) -> None:
    told = told_of(cast.pod)
    event = {"type": "m.key.verification.start", "sender": OWNER, "content": START}
    await cast.pod.crypto.take({"to_device": {"events": [event]}})
    assert told == [(OWNER, "m.key.verification.start", START, None)]


@pytest.mark.parametrize(
    "changes",
    [
        {"sender": MALLORY},
        {"recipient": OWNER},
        {"recipient_keys": {"ed25519": "another"}},
        {"recipient_keys": {}},
        {"keys": {}},
        {"keys": {"ed25519": 7}},
        {"type": 7},
        {"content": "start"},
    ],
    ids=str,
)
async def test_what_was_not_encrypted_for_this_device_by_its_sender_is_not_told(
    cast: Cast, changes: dict[str, Any]
) -> None:
    await cast.pod.hear(await cast.owner.say(BOTH, "so that there is an Olm session"))
    told = told_of(cast.pod)
    cast.server.waiting[POD, "POD"] = [await cast.owner.keys.run(lambda m: sealed(m, cast.pod, **changes))]
    await cast.pod.sync()
    assert told == []


async def test_an_encrypted_message_is_not_told_under_another_senders_name(cast: Cast) -> None:
    await cast.pod.hear(await cast.mallory.say(ALL, "so that there is an Olm session"))
    told = told_of(cast.pod)
    event = await cast.mallory.keys.run(lambda m: sealed(m, cast.pod))
    cast.server.waiting[POD, "POD"] = [event | {"sender": OWNER}]
    await cast.pod.sync()
    assert told == []


async def test_an_encrypted_message_that_comes_again_is_told_once(cast: Cast) -> None:
    await cast.pod.hear(await cast.owner.say(BOTH, "so that there is an Olm session"))
    told = told_of(cast.pod)
    cast.server.waiting[POD, "POD"] = [await cast.owner.keys.run(lambda m: sealed(m, cast.pod))] * 2
    await cast.pod.sync()
    assert len(told) == 1


# the senders' devices


async def test_a_sender_whose_devices_cannot_be_asked_for_is_waited_for_a_while_and_then_a_stranger(
    cast: Cast,
) -> None:
    said = await cast.owner.say(BOTH, "1")
    await cast.pod.sync()
    cast.server.fail("query", HomeserverUnavailable("cut"), times=3)
    for _ in range(2):
        with pytest.raises(HomeserverUnavailable):
            await cast.pod.crypto.read(ROOM, said)
    opening = await cast.pod.crypto.read(ROOM, said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.STRANGER
    opening = await cast.pod.crypto.read(ROOM, said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE


async def test_the_devices_of_several_senders_are_asked_for_at_once(cast: Cast) -> None:
    """Where their homeserver is down, ours waits for it at each query."""
    cast.server.unreachable |= {OWNER, MALLORY}
    said = [await cast.owner.say(ALL, "1"), await cast.mallory.say(ALL, "2")]
    cast.server.asked.clear()
    await cast.pod.crypto.expect(said)
    for event in said:
        await cast.pod.hear(event)
    assert cast.server.asked.count("query") == 1


async def test_where_the_devices_of_several_senders_cannot_be_had_at_once_each_is_asked_for(cast: Cast) -> None:
    said = await cast.owner.say(ALL, "1")
    cast.server.fail("query", HomeserverUnavailable("cut"))
    await cast.pod.crypto.expect([said])
    opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE


async def test_a_dead_token_is_never_taken_for_a_stranger(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    await cast.pod.sync()
    cast.server.fail("query", TokenRefused(soft_logout=False), times=5)
    for _ in range(5):
        with pytest.raises(TokenRefused):
            await cast.pod.crypto.read(ROOM, said)


async def test_devices_with_broken_keys_hide_no_other_ones(cast: Cast) -> None:
    cast.server.devices[OWNER]["BROKEN"] = {"user_id": OWNER, "device_id": "BROKEN", "keys": {"ed25519:BROKEN": 7}}
    cast.server.devices[OWNER]["ODD"] = {
        "user_id": OWNER,
        "device_id": "ODD",
        "algorithms": [],
        "keys": {"ed25519:ODD": "short", "curve25519:ODD": "x"},
        "signatures": {OWNER: {"ed25519:ODD": "y"}},
    }
    opening = await cast.pod.hear(await cast.owner.say(BOTH, "1"))
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE


# what the homeserver has of the bot's device


@pytest.mark.parametrize(
    "broken",
    [
        {"unsigned": {"device_display_name": "\ud800"}},
        {"more": "\ud800"},
        {"signatures": {MALLORY: {"ed25519:EVIL": "\ud800"}}},
    ],
    ids=["name", "signed part", "signature"],
)
async def test_half_a_character_in_somebodys_keys_stops_neither_reading_nor_speaking(
    cast: Cast, broken: dict[str, Any]
) -> None:
    cast.server.devices[MALLORY]["EVIL"] |= broken
    await cast.pod.hear(await cast.mallory.say(ALL, "hello"))
    heard = await cast.pod.say(ALL, "for you two")
    assert isinstance(await cast.owner.hear(heard), Opened)


@pytest.mark.parametrize("unsigned", [7, None, "x", [], {"device_display_name": {"a": 1}}], ids=str)
async def test_what_nobody_signed_of_somebodys_keys_stops_neither_reading_nor_speaking(
    cast: Cast, unsigned: object
) -> None:
    """A homeserver adds it, its owner's or the bot's."""
    cast.server.devices[MALLORY]["EVIL"]["unsigned"] = unsigned
    opening = await cast.pod.hear(await cast.mallory.say(ALL, "hello"))
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE
    heard = await cast.pod.say(ALL, "for you two")
    assert isinstance(await cast.owner.hear(heard), Opened)
    assert isinstance(await cast.mallory.hear(heard), Opened)


@pytest.mark.parametrize(
    "bad",
    [7, None, "x", [], {"EVIL": "x"}, {"EVIL": {}}, {"EVIL": {"signed_curve25519:A": 7}}, {"EVIL": {"a": {"key": 1}}}],
    ids=str,
)
async def test_a_one_time_key_that_is_none_hides_no_other_one(cast: Cast, bad: object) -> None:
    await cast.pod.crypto.devices_of(OWNER)
    await cast.pod.crypto.devices_of(MALLORY)
    key_id, key = next(iter(cast.server.one_time[OWNER, "PHONE"].items()))
    answer = {"one_time_keys": {MALLORY: bad, OWNER: {"PHONE": {key_id: key}}}}
    await cast.pod.keys.run(lambda machine: machine.claimed(answer))
    assert await cast.pod.keys.run(lambda machine: machine.without_session([cast.owner.own])) == ()


@pytest.mark.parametrize("answer", [{}, {"one_time_keys": None}, {"one_time_keys": [1]}], ids=str)
async def test_an_answer_without_one_time_keys_is_no_answer(cast: Cast, answer: dict[str, Any]) -> None:
    with pytest.raises(HomeserverUnavailable, match="cannot be read"):
        await cast.pod.keys.run(lambda machine: machine.claimed(answer))


async def test_a_message_to_the_device_that_is_too_deep_to_read_stops_nothing(cast: Cast) -> None:
    await cast.pod.hear(await cast.mallory.say(ALL, "so that there is an Olm session"))
    own = cast.pod.own.curve25519

    def deep(machine: Machine) -> dict[str, Any]:
        session = machine._olm.session_store.get(own)
        assert session is not None
        kind, body = session.encrypt("[" * 20_000).to_parts()
        ciphertext = {own: {"type": kind, "body": base64.b64encode(body).decode().rstrip("=")}}
        return {"algorithm": OLM, "sender_key": cast.mallory.own.curve25519, "ciphertext": ciphertext}

    content = await cast.mallory.keys.run(deep)
    event = {"type": "m.room.encrypted", "sender": MALLORY, "content": content}
    cast.server.waiting[POD, "POD"] = [event]
    said = await cast.owner.say(BOTH, "1")
    assert isinstance(await cast.pod.hear(said), Opened)


@pytest.mark.parametrize("session_id", ["\ud800", "s" * 65], ids=["half a character", "too long"])
async def test_what_cannot_be_the_id_of_a_session_is_none(cast: Cast, session_id: str) -> None:
    said = await cast.owner.say(BOTH, "1")
    said["content"]["session_id"] = session_id
    assert await cast.pod.hear(said) == Unreadable()


async def test_a_device_that_the_homeserver_did_not_name_once_is_heard_and_spoken_to_when_it_does_again(
    cast: Cast, tmp_path: Path
) -> None:
    await cast.pod.crypto.devices_of(OWNER)
    phone = cast.server.devices[OWNER].pop("PHONE")
    await cast.pod.sync(device_lists={"changed": [OWNER]})
    assert await cast.pod.crypto.devices_of(OWNER) == ()
    cast.server.devices[OWNER]["PHONE"] = phone
    await cast.pod.sync(device_lists={"changed": [OWNER]})
    opening = await cast.pod.hear(await cast.owner.say(BOTH, "1"))
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE
    assert isinstance(await cast.owner.hear(await cast.pod.say(BOTH, "2")), Opened)
    async with device(cast.server, tmp_path, POD, "POD", make=False) as again:
        assert [each.device_id for each in await again.keys.run(lambda machine: machine.devices([OWNER]))] == ["PHONE"]


async def test_a_removed_device_that_comes_back_with_other_keys_stays_removed(cast: Cast, tmp_path: Path) -> None:
    await cast.pod.crypto.devices_of(OWNER)
    cast.server.devices[OWNER].clear()
    await cast.pod.sync(device_lists={"changed": [OWNER]})
    await cast.pod.crypto.devices_of(OWNER)
    async with device(cast.server, tmp_path / "other", OWNER, "PHONE"):
        await cast.pod.sync(device_lists={"changed": [OWNER]})
        assert await cast.pod.crypto.devices_of(OWNER) == ()


async def test_a_removed_device_is_gone_for_whoever_asks_while_the_homeserver_is_asked(
    cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cast.pod.crypto.devices_of(OWNER)
    del cast.server.devices[OWNER]["PHONE"]
    await cast.pod.sync(device_lists={"changed": [OWNER]})
    asked, answer, ask_for = asyncio.Event(), asyncio.Event(), cast.pod.requests.ask_for

    async def slowly(method: str, path: str, body: Any) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return await ask_for(method, path, body)

    monkeypatch.setattr(cast.pod.requests, "ask_for", slowly)
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(cast.pod.crypto.devices_of(OWNER))
        await asked.wait()
        second = tasks.create_task(cast.pod.crypto.devices_of(OWNER))
        await cast.pod.crypto.sign("whatever the thread does before it")
        answer.set()
    assert (first.result(), second.result()) == ((), ())


async def test_other_keys_at_the_homeserver_stop_the_start(cast: Cast) -> None:
    cast.server.devices[POD]["POD"] = cast.server.devices[OWNER]["PHONE"] | {"user_id": POD, "device_id": "POD"}
    with pytest.raises(CryptoStoreRefused, match="has other keys for device POD") as refused:
        await cast.pod.crypto.publish()
    assert refused.value.exit_code == 77


async def test_keys_that_the_homeserver_lost_stop_the_start(cast: Cast) -> None:
    del cast.server.devices[POD]["POD"]
    with pytest.raises(CryptoStoreRefused, match="no longer has the keys of device POD"):
        await cast.pod.crypto.publish()


async def test_publishing_again_gives_the_homeserver_nothing_new(cast: Cast) -> None:
    before = cast.server.asked.count("upload")
    await cast.pod.crypto.publish()
    assert cast.server.asked.count("upload") == before


async def test_an_upload_whose_answer_was_lost_is_repeated_with_the_same_keys(tmp_path: Path) -> None:
    server = KeyServer()
    async with AsyncExitStack() as stack:
        server.fail("upload", HomeserverUnavailable("cut"))
        with pytest.raises(HomeserverUnavailable):
            await stack.enter_async_context(device(server, tmp_path, POD, "POD"))
        pod = await stack.enter_async_context(device(server, tmp_path, POD, "POD", make=False))
        owner = await stack.enter_async_context(device(server, tmp_path, OWNER, "PHONE"))
        assert isinstance(await pod.hear(await owner.say(BOTH, "1")), Opened)


async def test_one_time_keys_are_made_anew_as_they_are_used_up(cast: Cast) -> None:
    server = cast.server
    async with upkeep(cast.pod):
        before = len(server.one_time[POD, "POD"])
        server.one_time[POD, "POD"].clear()
        await cast.pod.sync(device_one_time_keys_count={"signed_curve25519": 0})
        await until(lambda: len(server.one_time[POD, "POD"]) == before)
    assert isinstance(await cast.pod.hear(await cast.owner.say(BOTH, "1")), Opened)


async def test_a_count_that_is_not_told_as_zero_counts_as_zero(cast: Cast) -> None:
    """Homeservers leave a kind of key out of the counts where they have none of it."""
    cast.server.one_time[POD, "POD"].clear()
    async with upkeep(cast.pod):
        await cast.pod.sync(device_one_time_keys_count={})
        await until(lambda: cast.server.one_time[POD, "POD"])


@pytest.mark.parametrize("count", [-(10**9), -(10**30)])
async def test_a_count_below_zero_counts_as_zero(cast: Cast, count: int) -> None:
    """Nobody has so many keys made that nothing else is done, or so many that there is no such number."""
    before = len(cast.server.one_time[POD, "POD"])
    cast.server.one_time[POD, "POD"].clear()
    async with upkeep(cast.pod):
        await cast.pod.sync(device_one_time_keys_count={"signed_curve25519": count})
        await until(lambda: len(cast.server.one_time[POD, "POD"]) == before)


async def test_a_used_fallback_key_is_followed_by_another(cast: Cast) -> None:
    before = set(cast.server.fallback[POD, "POD"])
    async with upkeep(cast.pod):
        await cast.pod.sync(device_unused_fallback_key_types=[])
        await until(lambda: set(cast.server.fallback[POD, "POD"]) != before)


async def test_upkeep_that_fails_is_tried_again_later(cast: Cast) -> None:
    cast.server.one_time[POD, "POD"].clear()
    cast.server.fail("upload", HomeserverUnavailable("cut"))
    async with upkeep(cast.pod):
        await cast.pod.sync(device_one_time_keys_count={})
        await until(lambda: not cast.server.faults["upload"])
        assert not cast.server.one_time[POD, "POD"]
        while not cast.server.one_time[POD, "POD"]:
            cast.clock.advance(1_000)
            await asyncio.sleep(0.002)


async def ask_for_key(made: Device, of: Device, said: dict[str, Any], **changes: Any) -> None:
    """Ask a device for a room key, as one does that cannot read an event."""
    wanted = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM, "session_id": said["content"]["session_id"]}
    asked = {"action": "request", "body": wanted, "request_id": "1", "requesting_device_id": made.own.device_id}
    messages = {of.own.user_id: {of.own.device_id: asked | changes}}
    await made.crypto.send_to_device(Outgoing("m.room_key_request", messages))


async def kept_up(cast: Cast) -> None:
    """Have the bot take what waits, and do all that follows."""
    async with upkeep(cast.pod):
        await cast.pod.sync()
        uploads = cast.server.asked.count("upload")
        cast.server.one_time[POD, "POD"].clear()
        await cast.pod.sync(device_one_time_keys_count={})
        await until(lambda: cast.server.asked.count("upload") > uploads)
        await until(lambda: not cast.pod.crypto._work.is_set())


async def test_a_device_whose_key_was_lost_on_the_way_is_given_it_again_once(cast: Cast) -> None:
    said = await cast.pod.say(BOTH, "a question")
    cast.server.waiting.pop((OWNER, "PHONE"))
    assert isinstance(await cast.owner.hear(said), NoKey)
    for _ in range(2):
        await ask_for_key(cast.owner, cast.pod, said)
        await kept_up(cast)
    assert [event["type"] for event in cast.server.waiting[OWNER, "PHONE"]].count("m.room.encrypted") == 1
    assert isinstance(await cast.owner.hear(said), Opened)


async def test_nobody_who_was_not_given_a_room_key_gets_it_for_the_asking(cast: Cast) -> None:
    said = await cast.pod.say(BOTH, "a question")
    await ask_for_key(cast.mallory, cast.pod, said)
    await ask_for_key(cast.mallory, cast.pod, said, requesting_device_id="PHONE")
    for broken in ({"body": None}, {"body": {"room_id": 1}}, {"action": "request_cancellation"}, {"action": 7}):
        await ask_for_key(cast.owner, cast.pod, said, **broken)
    cast.server.waiting.pop((OWNER, "PHONE"))
    await kept_up(cast)
    assert (MALLORY, "EVIL") not in cast.server.waiting
    assert (OWNER, "PHONE") not in cast.server.waiting


async def test_a_key_that_is_given_again_reads_nothing_that_was_said_before_it_was_first_given(
    cast: Cast,
) -> None:
    before = await cast.pod.say(BOTH, "before")
    after = await cast.pod.say(ALL, "after")
    cast.server.waiting.pop((MALLORY, "EVIL"))
    assert isinstance(await cast.mallory.hear(after), NoKey)
    await ask_for_key(cast.mallory, cast.pod, after)
    await kept_up(cast)
    assert isinstance(await cast.mallory.hear(after), Opened)
    assert isinstance(await cast.mallory.hear(before), NoKey)


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
