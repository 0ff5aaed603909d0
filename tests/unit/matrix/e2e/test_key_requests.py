from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.core.room import Origin
from agentpod_bot.errors import HomeserverUnavailable, Refused
from agentpod_bot.matrix.e2e.key_requests import (
    KEPT_MS,
    LEAST_OF_SENDER,
    MOST_KEPT,
    MOST_OF_ROOM,
    MOST_OF_SENDER,
    WITHIN_MS,
    KeyRequest,
    KeyRequests,
    Rate,
    Stage,
)
from agentpod_bot.matrix.opened import NoKey, Opened
from tests.unit.matrix.e2e.key_server import MALLORY, OWNER, POD, ROOM, device, vault_of
from tests.unit.matrix.e2e.test_crypto import BOTH, EACH_ANEW, Cast, cast, forward, kept_up, until, upkeep

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.matrix.e2e.key_server import Device

__all__ = ["cast"]


def asked(cast: Cast, user_id: UserId = OWNER, device_id: str = "PHONE") -> list[dict[str, Any]]:
    """What a device was told of keys that the bot asks for."""
    waiting = cast.server.waiting.get((user_id, device_id), [])
    return [event["content"] for event in waiting if event["type"] == "m.room_key_request"]


def of_session(made: Device, number: int) -> dict[str, Any]:
    """An event of a session that nobody was given."""
    content = {
        "algorithm": "m.megolm.v1.aes-sha2",
        "session_id": f"session {number}",
        "sender_key": made.own.curve25519,
        "device_id": made.own.device_id,
        "ciphertext": "AwgAEnAC",
    }
    return made.event(content, event_id=f"${made.own.device_id}-{number}")


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """The requests in the bot's file."""
    with closing(sqlite3.connect(vault_of(folder, POD, "POD").keys)) as keys:
        return keys.execute("SELECT session_id, user_id, stage FROM key_request ORDER BY rowid").fetchall()


# what becomes of a request


async def test_a_key_that_came_is_asked_for_no_longer(cast: Cast, tmp_path: Path) -> None:
    said = await cast.owner.say(BOTH, "1")
    (room_key,) = cast.server.waiting.pop((POD, "POD"))
    assert isinstance(await cast.pod.hear(said), NoKey)
    await kept_up(cast)
    cast.server.waiting[POD, "POD"] = [room_key]
    await kept_up(cast)
    first, second = asked(cast)
    assert (first["action"], second["action"]) == ("request", "request_cancellation")
    assert second == {
        "action": "request_cancellation",
        "request_id": first["request_id"],
        "requesting_device_id": "POD",
    }
    assert rows(tmp_path) == []


async def test_a_forwarded_key_is_asked_for_no_longer(cast: Cast, tmp_path: Path) -> None:
    said = await cast.owner.say(BOTH, "1")
    cast.server.waiting.pop((POD, "POD"))
    assert isinstance(await cast.pod.hear(said), NoKey)
    await kept_up(cast)
    await forward(cast.owner, cast.pod, said)
    await kept_up(cast)
    assert [content["action"] for content in asked(cast)] == ["request", "request_cancellation"]
    assert rows(tmp_path) == []


async def test_a_key_that_reads_no_more_than_what_was_there_is_no_answer(cast: Cast) -> None:
    """An earlier message is waited for than the first that the known key reads."""
    before = await cast.owner.say(BOTH, "before")
    (room_key,) = cast.server.waiting.pop((POD, "POD"))
    later = await cast.owner.say(BOTH, "later")
    await forward(cast.owner, cast.pod, later)
    cast.server.waiting.pop((POD, "POD"))
    session_id = later["content"]["session_id"]

    def from_second(machine: Any) -> Any:
        [known] = [s for s in machine._olm.inbound_group_store if s.id == session_id]
        content = {"session_key": known.export_session(1), "sender_claimed_ed25519_key": machine.own.ed25519}
        more = {"algorithm": "m.megolm.v1.aes-sha2", "room_id": ROOM, "session_id": session_id}
        return content | more | {"sender_key": machine.own.curve25519}

    part = await cast.owner.keys.run(from_second)
    assert isinstance(await cast.pod.hear(later), NoKey)
    await forward(cast.owner, cast.pod, later, session_key=part["session_key"])
    assert isinstance(await cast.pod.hear(later), Opened)
    assert isinstance(await cast.pod.hear(before), NoKey)
    await forward(cast.owner, cast.pod, later)
    assert isinstance(await cast.pod.hear(before), Opened)
    assert room_key["type"] == "m.room.encrypted"


