"""A store that was wiped or put back: it says what it lost sight of, and asks what is new as new."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot.core.model import Claim, Status
from tests.examples import CALLER, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig, named

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod


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


def copied(path: Path, to: Path) -> None:
    """Copy a store as `agentpod-bot backup` does."""
    to.parent.mkdir(mode=0o700, exist_ok=True)
    with closing(sqlite3.connect(path)) as store, closing(sqlite3.connect(to)) as copy:
        store.backup(copy)


async def end(pod: Pod, question: Question, how: str) -> None:
    """Have a question end otherwise than by an answer."""
    match how:
        case "cancelled":
            await pod.parts.broker.cancel(CALLER, question.key.request_id)
        case "superseded":
            await pod.ask(**named("r1"), title="Something else", supersede=True)
        case "answered_elsewhere":
            await pod.parts.broker.answered_elsewhere(CALLER, question.key.request_id, Claim(None, None))


@pytest.mark.parametrize("how", ["cancelled", "superseded", "answered_elsewhere"])
async def test_what_was_too_late_before_a_backup_was_put_back_is_no_answer_after_it(tmp_path: Path, how: str) -> None:
    """The room showed the end, and its approver was told that nothing was approved."""
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        backup = tmp_path / "backup" / "agentpod.db"
        async with rig.run() as pod:
            question = await pod.pending(**named("r1"))
            copied(rig.path, backup)
            clock.advance(1_000)
            await end(pod, question, how)
            await hs.until(lambda: rig.outcomes(question))
            clock.advance(5_000)
            late = rig.say("1", reply_to=question)
            await hs.until(rig.notices)
        rig.path = backup
        async with rig.run() as pod:
            await pod.handled(late)
            assert (await pod.now(question)).status is Status.UNDELIVERABLE


async def test_what_was_answered_after_a_backup_is_answered_alike_once_it_was_put_back(tmp_path: Path) -> None:
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        backup = tmp_path / "backup" / "agentpod.db"
        async with rig.run() as pod:
            question = await pod.pending()
            copied(rig.path, backup)
            clock.advance(1_000)
            rig.say("3", reply_to=question)
            decided = await pod.when(question, lambda now: now.status is Status.DECIDED)
            await hs.until(lambda: rig.outcomes(question))
            clock.advance(5_000)
            late = rig.say("1", reply_to=question)
            await pod.handled(late)
        rig.path = backup
        async with rig.run() as pod:
            await pod.handled(late)
            again = await pod.now(question)
            assert again.closing is not None
            assert decided.closing is not None
            assert again.closing.option == decided.closing.option
