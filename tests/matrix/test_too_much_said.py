"""More was said in a room, while the bot did not listen, than it catches up with."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.model import Status
from agentpod_bot.matrix import gap
from agentpod_bot.store.reading import stored_audit
from tests.examples import MINUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FOLLOWED, SAID = 500, 800


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    monkeypatch.setattr(gap, "MOST_EVENTS", FOLLOWED)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


def talk(rig: Rig) -> str:
    """Somebody says more than is caught up with, a minute later; returns the last event."""
    rig.clock.advance(MINUTE)
    return [rig.say(f"talk {number}", rig.mallory) for number in range(SAID)][-1]


async def test_an_answer_before_more_than_is_caught_up_with_is_said_to_be_lost_once(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    rig.say("1", reply_to=question)
    last = talk(rig)
    async with rig.run() as pod:
        await pod.handled(last)
        await pod.quiet()
        assert (await pod.now(question)).is_open
        [told] = rig.notices()
        assert "sent from 07:33 UTC until 07:34 UTC were not read. Nothing was approved" in told
    with stored_audit(rig.path) as kept:
        assert [line["what"] for line, _ in kept.lines()].count("not_read") == 1
    async with rig.run() as pod:
        rig.say("1", reply_to=question)
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED
        await pod.quiet()
        assert len(rig.notices()) == 1


async def test_a_bare_answer_after_what_was_never_read_is_for_none_and_one_that_names_its_question_counts(
    rig: Rig, clock: FakeClock
) -> None:
    """Another account's question may stand there."""
    async with rig.run() as pod:
        question = await pod.pending()
    last = talk(rig)
    async with rig.run() as pod:
        await pod.handled(last)
        clock.advance(15 * MINUTE)
        await pod.handled(rig.say("1"))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert [question.asked.code in told for told in rig.notices()] == [False, True]
        clock.advance(1_000)
        rig.say(f"1 {question.asked.code}")
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED


async def test_a_bare_answer_to_what_is_asked_within_a_day_after_it_is_for_none_either(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        await pod.handled(rig.say("hello"))
    last = talk(rig)
    async with rig.run() as pod:
        await pod.handled(last)
        question = await pod.pending()
        assert rig.notices() == []  # nothing was open that could have been answered
        clock.advance(1_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).is_open


async def test_a_vote_that_may_have_been_taken_back_in_what_was_never_read_counts_no_longer(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_route(quorum=2, approvers=frozenset({rig.owner, rig.second}))
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        vote = rig.say("2", reply_to=question)
        await pod.handled(vote)
    clock.advance(1_000)
    rig.hs.redact(rig.room, rig.owner, vote)
    last = talk(rig)
    async with rig.run() as pod:
        await pod.handled(last)
        clock.advance(1_000)
        await pod.handled(rig.say("2", rig.second, reply_to=question))
        assert (await pod.now(question)).is_open
        await pod.quiet()
        assert "Votes given before they were sent do not count" in rig.notices()[0]
        assert "vote_void" in await pod.audited(question)
        clock.advance(1_000)
        rig.say("2", reply_to=question)
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED


async def test_a_question_that_stands_in_what_was_never_read_can_be_answered_by_its_code(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        await pod.handled(rig.say("hello"))
        pod.parts.inbox.handle = never  # type: ignore[method-assign]  # it is killed before it sees its own question
        asked = await pod.ask()
        question = await pod.when(asked, lambda now: now.event_id is not None)
    last = talk(rig)
    async with rig.run() as pod:
        await pod.handled(last)
        await pod.handled(rig.say("1"))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert len(rig.notices()) == 2  # that not all was read, and which question is meant
        clock.advance(1_000)
        rig.say(f"1 {question.asked.code}")
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED


async def never(_batch: object) -> None:
    await asyncio.Event().wait()