async def test_who_claims_a_session_first_keeps_nobody_from_being_asked_for_its_key(cast: Cast) -> None:
    said = await cast.owner.say(BOTH, "1")
    cast.server.waiting.pop((POD, "POD"))
    assert isinstance(await cast.pod.hear(said | {"sender": MALLORY, "event_id": "$claimed"}), NoKey)
    assert isinstance(await cast.pod.hear(said), NoKey)
    await kept_up(cast)
    assert [content["body"]["session_id"] for content in asked(cast)] == [said["content"]["session_id"]]
    await forward(cast.owner, cast.pod, said)
    opening = await cast.pod.hear(said)
    assert isinstance(opening, Opened)
    assert opening.origin is Origin.DEVICE


async def test_after_a_day_a_key_may_be_asked_for_again(cast: Cast, tmp_path: Path) -> None:
    said = of_session(cast.owner, 1)
    await cast.pod.hear(said)
    await kept_up(cast)
    cast.clock.advance(KEPT_MS - 1)
    await cast.pod.hear(said)
    await kept_up(cast)
    assert len(asked(cast)) == 1
    cast.clock.advance(1)
    await cast.pod.hear(said)
    await kept_up(cast)
    first, *more = asked(cast)
    assert sorted(content["action"] for content in more) == ["request", "request_cancellation"]
    assert {c["request_id"] == first["request_id"] for c in more if c["action"] == "request_cancellation"} == {True}
    assert rows(tmp_path) == [("session 1", OWNER, "asked")]


async def test_what_was_asked_for_is_known_after_a_restart_and_what_was_not_is_asked_then(
    cast: Cast, tmp_path: Path
) -> None:
    said = await cast.owner.say(BOTH, "1")
    cast.server.waiting.pop((POD, "POD"))
    await cast.pod.hear(said)
    await kept_up(cast)
    await cast.pod.hear(of_session(cast.owner, 2))
    await cast.pod.keys.close()
    await forward(cast.owner, cast.pod, said)
    async with device(cast.server, tmp_path, POD, "POD", clock=cast.clock, make=False) as again:
        assert await again.sync() == {(ROOM, said["content"]["session_id"])}
        async with upkeep(again):
            await again.sync()
            await until(lambda: len(asked(cast)) == 3)
    assert [(c["action"], c.get("body", {}).get("session_id")) for c in asked(cast)] == [
        ("request", said["content"]["session_id"]),
        ("request_cancellation", None),
        ("request", "session 2"),
    ]


async def test_a_request_that_the_homeserver_refuses_keeps_no_other_one_back(cast: Cast, tmp_path: Path) -> None:
    await cast.pod.hear(of_session(cast.owner, 1))
    await cast.pod.hear(of_session(cast.owner, 2))
    cast.server.fail("sendToDevice", Refused("M_INVALID_PARAM", "no"))
    await kept_up(cast)
    assert [content["body"]["session_id"] for content in asked(cast)] == ["session 2"]
    assert {stage for _, _, stage in rows(tmp_path)} == {"asked"}


@pytest.mark.parametrize("sender_key", ["\ud800", "k" * 65, 7], ids=["half a character", "too long", "no text"])
async def test_what_cannot_be_a_senders_key_is_not_sent_on(cast: Cast, sender_key: object) -> None:
    event = of_session(cast.owner, 1)
    event["content"]["sender_key"] = sender_key
    await cast.pod.hear(event)
    await kept_up(cast)
    [content] = asked(cast)
    assert "sender_key" not in content["body"]


