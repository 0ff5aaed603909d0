"""The loop alone, on a scripted source; with a real client it is tested in tests/matrix."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused, StoreUnavailable, Unavailable
from agentpod_bot.matrix.sync import POLL_MS, SyncLoop
from tests.matrix.loop_parts import Memory, StepClock, loop_of, running

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import EventId

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
