"""Limits on asking, through the whole broker: what is refused is not stored, and a repeat never is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import ClientName
from agentpod_bot.core.rate import Rate
from agentpod_bot.errors import TooManyPending, TooManyRequests
from tests.examples import CALLER, MINUTE
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TWO_A_MINUTE = replace(CALLER, rate=Rate(2, MINUTE))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "agentpod.db")


async def test_who_asks_too_often_is_refused_and_may_ask_again_later(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        for number in range(2):
            await pod.ask(TWO_A_MINUTE, **named(f"r{number}"))
        with pytest.raises(TooManyRequests) as refused:
            await pod.ask(TWO_A_MINUTE, **named("r2"))
        assert refused.value.retry_after_s == 30
        assert pod.meter.unasked == [(CALLER.client, "too_many_requests")]
        assert len(await pod.store.run(lambda tx: tx.open_questions())) == 2
        clock.advance(30_000)
        await pod.ask(TWO_A_MINUTE, **named("r2"))


async def test_a_repeat_is_joined_however_often_it_is_asked(rig: Rig) -> None:
    async with rig.run() as pod:
        first = await pod.ask(TWO_A_MINUTE, **named("r0"))
        await pod.ask(TWO_A_MINUTE, **named("r1"))
        for _ in range(10):
            assert (await pod.ask(TWO_A_MINUTE, **named("r0"))).row == first.row
        with pytest.raises(TooManyRequests):
            await pod.ask(TWO_A_MINUTE, **named("r2"))


async def test_what_is_refused_for_another_reason_uses_nothing_of_the_rate(rig: Rig) -> None:
    rig.policy = replace(rig.policy, limits=replace(rig.policy.limits, max_pending_per_session=1))
    async with rig.run() as pod:
        question = await pod.ask(TWO_A_MINUTE, **named("r0"))
        for number in range(1, 5):
            with pytest.raises(TooManyPending):
                await pod.ask(TWO_A_MINUTE, **named(f"r{number}"))
        await pod.parts.broker.cancel(TWO_A_MINUTE, question.key.request_id)
        await pod.ask(TWO_A_MINUTE, **named("r5"))


async def test_all_clients_together_have_a_cap(rig: Rig) -> None:
    rig.policy = replace(rig.policy, limits=replace(rig.policy.limits, max_pending=3))
    async with rig.run() as pod:
        for number in range(3):
            await pod.ask(replace(CALLER, client=ClientName(f"client{number}")), **named("r"))
        with pytest.raises(TooManyPending) as refused:
            await pod.ask(CALLER, **named("r"))
        assert (refused.value.scope, refused.value.limit) == ("daemon", 3)
        assert pod.meter.unasked == [(CALLER.client, "too_many_pending")]
        await pod.parts.broker.cancel(replace(CALLER, client=ClientName("client0")), named("r")["request_id"])
        await pod.ask(CALLER, **named("r"))
