"""The loop with the real client on the fake homeserver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.core.room import Invite, Membered, OwnQuestion, Unheeded
from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.matrix.sync import POLL_MS
from tests.matrix.fake_homeserver import FIRST_TS
from tests.matrix.loop_parts import Memory, StepClock, loop_of, running

if TYPE_CHECKING:
    from agentpod_bot.matrix.client import MatrixClient
    from tests.matrix.fake_homeserver import FakeHomeserver

QUESTION: dict[str, Any] = {
    "msgtype": "m.text",
    "body": "Permission needed: Run the test suite",
    "suite_event_type": "dev.agentpod.permission.v2",
    "request_id": "s:1",
    "code": "K7",
    "subject": {"digest": "ab12", "revision": 1},
}


@pytest.fixture
def memory(room: RoomId) -> Memory:
    return Memory(frozenset({room}))


def numbers(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


def positions(hs: FakeHomeserver) -> list[str | None]:
    """Where each sync so far went on from."""
    return [call.query.get("since") for call in hs.calls if call.path.endswith("/sync")]


async def caught_up(client: MatrixClient, memory: Memory, *, batches: int = 1) -> None:
    """Run the loop until it has handled so many batches more."""
    wanted = len(memory.batches) + batches
    async with running(loop_of(client, memory)):
        await memory.until(lambda: len(memory.batches) >= wanted)


# The ordinary way.


async def test_what_is_said_is_handled_once_and_in_order(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.say(room, owner, "1")
    clock = StepClock()
    loop = loop_of(client, memory, clock)
    async with running(loop):
        await loop.first_sync_done.wait()
        for number in numbers(2, 9):
            hs.say(room, owner, number)
            await memory.until(lambda number=number: number in memory.bodies)
    assert memory.bodies == numbers(1, 9)
    assert clock.slept == []
    assert loop.last_good_sync == 0.0


async def test_the_first_sync_does_not_wait_and_the_later_ones_do(
    client: MatrixClient, hs: FakeHomeserver, memory: Memory
) -> None:
    async with running(loop_of(client, memory)):
        await hs.until(lambda: hs.count("GET", "/sync") == 2)
    first, second = (call.query for call in hs.calls)
    assert "since" not in first
    assert int(first["timeout"]) <= 1000
    assert (second["timeout"], second["since"]) == (str(POLL_MS), memory.where)


async def test_own_questions_are_seen_with_their_transaction_id(
    client: MatrixClient, room: RoomId, memory: Memory
) -> None:
    event_id = await client.send(room, "m.room.message", QUESTION, TxnId("t1"))
    await caught_up(client, memory)
    (own,) = [event for event in memory.room_batches[0].timeline if isinstance(event, OwnQuestion)]
    assert (own.event_id, own.txn_id, own.request_id) == (event_id, "t1", "s:1")


async def test_rooms_that_are_not_configured_are_ignored(
    client: MatrixClient, hs: FakeHomeserver, pod: UserId, owner: UserId, memory: Memory
) -> None:
    other = hs.room(owner, pod)
    hs.say(other, owner, "1")
    await caught_up(client, memory)
    assert [batch.room_id for batch in memory.room_batches] == list(memory.configured)


async def test_an_invitation_tells_who_invited(
    client: MatrixClient, hs: FakeHomeserver, pod: UserId, owner: UserId, memory: Memory
) -> None:
    new = hs.room(owner)
    async with running(loop_of(client, memory)):
        await memory.until(lambda: memory.batches)
        hs.invite(new, pod, by=owner)
        await memory.until(lambda: len(memory.batches) == 2)
    assert memory.batches[1].invites == (Invite(room_id=RoomId(new), sender=owner),)


async def test_being_removed_is_told_with_what_was_said_before(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    await caught_up(client, memory)
    hs.say(room, owner, "1")
    hs.kick(room, client.user_id, by=owner)
    await caught_up(client, memory)
    (left,) = [batch for batch in memory.room_batches if batch.left]
    assert memory.bodies == ["1"]
    assert isinstance(left.timeline[-1], Membered)


async def test_malformed_events_neither_stop_the_loop_nor_hide_others(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.inject(room, {"type": "m.room.message", "event_id": 7})
    hs.inject(room, {"type": "m.room.message", "event_id": "$odd", "sender": owner, "content": []})
    hs.say(room, owner, "1")
    await caught_up(client, memory)
    assert memory.bodies == ["1"]
    assert any(isinstance(event, Unheeded) and event.event_id == "$odd" for event in memory.room_batches[0].timeline)


# Restart and gaps.


async def test_after_a_restart_the_loop_goes_on_where_it_was(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.say(room, owner, "1")
    await caught_up(client, memory)
    hs.say(room, owner, "2")
    await caught_up(client, memory)
    assert memory.bodies == ["1", "2"]


async def test_an_answer_in_a_gap_is_found_in_its_place(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.say(room, owner, "0")
    await caught_up(client, memory)
    for number in numbers(1, 375):
        hs.say(room, owner, number)
    await caught_up(client, memory)
    assert memory.bodies == numbers(0, 375)
    assert len(memory.batches) == 2
    assert hs.count("GET", "/messages") == 4


@pytest.mark.parametrize("fault", ["cut", "refused", "busy", "page"])
async def test_the_position_never_passes_a_gap_that_is_not_filled(
    client: MatrixClient, hs: FakeHomeserver, owner: UserId, memory: Memory, fault: str
) -> None:
    (room,) = memory.configured
    hs.say(room, owner, "0")
    await caught_up(client, memory)
    position = memory.where
    for number in numbers(1, 200):
        hs.say(room, owner, number)
    match fault:
        case "cut":
            hs.cut("GET", "/messages", times=3)
        case "refused":
            hs.answer_with("GET", "/messages", status=403, body={"errcode": "M_FORBIDDEN", "error": ""}, times=3)
        case "busy":
            hs.answer_with("GET", "/messages", status=429, body={"retry_after_ms": 90_000}, times=3)
        case _:
            hs.answer_with("GET", "/messages", status=200, body={"start": "x"}, times=3)
    clock = StepClock()
    async with running(loop_of(client, memory, clock)):
        await memory.until(lambda: len(memory.batches) == 2)
    assert memory.bodies == numbers(0, 200)
    assert clock.slept == ([90.0] * 3 if fault == "busy" else [1.0, 2.0, 4.0])
    again = [since for since in positions(hs) if since == position]
    assert len(again) in (4, 5)  # one more where the loop before was already polling from there
    assert set(positions(hs)) <= {None, position, memory.where}


async def test_a_gap_is_filled_on_every_try_from_the_same_place(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.say(room, owner, "0")
    await caught_up(client, memory)
    for number in numbers(1, 200):
        hs.say(room, owner, number)
    memory.failures = [StoreUnavailable("disk full")]
    await caught_up(client, memory)
    assert memory.bodies == numbers(0, 200)


async def test_a_new_store_takes_the_timeline_as_it_is(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    for number in numbers(1, 200):
        hs.say(room, owner, number)
    await caught_up(client, memory)
    assert memory.bodies == numbers(151, 200)
    assert hs.count("GET", "/messages") == 0


async def test_a_first_sync_with_an_open_question_goes_back_to_it(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    for number in numbers(1, 300):
        hs.say(room, owner, number, ts=FIRST_TS + int(number) * 60_000)
    memory.oldest_open[room] = FIRST_TS + 120 * 60_000
    await caught_up(client, memory)
    assert set(numbers(119, 300)) <= set(memory.bodies)


# Faults.


async def test_a_store_that_cannot_be_written_sees_the_same_response_again(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.say(room, owner, "1")
    memory.failures = [StoreUnavailable("disk full"), StoreUnavailable("disk full")]
    clock = StepClock()
    loop = loop_of(client, memory, clock)
    async with running(loop):
        await memory.until(lambda: memory.batches)
    assert memory.bodies == ["1"]
    assert clock.slept == [1.0, 2.0]


async def test_any_other_failure_of_the_handler_ends_the_loop(client: MatrixClient, memory: Memory) -> None:
    memory.failures = [ZeroDivisionError("a bug")]
    loop = loop_of(client, memory)
    with pytest.raises(ZeroDivisionError):
        await loop.run()
    assert memory.where is None
    assert loop.last_good_sync is None


async def test_a_broken_homeserver_is_asked_less_and_less_often(
    client: MatrixClient, hs: FakeHomeserver, memory: Memory
) -> None:
    hs.answer_with("GET", "/sync", status=502, body="<html>", times=4)
    hs.cut("GET", "/sync", times=2)
    hs.answer_with("GET", "/sync", status=200, body={"rooms": {}}, times=2)
    clock = StepClock()
    loop = loop_of(client, memory, clock)
    async with running(loop):
        await memory.until(lambda: memory.batches)
        assert loop.last_good_sync == sum(clock.slept)
    assert clock.slept == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


async def test_the_backoff_begins_anew_after_a_good_sync(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    clock = StepClock()
    hs.cut("GET", "/sync", times=2)
    async with running(loop_of(client, memory, clock)):
        await memory.until(lambda: memory.batches)
        await hs.until(lambda: hs.count("GET", "/sync") == 4)
        hs.cut("GET", "/sync")
        hs.say(room, owner, "1")
        await memory.until(lambda: memory.bodies)
        hs.say(room, owner, "2")
        await memory.until(lambda: len(memory.bodies) == 2)
    assert clock.slept == [1.0, 2.0, 1.0]


async def test_a_homeserver_that_asks_to_wait_is_not_asked_before(
    client: MatrixClient, hs: FakeHomeserver, memory: Memory
) -> None:
    hs.answer_with("GET", "/sync", status=429, body={"retry_after_ms": 4_300})
    hs.answer_with("GET", "/sync", status=429, headers={"Retry-After": "120"})
    clock = StepClock()
    async with running(loop_of(client, memory, clock)):
        await memory.until(lambda: memory.batches)
    assert clock.slept == [4.3, 120.0]


async def test_a_refused_token_is_told_and_tried_slowly(
    client: MatrixClient, hs: FakeHomeserver, token: str, memory: Memory
) -> None:
    hs.revoke(token)
    clock = StepClock()
    loop = loop_of(client, memory, clock)
    async with running(loop):
        await hs.until(lambda: hs.count("GET", "/sync") == 4)
        assert loop.token_refused
        hs.restore(token)
        await memory.until(lambda: memory.batches)
        assert not loop.token_refused
    assert set(clock.slept) == {60.0}


async def test_a_position_that_the_homeserver_does_not_know_is_dropped_and_nothing_is_lost(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    hs.say(room, owner, "0")
    await caught_up(client, memory)
    for number in numbers(1, 120):
        hs.say(room, owner, number)
    hs.forget_positions()
    await caught_up(client, memory)
    assert memory.bodies == numbers(0, 120)
    assert positions(hs).count(None) == 2


async def test_a_homeserver_that_refuses_every_position_is_not_asked_in_a_circle(
    client: MatrixClient, hs: FakeHomeserver, memory: Memory
) -> None:
    memory.where = "restored"
    clock = StepClock()

    def forget() -> bool:
        hs.forget_positions()
        return len(memory.batches) >= 6

    async with running(loop_of(client, memory, clock)):
        await memory.until(forget)
    assert clock.slept[:6] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]


async def test_a_refusal_of_a_sync_from_the_start_is_just_a_fault(
    client: MatrixClient, hs: FakeHomeserver, memory: Memory
) -> None:
    hs.answer_with("GET", "/sync", status=400, body={"errcode": "M_UNKNOWN", "error": ""}, times=3)
    clock = StepClock()
    async with running(loop_of(client, memory, clock)):
        await memory.until(lambda: memory.batches)
    assert clock.slept == [1.0, 2.0, 4.0]


async def test_a_refused_page_does_not_cost_the_position(
    client: MatrixClient, hs: FakeHomeserver, room: RoomId, owner: UserId, memory: Memory
) -> None:
    await caught_up(client, memory)
    position = memory.where
    for number in numbers(1, 60):
        hs.say(room, owner, number)
    hs.answer_with("GET", "/messages", status=400, body={"errcode": "M_UNKNOWN", "error": ""})
    await caught_up(client, memory)
    assert None not in positions(hs)[1:]
    assert positions(hs).count(position) >= 2


async def test_cancelling_ends_the_loop_at_once(client: MatrixClient, hs: FakeHomeserver, memory: Memory) -> None:
    task = asyncio.create_task(loop_of(client, memory).run())
    await hs.until(lambda: hs.count("GET", "/sync") == 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
