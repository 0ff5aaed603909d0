"""Following what changes: nothing is missed or told twice, whoever comes and goes, over kills too."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot import errors
from agentpod_bot.broker import streams
from agentpod_bot.core.ids import ClientName
from agentpod_bot.core.journal import START as NOTHING
from agentpod_bot.core.journal import UNKNOWN, Place
from agentpod_bot.core.model import Status
from tests.examples import CALLER
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import PATIENCE_S, Rig, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.broker.streams import Stream
    from agentpod_bot.core.kept import Change
    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod

PHONE = replace(CALLER, client=ClientName("phone"))
BEGINNING = Place(0)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def rig(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


@asynccontextmanager
async def following(pod: Pod, place: Place | None = None) -> AsyncIterator[Stream]:
    async with pod.parts.broker.follow(CALLER, place) as stream:
        yield stream


async def told(stream: Stream, count: int) -> list[Change]:
    """The next so many changes."""
    found: list[Change] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            found += await stream.next(up_to_s=PATIENCE_S)
    assert len(found) == count
    return found


async def ended(pod: Pod, rig: Rig, clock: FakeClock) -> Question:
    """A question that was asked, shown and answered."""
    question = await pod.pending()
    clock.advance(1_000)
    rig.say("1", reply_to=question)
    return await pod.when(question, lambda now: not now.is_open)


def place_of(change: Change) -> Place:
    return Place(change.link.seq, change.link.hash[:16])


def statuses(changes: list[Change]) -> list[str]:
    return [change.status.value for change in changes]


async def test_each_change_comes_once_in_order_and_shows_the_request_as_it_was_then(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod, following(pod) as stream:
        assert await stream.next(up_to_s=1) == ()
        question = await ended(pod, rig, clock)
        changes = await told(stream, 3)
        assert statuses(changes) == ["queued", "pending", "decided"]
        shown = [change.question for change in changes]
        assert [each.status for each in shown if each is not None] == [
            Status.QUEUED,
            Status.PENDING,
            Status.DECIDED,
        ]
        assert [each.closing for each in shown if each is not None] == [None, None, question.closing]
        assert [each.event_id for each in shown if each is not None] == [None, question.event_id, question.event_id]
        assert await stream.next(up_to_s=0.01) == ()
        assert (await pod.now(question)).delivered_at_ms is None


async def test_a_reader_that_waits_is_woken_by_the_commit(rig: Rig) -> None:
    async with rig.run(outbox=False) as pod, following(pod) as stream:
        assert await stream.next(up_to_s=1) == ()
        waiting = asyncio.create_task(stream.next(up_to_s=PATIENCE_S))
        await asyncio.sleep(0)
        question = await pod.ask()
        [queued] = await waiting
        assert queued.row.request_id == question.key.request_id
        waiting = asyncio.create_task(stream.next(up_to_s=PATIENCE_S))
        await asyncio.sleep(0)
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        assert statuses(list(await waiting)) == ["cancelled"]


async def test_another_clients_changes_are_neither_told_nor_waken_for(rig: Rig) -> None:
    async with rig.run(outbox=False) as pod, following(pod, BEGINNING) as stream:
        assert await stream.next(up_to_s=1) == ()
        waiting = asyncio.create_task(stream.next(up_to_s=PATIENCE_S))
        await asyncio.sleep(0)
        theirs = await pod.ask(PHONE, **named("r1"))
        await pod.parts.broker.cancel(PHONE, theirs.key.request_id)
        assert not waiting.done()
        mine = await pod.ask(**named("r1"))
        [queued] = await waiting
        assert queued.row.row == mine.row


async def test_a_question_that_replaces_another_is_told_after_the_end_of_that(rig: Rig) -> None:
    async with rig.run(outbox=False) as pod, following(pod) as stream:
        await pod.ask(**named("r1"))
        await pod.ask(**named("r1"), title="Another", supersede=True)
        changes = await told(stream, 3)
    assert [(change.row.revision, change.status.value) for change in changes] == [
        (1, "queued"),
        (1, "superseded"),
        (2, "queued"),
    ]


async def test_from_every_place_exactly_the_rest_is_told_also_after_kills(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod, following(pod, BEGINNING) as stream:
        await ended(pod, rig, clock)
        before = await told(stream, 3)
    async with rig.run() as pod:
        async with following(pod, place_of(before[-1])) as stream:
            await ended(pod, rig, clock)
            after = await told(stream, 3)
        every = [*before, *after]
        assert len({change.link.seq for change in every}) == len(every)
        for read in range(len(every)):
            async with following(pod, place_of(every[read])) as stream:
                assert not stream.reset
                assert await told(stream, len(every) - read - 1) == every[read + 1 :]
        async with following(pod, BEGINNING) as stream:
            assert not stream.reset
            assert await told(stream, len(every)) == every
        assert statuses(after) == ["queued", "pending", "decided"]


async def test_more_than_is_read_at_a_time_is_told_in_parts_and_none_is_left_out(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "TOGETHER", 2)
    async with rig.run(outbox=False) as pod:
        asked = [await pod.ask() for _ in range(5)]
        async with following(pod, BEGINNING) as stream:
            parts = [await stream.next(up_to_s=PATIENCE_S) for _ in range(3)]
    assert [len(part) for part in parts] == [2, 2, 1]
    assert [change.row.row for part in parts for change in part] == [question.row for question in asked]


async def test_a_place_that_is_not_known_begins_now_and_says_so(rig: Rig, clock: FakeClock) -> None:
    async with rig.run(outbox=False) as pod:
        question = await pod.ask()
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        head = await pod.store.run(lambda tx: tx.head())
        for place in (UNKNOWN, Place(head.seq + 1), Place(head.seq, "00" * 8), Place(1, head.hash[:16])):
            async with following(pod, place) as stream:
                assert (stream.reset, stream.begins) == (True, head)
                assert await stream.next(up_to_s=1) == ()
        await pod.store.run(lambda tx: tx.prune_audit(clock.now_ms() + 1))
        async with following(pod, BEGINNING) as stream:
            assert (stream.reset, stream.begins) == (True, head)
        async with following(pod, Place(head.seq, head.hash[:16])) as stream:
            assert (stream.reset, stream.begins) == (False, head)
        async with following(pod) as stream:
            assert (stream.reset, stream.begins) == (False, head)


async def test_a_store_that_was_wiped_knows_no_place_of_before(rig: Rig) -> None:
    async with rig.run(outbox=False) as pod:
        await pod.ask()
        head = await pod.store.run(lambda tx: tx.head())
    rig.path = rig.path.with_name("another.db")
    async with rig.run(outbox=False) as pod:
        async with following(pod, Place(head.seq, head.hash[:16])) as stream:
            assert (stream.reset, stream.begins) == (True, NOTHING)
        await pod.ask(session_id="acps_other")
        async with following(pod, Place(head.seq, head.hash[:16])) as stream:
            assert stream.reset


async def test_streams_count_as_waiting_calls_of_their_client(rig: Rig) -> None:
    limit = 3
    rig.policy = replace(rig.policy, limits=replace(rig.policy.limits, max_waits_per_token=limit))
    async with rig.run(outbox=False) as pod:
        waiters = pod.parts.waiters
        with ExitStack() as held:
            for _ in range(limit - 1):
                held.enter_context(waiters.counted(CALLER.client, limit=limit))
            async with following(pod):
                assert waiters.open_waits() == limit
                with pytest.raises(errors.TooManyWaits):
                    await following(pod).__aenter__()
                async with pod.parts.broker.follow(PHONE, None):
                    assert waiters.open_waits() == limit + 1
            async with following(pod):
                pass
        assert waiters.open_waits() == 0


async def test_a_stop_ends_every_stream_and_lets_none_begin(rig: Rig) -> None:
    async with rig.run(outbox=False) as pod, following(pod) as one, following(pod) as other:
        assert await one.next(up_to_s=1) == ()
        assert await other.next(up_to_s=1) == ()
        waiting = [asyncio.create_task(stream.next(up_to_s=PATIENCE_S)) for stream in (one, other)]
        await asyncio.sleep(0)
        pod.parts.waiters.stop()
        ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [errors.ShuttingDown] * 2
        with pytest.raises(errors.ShuttingDown):
            await following(pod).__aenter__()


async def test_streams_at_one_place_look_into_the_store_once_and_never_without_a_change(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.run(outbox=False) as pod:
        opened = [following(pod) for _ in range(20)]
        readers = [await each.__aenter__() for each in opened]
        for reader in readers:
            assert await reader.next(up_to_s=1) == ()
        looks = 0
        run = pod.store.run

        async def counted(work: object) -> object:
            nonlocal looks
            looks += getattr(work, "__qualname__", "").startswith("Streams.look")
            return await run(work)  # type: ignore[arg-type]  # handed on as it came

        monkeypatch.setattr(pod.store, "run", counted)
        assert [await reader.next(up_to_s=0.001) for reader in readers] == [()] * 20
        assert looks == 0
        waiting = [asyncio.create_task(reader.next(up_to_s=PATIENCE_S)) for reader in readers]
        await asyncio.sleep(0)
        await pod.ask()
        found = await asyncio.gather(*waiting)
        assert looks == 1
        assert len(set(found)) == 1
        for each in opened:
            await each.__aexit__(None, None, None)


async def test_a_change_that_is_committed_while_a_stream_looks_is_not_missed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.run(outbox=False) as pod, following(pod) as stream:
        run = pod.store.run
        looking, go_on = asyncio.Event(), asyncio.Event()

        async def slow(work: object) -> object:
            result: object = await run(work)  # type: ignore[arg-type]  # handed on as it came
            if getattr(work, "__qualname__", "").startswith("Streams.look"):
                looking.set()
                await go_on.wait()
            return result

        monkeypatch.setattr(pod.store, "run", slow)
        first = asyncio.create_task(stream.next(up_to_s=PATIENCE_S))
        await looking.wait()
        await pod.ask()
        go_on.set()
        assert await first == ()
        assert statuses(await told(stream, 1)) == ["queued"]


async def test_a_stream_does_not_take_the_look_of_another_that_began_before_a_change(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.run(outbox=False) as pod, following(pod, BEGINNING) as early, following(pod, BEGINNING) as late:
        run = pod.store.run
        looking, go_on = asyncio.Event(), asyncio.Event()

        async def first_is_slow(work: object) -> object:
            is_first = getattr(work, "__qualname__", "").startswith("Streams.look") and not looking.is_set()
            result: object = await run(work)  # type: ignore[arg-type]  # handed on as it came
            if is_first:
                looking.set()
                await go_on.wait()
            return result

        monkeypatch.setattr(pod.store, "run", first_is_slow)
        first = asyncio.create_task(early.next(up_to_s=PATIENCE_S))
        await looking.wait()
        await pod.ask()
        async with asyncio.timeout(PATIENCE_S):
            assert statuses(list(await late.next(up_to_s=1))) == ["queued"]
        go_on.set()
        assert await first == ()


async def test_a_reader_that_goes_while_it_looks_takes_nothing_from_the_others(rig: Rig) -> None:
    async with rig.run(outbox=False) as pod, following(pod, BEGINNING) as stays:
        await pod.ask()
        async with following(pod, BEGINNING) as goes:
            going = asyncio.create_task(goes.next(up_to_s=PATIENCE_S))
            staying = asyncio.create_task(stays.next(up_to_s=PATIENCE_S))
            await asyncio.sleep(0)
            going.cancel()
            assert statuses(list(await staying)) == ["queued"]
            with pytest.raises(asyncio.CancelledError):
                await going


async def test_a_look_that_fails_is_told_to_whoever_waits_for_it(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig.run(outbox=False) as pod, following(pod) as stream:

        async def fails(_work: object) -> object:
            raise errors.StoreUnavailable("the disk is full")

        monkeypatch.setattr(pod.store, "run", fails)
        with pytest.raises(errors.StoreUnavailable):
            await stream.next(up_to_s=1)
        monkeypatch.undo()
