"""Attacks told against a real store, the real broker and a real Matrix client."""

from __future__ import annotations

import asyncio
import copy
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from agentpod_bot.core.ids import EventId, RoomId, RouteName, UserId
from agentpod_bot.core.model import Status
from agentpod_bot.matrix.gap import missing
from agentpod_bot.matrix.response import Part
from tests.examples import CALLER, LIMITS, MINUTE, ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import PATIENCE_S, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.matrix.fake_faults import Handler
    from tests.matrix.rig import Pod

SEND = r"/send/m\.room\.message/"
DAY = 24 * 60 * MINUTE


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


async def patiently(pod: Pod, event_id: str) -> bool:
    """Whether an event is processed soon, with every backoff of the sync loop waited out."""
    for _ in range(20):
        if await pod.store.run(lambda tx: tx.seen(EventId(event_id))):
            return True
        await asyncio.sleep(0.02)
        pod.clock.advance(1_000)
    return False


# Allowing what nobody allowed


async def test_a_code_of_a_question_that_is_still_being_sent_decides_nothing_then_or_later(
    rig: Rig, clock: FakeClock
) -> None:
    """It must not stop the sync either, and the person must be told."""
    async with rig.run() as pod:
        await pod.pending()
        gate = asyncio.Event()
        rig.hs.hold("PUT", SEND, gate)
        queued = await pod.ask(title="Second")
        await rig.hs.until(lambda: rig.hs.count("PUT", SEND) == 2)
        clock.advance(1_000)
        answer = rig.say(f"1 {queued.asked.code}")
        at_once = await patiently(pod, answer)
        gate.set()
        await pod.when(queued, lambda now: now.shown_ts is not None)
        await patiently(pod, answer)
        await pod.quiet()
        assert (await pod.now(queued)).is_open
        assert at_once
        assert rig.notices()


async def test_a_message_of_days_ago_with_a_code_that_is_given_out_again_decides_nothing(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say(f"1 {question.asked.code}", ts=clock.now_ms() - 3 * DAY))
        assert (await pod.now(question)).is_open


async def test_an_answer_that_was_refused_is_never_taken_later_by_being_read_again(rig: Rig, clock: FakeClock) -> None:
    """What was processed is forgotten after the retention; a question may be open for longer than that."""
    limits = replace(LIMITS, retention_ms=DAY, max_ttl_ms=7 * DAY)
    rig.policy = replace(rig.policy, limits=limits)
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=5 * DAY)
        clock.advance(MINUTE)
        rig.say("1", rig.mallory, reply_to=question)
        await rig.hs.until(rig.notices)
        assert "changes nothing" in rig.notices()[0]
        await pod.quiet()
        clock.advance(26 * 60 * MINUTE)
        await pod.handled(rig.say("hello", rig.mallory))
        await pod.parts.deadlines.prune()
    route = rig.policy.routes[ROUTE]
    rig.policy = replace(rig.policy, routes={ROUTE: replace(route, approvers=route.approvers | {rig.mallory})})
    last = [rig.say(f"talk {number}") for number in range(60)][-1]  # a gap: it is paged back
    async with rig.run() as pod:
        await pod.handled(last)
        assert (await pod.now(question)).is_open


