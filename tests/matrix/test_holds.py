"""Calls that hold their question: what happens when one drops, comes back, or is told of another place's answer."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot import errors
from agentpod_bot.core.ids import ClientName, RequestId, SessionId
from agentpod_bot.core.lifecycle import AnsweredElsewhere
from agentpod_bot.core.model import Claim, Hold, Outcome, Status, TextPreview
from tests.examples import CALLER, START, request
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import PATIENCE_S, Pod, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agentpod_bot.broker.change import After
    from agentpod_bot.core.model import Caller, PermissionRequest, Question
    from agentpod_bot.ports import T, Tx

HOOK = "claude-code"
TWIN = "claude-code:main:aa"
HOOKS = replace(CALLER, harnesses=frozenset({HOOK, "native"}))
GRACE_MS = 10_000


def hook_call(twin: str | None = TWIN, **changes: object) -> PermissionRequest:
    return request(**({"request_id": None, "request_seq": None, "hold": Hold(twin), "raw": b"{}"} | changes))


class Call:
    """One call of a harness, waiting in the background."""

    def __init__(self, pod: Pod, asked: PermissionRequest, caller: Caller, patience_ms: int | None) -> None:
        self.ended: Question | None = None
        self.task = asyncio.create_task(self._wait(pod, asked, caller, patience_ms))

    async def _wait(self, pod: Pod, asked: PermissionRequest, caller: Caller, patience_ms: int | None) -> None:
        async with pod.parts.broker.held(asked, caller, harness=HOOK, patience_ms=patience_ms) as question:
            self.ended = question

    async def drop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def end(self) -> Question:
        async with asyncio.timeout(PATIENCE_S):
            await self.task
        assert self.ended is not None
        return self.ended


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        rig.with_route(harnesses=frozenset({HOOK, "native"}))
        yield rig


def call(pod: Pod, asked: PermissionRequest | None = None, *, patience_ms: int | None = None) -> Call:
    return Call(pod, asked or hook_call(), HOOKS, patience_ms)


async def open_questions(pod: Pod, count: int) -> list[Question]:
    """The open questions, once there are so many and the room shows them."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await pod.store.run(lambda tx: tx.open_questions())
            if len(found) == count and all(question.shown_ts is not None for question in found):
                return list(found)
            await asyncio.sleep(0.002)


@asynccontextmanager
async def asked(rig: Rig) -> AsyncIterator[tuple[Pod, Call, Question]]:
    """A call whose question is in the room."""
    async with rig.run() as pod:
        first = call(pod)
        [question] = await open_questions(pod, 1)
        yield pod, first, question
        await first.drop()


async def test_a_call_is_held_until_its_question_is_answered_and_the_answer_counts_as_delivered(
    rig: Rig, clock: FakeClock
) -> None:
    async with asked(rig) as (pod, first, question):
        clock.advance(1_000)
        rig.say("1")
        ended = await first.end()
        assert ended.closing is not None
        assert ended.closing.outcome is Outcome.SELECTED
        assert (await pod.now(question)).delivered_at_ms == clock.now_ms()
        clock.advance(GRACE_MS)
        assert await pod.parts.holds.lapse() is None
        assert not (await pod.now(question)).gave_up


async def test_a_call_that_drops_and_stays_away_cancels_its_question_and_the_room_says_so(
    rig: Rig, clock: FakeClock
) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        clock.advance(GRACE_MS - 1)
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).is_open
        clock.advance(1)
        await pod.parts.holds.lapse()
        now = await pod.now(question)
        assert now.status is Status.CANCELLED
        await rig.hs.until(lambda: rig.outcomes(question))
        assert "the agent had stopped waiting" in rig.outcomes(question)[0]["m.new_content"]["body"]


