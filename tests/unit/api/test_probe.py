from __future__ import annotations

import asyncio

import pytest

from agentpod_bot.api.probe import KEEP_S, Probe


class Check:
    """Counts how often it is run, and how many of it at a time."""

    def __init__(self) -> None:
        self.runs = 0
        self.running = 0
        self.finds = True
        self.failure: Exception | None = None
        self.pause: asyncio.Event | None = None
        self.now = 100.0

    async def __call__(self) -> bool:
        self.runs += 1
        self.running += 1
        assert self.running == 1
        try:
            if self.pause is not None:
                await self.pause.wait()
            if self.failure is not None:
                raise self.failure
            return self.finds
        finally:
            self.running -= 1

    def probe(self) -> Probe[bool]:
        return Probe(self, lambda: self.now)


async def test_whoever_asks_within_two_seconds_is_told_the_same_and_nothing_is_checked() -> None:
    check = Check()
    probe = check.probe()
    assert await probe()
    check.finds = False
    check.now += KEEP_S - 0.1
    assert await probe()
    assert check.runs == 1
    check.now += 0.1
    assert not await probe()
    assert check.runs == 2


async def test_many_at_once_share_one_check() -> None:
    check = Check()
    check.pause = asyncio.Event()
    probe = check.probe()
    asking = [asyncio.create_task(probe()) for _ in range(50)]
    await asyncio.sleep(0)
    check.pause.set()
    assert await asyncio.gather(*asking) == [True] * 50
    assert check.runs == 1


async def test_who_hangs_up_during_a_check_leaves_the_next_one_to_make_it() -> None:
    check = Check()
    check.pause = asyncio.Event()
    probe = check.probe()
    first, second = asyncio.create_task(probe()), asyncio.create_task(probe())
    await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    check.pause.set()
    assert await second
    assert check.runs == 2


async def test_a_check_that_fails_is_not_remembered() -> None:
    check = Check()
    check.failure = RuntimeError("bug")
    probe = check.probe()
    with pytest.raises(RuntimeError, match="bug"):
        await probe()
    check.failure = None
    assert await probe()
