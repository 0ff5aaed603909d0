"""The loop alone, on a scripted source; with a real client it is tested in tests/matrix."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.core.room import Origin
from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused, StoreUnavailable, Unavailable
from agentpod_bot.matrix.opened import NoKey, Opened
from agentpod_bot.matrix.sync import POLL_MS, SyncLoop
from tests.matrix.loop_parts import Memory, StepClock, loop_of, running

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from agentpod_bot.core.ids import EventId
    from agentpod_bot.matrix.opened import Opening

OPS = RoomId("!ops")


class Script:
    """Answers syncs with what it was given, then waits for ever; keeps what it was asked."""

    user_id = UserId("@pod:hs.example")

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str | None, int]] = []
        self.idle = asyncio.Event()

    async def sync(self, since: str | None, *, timeout_ms: int, sync_filter: Mapping[str, Any]) -> dict[str, Any]:
        assert sync_filter["room"]["timeline"]["limit"] > 0
        self.asked.append((since, timeout_ms))
        if not self.answers:
            self.idle.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def messages(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
        raise AssertionError("nothing is limited here")


def answer(position: str) -> dict[str, Any]:
    return {"next_batch": position, "rooms": {"join": {OPS: {"timeline": {"events": []}}}}}


async def ran(script: Script, memory: Memory, clock: StepClock | None = None) -> SyncLoop:
    loop = loop_of(script, memory, clock)
    async with running(loop):
        await script.idle.wait()
    return loop


async def test_each_sync_goes_on_from_the_last_handled_response() -> None:
    script = Script(answer("s2"), answer("s3"))
    await ran(script, Memory(frozenset({OPS}), where="s1"))
    assert script.asked == [("s1", 0), ("s2", POLL_MS), ("s3", POLL_MS)]


async def test_after_a_fault_the_next_sync_does_not_wait_for_news() -> None:
    script = Script(answer("s2"), HomeserverUnavailable("cut"), answer("s3"))
    await ran(script, Memory(frozenset({OPS})))
    assert script.asked == [(None, 0), ("s2", POLL_MS), ("s2", 0), ("s3", POLL_MS)]


async def test_a_response_that_is_not_handled_is_asked_for_again() -> None:
    memory = Memory(frozenset({OPS}), failures=[StoreUnavailable("locked")])
    script = Script(answer("s2"), answer("s2b"))
    await ran(script, memory)
    assert script.asked == [(None, 0), (None, 0), ("s2b", POLL_MS)]
    assert memory.where == "s2b"


@pytest.mark.parametrize("errcode", ["M_UNKNOWN_POS", "M_INVALID_PARAM", "M_UNKNOWN"])
async def test_an_unknown_position_is_dropped_once(errcode: str) -> None:
    refused = Refused(errcode, status=400)
    script = Script(refused, refused, answer("s2"))
    clock = StepClock()
    await ran(script, Memory(frozenset({OPS}), where="old"), clock)
    assert [since for since, _ in script.asked] == ["old", None, None, "s2"]
    assert clock.slept == [1.0, 2.0]


async def test_that_a_response_goes_on_from_no_earlier_one_is_told_with_its_keys() -> None:
    script = Script(answer("s1"), Refused("M_UNKNOWN_POS", status=400), answer("s2"), answer("s3"))
    keys = Keys()
    loop = SyncLoop(script, Keeping(frozenset({OPS})), StepClock(), jitter=lambda: 0.0, opener=keys)
    async with running(loop):
        await script.idle.wait()
    assert keys.anew == [True, True, False]


@pytest.mark.parametrize("refused", [Refused("M_FORBIDDEN", status=403), Refused("M_UNRECOGNIZED", status=400)])
async def test_another_refusal_does_not_cost_the_position(refused: Refused) -> None:
    script = Script(refused, answer("s2"))
    await ran(script, Memory(frozenset({OPS}), where="s1"))
    assert [since for since, _ in script.asked] == ["s1", "s1", "s2"]


async def test_the_wait_is_random_below_a_growing_ceiling() -> None:
    script = Script(*[HomeserverUnavailable("cut")] * 9, RateLimited(100), answer("s2"))
    clock = StepClock()
    chances = iter([0.5, 0.0, 0.25, 0.999, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0])
    loop = SyncLoop(script, Memory(frozenset({OPS})), clock, jitter=lambda: next(chances))
    async with running(loop):
        await script.idle.wait()
    assert clock.slept == [0.5, 0.0, 1.0, 8 * 0.999, 8.0, 16.0, 30.0, 30.0, 30.0, 0.1]


async def test_a_memory_that_cannot_be_read_is_asked_again() -> None:
    class Locked(Memory):
        async def position(self) -> str | None:
            if not clock.slept:
                raise StoreUnavailable("locked")
            return "s1"

        async def newest_seen(self, room_id: RoomId) -> EventId | None:
            if len(clock.slept) < 2:
                raise Unavailable(f"locked for {room_id}")
            return None

    clock = StepClock()
    limited = answer("s2")
    limited["rooms"]["join"][OPS]["timeline"] |= {"limited": True, "prev_batch": "p"}
    script = Script(limited, limited)
    memory = Locked(frozenset({OPS}))
    await ran(script, memory, clock)
    assert [since for since, _ in script.asked] == ["s1", "s1", "s2"]
    assert len(memory.batches) == 1


async def test_a_fault_in_one_room_has_no_other_room_paged_back_anew() -> None:
    """In bad weather a response with many gaps would never be handled otherwise."""
    beside = RoomId("!beside")

    class Paged(Script):
        pages: ClassVar[list[str]] = []

        async def messages(self, room_id: RoomId, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            self.pages.append(room_id)
            if self.pages.count(beside) == 1 and room_id == beside:
                raise HomeserverUnavailable("cut")
            return {"chunk": []}

    def limited(position: str) -> dict[str, Any]:
        timeline = {"events": [], "limited": True, "prev_batch": f"before {position}"}
        return {
            "next_batch": position,
            "rooms": {"join": {room_id: {"timeline": timeline} for room_id in (OPS, beside)}},
        }

    script = Paged(limited("s2"), limited("s2"), limited("s3"))
    await ran(script, Memory(frozenset({OPS, beside}), oldest_open={OPS: 0, beside: 0}))
    assert script.pages == [OPS, beside, beside, OPS, beside]


async def test_a_room_in_which_something_happened_meanwhile_is_paged_back_anew() -> None:
    """What was read of its past may have been redacted by that."""

    class Paged(Script):
        pages: ClassVar[list[str]] = []

        async def messages(self, room_id: RoomId, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            self.pages.append(room_id)
            return {"chunk": []}

    def limited(*events: str) -> dict[str, Any]:
        timeline = {"events": [{"event_id": each} for each in events], "limited": True, "prev_batch": "p"}
        return {"next_batch": "s2", "rooms": {"join": {OPS: {"timeline": timeline}}}}

    failures: list[Exception] = [StoreUnavailable("locked"), StoreUnavailable("locked")]
    memory = Memory(frozenset({OPS}), oldest_open={OPS: 0}, failures=failures)
    script = Paged(limited("$1"), limited("$1"), limited("$1", "$redaction"))
    await ran(script, memory)
    assert script.pages == [OPS, OPS]


async def test_what_a_response_released_runs_before_the_next_sync_is_asked_for() -> None:
    script = Script(answer("s2"), answer("s3"))
    memory = Memory(frozenset({OPS}))
    asked: list[int] = []

    async def waiter() -> None:
        await memory.until(lambda: memory.batches)
        asked.append(len(script.asked))

    task = asyncio.create_task(waiter())
    await ran(script, memory)
    await task
    assert asked == [1]


async def test_readiness_is_told_from_handled_responses_only() -> None:
    memory = Memory(frozenset({OPS}), failures=[StoreUnavailable("locked")])
    clock = StepClock()
    loop = loop_of(Script(answer("s2"), answer("s2")), memory, clock)
    assert (loop.last_good_sync, loop.first_sync_done.is_set()) == (None, False)
    async with running(loop):
        await loop.first_sync_done.wait()
    assert loop.last_good_sync == 1.0


class Meter:
    """Remembers what was measured."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []

    def synced(self, seconds: float) -> None:
        self.heard.append(("synced", seconds))

    def sync_handled(self, seconds: float) -> None:
        self.heard.append(("handled", seconds))

    def sync_failed(self, why: str) -> None:
        self.heard.append(("failed", why))


