"""One run of the broker over a real store, which can die at any transaction and be followed by another run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from agentpod_bot.broker.assembly import assemble
from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.matrix.sync import SyncLoop
from agentpod_bot.ports import Store
from tests.fakes import FakeChance, FakeMeter

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.core.policy import Policy
    from agentpod_bot.ports import T, Tx
    from agentpod_bot.store.database import SqlStore
    from tests.contract.gated_homeserver import GatedHomeserver
    from tests.fakes import FakeClock

CALM = 25
"""Turns of the event loop in which nothing is under way in the store: whatever goes on waits for the test."""


class Breaks(StrEnum):
    """What happens at a transaction."""

    DIES_BEFORE = "the process dies before it"
    DIES_AFTER = "the process dies after its commit, before anybody hears of it"
    FAILS = "the disk is full"


@dataclass
class Fuse:
    """The transaction at which something breaks: `left` go well before it."""

    left: int
    breaks: Breaks


class FragileStore(Store):
    """Hands everything to a real store until its fuse is burnt; a dead one never answers."""

    def __init__(self, inner: SqlStore) -> None:
        self.inner = inner
        self.fuse: Fuse | None = None
        self.dead = False
        self.under_way = 0

    async def run(self, work: Callable[[Tx], T]) -> T:
        breaks = self._burn()
        if breaks is Breaks.FAILS:
            raise StoreUnavailable("scripted")
        if breaks is Breaks.DIES_AFTER:
            await self._run(work)
        if self.dead:
            await asyncio.get_running_loop().create_future()
        return await self._run(work)

    def _burn(self) -> Breaks | None:
        if self.fuse is None:
            return None
        if self.fuse.left > 0:
            self.fuse.left -= 1
            return None
        breaks, self.fuse = self.fuse.breaks, None
        self.dead = breaks is not Breaks.FAILS
        return breaks

    async def _run(self, work: Callable[[Tx], T]) -> T:
        self.under_way += 1
        try:
            return await self.inner.run(work)
        finally:
            self.under_way -= 1


class Run:
    """The parts of one process, started as the daemon starts them."""

    def __init__(
        self, inner: SqlStore, homeserver: GatedHomeserver, policy: Policy, *, clock: FakeClock, seed: int
    ) -> None:
        self.store = FragileStore(inner)
        self.parts = assemble(self.store, homeserver, policy, clock=clock, chance=FakeChance(seed), meter=FakeMeter())
        self.sync = SyncLoop(homeserver, self.parts.inbox, clock, jitter=lambda: 0.0)
        self.parts.world.trouble = lambda: None if self.sync.first_sync_done.is_set() else "never synced"
        self._clock = clock
        self._failed: list[BaseException] = []
        self.spawn(self._live())

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Run something of the process's own; what it raises fails the test."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        task.add_done_callback(self._ended)
        return task

    async def expire(self) -> None:
        """What the loop of deadlines does when it wakes."""
        try:
            await self.parts.deadlines.expire()
        except StoreUnavailable:
            return  # the loop looks again a second later

    async def lapse(self) -> None:
        """What the loop of held calls does when it wakes."""
        try:
            await self.parts.holds.lapse()
        except StoreUnavailable:
            return

    def woken(self) -> None:
        """The clock was moved: the outbox looks at it."""
        self.parts.commit._bell.ring()

    async def quiet(self) -> None:
        """Return once everything waits: for the homeserver, for the clock, or for nothing any more."""
        turns = 0
        while turns < CALM:
            await asyncio.sleep(0)
            turns = 0 if self.store.under_way else turns + 1
        if self._failed:
            raise self._failed[0]

    async def kill(self) -> None:
        """Stop everything at once; nothing is written any more."""
        self.store.dead = True
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), timeout=10)

    async def _live(self) -> None:
        await self.parts.rooms.settle()
        await self._recover()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.parts.rooms.run())
            tasks.create_task(self.sync.run())
            await self.sync.first_sync_done.wait()
            tasks.create_task(self.parts.outbox.run())
            tasks.create_task(self.parts.holds.run())

    async def _recover(self) -> None:
        while True:
            try:
                return await self.parts.holds.recover()
            except StoreUnavailable:
                await asyncio.sleep(0)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed.append(error)
