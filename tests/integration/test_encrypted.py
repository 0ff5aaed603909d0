"""What only encrypted rooms have: devices that come and go, keys that are lost or late, clear text that is none."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from tests.e2e_person import ENCRYPTED, E2EPerson, switch_on
from tests.integration import said
from tests.integration.daemons import Daemon, eventually
from tests.integration.people import People, give_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account, PrivateSynapse
    from tests.integration.conftest import Cast
    from tests.integration.daemons import Event, Harness

pytestmark = pytest.mark.synapse

ROUNDS = int(os.environ.get("ENCRYPTED_ROUNDS", "40"))
ROTATION = 20
"""Messages of one sender for which a key of the room of many rounds is used."""
DEVICE_EVERY = 10
"""Rounds after which another device of the approver comes."""
DEVICE_STAYS = 5
"""Rounds for which it stays."""


@pytest.fixture
def sealed() -> bool:
    """Every room here is encrypted."""
    return True


def encrypted(people: E2EPerson, events: Iterable[Event]) -> list[bool]:
    """Whether each of the events came encrypted."""
    return [people.raw[event["event_id"]]["type"] == ENCRYPTED for event in events]


def structured(question: Event, option_id: str) -> dict[str, Any]:
    """A program's answer to a question."""
    content = question["content"]
    return {
        "suite_event_type": "dev.agentpod.permission.answer.v2",
        "schema_version": 1,
        "request_id": content["request_id"],
        "option_id": option_id,
        "subject": {"digest": content["subject"]["digest"], "revision": 1},
        "m.relates_to": {"rel_type": "m.reference", "event_id": question["event_id"]},
        "msgtype": "m.text",
        "body": option_id,
    }


async def settled(harness: Harness, owner: E2EPerson, room_id: str) -> None:
    """Return once the bot has handled all that was said before: it has answered something that was said now."""
    event_id = await owner.send(room_id, "!open")
    await owner.until(
        room_id,
        lambda event: (
            event["content"].get("msgtype") == "m.notice"
            and event["content"].get("m.relates_to", {}).get("m.in_reply_to", {}).get("event_id") == event_id
        ),
    )
    assert (await harness.call("GET", "/readyz")).status == 200


# Devices.


async def test_what_is_asked_and_said_is_encrypted_and_nothing_but_reactions_is_in_clear(
    harness: Harness, owner: E2EPerson, cast: Cast
) -> None:
    asked = await harness.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    await said.reaction(owner, cast.room_id, "1️⃣")
    await owner.reply(cast.room_id, question["event_id"], "none of them")
    await said.notice(owner, cast.room_id)
    await owner.send(cast.room_id, f"2 {asked['code']}")
    assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "reject_once"
    await said.outcome(owner, cast.room_id, question["event_id"])
    await owner.history(cast.room_id)
    bots = [event for event in owner.raw.values() if event["sender"] == cast.pod.user_id and "state_key" not in event]
    assert {event["type"] for event in bots} == {ENCRYPTED, "m.reaction"}
    assert "Run the tests" not in str(bots)
    assert owner.undecryptable == set()


@pytest.mark.parametrize("way", ["reply", "structured", "reaction"])
async def test_a_device_that_is_newer_than_the_question_answers_it(
    harness: Harness, owner: E2EPerson, cast: Cast, people: People, way: str
) -> None:
    await harness.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    event_id = question["event_id"]
    async with await people.new_device(cast.owner) as newer:
        [unread] = [event for event in await newer.history(cast.room_id) if event["event_id"] == event_id]
        assert unread["type"] == ENCRYPTED
        match way:
            case "reply":
                await newer.reply(cast.room_id, event_id, "1")
            case "structured":
                await newer.send(cast.room_id, structured(question, "allow_once"))
            case _:
                await newer.react(cast.room_id, event_id, "1️⃣")
        decision = (await harness.view("r1", wait_s=20))["decision"]
        assert (decision["option_id"], decision["answered_by"]) == ("allow_once", cast.owner.user_id)
        assert decision["via"] == {"reply": "number"}.get(way, way)
        # and what the bot says from then on it can read
        outcome = await said.outcome(newer, cast.room_id, event_id)
        assert encrypted(newer, [outcome]) == [True]
        await said.outcome(owner, cast.room_id, event_id)


