"""People are reminded once, and not in quiet hours: told against a real store and a real Matrix client."""

from __future__ import annotations

from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.model import Status
from agentpod_bot.core.policy import Reactions
from agentpod_bot.core.quiet import QuietHours
from tests.examples import CALLER, MINUTE
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.matrix.rig import Pod

SEND = r"/send/m\.room\.message/"
NOON = int(datetime(2026, 11, 7, 12, tzinfo=UTC).timestamp()) * 1000
LUNCH = QuietHours(time(12), time(13), UTC)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        rig.with_route(remind_before_ms=5 * MINUTE)
        yield rig


async def later(pod: Pod, clock: FakeClock, ms: int) -> None:
    """Let time pass, and have sent what is due then."""
    clock.advance(ms)
    pod.parts.outbox._bell.ring()
    await pod.quiet()


# A reminder


async def test_one_message_in_the_questions_thread_reminds_the_approvers_before_it_ends(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await later(pod, clock, 25 * MINUTE - 1)
        assert rig.reminders() == []
        await later(pod, clock, 1)
        await rig.hs.until(rig.reminders)
        await later(pod, clock, MINUTE)
        [reminder] = rig.reminders()
        assert reminder["msgtype"] == "m.text"
        assert reminder["m.mentions"] == {"user_ids": sorted([rig.owner, rig.second])}
        assert reminder["m.relates_to"]["rel_type"] == "m.thread"
        assert reminder["m.relates_to"]["event_id"] == question.event_id
        assert reminder["body"] == (
            f'Still open until 12:30 UTC: {question.asked.code} "Run the test suite". '
            "Answer here in the thread, or reply to the question."
        )


@pytest.mark.parametrize("in_thread", [True, False])
async def test_an_answer_to_the_reminder_or_in_its_thread_answers_the_question(
    rig: Rig, clock: FakeClock, *, in_thread: bool
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        other = await pod.pending(ttl_ms=60 * MINUTE)
        await later(pod, clock, 25 * MINUTE)
        await rig.hs.until(rig.reminders)
        [event] = [e for e in rig.hs.sent_by(rig.pod) if e["content"] in rig.reminders()]
        if in_thread:
            relation: dict[str, Any] = {"rel_type": "m.thread", "event_id": question.event_id, "is_falling_back": True}
            relation["m.in_reply_to"] = {"event_id": event["event_id"]}
            rig.hs.post(rig.room, rig.owner, {"msgtype": "m.text", "body": "1", "m.relates_to": relation})
        else:
            rig.say("1", reply_to=event["event_id"])
        await pod.when(question, lambda now: now.status is Status.DECIDED)
        assert (await pod.now(other)).is_open


async def test_a_question_that_is_answered_or_too_short_has_no_reminder(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        short = await pod.pending(ttl_ms=5 * MINUTE)
        clock.advance(1_000)
        rig.say("3", reply_to=short)
        await pod.when(short, lambda now: not now.is_open)
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("3", reply_to=question)
        await pod.when(question, lambda now: not now.is_open)
        assert await pod.store.run(lambda tx: tx.unsent(question.row, rig.room, "reminder")) is None
        await later(pod, clock, 26 * MINUTE)
        assert rig.reminders() == []


async def test_a_reminder_survives_a_restart_and_comes_once(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        await pod.pending()
    clock.advance(26 * MINUTE)  # it was due while nobody was there
    fault = rig.hs.swallow("PUT", SEND)
    async with rig.run() as pod:
        await fault.hit.wait()
    async with rig.run() as pod:
        await later(pod, clock, 30_000)
        await rig.hs.until(rig.reminders)
        await later(pod, clock, 30_000)
    assert len(rig.reminders()) == 1


async def test_an_answer_given_while_nobody_listened_goes_before_the_reminder(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    rig.say("1")
    clock.advance(26 * MINUTE)
    async with rig.run() as pod:
        await pod.when(question, lambda now: now.status is Status.DECIDED)
        await later(pod, clock, 1)
    assert rig.reminders() == []


async def test_a_reminder_that_waits_keeps_no_keycaps_back(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(reactions=Reactions.SEED)
    async with rig.run() as pod:
        await pod.pending()
        await later(pod, clock, 3_001)
        await rig.hs.until(lambda: rig.hs.sent_by(rig.pod, kind="m.reaction"))


# Quiet hours


async def test_in_quiet_hours_a_question_mentions_nobody_and_the_approvers_are_told_once_they_end(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=None)
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=120 * MINUTE)
        [asked] = rig.questions()
        assert asked["m.mentions"] == {"user_ids": []}
        await later(pod, clock, 60 * MINUTE - 1)
        assert rig.reminders() == []
        await later(pod, clock, 1)
        await rig.hs.until(rig.reminders)
        [told] = rig.reminders()
        assert told["m.mentions"] == {"user_ids": sorted([rig.owner, rig.second])}
        assert told["m.relates_to"]["event_id"] == question.event_id
        await later(pod, clock, 30 * MINUTE)
        assert len(rig.reminders()) == 1


async def test_outside_of_quiet_hours_nothing_is_different(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=None)
    clock.advance(60 * MINUTE)
    async with rig.run() as pod:
        await pod.pending()
        [asked] = rig.questions()
        assert asked["m.mentions"] == {"user_ids": sorted([rig.owner, rig.second])}
        await later(pod, clock, 29 * MINUTE)
        assert rig.reminders() == []


async def test_a_question_that_ends_in_quiet_hours_wakes_nobody(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quiet=LUNCH)
    async with rig.run() as pod:
        await pod.pending()
        await later(pod, clock, 25 * MINUTE)
        await rig.hs.until(rig.reminders)
        [reminder] = rig.reminders()
        assert reminder["m.mentions"] == {"user_ids": []}


async def test_a_reminder_that_falls_into_quiet_hours_waits_for_their_end(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=60 * MINUTE)
    clock.advance(-10 * MINUTE)
    async with rig.run() as pod:
        await pod.pending(ttl_ms=90 * MINUTE)  # until 13:20, so the reminder would be at 12:20
        [asked] = rig.questions()
        assert asked["m.mentions"]["user_ids"] != []
        await later(pod, clock, 40 * MINUTE)
        assert rig.reminders() == []
        await later(pod, clock, 30 * MINUTE)
        await rig.hs.until(rig.reminders)
        [reminder] = rig.reminders()
        assert reminder["m.mentions"]["user_ids"] != []


async def test_one_message_at_the_end_of_quiet_hours_is_enough(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=30 * MINUTE)
    async with rig.run() as pod:
        await pod.pending(ttl_ms=80 * MINUTE)  # the reminder would be at 12:50
        await later(pod, clock, 60 * MINUTE)
        await rig.hs.until(rig.reminders)
        await later(pod, clock, 15 * MINUTE)
        assert len(rig.reminders()) == 1


async def test_a_question_posted_late_is_as_quiet_as_the_hour_in_which_it_comes(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=None)
    clock.advance(-MINUTE)
    async with rig.run(outbox=False) as pod:
        question = await pod.ask(ttl_ms=120 * MINUTE)
    clock.advance(2 * MINUTE)
    async with rig.run() as pod:
        await pod.when(question, lambda now: now.shown_ts is not None)
        assert rig.questions()[0]["m.mentions"] == {"user_ids": []}
        await later(pod, clock, 59 * MINUTE)
        await rig.hs.until(rig.reminders)


async def test_a_question_that_could_not_be_sent_before_quiet_hours_wakes_nobody_in_them(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=None)
    clock.advance(-MINUTE)
    fault = rig.hs.answer_with("PUT", SEND, status=502, body={"errcode": "M_UNKNOWN"})
    async with rig.run() as pod:
        question = await pod.ask(ttl_ms=120 * MINUTE)
        await fault.hit.wait()
        await pod.quiet()
        await later(pod, clock, 2 * MINUTE)
        await pod.when(question, lambda now: now.shown_ts is not None)
        assert rig.questions()[0]["m.mentions"] == {"user_ids": []}
        await later(pod, clock, 59 * MINUTE)
        await rig.hs.until(rig.reminders)
        assert rig.reminders()[0]["m.mentions"] == {"user_ids": sorted([rig.owner, rig.second])}


@pytest.mark.parametrize("ttl_min", [120, 50])
async def test_a_reminder_that_could_not_be_sent_before_quiet_hours_wakes_nobody_in_them(
    rig: Rig, clock: FakeClock, ttl_min: int
) -> None:
    rig.with_route(quiet=LUNCH, remind_before_ms=(ttl_min - 9) * MINUTE)
    clock.advance(-10 * MINUTE)
    async with rig.run() as pod:
        await pod.pending(ttl_ms=ttl_min * MINUTE)
        fault = rig.hs.answer_with("PUT", SEND, status=502, body={"errcode": "M_UNKNOWN"})
        clock.advance(9 * MINUTE)
        pod.parts.outbox._bell.ring()
        await fault.hit.wait()
        await pod.quiet()
        await later(pod, clock, 2 * MINUTE)
        assert [told["m.mentions"]["user_ids"] for told in rig.reminders()] == ([] if ttl_min == 120 else [[]])
        await later(pod, clock, 59 * MINUTE)
        if ttl_min == 120:
            await rig.hs.until(rig.reminders)
            [told] = rig.reminders()
            assert told["m.mentions"] == {"user_ids": sorted([rig.owner, rig.second])}


async def test_a_question_answered_in_quiet_hours_is_not_told_of_afterwards(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quiet=LUNCH)
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=120 * MINUTE)
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        await later(pod, clock, 116 * MINUTE)
    assert rig.reminders() == []