async def test_a_repeat_joins_the_question_whose_call_has_dropped(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        clock.advance(GRACE_MS - 1)
        again = call(pod)
        await asyncio.sleep(0)
        clock.advance(GRACE_MS)
        await open_questions(pod, 1)
        await pod.parts.holds.lapse()
        rig.say("1")
        assert (await again.end()).row == question.row
        assert len(rig.questions()) == 1


async def test_two_equal_calls_that_are_both_open_are_two_questions(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (pod, first, question):
        second = call(pod)
        both = await open_questions(pod, 2)
        assert len({each.asked.code for each in both}) == 2
        clock.advance(1_000)
        rig.say("1", reply_to=question)
        assert (await first.end()).row == question.row
        assert not second.task.done()
        await second.drop()


async def test_of_two_repeats_only_one_joins_the_dropped_call(rig: Rig) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        calls = [call(pod), call(pod)]
        both = await open_questions(pod, 2)
        assert question.row in {each.row for each in both}
        for each in calls:
            await each.drop()


@pytest.mark.parametrize(
    "changes",
    [{"twin": "claude-code:main:bb"}, {"title": "Delete everything"}, {"preview": (TextPreview("Command", "rm"),)}],
)
async def test_a_call_that_asks_something_else_joins_no_dropped_call(rig: Rig, changes: dict[str, object]) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        other = call(pod, hook_call(**changes))  # type: ignore[arg-type]  # fields of a request
        both = await open_questions(pod, 2)
        assert {each.row for each in both} > {question.row}
        rig.say("1", reply_to=question)
        await pod.when(question, lambda now: not now.is_open)
        assert not other.task.done()
        await other.drop()


async def test_another_clients_call_joins_no_dropped_call(rig: Rig) -> None:
    async with asked(rig) as (pod, first, _):
        await first.drop()
        other = Call(pod, hook_call(), replace(HOOKS, client=ClientName("server")), None)
        assert len(await open_questions(pod, 2)) == 2
        await other.drop()


async def test_an_answer_given_between_drop_and_repeat_reaches_the_repeat(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        ended = await call(pod).end()
        assert ended.row == question.row
        assert (await pod.now(question)).delivered_at_ms is not None


async def test_an_answer_that_nobody_fetched_is_shown_as_such_and_allows_no_later_call(
    rig: Rig, clock: FakeClock
) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        clock.advance(GRACE_MS)
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).gave_up
        await rig.hs.until(lambda: "had stopped waiting" in str(rig.outcomes(question)))
        later = call(pod)
        [fresh] = await open_questions(pod, 1)
        assert fresh.row != question.row
        await later.drop()


async def test_a_delivered_answer_allows_no_later_call_of_the_same_name(rig: Rig, clock: FakeClock) -> None:
    named = hook_call(None, request_id=RequestId("codex:1"))
    async with rig.run() as pod:
        first = call(pod, named)
        [question] = await open_questions(pod, 1)
        clock.advance(1_000)
        rig.say("1")
        assert (await first.end()).row == question.row
        second = call(pod, named)
        [fresh] = await open_questions(pod, 1)
        assert (fresh.row != question.row, fresh.key.revision) == (True, 2)
        await second.drop()


async def test_an_answer_that_was_not_delivered_allows_no_call_of_that_name_that_asks_something_else(
    rig: Rig, clock: FakeClock
) -> None:
    named = hook_call(None, request_id=RequestId("codex:1"))
    async with rig.run() as pod:
        first = call(pod, named)
        [question] = await open_questions(pod, 1)
        await first.drop()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        other = call(pod, replace(named, title="Delete everything"))
        [fresh] = await open_questions(pod, 1)
        assert (fresh.key.revision, fresh.asked.title) == (2, "Delete everything")
        await other.drop()


async def test_calls_of_one_name_wait_for_one_question(rig: Rig, clock: FakeClock) -> None:
    named = hook_call(None, request_id=RequestId("codex:1"))
    async with rig.run() as pod:
        calls = [call(pod, named)]
        await open_questions(pod, 1)
        calls.append(call(pod, named))
        await asyncio.sleep(0.02)
        clock.advance(1_000)
        rig.say("3")
        ended = [await each.end() for each in calls]
        assert len({each.row for each in ended}) == 1
        assert len(rig.questions()) == 1


async def test_a_call_of_the_same_name_and_other_content_is_refused(rig: Rig) -> None:
    async with rig.run() as pod:
        first = call(pod, hook_call(None, request_id=RequestId("codex:1")))
        await open_questions(pod, 1)
        with pytest.raises(errors.RequestIdReused):
            await call(pod, hook_call(None, request_id=RequestId("codex:1"), title="Delete everything")).end()
        await first.drop()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_call_joins_no_question_that_was_asked_in_another_harnesss_shape(
    rig: Rig, *, is_answered: bool
) -> None:
    name = RequestId("claude-code:main:0123")
    async with rig.run() as pod:
        # What is shown is the same; the body, of which a hook's answer would echo parts, is another.
        native = await pod.pending(HOOKS, request_id=name, request_seq=None, raw=b'{"other": true}')
        if is_answered:
            rig.say("1")
            await pod.when(native, lambda now: not now.is_open)
        first = call(pod, hook_call(None, request_id=name))
        if is_answered:
            [question] = await open_questions(pod, 1)
            assert (question.asked.harness, question.key.revision) == (HOOK, 2)
            await first.drop()
        else:
            with pytest.raises(errors.RequestIdReused):
                await first.task


async def test_a_native_repeat_is_not_told_the_answer_to_a_harnesss_call(rig: Rig) -> None:
    name = RequestId("claude-code:main:0123")
    async with rig.run() as pod:
        first = call(pod, hook_call(None, request_id=name))
        await open_questions(pod, 1)
        rig.say("1")
        await first.end()
        with pytest.raises(errors.RequestClosed):
            await pod.ask(HOOKS, request_id=name, request_seq=None)


async def test_a_question_that_no_call_holds_stays_open_when_its_call_drops_and_keeps_its_answer(
    rig: Rig, clock: FakeClock
) -> None:
    asked_for = hook_call(hold=None, request_id=RequestId("P-1"))
    async with rig.run() as pod:
        first = call(pod, asked_for)
        [question] = await open_questions(pod, 1)
        await first.drop()
        clock.advance(GRACE_MS)
        assert await pod.parts.holds.lapse() is None
        assert (await pod.now(question)).is_open
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        clock.advance(GRACE_MS)
        assert (await call(pod, asked_for).end()).row == question.row


async def test_after_a_restart_a_held_question_waits_ten_seconds_for_its_call(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (_, _, question):
        pass
    clock.advance(GRACE_MS * 2)
    async with rig.run() as pod:
        await pod.sync.first_sync_done.wait()
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).is_open
        clock.advance(GRACE_MS)
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).status is Status.CANCELLED


async def test_after_a_restart_a_repeat_gets_the_answer_that_was_given_meanwhile(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (_, _, question):
        pass
    clock.advance(1_000)
    rig.say("1")
    async with rig.run() as pod:
        await pod.when(question, lambda now: not now.is_open)
        ended = await call(pod).end()
        assert ended.row == question.row


async def test_a_question_expires_before_its_harness_stops_waiting(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first = call(pod, patience_ms=25_000)
        [question] = await open_questions(pod, 1)
        assert question.asked.expires_at_ms == START + 25_000
        clock.advance(25_000)
        await pod.parts.deadlines.expire()
        ended = await first.end()
        assert ended.status is Status.EXPIRED


async def test_a_harness_that_waits_for_long_gets_no_longer_question_than_the_configuration_gives(rig: Rig) -> None:
    async with rig.run() as pod:
        first = call(pod, patience_ms=10**10)
        [question] = await open_questions(pod, 1)
        assert question.asked.expires_at_ms == START + rig.policy.limits.ttl_ms
        await first.drop()


async def test_a_dropped_native_call_changes_nothing(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        waiting = asyncio.create_task(_wait(pod, question))
        await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        clock.advance(GRACE_MS)
        assert await pod.parts.holds.lapse() is None
        assert (await pod.now(question)).is_open


async def _wait(pod: Pod, question: Question) -> None:
    async with pod.parts.broker.waiting(question, up_to_s=None):
        pass


async def test_a_call_that_drops_while_its_question_is_being_stored_is_held_by_nobody(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        first = call(pod)
        await asyncio.sleep(0)
        await first.drop()
        [question] = await open_questions(pod, 1)
        clock.advance(GRACE_MS)
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).status is Status.CANCELLED


async def test_a_repeat_that_could_not_be_stored_does_not_keep_its_question_open_for_ever(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        commit = pod.parts.broker._commit

        async def failing(work: Callable[[Tx, After], T]) -> T:
            def fails(tx: Tx, after: After) -> T:
                work(tx, after)
                raise errors.StoreUnavailable("the disk is full")

            return await commit(fails)

        with monkeypatch.context() as broken:
            broken.setattr(pod.parts.broker, "_commit", failing)
            with pytest.raises(errors.StoreUnavailable):
                await call(pod).task
        clock.advance(GRACE_MS)
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).status is Status.CANCELLED


async def test_a_repeat_that_could_not_be_stored_lets_go_of_no_question_for_which_another_call_comes(
    rig: Rig, clock: FakeClock
) -> None:
    async with asked(rig) as (pod, first, question):
        await first.drop()
        for _ in range(2):
            pod.parts.holds.expect(question.row)
        pod.parts.holds.expect_no_more(question.row)
        clock.advance(GRACE_MS)
        await pod.parts.holds.lapse()
        assert (await pod.now(question)).is_open


CLAIM = AnsweredElsewhere(Claim(None, "the terminal"))


@pytest.mark.parametrize(
    ("prefixes", "every", "left"),
    [(("claude-code:main:aa",), False, 2), (("claude-code:main:",), True, 1), (("",), True, 0), (("other:",), True, 3)],
)
async def test_a_harness_closes_the_questions_that_it_names(
    rig: Rig, prefixes: tuple[str, ...], left: int, *, every: bool
) -> None:
    async with rig.run() as pod:
        calls = [call(pod), call(pod), call(pod, hook_call("claude-code:agent:cc"))]
        await open_questions(pod, 3)
        closed = await pod.parts.broker.close_held(
            HOOKS,
            harness=HOOK,
            session_id=SessionId("acps_3f0c"),
            prefixes=prefixes,
            every=every,
            event=CLAIM,
        )
        assert len(closed) == 3 - left
        assert len(await open_questions(pod, left)) == left
        for each in calls:
            await each.drop()


async def test_a_call_that_ran_because_it_was_allowed_here_closes_no_other_question(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (pod, first, question):
        second = call(pod)
        await open_questions(pod, 2)
        clock.advance(1_000)
        rig.say("1", reply_to=question)
        await first.end()

        async def ran() -> tuple[RequestId, ...]:
            return await pod.parts.broker.close_held(
                HOOKS, harness=HOOK, session_id=SessionId("acps_3f0c"), prefixes=(TWIN,), every=False, event=CLAIM
            )

        assert await ran() == ()
        assert len(await open_questions(pod, 1)) == 1
        assert len(await ran()) == 1
        assert (await second.end()).status is Status.ANSWERED_ELSEWHERE


async def test_a_call_that_was_refused_here_is_not_the_one_that_ran(rig: Rig, clock: FakeClock) -> None:
    async with asked(rig) as (pod, first, question):
        second = call(pod)
        await open_questions(pod, 2)
        clock.advance(1_000)
        rig.say("3", reply_to=question)
        await first.end()
        closed = await pod.parts.broker.close_held(
            HOOKS, harness=HOOK, session_id=SessionId("acps_3f0c"), prefixes=(TWIN,), every=False, event=CLAIM
        )
        assert len(closed) == 1
        await second.end()


@pytest.mark.parametrize(
    ("caller", "harness", "session"),
    [
        (replace(HOOKS, client=ClientName("server")), HOOK, "acps_3f0c"),
        (HOOKS, "qwen", "acps_3f0c"),
        (HOOKS, HOOK, "another"),
    ],
)
async def test_a_harness_closes_no_question_of_another_client_harness_or_session(
    rig: Rig, caller: Caller, harness: str, session: str
) -> None:
    async with asked(rig) as (pod, _, question):
        closed = await pod.parts.broker.close_held(
            caller, harness=harness, session_id=SessionId(session), prefixes=("",), every=True, event=CLAIM
        )
        assert closed == ()
        assert (await pod.now(question)).is_open


async def test_a_call_over_the_limit_of_waits_is_refused_and_asks_nobody(rig: Rig) -> None:
    rig.policy = replace(rig.policy, limits=replace(rig.policy.limits, max_waits_per_token=1))
    async with asked(rig) as (pod, _, _question):
        with pytest.raises(errors.TooManyWaits):
            await call(pod).end()
        assert len(rig.questions()) == 1