async def test_a_reply_that_cannot_be_read_decides_nothing_and_says_so_and_its_late_key_gives_it_its_effect(
    harness: Harness, owner: E2EPerson, cast: Cast, people: People
) -> None:
    await harness.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    async with await people.new_device(cast.owner) as newer:
        relation = {"m.in_reply_to": {"event_id": question["event_id"]}}
        content = {"msgtype": "m.text", "body": "2: not now", "m.relates_to": relation}
        await newer.send_without_key(cast.room_id, content)
        notice = await said.notice(owner, cast.room_id, said.UNREADABLE)
        assert notice["content"]["m.relates_to"]["m.in_reply_to"]["event_id"]
        await newer.send_without_key(cast.room_id, content)
        await settled(harness, owner, cast.room_id)
        view = await harness.view("r1")
        assert (view["status"], view["decision"]) == ("pending", None)
        unreadable = [n for n in said.notices(await owner.history(cast.room_id)) if said.UNREADABLE in n]
        assert len(unreadable) == 1, "said once for each person and question"
        await newer.give_key(cast.room_id)
        decision = (await harness.view("r1", wait_s=20))["decision"]
    assert (decision["option_id"], decision["comment"], decision["via"]) == ("reject_once", "not now", "number")


async def test_an_answer_whose_key_comes_after_the_question_was_closed_is_late(
    harness: Harness, owner: E2EPerson, cast: Cast
) -> None:
    await harness.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    relation = {"m.in_reply_to": {"event_id": question["event_id"]}}
    await owner.send_without_key(cast.room_id, {"msgtype": "m.text", "body": "1", "m.relates_to": relation})
    await said.notice(owner, cast.room_id, said.UNREADABLE)
    await owner.react(cast.room_id, question["event_id"], "2️⃣")
    assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "reject_once"
    await owner.give_key(cast.room_id)
    await said.notice(owner, cast.room_id, "already")
    assert (await harness.view("r1"))["decision"]["option_id"] == "reject_once"


async def test_a_bare_answer_with_a_late_key_never_counts_for_a_question_that_came_after_it(
    harness: Harness, owner: E2EPerson, cast: Cast
) -> None:
    await owner.send_without_key(cast.room_id, {"msgtype": "m.text", "body": "1"})
    await settled(harness, owner, cast.room_id)
    await harness.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    await owner.give_key(cast.room_id)
    await settled(harness, owner, cast.room_id)
    assert (await harness.view("r1"))["status"] == "pending"
    await owner.reply(cast.room_id, question["event_id"], "2")
    assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "reject_once"


async def test_a_device_that_was_logged_out_reads_nothing_more(
    harness: Harness, owner: E2EPerson, cast: Cast, people: People
) -> None:
    async with await people.new_device(cast.owner) as lost:
        await settled(harness, lost, cast.room_id)
        await harness.asked(request_id="r1")
        before = await said.question(lost, cast.room_id, "r1")
        await lost.log_out()
    await settled(harness, owner, cast.room_id)
    await harness.asked(request_id="r2")
    after = await said.question(owner, cast.room_id, "r2")
    sessions = [owner.raw[event["event_id"]]["content"]["session_id"] for event in (before, after)]
    assert sessions[0] != sessions[1]


# Clear text.


async def test_clear_text_in_an_encrypted_room_never_answers(
    daemon: Daemon, harness: Harness, owner: E2EPerson, cast: Cast
) -> None:
    asked = await harness.asked(request_id="r1")
    question = await said.question(owner, cast.room_id, "r1")
    await owner.send_in_clear(cast.room_id, "1")
    await owner.send_in_clear(cast.room_id, f"1 {asked['code']}")
    relation = {"m.in_reply_to": {"event_id": question["event_id"]}}
    await owner.send_in_clear(cast.room_id, {"msgtype": "m.text", "body": "1", "m.relates_to": relation})
    await owner.send_in_clear(cast.room_id, structured(question, "allow_once"))
    await said.notice(owner, cast.room_id, "without encryption")
    await settled(harness, owner, cast.room_id)
    assert (await harness.view("r1"))["status"] == "pending"
    daemon.kill()
    await daemon.ended()
    await owner.send_in_clear(cast.room_id, {"msgtype": "m.text", "body": "Allow once", "m.relates_to": relation})
    await daemon.start()
    await settled(harness, owner, cast.room_id)
    assert (await harness.view("r1"))["status"] == "pending"
    await owner.reply(cast.room_id, question["event_id"], "2")
    assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "reject_once"


