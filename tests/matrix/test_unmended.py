"""Answers that are lost or met with silence, not mended yet. Each test says what should be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.model import Status
from agentpod_bot.matrix import gap
from tests.examples import START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


@pytest.mark.xfail(strict=True, reason="a gap is cut at 20,000 events, and nobody in the room is told")
async def test_an_answer_before_more_events_than_a_gap_may_have_is_taken_or_said_to_be_lost(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gap, "MOST_EVENTS", 500)
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    rig.say("1", reply_to=question)
    for number in range(800):
        last = rig.say(f"talk {number}", rig.mallory)
    async with rig.run() as pod:
        await pod.handled(last)
        await pod.quiet()
        assert (await pod.now(question)).status is Status.DECIDED or rig.notices()