# who sends what nobody can read


async def test_who_sends_what_cannot_be_read_makes_the_bot_ask_no_more_than_so_often(
    cast: Cast, tmp_path: Path
) -> None:
    with structlog.testing.capture_logs() as logs:
        for number in range(MOST_OF_SENDER + 50):
            assert await cast.pod.hear(of_session(cast.mallory, number)) == NoKey(f"session {number}")
    await cast.pod.hear(of_session(cast.owner, 1))
    await kept_up(cast)
    assert len(asked(cast, MALLORY, "EVIL")) == MOST_OF_SENDER
    assert len(asked(cast)) == 1
    assert len(rows(tmp_path)) == MOST_OF_SENDER + 1
    assert [line["event"] for line in logs if line["event"] == "too_many_keys_missing"] == ["too_many_keys_missing"]
    cast.clock.advance(WITHIN_MS)
    await cast.pod.hear(of_session(cast.mallory, 1_000))
    await kept_up(cast)
    assert len(asked(cast, MALLORY, "EVIL")) == MOST_OF_SENDER + 1


async def test_a_room_makes_the_bot_ask_no_more_than_so_often_but_a_little_of_everybody(cast: Cast) -> None:
    many = [UserId(f"@{number}:example.org") for number in range(20)]

    def flood(machine: Any) -> list[int]:
        def told(room_id: RoomId, sender: UserId) -> int:
            sessions = [of_session(cast.mallory, number)["content"] for number in range(2 * MOST_OF_SENDER)]
            return sum(machine.request_key(room_id, sender, content, 0) for content in sessions)

        return [*(told(ROOM, sender) for sender in many), told(RoomId("!other:example.org"), OWNER)]

    *told, other = await cast.pod.keys.run(flood)
    within = MOST_OF_ROOM // MOST_OF_SENDER
    assert told == [MOST_OF_SENDER] * within + [LEAST_OF_SENDER] * (len(many) - within)
    assert other == MOST_OF_SENDER


async def test_what_nobody_answers_does_not_make_the_file_grow_and_drives_nobody_elses_out(
    cast: Cast, tmp_path: Path
) -> None:
    def flood(machine: Any) -> None:
        now_ms = cast.clock.now_ms()
        for number in range(3 * MOST_KEPT):
            content = of_session(cast.mallory, number)["content"]
            machine._key_rate = Rate()
            assert machine.request_key(ROOM, MALLORY, content, now_ms + number)

    await cast.pod.hear(of_session(cast.owner, 1))
    await cast.pod.keys.run(flood)
    kept = rows(tmp_path)
    assert [(session, user_id) for session, user_id, stage in kept if stage == Stage.WANTED] == [
        ("session 1", OWNER),
        *((f"session {number}", MALLORY) for number in range(2 * MOST_KEPT + 1, 3 * MOST_KEPT)),
    ]
    assert len(kept) == 2 * MOST_KEPT


class Nowhere:
    """Keeps nothing."""

    def load_key_requests(self) -> tuple[KeyRequest, ...]:
        return ()

    def save_key_request(self, request: KeyRequest) -> None:
        """Nothing."""

    def remove_key_request(self, request_id: str) -> None:
        """Nothing."""


def test_what_is_over_before_it_was_heard_to_be_sent_is_cancelled_all_the_same() -> None:
    requests = KeyRequests(Nowhere())
    request = KeyRequest(
        request_id="r", room_id=ROOM, session_id="s", user_id=OWNER, sender_key=None, asked_at_ms=0, stage=Stage.WANTED
    )
    requests.add(request)
    [wanted] = requests.unsaid()
    requests.came(request.key)
    requests.said(wanted.txn_id)
    [over] = requests.unsaid()
    assert (wanted.stage, over.stage) == (Stage.WANTED, Stage.OVER)
    assert over.txn_id != wanted.txn_id
    requests.said(over.txn_id)
    assert requests.unsaid() == ()
    assert requests.open(request.key) is None