async def test_answers_handling_and_failures_are_measured() -> None:
    meter = Meter()
    memory = Memory(frozenset({OPS}), failures=[StoreUnavailable("full")])
    script = Script(answer("s2"), HomeserverUnavailable("cut"), answer("s2"))
    loop = SyncLoop(script, memory, StepClock(), jitter=lambda: 0.0, meter=meter)
    async with running(loop):
        await script.idle.wait()
    assert [name if name != "failed" else value for name, value in meter.heard] == [
        "synced",
        "store_unavailable",
        "homeserver_unavailable",
        "synced",
        "handled",
    ]


def test_a_poll_is_over_before_readiness_has_to_know_of_a_dead_token() -> None:
    """A homeserver lets a poll wait that began with a good token."""
    assert POLL_MS <= 8_000


class Keys:
    """Opens what it has a key for; a response brings the keys that it names once."""

    def __init__(self) -> None:
        self.given: set[str] = set()
        self.expected: list[Any] = []
        self.anew: list[bool] = []

    async def take(self, response: Mapping[str, Any], *, anew: bool) -> frozenset[tuple[RoomId, str]]:
        self.anew.append(anew)
        new = set(response.get("keys", ())) - self.given
        self.given |= new
        return frozenset((OPS, session_id) for session_id in new)

    async def expect(self, events: Collection[Mapping[str, Any]]) -> None:
        self.expected.append([event["event_id"] for event in events])

    async def read(self, _room_id: RoomId, event: Mapping[str, Any]) -> Opening | None:
        if event["type"] != "m.room.encrypted":
            return None
        if event["content"]["session_id"] not in self.given:
            return NoKey(event["content"]["session_id"])
        clear = {**event, "type": "m.room.message", "content": {"msgtype": "m.text", "body": "1"}}
        return Opened(event=clear, origin=Origin.DEVICE, ciphertext="c")


