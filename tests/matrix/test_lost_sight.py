"""A store that was wiped: it says what it lost sight of, and asks what is new as new."""

from __future__ import annotations

from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from tests.examples import START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig, named

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_wiped_store_says_which_questions_it_lost_and_posts_each_new_one(tmp_path: Path) -> None:
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        async with rig.run() as pod:
            lost = await pod.pending(**named("r1"))
        rig.path = tmp_path / "another store" / "agentpod.db"
        clock.advance(1_000)
        for times in (1, 0):  # at the first start, and not again at the next
            with capture_logs() as lines:
                async with rig.run() as pod:
                    asked = await pod.pending(**named("r1"))
            told = [line["event_id"] for line in lines if line["event"] == "question_not_in_store"]
            assert told == [lost.event_id] * times
            assert asked.event_id != lost.event_id
        assert len(rig.questions()) == 2
        async with rig.run() as pod:
            clock.advance(1_000)
            await pod.handled(rig.say("1", reply_to=lost.event_id))
            assert (await pod.now(asked)).is_open