async def test_a_homeserver_with_a_fast_clock_does_not_end_the_quiet_after_another_question(
    rig: Rig, clock: FakeClock
) -> None:
    """By our own clock the other question closed four seconds ago, whatever the answer's own date says."""
    async with rig.run() as pod:
        first = await pod.pending(ttl_ms=MINUTE)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        await rig.hs.until(lambda: rig.outcomes(first))
        clock.advance(3_000)
        second = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("1", ts=clock.now_ms() + 40_000))
        assert (await pod.now(second)).is_open


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_question_that_stood_in_a_room_before_the_bot_listened_there_makes_bare_answers_unclear(
    rig: Rig, clock: FakeClock, *, restarted: bool
) -> None:
    """The room shows two questions, whenever its route came into the configuration."""
    other = RoomId(rig.hs.room(rig.pod, rig.owner, rig.mallory))
    moved = replace(rig.policy, routes={ROUTE: replace(rig.policy.routes[ROUTE], room_id=other)})
    async with AsyncExitStack() as runs:
        pod = await runs.enter_async_context(rig.run())
        await pod.pending()
        rig.hs.post(other, rig.mallory, {**rig.questions()[0], "code": "Q9"})
        clock.advance(MINUTE)
        await pod.handled(rig.say("talk"))
        if restarted:
            await runs.aclose()
            rig.policy = moved
            pod = await runs.enter_async_context(rig.run())
        pod.parts.world.policy = moved
        await pod.parts.rooms.settle()
        question = await pod.pending()
        clock.advance(5_000)
        await pod.handled(rig.hs.say(other, rig.owner, "1"))
        assert (await pod.now(question)).is_open


async def test_a_question_that_stood_in_a_room_for_hours_before_the_bots_first_start_makes_bare_answers_unclear(
    rig: Rig, clock: FakeClock
) -> None:
    other = RoomId(rig.hs.room(rig.pod, rig.owner))
    async with rig.run() as pod:
        await pod.pending()
    content = copy.deepcopy(rig.questions()[0]) | {"code": "Q9"}
    content["subject"]["expires_at"] = "9999-01-01T00:00:00Z"
    rig.hs.post(other, rig.mallory, content)
    for number in range(300):
        rig.hs.say(other, rig.mallory, f"talk {number}")
    clock.advance(5 * 60 * MINUTE)
    rig.path = rig.path.parent.with_name("another store") / rig.path.name
    rig.policy = replace(rig.policy, routes={ROUTE: replace(rig.policy.routes[ROUTE], room_id=other)})
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(5_000)
        await pod.handled(rig.hs.say(other, rig.owner, "1"))
        assert (await pod.now(question)).is_open


async def test_a_question_that_was_asked_while_the_bot_did_not_listen_makes_bare_answers_unclear(
    rig: Rig, clock: FakeClock
) -> None:
    other = RoomId(rig.hs.room(rig.pod, rig.owner))
    here = rig.policy
    there = replace(here, routes={ROUTE: replace(here.routes[ROUTE], room_id=other)})
    async with rig.run() as pod:
        await pod.handled(rig.say("talk"))
    rig.policy = there
    async with rig.run() as pod:
        first = await pod.pending()
        rig.hs.post(rig.room, rig.mallory, {**rig.questions()[0], "code": "Q9"})
        await pod.handled(rig.hs.say(other, rig.owner, "3", reply_to=first.event_id))
        pod.parts.world.policy = here
        await pod.parts.rooms.settle()
        question = await pod.pending()
        clock.advance(5_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).is_open