class Keeping(Memory):
    """Kept an event that could not be read."""

    def __init__(self, rooms: frozenset[RoomId]) -> None:
        super().__init__(rooms)
        self.fails_at: int | None = None
        self.looked_for: list[object] = []
        self.switched: list[RoomId] = []

    async def handle(self, batch: Any) -> None:
        if self.fails_at == len(self.batches):
            self.fails_at = None
            raise StoreUnavailable("locked")
        await super().handle(batch)

    async def undecrypted(self, sessions: Any) -> Any:
        self.looked_for.append(sessions)
        return ((OPS, sealed("$lost", "s")),)

    def switched_on(self, parts: Any) -> None:
        self.switched += [part.room_id for part in parts]


def sealed(event_id: str, session_id: str) -> dict[str, Any]:
    return {
        "event_id": event_id,
        "sender": "@owner:hs.example",
        "type": "m.room.encrypted",
        "origin_server_ts": 1,
        "content": {"session_id": session_id},
    }


async def test_keys_that_came_open_what_was_kept_also_where_the_response_has_to_be_handled_again() -> None:
    script = Script(answer("s2"), answer("s3") | {"keys": ["s"]}, answer("s3") | {"keys": ["s"]}, answer("s4"))
    memory = Keeping(frozenset({OPS}))
    loop = SyncLoop(script, memory, StepClock(), jitter=lambda: 0.0, opener=Keys())
    memory.fails_at = 1
    async with running(loop):
        await script.idle.wait()
    recovered = [[event.event_id for room in batch.rooms for event in room.recovered] for batch in memory.batches]
    assert recovered == [[], ["$lost"], []]
    assert memory.looked_for == [None, frozenset({(OPS, "s")}), frozenset({(OPS, "s")})]


async def test_what_is_read_of_a_room_is_prepared_for_all_together() -> None:
    timeline = {"timeline": {"events": [sealed("$1", "s"), sealed("$2", "s")]}}
    keys = Keys()
    script = Script(answer("s2") | {"rooms": {"join": {OPS: timeline}}})
    loop = SyncLoop(script, Keeping(frozenset({OPS})), StepClock(), jitter=lambda: 0.0, opener=keys)
    async with running(loop):
        await script.idle.wait()
    assert keys.expected == [["$1", "$2"]]


async def test_what_switches_encryption_on_is_told_before_anything_of_the_response_is_paged_or_read() -> None:
    told_before_paging: list[list[RoomId]] = []
    memory = Keeping(frozenset({OPS}))

    class Paging(Script):
        async def messages(self, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            told_before_paging.append(list(memory.switched))
            return {"chunk": []}

    switch = {"event_id": "$on", "sender": "@o:hs.example", "type": "m.room.encryption", "state_key": "", "content": {}}
    timeline = {"events": [switch], "limited": True, "prev_batch": "p"}
    script = Paging({"next_batch": "s2", "rooms": {"join": {OPS: {"timeline": timeline}}}})
    memory.oldest_open[OPS] = 1
    loop = SyncLoop(script, memory, StepClock(), jitter=lambda: 0.0, opener=Keys())
    async with running(loop):
        await script.idle.wait()
    assert told_before_paging[0] == [OPS]
