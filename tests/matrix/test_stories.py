"""Stories of faults that systems of this kind had, told against a real store and a real Matrix client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot import errors
from agentpod_bot.broker import room_events
from agentpod_bot.core.ids import ClientName, RequestId, RouteName, SessionId
from agentpod_bot.core.model import Caller, Claim, Outcome, Progress, Status, TextPreview
from agentpod_bot.core.policy import Reactions
from tests.examples import ALLOW, CALLER, MINUTE, REJECT, ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question

SEND = r"/send/m\.room\.message/"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


async def test_a_question_is_asked_once_answered_and_shown_as_answered(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        assert question.status is Status.PENDING
        clock.advance(1_000)
        rig.say("1")
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.outcome is Outcome.SELECTED
        assert decided.closing.answered_by == rig.owner
        await rig.hs.until(lambda: rig.outcomes(question))
        [edit] = rig.outcomes(question)
        assert edit["suite_event_type"] == "dev.agentpod.permission.outcome.v2"
        assert edit["outcome"] == "selected"
        assert edit["option_id"] == "allow_once"
        assert edit["decided_by"] == rig.owner
        assert "dev.agentpod.permission" not in edit["m.new_content"]
        assert len(rig.questions()) == 1
        assert await pod.audited(question) == ["asked", "shown", "selected"]


async def test_1_a_reply_answers_the_question_that_it_names(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending()
        clock.advance(1_000)
        rig.say("1", reply_to=second)
        await pod.when(second, lambda now: now.status is Status.DECIDED)
        assert (await pod.now(first)).is_open


async def test_2_a_bare_answer_to_two_open_questions_is_asked_about_with_both_codes(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(rig.notices)
        [notice] = rig.notices()
        assert first.asked.code in notice
        assert second.asked.code in notice
        await pod.handled(rig.say("1"))  # within ten seconds: not said again
        await pod.quiet()
        assert rig.notices() == [notice]
        clock.advance(10_001)
        rig.say("1")
        await rig.hs.until(lambda: len(rig.notices()) == 2)
        assert (await pod.now(first)).is_open
        assert (await pod.now(second)).is_open
        rig.say(f"2 {second.asked.code.lower()}")
        decided = await pod.when(second, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.option is not None
        assert decided.closing.option.option.option_id == "allow_always"
        assert (await pod.now(first)).is_open


async def test_4_the_same_request_joins_another_content_is_refused_and_supersede_replaces(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        broker = pod.parts.broker
        first = await pod.pending(**named("r1"))
        again = await pod.ask(**named("r1"))
        assert again.row == first.row
        with pytest.raises(errors.RequestIdReused):
            await pod.ask(**named("r1"), title="Something else")
        assert (await pod.now(first)).is_open
        waiting = asyncio.create_task(_outcome(pod, first))
        await asyncio.sleep(0.05)
        newer = await pod.pending(**named("r1"), title="Something else", supersede=True)
        assert await waiting is Outcome.SUPERSEDED
        assert newer.key.revision == 2
        assert newer.asked.code != first.asked.code
        assert newer.event_id != first.event_id
        await rig.hs.until(lambda: rig.outcomes(first))
        clock.advance(1_000)
        rig.say("1", reply_to=first)
        await rig.hs.until(rig.notices)
        assert (await pod.now(newer)).is_open
        await broker.cancel(CALLER, newer.key.request_id)
        with pytest.raises(errors.RequestClosed):
            await pod.ask(**named("r1"), title="A third")
        assert (await pod.ask(**named("r1"), title="Something else")).row == newer.row


async def _outcome(pod: object, asked: object) -> Outcome:
    async with pod.parts.broker.waiting(asked, up_to_s=20) as question:  # type: ignore[attr-defined]  # a Pod
        return question.closing.outcome  # type: ignore[no-any-return]  # of a Question


async def test_5_two_questions_of_one_title_are_two_with_two_digests(rig: Rig) -> None:
    async with rig.run() as pod:
        first = await pod.ask(title="Run command", preview=(TextPreview("Command", "ls"),))
        second = await pod.ask(title="Run command", preview=(TextPreview("Command", "rm"),))
        assert first.row != second.row
        assert first.asked.digest != second.asked.digest


async def test_6a_a_bare_answer_meant_for_an_expired_question_does_not_answer_the_next(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        first = await pod.pending(ttl_ms=MINUTE)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        await rig.hs.until(lambda: rig.outcomes(first))
        clock.advance(3_000)
        second = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(rig.notices)
        assert (await pod.now(second)).is_open
        assert second.asked.code in rig.notices()[0]


async def test_6b_the_one_who_answered_may_go_on_to_the_next(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(first, lambda now: not now.is_open)
        second = await pod.pending()
        clock.advance(4_000)
        rig.say("1")
        await pod.when(second, lambda now: now.status is Status.DECIDED)


async def test_6c_an_answer_given_to_an_expired_question_while_down_never_answers_the_next(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        first = await pod.pending(ttl_ms=MINUTE)
    clock.advance(30_000)
    rig.say("1")
    clock.advance(MINUTE)
    async with rig.run() as pod:
        await pod.parts.deadlines.expire()
        second = await pod.pending()
        await rig.hs.until(lambda: rig.outcomes(first))
        await pod.quiet()
        assert (await pod.now(first)).status is Status.EXPIRED
        assert (await pod.now(second)).is_open


async def test_6d_an_answer_in_the_thread_of_an_expired_question_is_late(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first = await pod.pending(ttl_ms=MINUTE)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        second = await pod.pending()
        clock.advance(60_000)
        relation = {
            "rel_type": "m.thread",
            "event_id": first.event_id,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": second.event_id},
        }
        rig.hs.post(rig.room, rig.owner, {"msgtype": "m.text", "body": "1", "m.relates_to": relation})
        await rig.hs.until(rig.notices)
        assert (await pod.now(second)).is_open
        rig.say("1", rig.second, reply_to=first)
        await rig.hs.until(lambda: len(rig.notices()) == 2)
        assert (await pod.now(second)).is_open
        assert (await pod.now(first)).status is Status.EXPIRED


async def test_6e_a_number_as_a_reply_to_chat_is_nothing(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(40_000)
        chat = rig.say("shall I bring 1 or 2?", rig.mallory)
        await pod.handled(rig.say("1", reply_to=chat))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert rig.notices() == []


async def test_6f_with_another_accounts_question_open_a_bare_answer_is_asked_about(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        other = {**rig.questions()[0], "code": "Q9"}
        foreign = rig.hs.post(rig.room, rig.mallory, other)
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(rig.notices)
        assert (await pod.now(question)).is_open
        rig.hs.edit(rig.room, rig.mallory, foreign, "answered")
        clock.advance(30_001)
        rig.say("1")
        await pod.when(question, lambda now: now.status is Status.DECIDED)


async def test_6g_a_reply_to_the_notice_that_asks_which_is_asked_again(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(rig.notices)
        [notice] = [e for e in rig.hs.sent_by(rig.pod) if e["content"].get("msgtype") == "m.notice"]
        await pod.quiet()
        clock.advance(11_000)
        rig.say("1", reply_to=notice["event_id"])
        await rig.hs.until(lambda: len(rig.notices()) == 2)
        assert (await pod.now(first)).is_open
        assert (await pod.now(second)).is_open


async def test_6h_a_bare_answer_just_after_the_only_question_expired_is_told_so(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=MINUTE)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        clock.advance(2_000)
        rig.say("1")
        await rig.hs.until(rig.notices)
        assert "expired" in rig.notices()[0]
        assert "late" in await pod.audited(question)


async def test_7_and_11_silence_is_expiry_and_a_late_answer_stays_one(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=MINUTE)
        waiting = asyncio.create_task(_outcome(pod, question))
        await asyncio.sleep(0.05)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        assert await waiting is Outcome.EXPIRED
        rig.say("1", reply_to=question)
        await rig.hs.until(rig.notices)
        assert (await pod.now(question)).status is Status.EXPIRED
        await rig.hs.until(lambda: rig.outcomes(question))
        assert rig.outcomes(question)[0]["outcome"] == "expired"


async def test_8_the_decision_itself_refuses_an_answer_past_the_deadline(rig: Rig, clock: FakeClock) -> None:
    """The loop that expires questions does not run here at all."""
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=MINUTE)
        clock.advance(MINUTE)
        rig.say("1", reply_to=question)
        await rig.hs.until(rig.notices)
        assert (await pod.now(question)).status is Status.EXPIRED


async def test_10_a_wait_that_ends_leaves_the_question_open(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        for _ in range(3):
            async with pod.parts.broker.waiting(question, up_to_s=0.01) as seen:
                assert seen.status is Status.PENDING
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: now.status is Status.DECIDED)


async def test_12_and_13_an_answer_given_while_down_counts_and_the_room_holds_one_question(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending(**named("r1"))
    clock.advance(1_000)
    rig.hs.react(rig.room, rig.owner, str(question.event_id), "1\ufe0f\u20e3")
    clock.advance(2 * MINUTE)
    async with rig.run() as pod:
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.status is Status.DECIDED
        assert (await pod.ask(**named("r1"))).row == question.row
        await rig.hs.until(lambda: rig.outcomes(question))
    assert len(rig.questions()) == 1


async def test_14_an_old_answer_that_comes_again_is_ignored(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        await pod.quiet()
    rig.hs.forget_positions()
    clock.advance(24 * 60 * MINUTE)
    async with rig.run() as pod:
        newer = await pod.pending()
        await pod.quiet()
        assert (await pod.now(newer)).is_open
        assert rig.notices() == []


async def test_16_an_answer_in_a_gap_of_the_timeline_is_found(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    rig.say("3: not now")
    for number in range(120):
        rig.say(f"talk {number}", rig.mallory)
    async with rig.run() as pod:
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.comment == "not now"


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        ({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 700}, {}),
        ({"errcode": "M_LIMIT_EXCEEDED"}, {"Retry-After": "1"}),
        ({"errcode": "M_LIMIT_EXCEEDED"}, {}),
    ],
)
async def test_17_a_rate_limited_question_is_queued_and_sent_once_later(
    rig: Rig, clock: FakeClock, body: dict[str, object], headers: dict[str, str]
) -> None:
    rig.hs.answer_with("PUT", SEND, status=429, body=body, headers=headers)
    async with rig.run() as pod:
        question = await pod.ask()
        await rig.hs.until(lambda: rig.hs.count("PUT", SEND) == 1)
        await asyncio.sleep(0.05)
        assert (await pod.now(question)).status is Status.QUEUED
        clock.advance(10_000)
        pod.parts.outbox._bell.ring()
        await pod.when(question, lambda now: now.status is Status.PENDING)
    calls = [call.path for call in rig.hs.calls if call.method == "PUT" and "/send/" in call.path]
    assert len(calls) == 2
    assert calls[0] == calls[1]
    assert len(rig.questions()) == 1


@pytest.mark.parametrize(("status", "errcode"), [(403, "M_FORBIDDEN"), (404, "M_NOT_FOUND")])
async def test_18_a_question_that_is_refused_for_good_is_undeliverable_at_once(
    rig: Rig, status: int, errcode: str
) -> None:
    rig.hs.answer_with("PUT", SEND, status=status, body={"errcode": errcode})
    async with rig.run() as pod:
        question = await pod.ask()
        async with pod.parts.broker.waiting(question, up_to_s=20) as ended:
            assert ended.closing is not None
            assert ended.closing.outcome is Outcome.UNDELIVERABLE
            assert ended.closing.reason == errcode


async def test_18_a_question_that_failed_to_go_out_is_repeated_as_the_same_event(rig: Rig, clock: FakeClock) -> None:
    rig.hs.cut("PUT", SEND)
    rig.hs.answer_with("PUT", SEND, status=500, body={"errcode": "M_UNKNOWN"})
    async with rig.run() as pod:
        question = await pod.ask()
        for tries in (1, 2):
            await rig.hs.until(lambda tries=tries: rig.hs.count("PUT", SEND) == tries)
            await pod.when(question, lambda _, tries=tries: len(pod.meter.failures) == tries)
            assert (await pod.now(question)).status is Status.QUEUED
            clock.advance(5_000)
            pod.parts.outbox._bell.ring()
        await pod.when(question, lambda now: now.status is Status.PENDING)
    assert len({call.path for call in rig.hs.calls if call.method == "PUT"}) == 1
    assert len(rig.questions()) == 1


async def test_a_question_that_is_cancelled_after_a_lost_reply_is_never_shown_as_open(
    rig: Rig, clock: FakeClock
) -> None:
    """The same transaction id finds the event, should there be one; else what goes out is no question."""
    rig.hs.cut("PUT", SEND)
    async with rig.run() as pod:
        question = await pod.ask()
        await pod.when(question, lambda _: pod.meter.failures)
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        clock.advance(5_000)
        pod.parts.outbox._bell.ring()
        await pod.when(question, lambda now: now.event_id is not None)
        await pod.quiet()
    assert rig.questions() == []
    [first, *_] = rig.hs.sent_by(rig.pod)
    assert first["content"]["body"].startswith("No longer needed") or "allowed" not in first["content"]["body"][:40]


async def test_a_question_that_was_only_ever_rate_limited_and_is_cancelled_never_goes_out(
    rig: Rig, clock: FakeClock
) -> None:
    body = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 700}
    rig.hs.answer_with("PUT", SEND, status=429, body=body)
    async with rig.run() as pod:
        question = await pod.ask()
        await pod.when(question, lambda _: pod.meter.failures)
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        clock.advance(5_000)
        pod.parts.outbox._bell.ring()
        await pod.quiet()
    assert rig.hs.sent_by(rig.pod) == []


async def test_a_question_whose_reply_is_lost_is_pending_once_the_timeline_shows_it(rig: Rig, clock: FakeClock) -> None:
    rig.hs.swallow("PUT", SEND)
    async with rig.run() as pod:
        question = await pod.pending()  # seen in the timeline; no second try was made
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: now.status is Status.DECIDED)


async def test_20_identical_calls_are_one_question_and_the_caps_hold(rig: Rig) -> None:
    async with rig.run() as pod:
        rows = await asyncio.gather(*(pod.ask(**named("same")) for _ in range(20)))
        assert len({question.row for question in rows}) == 1
        for _ in range(9):
            await pod.ask()
        with pytest.raises(errors.TooManyPending) as caught:
            await pod.ask()
        assert caught.value.scope == "session"
        assert (await pod.ask(**named("same"))).row == rows[0].row
        for number in range(20):
            await pod.ask(session_id=SessionId(f"other{number}"))
        with pytest.raises(errors.TooManyPending) as caught:
            await pod.ask(session_id=SessionId("one more"))
        assert caught.value.scope == "token"


async def test_20_two_clients_with_one_request_id_have_two_requests(rig: Rig) -> None:
    ci = Caller(ClientName("ci"), frozenset({ROUTE}), frozenset({"native"}))
    async with rig.run() as pod:
        mine, theirs = await pod.ask(**named("r1")), await pod.ask(ci, **named("r1"))
        assert mine.row != theirs.row
        broker = pod.parts.broker
        assert (await broker.get(ci, RequestId("r1"))).row == theirs.row
        assert [
            q.row for q in (await broker.page(ci, status=None, session_id=None, limit=10, cursor=None)).questions
        ] == [theirs.row]
        await broker.cancel_all(ci)
        assert (await pod.now(mine)).is_open
        with pytest.raises(errors.NotFound):
            await broker.get(Caller(ClientName("x"), frozenset(), frozenset()), RequestId("r1"))


async def test_21_what_makes_asking_impossible_is_told_at_once_and_stores_nothing(rig: Rig) -> None:
    async with rig.run() as pod:
        pod.parts.world.trouble = lambda: "down"
        with pytest.raises(errors.Unavailable):
            await pod.ask()
        pod.parts.world.trouble = lambda: None
        rig.hs.leave(rig.room, rig.owner)
        rig.hs.leave(rig.room, rig.second)
        await rig.hs.until(lambda: (state := pod.parts.world.room(rig.room)) and rig.second not in state.joined)
        with pytest.raises(errors.ApproverNotInRoom):
            await pod.ask()
        rig.hs.join(rig.room, rig.owner)
        rig.hs.encrypt(rig.room, by=rig.owner)
        await rig.hs.until(lambda: (state := pod.parts.world.room(rig.room)) and state.encrypted)
        with pytest.raises(errors.RoomEncryptedWithoutCrypto):
            await pod.ask()
        page = await pod.parts.broker.page(CALLER, status=None, session_id=None, limit=10, cursor=None)
        assert page.questions == ()
        assert rig.questions() == []


async def test_21_a_bot_that_was_kicked_says_so(rig: Rig) -> None:
    async with rig.run() as pod:
        rig.hs.kick(rig.room, rig.pod, by=rig.owner)
        await rig.hs.until(lambda: not (state := pod.parts.world.room(rig.room)) or not state.bot_joined)
        with pytest.raises(errors.NotInRoom):
            await pod.ask()


async def test_nothing_goes_in_clear_into_a_room_that_became_encrypted(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await pod.handled(rig.hs.encrypt(rig.room, by=rig.owner))
        before = rig.hs.count("PUT", "/send/")
        clock.advance(1_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).is_open
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        await asyncio.sleep(0.1)
        assert rig.hs.count("PUT", "/send/") == before


async def test_22_somebody_who_is_no_approver_is_told_once_and_decides_nothing(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("1", rig.mallory, reply_to=question)
        rig.hs.react(rig.room, rig.mallory, str(question.event_id), "1\u20e3")
        await pod.handled(rig.say("Allow once", rig.mallory))
        await rig.hs.until(rig.notices)
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert len(rig.notices()) == 1
        assert "approved" not in rig.notices()[0].lower()
        assert (await pod.audited(question)).count("not_approver") == 3


async def test_24_a_display_name_is_no_id(rig: Rig, clock: FakeClock) -> None:
    upper = rig.hs.user("Owner")
    async with rig.run() as pod:
        question = await pod.pending()
        rig.hs.post(
            rig.room,
            rig.mallory,
            {"membership": "join", "displayname": rig.owner},
            kind="m.room.member",
            state_key=rig.mallory,
        )
        rig.hs.join(rig.room, upper)
        clock.advance(1_000)
        await pod.handled(rig.say("1", rig.mallory))
        await pod.handled(rig.say("1", upper))  # type: ignore[arg-type]  # a user id
        assert (await pod.now(question)).is_open


async def test_25_only_an_approvers_invitation_into_a_configured_room_is_followed(rig: Rig, clock: FakeClock) -> None:
    del clock
    waiting, strange = rig.hs.room(rig.owner, rig.mallory), rig.hs.room(rig.mallory)
    route = next(iter(rig.policy.routes.values()))
    rig.policy = replace(
        rig.policy,
        routes={ROUTE: route, RouteName("new"): replace(route, name=RouteName("new"), room_id=waiting)},  # type: ignore[arg-type]
    )
    async with rig.run() as pod:
        rig.hs.invite(strange, rig.pod, by=rig.mallory)
        rig.hs.invite(waiting, rig.pod, by=rig.mallory)
        rig.hs.invite(rig.hs.room(rig.owner), rig.pod, by=rig.owner)
        rig.hs.invite(waiting, rig.pod, by=rig.owner)
        await rig.hs.until(lambda: (state := pod.parts.world.room(waiting)) and state.bot_joined)  # type: ignore[arg-type]
    joins = [call.path for call in rig.hs.calls if "/join/" in call.path]
    assert joins == [f"/_matrix/client/v3/join/{waiting}"]


async def test_31_three_sessions_with_one_title_say_who_asks_and_what(rig: Rig) -> None:
    async with rig.run() as pod:
        for number in (1, 2, 3):
            await pod.pending(title="bash", session_id=SessionId(f"s{number}"), agent=f"agent{number}")
        for number, content in zip((1, 2, 3), rig.questions(), strict=True):
            assert f'"agent{number}"' in content["body"]
            assert f'"s{number}"' in content["body"]
            assert "bun test" in content["body"]


async def test_34_an_edit_is_never_an_answer(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        talk = rig.say("hmm")
        await pod.handled(rig.hs.edit(rig.room, rig.owner, talk, "1"))
        assert (await pod.now(question)).is_open
        refusal = rig.say("3")
        decided = await pod.when(question, lambda now: not now.is_open)
        await pod.handled(rig.hs.edit(rig.room, rig.owner, refusal, "1"))
        assert (await pod.now(question)).closing == decided.closing
        assert decided.closing is not None
        assert decided.closing.option is not None
        assert decided.closing.option.option == REJECT


async def test_38_a_second_answer_is_told_who_was_first(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        rig.say("3", rig.second, reply_to=question)
        await rig.hs.until(rig.notices)
        assert f"already answered by {rig.owner}: Allow once" in rig.notices()[0]


async def test_39_an_answer_that_cannot_be_read_is_asked_for_again(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        relation = {"m.in_reply_to": {"event_id": question.event_id}}
        content = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "m.relates_to": relation}
        rig.hs.post(rig.room, rig.owner, content, kind="m.room.encrypted")
        await rig.hs.until(rig.notices)
        assert (await pod.now(question)).is_open
        assert "undecryptable" in await pod.audited(question)


async def test_40_a_notice_is_never_an_answer_nor_answered(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        content = {"msgtype": "m.notice", "body": "1"}
        await pod.handled(rig.hs.post(rig.room, rig.owner, content))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert rig.notices() == []


async def test_41_a_cancelled_session_leaves_others_alone(rig: Rig) -> None:
    async with rig.run() as pod:
        shown = await pod.pending(session_id=SessionId("a"))
        other = await pod.pending(session_id=SessionId("b"))
        gate = asyncio.Event()
        rig.hs.hold("PUT", SEND, gate)
        sending = await pod.ask(session_id=SessionId("a"))
        await rig.hs.until(lambda: rig.hs.count("PUT", SEND) == 3)
        unsent = await pod.ask(session_id=SessionId("a"))
        cancelled = await pod.parts.broker.cancel_session(CALLER, SessionId("a"))
        assert set(cancelled) == {q.key.request_id for q in (shown, sending, unsent)}
        gate.set()
        await rig.hs.until(lambda: rig.outcomes(shown))
        sent = await pod.when(sending, lambda now: now.event_id is not None)
        await rig.hs.until(lambda: rig.outcomes(sent))
        await pod.quiet()
        assert (await pod.now(other)).is_open
        assert (await pod.now(unsent)).event_id is None
        assert len(rig.questions()) == 3


async def test_41_cancel_and_answer_at_once_have_one_winner(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        for _ in range(10):
            question = await pod.pending()
            clock.advance(40_000)
            rig.say("1", reply_to=question)
            try:
                ended = await pod.parts.broker.cancel(CALLER, question.key.request_id)
            except errors.RequestClosed:
                ended = await pod.now(question)
            stored = await pod.now(question)
            assert stored.closing == ended.closing
            await pod.quiet()


async def test_42_a_waiting_call_that_is_dropped_loses_nothing(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        waiting = asyncio.create_task(_outcome(pod, question))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pod.parts.waiters.open_waits() == 0
        clock.advance(1_000)
        rig.say("1")
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.delivered_at_ms is None
        async with pod.parts.broker.waiting(await pod.now(question), up_to_s=0) as seen:
            assert seen.status is Status.DECIDED
        assert (await pod.now(question)).delivered_at_ms is not None


async def test_43_answered_elsewhere_is_the_clients_claim_and_no_decision(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        claim = Claim("allow_once", rig.owner)
        ended = await pod.parts.broker.answered_elsewhere(CALLER, question.key.request_id, claim)
        assert ended.closing is not None
        assert ended.closing.option is None
        assert ended.closing.answered_by is None
        await rig.hs.until(lambda: rig.outcomes(question))
        [edit] = rig.outcomes(question)
        assert rig.owner not in edit["m.new_content"]["body"]
        assert "option_id" not in edit
        clock.advance(1_000)
        rig.say("1", rig.second, reply_to=question)
        await rig.hs.until(rig.notices)
        assert "already closed" in rig.notices()[0]


async def test_a_redacted_question_is_undeliverable(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        rig.hs.redact(rig.room, rig.owner, str(question.event_id))
        ended = await pod.when(question, lambda now: not now.is_open)
        assert ended.closing is not None
        assert (ended.closing.outcome, ended.closing.reason) == (Outcome.UNDELIVERABLE, "redacted")


async def test_one_edit_says_decision_and_delivery_where_a_call_waited(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        waiting = asyncio.create_task(_outcome(pod, question))
        await asyncio.sleep(0.05)
        clock.advance(1_000)
        rig.say("1")
        assert await waiting is Outcome.SELECTED
        await rig.hs.until(lambda: rig.outcomes(question))
        await pod.quiet()
        [edit] = rig.outcomes(question)
        assert "delivered" in edit["m.new_content"]["body"]


async def test_a_second_edit_tells_of_a_later_delivery(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(lambda: rig.outcomes(question))
        await pod.quiet()
        for _ in range(3):
            async with pod.parts.broker.waiting(await pod.now(question), up_to_s=0):
                pass
        await rig.hs.until(lambda: len(rig.outcomes(question)) == 2)
        await pod.quiet()
        first, second = rig.outcomes(question)
        assert "delivered" not in first["m.new_content"]["body"]
        assert "delivered" in second["m.new_content"]["body"]


async def test_keycaps_are_seeded_after_three_quiet_seconds_and_only_then(rig: Rig, clock: FakeClock) -> None:
    rig.with_reactions(Reactions.SEED)
    async with rig.run() as pod:
        question = await pod.pending(options=(ALLOW, REJECT))
        await pod.quiet()
        assert rig.hs.sent_by(rig.pod, kind="m.reaction") == []
        clock.advance(3_000)
        pod.parts.outbox._bell.ring()
        await rig.hs.until(lambda: len(rig.hs.sent_by(rig.pod, kind="m.reaction")) == 2)
        keys = [e["content"]["m.relates_to"]["key"] for e in rig.hs.sent_by(rig.pod, kind="m.reaction")]
        assert keys == ["1\ufe0f\u20e3", "2\ufe0f\u20e3"]
        await pod.quiet()
        assert (await pod.now(question)).is_open  # the bot's own keycaps answer nothing


async def test_no_keycaps_for_an_answered_question_nor_after_a_rate_limit(rig: Rig, clock: FakeClock) -> None:
    rig.with_reactions(Reactions.SEED)
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("1")
        await pod.when(question, lambda now: not now.is_open)
        clock.advance(5_000)
        pod.parts.outbox._bell.ring()
        await pod.quiet()
        body = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1}
        rig.hs.answer_with("PUT", SEND, status=429, body=body)
        limited = await pod.ask()
        await pod.when(limited, lambda _: pod.meter.failures)
        clock.advance(5_000)
        pod.parts.outbox._bell.ring()
        await pod.when(limited, lambda now: now.status is Status.PENDING)
        clock.advance(5_000)
        pod.parts.outbox._bell.ring()
        await pod.quiet()
        assert rig.hs.sent_by(rig.pod, kind="m.reaction") == []


async def test_what_is_open_is_listed_on_request(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending(title="Another")
        clock.advance(1_000)
        rig.say("!open")
        await rig.hs.until(rig.notices)
        assert all(code in rig.notices()[0] for code in (first.asked.code, second.asked.code))


async def test_a_wrong_answer_gets_one_hint_a_person(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        rig.say("7")
        await pod.handled(rig.say("1 but only for tests"))
        rig.say("8", rig.second)
        await rig.hs.until(lambda: len(rig.notices()) == 2)
        await pod.quiet()
        assert len(rig.notices()) == 2
        assert all("Nothing has been approved" in notice for notice in rig.notices())
        assert (await pod.now(question)).is_open


async def test_a_reason_behind_what_approves_is_told_so_also_to_whom_the_options_were_told(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("7"))
        await pod.handled(rig.say("1: only for tests"))
        await rig.hs.until(lambda: len(rig.notices()) == 2)
        reasoned = rig.notices()[1]
        assert reasoned.startswith("A reason can only follow an option that rejects")
        assert "Nothing has been approved. The options are:\n1. Allow once\n" in reasoned
        assert (await pod.audited(question))[-2:] == ["hint", "no_reason"]
        assert (await pod.now(question)).is_open


async def test_a_reply_to_a_notice_about_one_question_is_for_that_question(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending()
        clock.advance(1_000)
        rig.say("7", reply_to=first)
        await rig.hs.until(rig.notices)
        await pod.quiet()
        [hint] = [e for e in rig.hs.sent_by(rig.pod) if e["content"].get("msgtype") == "m.notice"]
        rig.say("1", reply_to=hint["event_id"])
        await pod.when(first, lambda now: now.status is Status.DECIDED)
        assert (await pod.now(second)).is_open


async def test_a_question_cannot_be_named_from_another_room(rig: Rig, clock: FakeClock) -> None:
    elsewhere = rig.hs.room(rig.pod, rig.owner)
    route = rig.policy.routes[ROUTE]
    other = replace(route, name=RouteName("other"), room_id=elsewhere, approvers=frozenset({rig.mallory, rig.owner}))  # type: ignore[arg-type]
    rig.policy = replace(rig.policy, routes={ROUTE: route, other.name: other})
    async with rig.run() as pod:
        question = await pod.pending(route=ROUTE)
        clock.advance(1_000)
        await pod.handled(rig.hs.say(elsewhere, rig.owner, "1", reply_to=str(question.event_id)))
        await pod.handled(rig.hs.react(elsewhere, rig.owner, str(question.event_id), "1\u20e3"))
        await pod.handled(rig.hs.say(elsewhere, rig.owner, f"1 {question.asked.code}"))
        assert (await pod.now(question)).is_open
        assert not [e for e in rig.hs.timeline(elsewhere) if e["sender"] == rig.pod and e["type"] == "m.room.message"]


async def test_progress_after_the_decision_is_shown_by_an_edit(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        with pytest.raises(errors.NotDecided):
            await pod.parts.broker.progress(CALLER, question.key.request_id, Progress(next_index=1))
        clock.advance(1_000)
        rig.say("1")
        await rig.hs.until(lambda: rig.outcomes(question))
        await pod.quiet()
        await pod.parts.broker.progress(CALLER, question.key.request_id, Progress(completed=(0,), status="EXECUTED"))
        await rig.hs.until(lambda: len(rig.outcomes(question)) == 2)
        edit = rig.outcomes(question)[-1]
        assert "EXECUTED" in edit["m.new_content"]["body"]
        assert edit["outcome"] == "selected"


async def test_an_event_that_breaks_us_is_set_aside_and_what_follows_counts(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = room_events.judge_said

    def breaks(said: object, scene: object) -> object:
        if said.body == "poison":  # type: ignore[attr-defined]  # a Said
            raise RuntimeError("a fault of ours")
        return judge(said, scene)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr(room_events, "judge_said", breaks)
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        poison = rig.say("poison")
        rig.say("1")

        def decided(now: Question) -> bool:
            clock.advance(10)  # each failure is waited for
            return now.status is Status.DECIDED

        await pod.when(question, decided)
        await pod.handled(poison)