async def test_a_ciphertext_counts_once_and_for_nobody_but_whose_device_made_it(
    daemon: Daemon,
    harness: Harness,
    owner: E2EPerson,
    cast: Cast,
    people: People,
    *,
    register: Callable[[str], Awaitable[Account]],
) -> None:
    second = await register("second")
    await owner.invite(cast.room_id, second.user_id)
    daemon.approve(cast.owner.user_id, second.user_id).write()
    daemon.hang_up()
    await daemon.until_logged("configuration_reloaded")
    async with people.at(second) as other:
        assert isinstance(other, E2EPerson)
        await other.join(cast.room_id)
        await harness.asked(request_id="r1")
        question = await said.question(owner, cast.room_id, "r1")
        answer_id = await owner.reply(cast.room_id, question["event_id"], "1")
        assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "allow_once"
        await owner.until(cast.room_id, lambda event: event["event_id"] == answer_id)
        ciphertext = owner.raw[answer_id]["content"]

        await harness.asked(request_id="r2")
        again = await said.question(owner, cast.room_id, "r2")
        replayed = ciphertext | {"m.relates_to": {"m.in_reply_to": {"event_id": again["event_id"]}}}
        for sender in (owner, other):
            await sender.send_raw(cast.room_id, replayed)
        await settled(harness, owner, cast.room_id)
        assert (await harness.view("r2"))["status"] == "pending"
        daemon.kill()
        await daemon.ended()
        for sender in (owner, other):
            await sender.send_raw(cast.room_id, replayed)
        await daemon.start()
        await settled(harness, owner, cast.room_id)
        assert (await harness.view("r2"))["status"] == "pending"
        await other.reply(cast.room_id, again["event_id"], "2")
        assert (await harness.view("r2", wait_s=20))["decision"]["answered_by"] == second.user_id


# Encryption that is switched on.


@pytest.fixture
async def plain(
    synapse: PrivateSynapse, register: Callable[[str], Awaitable[Account]], tmp_path: Path
) -> AsyncIterator[tuple[Daemon, E2EPerson, str, str]]:
    """A daemon that can encrypt, an approver who can, and a room that is not encrypted yet."""
    pod, account = await register("pod"), await register("owner")
    room_id = await synapse.room(account, pod)
    bot = (pod.user_id, pod.access_token)
    daemon = Daemon(tmp_path / "of a plain room", homeserver=synapse.url, bot=bot, rooms={"ops": room_id})
    await give_keys(daemon.approve(account.user_id), pod)
    devices = tmp_path / "devices of a plain room"
    devices.mkdir()
    person = People(synapse, devices, sealed=True).at(account)
    assert isinstance(person, E2EPerson)
    async with person:
        try:
            await daemon.start()
            yield daemon, person, room_id, pod.user_id
        finally:
            await daemon.stop()


async def test_once_encryption_is_switched_on_all_is_encrypted_and_only_what_is_encrypted_counts(
    plain: tuple[Daemon, E2EPerson, str, str],
) -> None:
    daemon, owner, room_id, pod = plain
    async with daemon.harness() as harness:
        for request_id in ("r1", "r2"):
            await harness.asked(request_id=request_id)
        one, two = [await said.question(owner, room_id, request_id) for request_id in ("r1", "r2")]
        assert encrypted(owner, [one, two]) == [False, False]
        switch = await switch_on(owner, room_id)
        relation = {"m.in_reply_to": {"event_id": one["event_id"]}}
        await owner.send_in_clear(room_id, {"msgtype": "m.text", "body": "1", "m.relates_to": relation})
        await settled(harness, owner, room_id)
        assert (await harness.view("r1"))["status"] == "pending"
        await owner.reply(room_id, one["event_id"], "2")
        assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "reject_once"
        await said.outcome(owner, room_id, one["event_id"])
        daemon.kill()
        await daemon.ended()
        await owner.reply(room_id, two["event_id"], "1")
        await daemon.start()
        assert (await harness.view("r2", wait_s=20))["decision"]["option_id"] == "allow_once"
        await said.outcome(owner, room_id, two["event_id"])
        await harness.asked(request_id="r3")
        await said.question(owner, room_id, "r3")
    ids = [event["event_id"] for event in await owner.history(room_id)]
    since = [owner.raw[event_id] for event_id in ids[ids.index(switch) :]]
    kinds = [event["type"] for event in since if event["sender"] == pod]
    assert len(kinds) >= 4
    assert set(kinds) - {"m.reaction"} == {ENCRYPTED}


