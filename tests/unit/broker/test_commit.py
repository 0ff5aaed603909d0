from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.broker.commit import Bell, Commit
from agentpod_bot.broker.streams import Streams
from agentpod_bot.broker.waiters import Waiters
from tests.examples import LAPTOP, OPS, START, closed
from tests.fakes import FakeMeter

if TYPE_CHECKING:
    from agentpod_bot.broker.change import After

ENDED = closed(1, at_ms=START)


class Gate:
    """A store whose commit takes until the gate opens, or fails."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.open = asyncio.Event()
        self.failure = failure

    async def run(self, work: Any) -> Any:
        result = work(None)
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return result


def streams(store: Any, waiters: Waiters) -> Streams:
    return Streams(store, waiters, limit=lambda: 1)


def close(_tx: object, after: After) -> str:
    after.closed.append(ENDED)
    after.rooms.add(OPS)
    after.refused.append("late")
    return "done"


async def test_nothing_follows_before_the_commit_and_all_of_it_after() -> None:
    gate, waiters, bell, meter = Gate(), Waiters(), Bell(), FakeMeter()
    commit = Commit(gate, waiters, bell, meter, streams(gate, waiters))
    with waiters.place(ENDED.row, LAPTOP, limit=1) as waiting:
        running = asyncio.create_task(commit(close))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        assert meter.refusals == []
        gate.open.set()
        assert await running == "done"
        assert await waiting is ENDED
    assert await bell.heard(up_to_s=0.01) == {OPS}
    await commit.settled()
    assert meter.closed_questions == [ENDED]
    assert meter.refusals == ["late"]


async def test_a_commit_that_failed_releases_nobody() -> None:
    gate, waiters = Gate(OSError("disk")), Waiters()
    commit = Commit(gate, waiters, Bell(), FakeMeter(), streams(gate, waiters))
    gate.open.set()
    with waiters.place(ENDED.row, LAPTOP, limit=1) as waiting:
        with pytest.raises(OSError, match="disk"):
            await commit(close)
        assert not waiting.done()


async def test_a_caller_that_hangs_up_keeps_nobody_else_from_being_told() -> None:
    gate, waiters = Gate(), Waiters()
    commit = Commit(gate, waiters, Bell(), FakeMeter(), streams(gate, waiters))
    with waiters.place(ENDED.row, LAPTOP, limit=1) as waiting:
        running = asyncio.create_task(commit(close))
        await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        gate.open.set()
        await commit.settled()
        assert await waiting is ENDED


async def test_a_bell_keeps_what_was_rung_while_nobody_listened() -> None:
    bell = Bell()
    bell.ring({OPS})
    bell.ring()
    assert await bell.heard(up_to_s=1) == {OPS}
    assert await bell.heard(up_to_s=0.001) == frozenset()
