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

    from agentpod_bot.core.ids import UserId
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


@pytest.mark.parametrize("how", ["reply", "code", "reaction", "number"])
async def test_an_approver_who_answers_a_question_that_the_store_lost_is_told_so_once(tmp_path: Path, how: str) -> None:
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        async with rig.run() as pod:
            lost = await pod.pending()
        rig.path = tmp_path / "another store" / "agentpod.db"

        def answer(sender: UserId) -> str:
            clock.advance(1_000)
            match how:
                case "reply":
                    return rig.say("1", sender, reply_to=lost.event_id)
                case "code":
                    return rig.say(f"1 {lost.asked.code}", sender)
                case "reaction":
                    return hs.react(rig.room, sender, str(lost.event_id), "1\ufe0f\u20e3")
            return rig.say("1", sender)

        async with rig.run() as pod:
            for sender in (rig.mallory, rig.owner, rig.owner):
                await pod.handled(answer(sender))
            await pod.quiet()
            [told] = rig.notices()
            assert lost.asked.code in told
            assert "othing has been approved" in told
            await hs.until(lambda: pod.meter.refusals == ["not_known"] * 2)


async def test_a_reply_to_a_question_that_the_store_lost_approves_no_other_one_whose_code_it_has(
    tmp_path: Path,
) -> None:
    """Which of the two it is for nobody can say."""
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        async with rig.run() as pod:
            lost = await pod.pending()
        rig.path = tmp_path / "another store" / "agentpod.db"
        clock.advance(1_000)
        async with rig.run() as pod:
            asked = await pod.pending()
            clock.advance(1_000)
            await pod.handled(rig.say(f"1 {asked.asked.code}", reply_to=lost.event_id))
            await pod.quiet()
            assert (await pod.now(asked)).is_open
            assert len(rig.notices()) == 1


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