# Upgrades.


async def test_an_encrypted_room_is_left_for_the_next_one_and_nothing_is_said_in_clear_on_the_way(
    daemon: Daemon, owner: E2EPerson, cast: Cast
) -> None:
    daemon.config["routes"]["ops"]["follow_upgrades"] = True
    await daemon.start()
    old = f"rooms/{quote(cast.room_id, safe='')}"
    # after the upgrade only whoever has some power may speak in the old room
    levels = await owner.call("GET", f"{old}/state/m.room.power_levels")
    levels["users"] = {**levels.get("users", {}), cast.pod.user_id: 50}
    await owner.call("PUT", f"{old}/state/m.room.power_levels", levels)
    async with daemon.harness() as harness:
        await harness.asked(request_id="r1")
        first = await said.question(owner, cast.room_id, "r1")
        new = (await owner.call("POST", f"{old}/upgrade", {"new_version": "12"}))["replacement_room"]
        await owner.invite(new, cast.pod.user_id)
        again = await said.question(owner, new, "r1")
        assert again["content"]["subject"] == first["content"]["subject"]
        assert again["content"]["code"] == first["content"]["code"]
        await owner.reply(cast.room_id, first["event_id"], "1")
        await said.notice(owner, cast.room_id, "was asked again in the room")
        assert (await harness.view("r1"))["status"] == "pending"
        await owner.reply(new, again["event_id"], "2")
        assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "reject_once"
        await said.outcome(owner, new, again["event_id"])
    for room_id in (cast.room_id, new):
        ids = [event["event_id"] for event in await owner.history(room_id)]
        bots = [owner.raw[event_id] for event_id in ids if owner.raw[event_id]["sender"] == cast.pod.user_id]
        kinds = [event["type"] for event in bots if "state_key" not in event]
        assert len(kinds) >= 2
        assert set(kinds) - {"m.reaction"} == {ENCRYPTED}
    assert owner.undecryptable == set()


# Many rounds.


@pytest.mark.timeout(300)  # 200 rounds take about a minute where nothing else runs
async def test_over_many_rounds_with_new_keys_and_changing_devices_none_is_lost_and_all_is_readable(
    daemon: Daemon, owner: E2EPerson, cast: Cast, people: People
) -> None:
    room_id, visits = cast.room_id, 0
    await owner.encrypt(room_id, rotation_period_msgs=ROTATION)
    await daemon.start()
    async with daemon.harness() as harness, AsyncExitStack() as visit:
        visitor: E2EPerson | None = None
        unread: set[str] = set()
        for number in range(ROUNDS):
            request_id, option_id = f"round-{number}", ("allow_once", "reject_once")[number % 2]
            await harness.asked(request_id=request_id, title=f"Step {number}")
            question = await said.question(owner, room_id, request_id)
            speaker = owner
            if number % DEVICE_EVERY == 0:
                visitor = speaker = await visit.enter_async_context(await people.new_device(cast.owner))
                assert question["event_id"] in visitor.undecryptable
                visits += 1
            elif visitor is not None:
                seen = await said.question(visitor, room_id, request_id)
                assert seen["content"] == question["content"]
                speaker = (owner, visitor)[number % 2]
            await speaker.reply(room_id, question["event_id"], f"{number % 2 + 1}")
            view = await harness.view(request_id, wait_s=30)
            assert view["status"] == "decided", view
            assert view["decision"]["option_id"] == option_id
            if speaker is visitor and number % DEVICE_EVERY == 0:
                await said.outcome(visitor, room_id, question["event_id"])
                unread = set(visitor.undecryptable)  # what was said before the bot knew of it
            if visitor is not None and number % DEVICE_EVERY == DEVICE_STAYS:
                await said.outcome(visitor, room_id, question["event_id"])
                assert visitor.undecryptable == unread
                await visitor.log_out()
                await visit.aclose()
                visitor = None
        await said.outcome(owner, room_id, view["event_id"])
        events = await owner.history(room_id)
        metrics = (await harness.call("GET", "/metrics")).body
    assert visits == (ROUNDS + DEVICE_EVERY - 1) // DEVICE_EVERY
    asked = [event["content"]["request_id"] for event in said.questions(events)]
    assert asked == [f"round-{number}" for number in range(ROUNDS)]
    assert len([event for event in events if said.is_outcome(event)]) >= ROUNDS
    assert [text for text in said.notices(events) if said.UNREADABLE in text] == [], "the bot could not read some"
    assert "\nagentpod_undecryptable_events_total 0.0\n" in metrics, "the bot could not read some"
    nothing_unread_and_no_key_used_too_long(owner, events, {cast.pod.user_id, cast.owner.user_id})


