"""Outcomes on their way from a room to a client's own receiver."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.api.view import view
from agentpod_bot.callbacks.post import Poster
from agentpod_bot.callbacks.sender import LEASE_MS, Callbacks
from agentpod_bot.callbacks.target import Target
from agentpod_bot.core.ids import ClientName, RequestId
from agentpod_bot.core.model import Caller, Claim, Outcome
from agentpod_bot.system import SystemClock
from tests.examples import ALLOW, CALLER, LAPTOP, LIMITS, MINUTE, REJECT, ROUTE, START
from tests.fakes import FakeChance, FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import PATIENCE_S, Rig
from tests.unit.callbacks.receiver import SECRET, answer, receiving
from tests.unit.callbacks.test_sender import FakeMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod
    from tests.unit.callbacks.receiver import Receiver

SERVER = Caller(ClientName("server"), frozenset({ROUTE}), frozenset({"native"}))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        made = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        made.policy = replace(made.policy, called_back=frozenset({LAPTOP}))
        yield made


def posted(receiver: Receiver) -> list[dict[str, Any]]:
    return [taken.says for taken in receiver.taken]


@asynccontextmanager
async def calling(pod: Pod, receiver: Receiver) -> AsyncIterator[Callbacks]:
    """A sender beside a run of the bot, rung as the daemon rings it."""
    sender = Callbacks(
        pod.store,
        Poster(SystemClock()),  # the receiver looks at the time of a signature
        lambda question: view(question).model_dump_json(),
        targets={LAPTOP: Target(receiver.url(), (SECRET,), allow_private=True)},
        retention_ms=LIMITS.retention_ms,
        clock=pod.clock,
        chance=FakeChance(),
        meter=FakeMeter(),
    )

    async def ringing() -> None:
        while True:
            await pod.outcomes_to_post.wait()
            pod.outcomes_to_post.clear()
            sender.ring()

    tasks = [asyncio.create_task(ringing()), asyncio.create_task(sender.run())]
    try:
        yield sender
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def taken(receiver: Receiver, number: int) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while len(receiver.taken) < number:
            await asyncio.sleep(0.002)


async def answered(rig: Rig, pod: Pod, question: Question) -> None:
    pod.clock.advance(1_000)
    rig.say("1", reply_to=question)


async def expired(rig: Rig, pod: Pod, question: Question) -> None:
    del rig, question
    pod.clock.advance(LIMITS.ttl_ms)
    await pod.parts.deadlines.expire()


async def cancelled(rig: Rig, pod: Pod, question: Question) -> None:
    del rig
    await pod.parts.broker.cancel(CALLER, question.key.request_id)


async def elsewhere(rig: Rig, pod: Pod, question: Question) -> None:
    del rig
    await pod.parts.broker.answered_elsewhere(CALLER, question.key.request_id, Claim(ALLOW.option_id, "owner"))


async def superseded(rig: Rig, pod: Pod, question: Question) -> None:
    del rig
    await pod.ask(request_id=question.key.request_id, title="Something else", supersede=True)


async def redacted(rig: Rig, pod: Pod, question: Question) -> None:
    del pod
    rig.hs.redact(rig.room, rig.owner, question.event_id)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (answered, Outcome.SELECTED),
        (expired, Outcome.EXPIRED),
        (cancelled, Outcome.CANCELLED),
        (elsewhere, Outcome.ANSWERED_ELSEWHERE),
        (superseded, Outcome.SUPERSEDED),
        (redacted, Outcome.UNDELIVERABLE),
    ],
)
async def test_however_a_request_ends_its_client_is_posted_the_view(
    rig: Rig, end: Callable[[Rig, Pod, Question], Awaitable[None]], outcome: Outcome
) -> None:
    async with receiving() as receiver, rig.run() as pod, calling(pod, receiver):
        question = await pod.pending()
        assert receiver.taken == []
        await end(rig, pod, question)
        await taken(receiver, 1)
        ended = await pod.now(question)
        [body] = posted(receiver)
        assert body == view(ended).model_dump(mode="json")
        assert body["decision"]["outcome"] == outcome.value
        assert body["subject"] == {
            "id": question.key.request_id,
            "revision": 1,
            "digest": question.asked.digest,
            "salt": question.asked.salt,
        }


async def test_the_revisions_of_a_request_are_told_in_their_order_however_often_a_try_fails(
    rig: Rig, clock: FakeClock
) -> None:
    async with (
        receiving(answers=[answer(500), answer(503)]) as receiver,
        rig.run() as pod,
        calling(pod, receiver) as sender,
    ):
        question = await pod.pending()
        await pod.ask(request_id=question.key.request_id, title="Something else", supersede=True)
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        for tries in (1, 2, 4):
            await taken(receiver, tries)
            while await pod.store.run(lambda tx: tx.callback_due(LAPTOP)) == clock.now_ms() + LEASE_MS:
                await asyncio.sleep(0.002)
            clock.advance(MINUTE)
            sender.ring()
    told = [(body["subject"]["revision"], body["decision"]["outcome"]) for body in posted(receiver)]
    assert told == [(1, "superseded"), (1, "superseded"), (1, "superseded"), (2, "cancelled")]
    ids = [one.headers["webhook-id"] for one in receiver.taken]
    assert len(set(ids[:3])) == 1
    assert ids[3] != ids[0]


async def test_nothing_is_noted_for_a_client_without_a_callback(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending(SERVER)
        await pod.parts.broker.cancel(SERVER, question.key.request_id)
        assert not pod.outcomes_to_post.is_set()
        assert await pod.store.run(lambda tx: tx.callback_due(SERVER.client)) is None


async def test_an_outcome_survives_a_kill_before_it_was_posted_and_one_in_the_middle_of_a_try(
    rig: Rig, clock: FakeClock
) -> None:
    async with receiving(answers=[None]) as receiver:
        async with rig.run() as pod:
            question = await pod.pending()
            await pod.parts.broker.cancel(CALLER, question.key.request_id)
        async with rig.run() as pod, calling(pod, receiver):
            await taken(receiver, 1)
        clock.advance(LEASE_MS)
        async with rig.run() as pod, calling(pod, receiver):
            await taken(receiver, 2)
            async with asyncio.timeout(PATIENCE_S):
                while await pod.store.run(lambda tx: tx.callback_due(LAPTOP)) is not None:
                    await asyncio.sleep(0.002)
    first, second = receiver.taken
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


async def test_what_was_not_committed_is_not_posted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room, callback and audit all read one row: there is no outcome that only one of them knows."""
    async with receiving() as receiver, rig.run() as pod, calling(pod, receiver):
        question = await pod.pending()

        def fail(*_: object) -> None:
            raise RuntimeError("cut off")

        with monkeypatch.context() as broken:
            broken.setattr("agentpod_bot.broker.change._show_outcome", fail)
            with pytest.raises(RuntimeError, match="cut off"):
                await pod.parts.broker.cancel(CALLER, question.key.request_id)
        assert (await pod.now(question)).is_open
        assert await pod.store.run(lambda tx: tx.callback_due(LAPTOP)) is None
        await answered(rig, pod, question)
        await taken(receiver, 1)
    [body] = posted(receiver)
    assert body["decision"]["option_id"] == ALLOW.option_id != REJECT.option_id


async def test_every_request_that_a_session_cancels_is_told(rig: Rig) -> None:
    async with receiving() as receiver, rig.run() as pod, calling(pod, receiver):
        asked = [await pod.ask(request_id=RequestId(f"one:{number}")) for number in range(6)]
        await pod.parts.broker.cancel_session(CALLER, asked[0].asked.session_id)
        await taken(receiver, 6)
    assert {body["request_id"] for body in posted(receiver)} == {f"one:{number}" for number in range(6)}