async def test_a_message_that_was_edited_into_a_question_makes_bare_answers_unclear_until_it_is_edited_again(
    rig: Rig, clock: FakeClock
) -> None:
    """As of a bot that first says that it is at work."""
    async with rig.run() as pod:
        question = await pod.pending()
        placeholder = rig.say("one moment", rig.mallory)
        new = {**rig.questions()[0], "code": "Q9"}
        relation = {"rel_type": "m.replace", "event_id": placeholder}
        edit = {"msgtype": "m.text", "body": "* a question", "m.new_content": new, "m.relates_to": relation}
        await pod.handled(rig.hs.post(rig.room, rig.mallory, edit))
        clock.advance(5_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).is_open
        await pod.handled(rig.hs.edit(rig.room, rig.mallory, placeholder, "done"))
        clock.advance(31_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_a_redacted_question_of_another_account_stands_in_nobodys_way(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        foreign = rig.hs.post(rig.room, rig.mallory, {**rig.questions()[0], "code": "Q9"})
        await pod.handled(rig.hs.redact(rig.room, rig.owner, foreign))
        clock.advance(31_000)
        rig.say("1")
        await pod.when(question, lambda now: now.status is Status.DECIDED)


@pytest.mark.parametrize("ts", [None, 2**53 - 1])
async def test_another_accounts_question_makes_bare_answers_unclear_for_a_day_at_most(
    rig: Rig, clock: FakeClock, ts: int | None
) -> None:
    async with rig.run() as pod:
        first = await pod.pending()
        content = copy.deepcopy(rig.questions()[0]) | {"code": "Q9"}
        content["subject"]["expires_at"] = "9999-01-01T00:00:00Z"
        await pod.handled(rig.hs.post(rig.room, rig.mallory, content, ts=ts))
        await pod.parts.broker.cancel(CALLER, first.key.request_id)
        await rig.hs.until(lambda: rig.outcomes(first))
        clock.advance(DAY + 60_000)
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: now.status is Status.DECIDED)


async def test_the_quiet_time_runs_from_when_the_room_shows_the_end_however_late_that_is(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        first = await pod.pending(ttl_ms=MINUTE)
        gate = asyncio.Event()
        rig.hs.hold("PUT", SEND, gate)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        await rig.hs.until(lambda: rig.hs.count("PUT", SEND) == 2)
        clock.advance(25_000)
        gate.set()
        await rig.hs.until(lambda: rig.outcomes(first))
        second = await pod.pending()
        clock.advance(10_000)  # 35 s after the end, 10 s after the room showed it
        await pod.handled(rig.say("1"))
        assert (await pod.now(second)).is_open
        clock.advance(21_000)
        rig.say("1")
        await pod.when(second, lambda now: now.status is Status.DECIDED)


# Losing an answer


@pytest.mark.parametrize(
    ("status", "body"),
    [(500, {"errcode": "M_UNKNOWN"}), (429, {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1_000})],
)
async def test_an_answer_waits_while_the_homeserver_does_not_say_whether_the_room_is_encrypted(
    rig: Rig, clock: FakeClock, status: int, body: dict[str, Any]
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        pod.parts.world.forget(rig.room)
        rig.hs.answer_with("GET", r"/state/m\.room\.encryption", status=status, body=body)
        clock.advance(1_000)
        answer = rig.say("1", reply_to=question)
        await patiently(pod, answer)
        assert (await pod.now(question)).status is Status.DECIDED


async def test_a_membership_event_that_comes_again_changes_nothing(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        left = rig.hs.leave(rig.room, rig.owner)
        await pod.handled(left)
        joined = rig.hs.join(rig.room, rig.owner)
        await pod.handled(joined)
        events = {event["event_id"]: event for event in rig.hs.timeline(rig.room)}
        rig.hs.inject(rig.room, copy.deepcopy(events[left]))
        rig.hs._rooms.rooms[rig.room].state["m.room.member", rig.owner] = events[joined]
        clock.advance(1_000)
        await pod.handled(rig.say("talk", rig.mallory))
        await pod.handled(rig.say("1", reply_to=question))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_an_answer_given_before_encryption_was_switched_on_counts(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    answer = rig.say("1", reply_to=question)
    clock.advance(1_000)
    rig.hs.encrypt(rig.room, by=rig.owner)
    async with rig.run() as pod:
        await pod.handled(answer)
        assert (await pod.now(question)).status is Status.DECIDED


async def test_false_dates_do_not_end_the_search_for_what_a_gap_holds() -> None:
    """The newest processed event is further back; a room member sent thousands of events dated 1970."""
    answer = {"event_id": "$answer", "origin_server_ts": START}
    newest = {"event_id": "$newest", "origin_server_ts": START - 1_000}
    flood = [{"event_id": f"$flood{number}", "origin_server_ts": 1} for number in range(2_300)]
    past = [*flood, answer, newest]

    class Pages:
        async def messages(self, room_id: RoomId, from_token: str, **_: Any) -> dict[str, Any]:
            del room_id
            at = int(from_token)
            return {"chunk": past[at : at + 100], "end": str(at + 100)}

    part = Part(room_id=RoomId("!r"), state=(), timeline=(), limited=True, prev_batch="0", left=False)
    found = await missing(Pages(), part, newest_seen=EventId("$newest"), oldest_open_ts=START - 2_000)
    assert answer in found.events


# Silence where a reason is owed, and wrong statements


async def test_no_event_that_pages_of_the_past_leave_out_has_the_whole_room_paged_back(
    rig: Rig, clock: FakeClock
) -> None:
    """Anybody can send such an event, and then enough for a gap."""
    for number in range(1_000):
        rig.say(f"talk {number}", rig.mallory)
    async with rig.run() as pod:
        question = await pod.pending()
        together = asyncio.Event()
        held = rig.hs.hold("GET", "/sync", together)
        rig.say("talk")
        await held.hit.wait()
        last = rig.say("talk")
        rig.hs.post(rig.room, rig.mallory, {}, kind="m.key.verification.done")
        together.set()
        await pod.handled(last)
        clock.advance(1_000)
    answer = rig.say("1", reply_to=question)
    for number in range(60):
        rig.say(f"talk {number}", rig.mallory)
    pages = rig.hs.count("GET", "/messages")
    async with rig.run() as pod:
        await pod.handled(answer)
        assert (await pod.now(question)).status is Status.DECIDED
    assert rig.hs.count("GET", "/messages") == pages + 1


async def test_a_question_that_lapsed_while_we_were_down_is_said_to_have_expired_when_it_did(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=MINUTE)  # the question says: open until 07:34 UTC
    until = rig.questions()[0]["body"].split("open until ")[1][:9]
    clock.advance(2 * MINUTE)
    rig.say("1", reply_to=question)
    clock.advance(90 * MINUTE)
    async with rig.run() as pod:
        await rig.hs.until(rig.notices)
        assert f"expired at {until}" in rig.notices()[0]
        await rig.hs.until(lambda: rig.outcomes(question))
        assert f"Expired at {until}" in rig.outcomes(question)[0]["m.new_content"]["body"]


async def test_an_answer_to_a_question_whose_route_is_gone_is_not_met_with_silence(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        pod.parts.world.policy = replace(pod.parts.world.policy, routes={})
        rig.say("1", reply_to=question)
        async with asyncio.timeout(2):
            await rig.hs.until(rig.notices)
        assert (await pod.now(question)).is_open


async def test_a_late_answer_in_a_room_that_left_the_configuration_is_told_so_also_after_a_restart(
    rig: Rig, clock: FakeClock
) -> None:
    other = RoomId(rig.hs.room(rig.pod, rig.owner))
    async with rig.run() as pod:
        question = await pod.pending()
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        await pod.quiet()
    rig.policy = replace(rig.policy, routes={ROUTE: replace(rig.policy.routes[ROUTE], room_id=other)})
    clock.advance(1_000)
    async with rig.run() as pod:
        rig.say("1", reply_to=question)
        await pod.handled(rig.hs.say(other, rig.owner, "talk"))
        await pod.quiet()
        [told] = rig.notices()
        assert "already closed" in told


async def test_a_structured_answer_that_refers_to_another_event_is_told_so(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        content = {
            "suite_event_type": "dev.agentpod.permission.answer.v2",
            "schema_version": 1,
            "request_id": question.key.request_id,
            "option_id": "allow_once",
            "msgtype": "m.text",
            "body": "Allow once",
            "m.relates_to": {"rel_type": "m.reference", "event_id": "$elsewhere"},
        }
        await pod.handled(rig.hs.post(rig.room, rig.owner, content))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert len(rig.notices()) == 1
        assert "structured" in await pod.audited(question)


async def test_which_one_is_asked_also_after_the_clock_was_set_back(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        await pod.pending()
        await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(rig.notices)
        await pod.quiet()
        clock.advance(-60 * MINUTE)
        clock.advance(11_000)
        await pod.handled(rig.say("1", ts=clock.now_ms() + 61 * MINUTE))
        clock.advance(60_000)
        pod.parts.outbox._bell.ring()
        await pod.quiet()
        assert len(rig.notices()) == 2


async def test_a_room_that_has_to_wait_waits_no_longer_because_the_clock_was_set_back(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what was being sent then keeps the time that stands in the store."""
    async with rig.run() as pod:
        rig.hs.answer_with("PUT", "/send/", status=429, body={"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 5_000})
        await pod.ask()
        await rig.hs.until(lambda: rig.hs.count("PUT", "/send/") == 1)
        async with asyncio.timeout(PATIENCE_S):
            while not pod.meter.failures:
                await asyncio.sleep(0.002)
        before = clock.monotonic()
        clock.advance(-60 * MINUTE)
        later = await pod.ask()
        monkeypatch.setattr(clock, "monotonic", lambda: before + 6)
        pod.parts.outbox._bell.ring()
        await pod.when(later, lambda now: now.status is Status.PENDING)


async def test_strangers_cannot_use_up_what_approvers_are_told(rig: Rig, clock: FakeClock) -> None:
    strangers = [UserId(rig.hs.user(f"stranger{number}")) for number in range(12)]
    for stranger in strangers:
        rig.hs.join(rig.room, stranger)
    async with rig.run() as pod:
        question = await pod.pending()
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        clock.advance(1_000)
        for stranger in strangers:
            await pod.handled(rig.say("1", stranger, reply_to=question))
        await pod.handled(rig.say("1", reply_to=question))
        await pod.quiet()
        assert (await pod.audited(question)).count("not_approver") == 12
        assert len(rig.notices()) == 6
        assert "already closed" in rig.notices()[-1]


async def test_a_room_hears_ten_notices_a_minute_at_most_and_questions_and_outcomes_all_the_same(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        for _ in range(25):
            await pod.handled(rig.say("!open"))
        await pod.quiet()
        assert len(rig.notices()) == 10
        await pod.handled(rig.say("1", rig.mallory, reply_to=question))
        await pod.quiet()
        assert len(rig.notices()) == 10
        assert "not_approver" in await pod.audited(question)  # refused and kept, though nothing was said
        second = await pod.pending()
        rig.say("1", reply_to=question)
        await pod.when(question, lambda now: not now.is_open)
        await rig.hs.until(lambda: rig.outcomes(question))
        clock.advance(60_001)
        await pod.handled(rig.say("!open"))
        await rig.hs.until(lambda: len(rig.notices()) == 11)
        assert second.asked.code in rig.notices()[-1]


async def test_a_question_that_the_homeserver_never_takes_keeps_nothing_else_of_its_room_waiting(
    rig: Rig, clock: FakeClock
) -> None:
    """As of one that fails over a single event, whatever it is; until the question expires it is tried again."""

    async def fails(request: web.Request, handler: Handler) -> web.StreamResponse:
        if b"Never taken" in await request.read():
            return web.Response(status=500)
        return await handler(request)

    async with rig.run() as pod:
        answered = await pod.pending()
        rig.hs._fault("PUT", "/send/", 1_000, fails)
        stuck = await pod.ask(title="Never taken")
        clock.advance(1_000)
        await pod.handled(rig.say("1", reply_to=answered))
        asked = await pod.ask()
        async with asyncio.timeout(PATIENCE_S):
            while not (rig.outcomes(answered) and (await pod.now(asked)).status is Status.PENDING):
                clock.advance(500)
                pod.parts.outbox._bell.ring()
                await asyncio.sleep(0.005)
        assert (await pod.now(stuck)).status is Status.QUEUED
        assert clock.now_ms() - START < MINUTE


async def test_a_room_full_of_notices_keeps_no_other_room_from_its_own(rig: Rig, clock: FakeClock) -> None:
    other = RoomId(rig.hs.room(rig.pod, rig.owner))
    route = replace(rig.policy.routes[ROUTE], name=RouteName("other"), room_id=other)
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, route.name: route})
    async with rig.run() as pod:
        clock.advance(1_000)
        for _ in range(12):
            await pod.handled(rig.say("!open"))
        await pod.handled(rig.hs.say(other, rig.owner, "!open"))
        await rig.hs.until(lambda: len(rig.notices()) == 11)