# sending


async def test_a_request_whose_answer_was_cut_comes_once(cast: Cast) -> None:
    await cast.pod.hear(of_session(cast.owner, 1))
    cast.server.lost["sendToDevice"] = 2
    await kept_up_later(cast)
    assert len(asked(cast)) == 1
    assert len(cast.server.txn_ids) == 3
    assert len(set(cast.server.txn_ids)) == 1


async def test_what_was_not_sent_is_sent_later(cast: Cast) -> None:
    for number in range(3):
        await cast.pod.hear(of_session(cast.owner, number))
    cast.server.fail("sendToDevice", HomeserverUnavailable("cut"))
    await kept_up_later(cast)
    assert sorted(content["body"]["session_id"] for content in asked(cast)) == ["session 0", "session 1", "session 2"]


async def test_keys_that_the_homeserver_refuses_keep_nothing_else_back(cast: Cast) -> None:
    await cast.pod.hear(of_session(cast.owner, 1))
    cast.server.one_time[POD, "POD"].clear()
    cast.server.fail("upload", Refused("M_UNKNOWN", "One time key already exists"), times=3)
    async with upkeep(cast.pod):
        await cast.pod.sync(device_one_time_keys_count={})
        await until(lambda: asked(cast))
        assert len(cast.server.faults["upload"]) == 2
        while not cast.server.one_time[POD, "POD"]:
            cast.clock.advance(1_000)
            await asyncio.sleep(0.002)


async def kept_up_later(cast: Cast) -> None:
    """Have the bot do what is due, with time going by, until nothing is."""
    async with upkeep(cast.pod), asyncio.timeout(20):
        await cast.pod.sync()
        while cast.pod.crypto._work.is_set() or await cast.pod.keys.run(lambda machine: machine.outgoing()):
            cast.clock.advance(1_000)
            await asyncio.sleep(0.002)


async def test_a_message_that_keeps_a_session_alive_is_not_lost_where_it_cannot_be_sent_at_once(cast: Cast) -> None:
    await cast.pod.hear(await cast.owner.say(BOTH, "so that there is an Olm session"))

    def wedge(machine: Any) -> None:
        machine._olm.wedged_devices.append(machine._olm.device_store[OWNER]["PHONE"])

    await cast.pod.keys.run(wedge)
    cast.server.txn_ids.clear()
    cast.server.fail("sendToDevice", HomeserverUnavailable("cut"), times=2)
    await kept_up_later(cast)
    [dummy] = cast.server.waiting[OWNER, "PHONE"]
    assert dummy["type"] == "m.room.encrypted"
    assert len(set(cast.server.txn_ids)) == 1
    assert await cast.pod.keys.run(lambda machine: machine.outgoing()) == ()


async def test_keys_of_a_file_of_the_first_version_are_used_on(cast: Cast, tmp_path: Path) -> None:
    said = await cast.owner.say(EACH_ANEW, "1")
    await cast.pod.sync()
    await cast.pod.keys.close()
    with closing(sqlite3.connect(vault_of(tmp_path, POD, "POD").keys)) as keys:
        keys.executescript(
            "DROP TABLE key_request; CREATE TABLE key_request (session_id TEXT PRIMARY KEY, request_id TEXT NOT NULL,"
            " room_id TEXT NOT NULL, algorithm TEXT NOT NULL); INSERT INTO key_request VALUES ('s', 's', 'r', 'a');"
            " PRAGMA user_version=1"
        )
    for _ in range(2):
        async with device(cast.server, tmp_path, POD, "POD", clock=cast.clock, make=False) as again:
            assert isinstance(await again.crypto.read(ROOM, said), Opened)
            await again.crypto.read(ROOM, of_session(cast.owner, 1))
    assert rows(tmp_path) == [("session 1", OWNER, "wanted")]