def nothing_unread_and_no_key_used_too_long(reader: E2EPerson, events: Iterable[Event], senders: set[str]) -> None:
    """The reader could decrypt all, which was encrypted with as many keys as the room's settings ask for."""
    assert [event for event in events if event["type"] == ENCRYPTED] == []
    assert reader.undecryptable == set()
    came = [reader.raw[event["event_id"]] for event in events]
    sessions = Counter(
        (event["sender"], event["content"]["session_id"]) for event in came if event["type"] == ENCRYPTED
    )
    assert max(sessions.values()) <= ROTATION
    assert {sender for sender, _ in sessions} == senders


async def test_a_first_question_is_readable_though_it_is_asked_as_soon_as_the_daemon_is_ready(
    daemon: Daemon, owner: E2EPerson, cast: Cast
) -> None:
    for run in range(3):
        await daemon.start()
        async with daemon.harness() as harness:
            await harness.asked(request_id=f"r{run}")
            question = await said.question(owner, cast.room_id, f"r{run}")
            assert encrypted(owner, [question]) == [True]
        daemon.kill()
        await daemon.ended()
    assert owner.undecryptable == set()


async def test_with_keys_from_an_older_backup_what_is_asked_can_be_read_and_what_is_answered_counts(
    daemon: Daemon, owner: E2EPerson, cast: Cast
) -> None:
    """A restored Olm session is behind what the other side knows: whoever goes on with it is read by nobody."""
    crypto, backup = daemon.folder / "crypto", daemon.folder / "backup of crypto"

    async def one_round(request_id: str) -> None:
        await daemon.start()
        async with daemon.harness() as harness:
            await harness.asked(request_id=request_id)
            question = await said.question(owner, cast.room_id, request_id)
            owner.forget_session(cast.room_id)
            await owner.reply(cast.room_id, question["event_id"], "1")
            assert (await harness.view(request_id, wait_s=20))["status"] == "decided"
        daemon.terminate()
        await daemon.ended()

    await one_round("r1")
    shutil.copytree(crypto, backup)
    for number in range(2, 5):
        await one_round(f"r{number}")
    shutil.rmtree(crypto)
    shutil.copytree(backup, crypto)
    await one_round("r5")
    assert owner.undecryptable == set()


async def test_who_joins_later_and_who_is_gone_are_told_from_each_other(
    harness: Harness,
    owner: E2EPerson,
    cast: Cast,
    people: People,
    register: Callable[[str], Awaitable[Account]],
) -> None:
    guest = await register("guest")
    await harness.asked(request_id="r1")
    await said.question(owner, cast.room_id, "r1")
    await owner.invite(cast.room_id, guest.user_id)
    async with people.at(guest) as visitor:
        assert isinstance(visitor, E2EPerson)
        await visitor.join(cast.room_id)
        await settled(harness, owner, cast.room_id)
        await harness.asked(request_id="r2")
        await said.question(visitor, cast.room_id, "r2")
        await visitor.leave(cast.room_id)
        await settled(harness, owner, cast.room_id)
        await harness.asked(request_id="r3")
        last = await said.question(owner, cast.room_id, "r3")

        async def rejoined() -> bool:
            await owner.invite(cast.room_id, guest.user_id)
            await visitor.join(cast.room_id)
            return True

        await eventually(rejoined)
        await settled(harness, owner, cast.room_id)
        await harness.asked(request_id="r4")
        await said.question(visitor, cast.room_id, "r4")
        shown = {event["event_id"]: event["type"] for event in await visitor.history(cast.room_id)}
    assert shown.get(last["event_id"], ENCRYPTED) == ENCRYPTED
