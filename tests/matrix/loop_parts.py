"""What a sync loop needs beside a homeserver: a memory, a clock that does not wait, a way to run it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentpod_bot.core.room import RoomBatch, Said
from agentpod_bot.matrix.sync import SyncLoop, SyncSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from agentpod_bot.core.ids import EventId, RoomId
    from agentpod_bot.core.room import Batch


class StepClock:
    """A clock whose sleeps are over at once; it keeps how long each would have been."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@dataclass
class Memory:
    """A handler that remembers like a store: everything of a batch, or nothing where it fails."""

    configured: frozenset[RoomId]
    where: str | None = None
    newest: dict[RoomId, EventId] = field(default_factory=dict)
    oldest_open: dict[RoomId, int] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    failures: list[Exception] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def rooms(self) -> frozenset[RoomId]:
        return self.configured

    async def position(self) -> str | None:
        return self.where

    async def newest_seen(self, room_id: RoomId) -> EventId | None:
        return self.newest.get(room_id)

    async def oldest_open_ts(self, room_id: RoomId) -> int | None:
        return self.oldest_open.get(room_id)

    async def undecrypted(self, _sessions: object) -> tuple[()]:
        """Nothing was kept."""
        return ()

    def switched_on(self, _parts: object) -> None:
        """Nothing is sent here."""

    async def handle(self, batch: Batch) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.batches.append(batch)
        for room in batch.rooms:
            if room.timeline:
                self.newest[room.room_id] = room.timeline[-1].event_id
        self.where = batch.next_batch
        self.changed.set()
        self.changed = asyncio.Event()

    @property
    def room_batches(self) -> list[RoomBatch]:
        return [room for batch in self.batches for room in batch.rooms]

    @property
    def bodies(self) -> list[str]:
        """Every text that was handled, in order, as often as it came."""
        return [event.body for room in self.room_batches for event in room.timeline if isinstance(event, Said)]

    async def until(self, predicate: Callable[[], object]) -> None:
        """Return once `predicate` holds; it is asked again after each handled batch."""
        while not predicate():
            await self.changed.wait()


def loop_of(source: SyncSource, memory: Memory, clock: StepClock | None = None) -> SyncLoop:
    """A loop whose jitter is always the whole ceiling."""
    return SyncLoop(source, memory, clock or StepClock(), jitter=lambda: 1.0)


@asynccontextmanager
async def running(loop: SyncLoop) -> AsyncIterator[asyncio.Task[None]]:
    """Runs the loop; a loop that ended by itself fails the test with its error."""
    task: asyncio.Task[None] = asyncio.create_task(loop.run())
    try:
        yield task
        if task.done():
            task.result()
    finally:
        task.cancel()
        await asyncio.wait([task])
