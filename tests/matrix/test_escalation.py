"""A question that nobody answers is asked in a second room: told against a real store and a real Matrix client."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, time
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.broker import escalation
from agentpod_bot.core.ids import Code, OptionId, RoomId, RouteName, UserId
from agentpod_bot.core.model import Attachment, Meaning, Option, Outcome, Question, Status, TextPreview
from agentpod_bot.core.policy import Escalation, Reactions
from agentpod_bot.core.quiet import QuietHours
from tests.examples import ALLOW, CALLER, MINUTE, REJECT, ROUTE
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import LEADS, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.matrix.rig import Pod

SEND = r"/send/m\.room\.message/"
NOON = int(datetime(2026, 11, 7, 12, tzinfo=UTC).timestamp()) * 1000
LONG = (TextPreview("Command", "echo ok; " + "a" * 5_000 + "; rm -rf ~/work"),)
SECRET = "ghp_" + "a1B2" * 9


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        rig.with_second_route(after_ms=10 * MINUTE)
        yield rig


async def escalated(pod: Pod, clock: FakeClock, **changes: Any) -> Question:
    """A question that nobody answered for ten minutes, shown in both rooms."""
    question = await pod.pending(**changes)
    clock.advance(10 * MINUTE)
    await pod.parts.deadlines.escalate()
    question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
    clock.advance(1_000)
    return question


def copy_id(question: Question) -> str:
    """The event of a question's copy."""
    assert question.copy is not None
    assert question.copy.event_id is not None
    return question.copy.event_id


def edits(rig: Rig, event_id: str | None) -> list[dict[str, Any]]:
    """Contents of the edits of one event."""
    contents = [event["content"] for event in rig.hs.sent_by(rig.pod)]
    relation = {"rel_type": "m.replace", "event_id": event_id}
    return [content for content in contents if content.get("m.relates_to") == relation]


def outcomes(rig: Rig, event_id: str | None) -> list[dict[str, Any]]:
    """Those of them that close it."""
    return [edit for edit in edits(rig, event_id) if "suite_event_type" in edit]


def notices(rig: Rig, room_id: str) -> list[str]:
    contents = [event["content"] for event in rig.sent(room_id)]
    return [content["body"] for content in contents if content.get("msgtype") == "m.notice"]


async def decided(pod: Pod, question: Question) -> Question:
    return await pod.when(question, lambda now: not now.is_open)


# The copy


async def test_the_copy_is_the_same_question_for_the_approvers_of_the_second_route(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        [first], [second] = rig.questions(rig.room), rig.questions(rig.leads)
        assert second["m.mentions"] == {"user_ids": [rig.lead]}
        line = "Also asked on route ops since 12:00 UTC, where nobody had answered; one answer is for both."
        assert line not in first["body"]
        assert second["body"].replace(f"\n{line}", "") == first["body"]
        html = second["formatted_body"].replace(f"<br>{line}", "").replace(f"<p>{line}</p>", "")
        assert html == first["formatted_body"]
        bare = {"m.mentions": {}, "body": "", "formatted_body": ""}
        assert second | bare == first | bare
        assert question.status is Status.PENDING
        assert await pod.audited(question) == ["asked", "shown", "escalated", "copy_shown"]


async def test_the_first_copy_says_so_and_asks_what_it_asked(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        await rig.hs.until(lambda: edits(rig, question.event_id))
        [edit], [asked] = edits(rig, question.event_id), rig.questions(rig.room)
        assert edit["m.mentions"] == {}
        assert "suite_event_type" not in edit
        line = "Also asked on route leads at 12:10 UTC, for nobody had answered."
        new = edit["m.new_content"]
        assert new["body"].replace(f"\n{line}", "") == asked["body"]
        assert new["formatted_body"].replace(f"<p>{line}</p>", "") == asked["formatted_body"]
        assert {**new, "body": "", "formatted_body": ""} == {**asked, "body": "", "formatted_body": ""}
        assert not re.search("approved|allowed", new["body"], re.IGNORECASE)
        await pod.quiet()
        assert edits(rig, copy_id(question)) == []


async def test_it_is_asked_there_when_its_time_has_come_and_not_before_and_once(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(10 * MINUTE - 1)
        await pod.parts.deadlines.escalate()
        assert (await pod.now(question)).copy is None
        clock.advance(1)
        for _ in range(3):
            await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        await pod.parts.deadlines.escalate()
        await pod.quiet()
        assert len(rig.questions(rig.leads)) == 1


async def test_the_loop_of_deadlines_hears_of_a_new_question_and_asks_it_again_in_time(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_second_route(after_ms=30)
    async with rig.run() as pod:
        loop = asyncio.create_task(pod.parts.deadlines.run())
        await asyncio.sleep(0)
        question = await pod.pending()
        clock.advance(30)
        try:
            await pod.when(question, lambda now: now.copy is not None)
        finally:
            loop.cancel()


@pytest.mark.parametrize("ttl_min", [10, 5])
async def test_what_ends_before_that_or_is_answered_is_asked_in_one_room_only(
    rig: Rig, clock: FakeClock, ttl_min: int
) -> None:
    async with rig.run() as pod:
        await pod.pending(ttl_ms=ttl_min * MINUTE)
        answered = await pod.pending()
        clock.advance(1_000)
        rig.say("3", reply_to=answered)
        await decided(pod, answered)
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        await pod.parts.deadlines.expire()
        await pod.quiet()
        assert rig.questions(rig.leads) == []


# Answers


async def test_an_answer_in_the_second_room_decides_and_both_rooms_see_it(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        rig.hs.say(rig.leads, rig.lead, "1")
        done = await decided(pod, question)
        assert done.closing is not None
        assert (done.closing.outcome, done.closing.answered_by) == (Outcome.SELECTED, rig.lead)
        assert (done.asked.room_id, done.asked.route, done.event_id) == (rig.room, ROUTE, question.event_id)
        await rig.hs.until(lambda: outcomes(rig, question.event_id) and outcomes(rig, copy_id(question)))
        [here], [there] = outcomes(rig, question.event_id), outcomes(rig, copy_id(question))
        assert {**here, "m.relates_to": {}} == {**there, "m.relates_to": {}}
        assert (here["outcome"], here["decided_by"]) == ("selected", rig.lead)


async def test_an_answer_in_the_first_room_decides_for_both_too(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        rig.say("3: not now")
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.comment == "not now"
        await rig.hs.until(lambda: outcomes(rig, question.event_id) and outcomes(rig, copy_id(question)))


@pytest.mark.parametrize("how", ["reply", "thread", "code", "reaction", "structured"])
async def test_the_copy_takes_answers_in_every_form(rig: Rig, clock: FakeClock, how: str) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        event_id = copy_id(question)
        match how:
            case "reply":
                rig.hs.say(rig.leads, rig.lead, "1", reply_to=event_id)
            case "thread":
                relation = {"rel_type": "m.thread", "event_id": event_id}
                rig.hs.post(rig.leads, rig.lead, {"msgtype": "m.text", "body": "1", "m.relates_to": relation})
            case "code":
                rig.hs.say(rig.leads, rig.lead, f"1 {question.asked.code}")
            case "reaction":
                rig.hs.react(rig.leads, rig.lead, event_id, "1\ufe0f\u20e3")
            case _:
                structured = {
                    "suite_event_type": "dev.agentpod.permission.answer.v2",
                    "schema_version": 1,
                    "request_id": question.key.request_id,
                    "option_id": "allow_once",
                    "subject": {"digest": question.asked.digest, "revision": 1},
                    "m.relates_to": {"rel_type": "m.reference", "event_id": event_id},
                    "msgtype": "m.text",
                    "body": "Allow once",
                }
                rig.hs.post(rig.leads, rig.lead, structured)
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.answered_by == rig.lead


async def test_in_each_room_only_the_approvers_of_its_own_route_count(rig: Rig, clock: FakeClock) -> None:
    rig.hs.join(rig.room, rig.lead)
    rig.hs.join(rig.leads, rig.owner)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        for event_id in (
            rig.say("1", rig.lead),
            rig.say("1", rig.lead, reply_to=question),
            rig.say("1", rig.lead, reply_to=copy_id(question)),
            rig.hs.react(rig.room, rig.lead, str(question.event_id), "1\ufe0f\u20e3"),
            rig.hs.react(rig.room, rig.owner, copy_id(question), "1\ufe0f\u20e3"),
            rig.hs.say(rig.leads, rig.owner, "1", reply_to=copy_id(question)),
            rig.hs.say(rig.leads, rig.owner, f"1 {question.asked.code}"),
            rig.hs.say(rig.leads, rig.owner, "1", reply_to=question.event_id),
            rig.hs.say(rig.leads, rig.lead, "1", reply_to=question.event_id),
        ):
            await pod.handled(event_id)
        assert (await pod.now(question)).is_open


async def test_the_first_answer_wins_and_the_other_is_told_in_its_own_room(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
    clock.advance(1_000)
    rig.say("3")
    rig.hs.say(rig.leads, rig.lead, "1")
    async with rig.run() as pod:
        done = await decided(pod, question)
        assert done.closing is not None
        winner = done.closing.answered_by
        await rig.hs.until(lambda: notices(rig, rig.room) or notices(rig, rig.leads))
        await pod.quiet()
        [told] = notices(rig, rig.leads if winner == rig.owner else rig.room)
        assert f"already answered by {winner}" in told
        assert len(outcomes(rig, question.event_id)) == len(outcomes(rig, copy_id(question))) == 1


async def test_an_expired_question_is_shown_so_in_both_rooms_and_late_answers_are_told(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        clock.advance(20 * MINUTE)
        await pod.parts.deadlines.expire()
        await rig.hs.until(lambda: outcomes(rig, question.event_id) and outcomes(rig, copy_id(question)))
        clock.advance(1_000)
        rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
        await rig.hs.until(lambda: notices(rig, rig.leads))
        assert "too late, expired" in notices(rig, rig.leads)[0]
        assert (await pod.now(question)).status is Status.EXPIRED


async def test_a_decision_that_was_fetched_is_shown_as_delivered_in_both_rooms(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        rig.hs.say(rig.leads, rig.lead, "1")
        done = await decided(pod, question)
        await rig.hs.until(lambda: outcomes(rig, question.event_id) and outcomes(rig, copy_id(question)))
        async with pod.parts.broker.waiting(done, up_to_s=0):
            pass
        both = (question.event_id, copy_id(question))
        await rig.hs.until(lambda: all(len(outcomes(rig, event_id)) == 2 for event_id in both))
        for event_id in both:
            assert "delivered" in outcomes(rig, event_id)[-1]["m.new_content"]["body"]


# Bare answers, codes, commands


async def test_a_bare_answer_in_the_second_room_counts_for_the_copy_only_if_nothing_else_is_open_there(
    rig: Rig, clock: FakeClock
) -> None:
    caller = replace(CALLER, routes=frozenset({LEADS}))
    async with rig.run() as pod:
        other = await pod.pending(caller)
        question = await escalated(pod, clock)
        rig.hs.say(rig.leads, rig.lead, "1")
        await rig.hs.until(lambda: notices(rig, rig.leads))
        [which] = notices(rig, rig.leads)
        assert question.asked.code in which
        assert other.asked.code in which
        assert (await pod.now(other)).is_open
        assert (await pod.now(question)).is_open


async def test_a_bare_answer_that_is_older_than_the_copy_is_not_for_it(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        at = question.copy.shown_ts if question.copy else None
        assert at is not None
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", ts=at - 1))
        assert (await pod.now(question)).is_open


async def test_a_code_that_the_second_room_has_already_needs_the_event_to_be_named(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        theirs = {
            "msgtype": "m.text",
            "body": "?",
            "suite_event_type": "dev.agentpod.permission.v2",
            "code": question.asked.code,
            "subject": {"expires_at": "2026-11-07T13:00:00.000Z"},
        }
        await pod.handled(rig.hs.post(rig.leads, rig.mallory, theirs))
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        clock.advance(1_000)
        await pod.handled(rig.hs.say(rig.leads, rig.lead, f"1 {question.asked.code}"))
        await pod.handled(rig.hs.say(rig.leads, rig.lead, f"!reject {question.asked.code}"))
        assert (await pod.now(question)).is_open
        rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_a_code_that_another_account_had_there_shortly_before_needs_the_event_to_be_named(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        theirs = {
            "msgtype": "m.text",
            "body": "?",
            "suite_event_type": "dev.agentpod.permission.v2",
            "code": question.asked.code,
            "subject": {"expires_at": "2026-11-07T12:06:00.000Z"},
        }
        await pod.handled(asked := rig.hs.post(rig.leads, rig.mallory, theirs))
        clock.advance(9 * MINUTE - 5_000)
        await pod.handled(rig.hs.edit(rig.leads, rig.mallory, asked, "Expired"))
        clock.advance(MINUTE + 5_000)
        await pod.parts.deadlines.escalate()
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        clock.advance(1_000)
        # Meant for the other account's question, sent before the copy came, and late on its way.
        late = rig.hs.say(rig.leads, rig.lead, f"1 {question.asked.code}", ts=clock.now_ms() - 30_000)
        await pod.handled(late)
        assert (await pod.now(question)).is_open
        rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
        assert (await decided(pod, question)).status is Status.DECIDED


@pytest.mark.parametrize("closed", [True, False])
async def test_a_code_that_two_of_ours_have_in_a_room_decides_neither(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, closed: bool
) -> None:
    monkeypatch.setattr("agentpod_bot.broker.submit.fresh_code", lambda *_args, **_more: Code("K7"))
    caller = replace(CALLER, routes=frozenset({LEADS}))
    async with rig.run() as pod:
        other = await pod.pending(caller, ttl_ms=60 * MINUTE)
        if closed:
            await pod.parts.broker.cancel(caller, other.key.request_id)
            await rig.hs.until(lambda: outcomes(rig, other.event_id))
        question = await escalated(pod, clock)
        for text in ("1 K7", "K7: 1", "!reject K7"):
            await pod.handled(rig.hs.say(rig.leads, rig.lead, text))
        assert (await pod.now(question)).is_open
        assert (await pod.now(other)).is_open is not closed
        rig.say("1 K7")  # in the first room it is one question's alone
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_codes_of_rooms_that_questions_may_come_to_differ(rig: Rig) -> None:
    caller = replace(CALLER, routes=frozenset({LEADS}))
    limits = replace(rig.policy.limits, max_pending_per_session=200, max_pending_per_token=200)
    routes = {name: replace(route, max_pending=200) for name, route in rig.policy.routes.items()}
    rig.policy = replace(rig.policy, limits=limits, routes=routes)
    async with rig.run(outbox=False) as pod:
        codes = [(await pod.ask(one)).asked.code for one in (CALLER, caller) * 40]
        assert len(set(codes)) == len(codes)


async def test_the_commands_of_the_second_room_know_the_copy(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        rig.hs.say(rig.leads, rig.lead, "!open")
        await rig.hs.until(lambda: notices(rig, rig.leads))
        assert question.asked.code in notices(rig, rig.leads)[0]
        assert "%24" in notices(rig, rig.leads)[0]
        rig.hs.say(rig.leads, rig.lead, f"!reject {question.asked.code}: too early")
        done = await decided(pod, question)
        assert done.closing is not None
        assert (done.closing.answered_by, done.closing.comment) == (rig.lead, "too early")


# What the second room needs


@pytest.mark.parametrize("why", ["not_in_room", "room_encrypted_without_crypto", "approver_not_in_room"])
async def test_where_it_cannot_be_asked_now_it_is_tried_again(rig: Rig, clock: FakeClock, why: str) -> None:
    match why:
        case "not_in_room":
            rig.hs.kick(rig.leads, rig.pod, by=rig.lead)
        case "room_encrypted_without_crypto":
            rig.hs.encrypt(rig.leads, by=rig.lead)
        case _:
            rig.hs.leave(rig.leads, rig.lead)
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        assert list(pod.parts.escalations.waiting.values()) == [why]
        await pod.parts.deadlines.escalate()
        await pod.quiet()
        assert (await pod.now(question)).copy is None
        assert rig.questions(rig.leads) == []
        if why == "approver_not_in_room":
            rig.hs.join(rig.leads, rig.lead)
            world = pod.parts.world
            await rig.hs.until(lambda: (room := world.room(rig.leads)) is not None and rig.lead in room.joined)
            await pod.parts.deadlines.escalate()
            await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
            assert not pod.parts.escalations.waiting


async def test_a_quorum_that_is_not_there_keeps_it_from_being_asked(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, quorum=2)
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        assert list(pod.parts.escalations.waiting.values()) == ["approver_not_in_room"]
        assert (await pod.now(question)).copy is None


async def test_the_cap_of_the_second_route_and_the_clients_own_routes_do_not_matter(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, max_pending=1, harnesses=frozenset({"other"}))
    async with rig.run() as pod:
        assert LEADS not in CALLER.routes
        first, second = await pod.pending(), await pod.pending()
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        for question in (first, second):
            await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)


async def test_a_copy_that_the_homeserver_refuses_leaves_the_question_where_it_was(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(10 * MINUTE)
        path = rf"/rooms/{re.escape(rig.leads)}/send/|/rooms/{re.escape(rig.leads.replace('!', '%21'))}/send/"
        fault = rig.hs.answer_with("PUT", path, status=403, body={"errcode": "M_FORBIDDEN"})
        await pod.parts.deadlines.escalate()
        await fault.hit.wait()
        await pod.when(question, lambda now: now.copy is not None and now.copy.withdrawn_at_ms is not None)
        await pod.parts.deadlines.escalate()
        await pod.quiet()
        assert rig.questions(rig.leads) == []
        assert (await pod.audited(question))[-2:] == ["escalated", "copy_refused"]
        await rig.hs.until(lambda: edits(rig, question.event_id))
        [edit] = edits(rig, question.event_id)
        line = "Could not be asked on route leads at 12:10 UTC: the homeserver refused it there. It is asked only here."
        assert line in edit["m.new_content"]["body"]
        assert edit["m.new_content"]["options"] == rig.questions(rig.room)[0]["options"]
        clock.advance(1_000)
        rig.say("1")
        assert (await decided(pod, question)).status is Status.DECIDED


# Each room by the rules of its own route


async def test_votes_count_in_the_room_in_which_they_were_given(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quorum=2)
    rig.with_second_route(after_ms=10 * MINUTE, quorum=2)
    chief = UserId(rig.hs.user("chief"))
    rig.hs.join(rig.leads, chief)
    leads = replace(rig.policy.routes[LEADS], approvers=frozenset({rig.lead, chief}))
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: leads})
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        await pod.handled(rig.say("2"))
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "2"))
        assert (await pod.now(question)).is_open  # one of two in each
        await rig.hs.until(lambda: edits(rig, copy_id(question)))
        assert f"1 of 2 votes for Always allow: {rig.lead}" in edits(rig, copy_id(question))[0]["m.new_content"]["body"]
        rig.hs.say(rig.leads, chief, "2")
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.voters == (rig.lead, chief)


async def test_one_person_who_may_answer_in_both_rooms_has_one_vote(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quorum=2)
    rig.with_second_route(after_ms=10 * MINUTE, quorum=2)
    rig.hs.join(rig.leads, rig.owner)
    leads = replace(rig.policy.routes[LEADS], approvers=frozenset({rig.lead, rig.owner}))
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: leads})
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        await pod.handled(rig.say("2"))
        await pod.handled(rig.hs.say(rig.leads, rig.owner, "2"))  # moves it
        await pod.handled(rig.say("2", rig.second))
        assert (await pod.now(question)).is_open
        rig.hs.say(rig.leads, rig.lead, "2")
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_a_vote_that_is_redacted_in_the_second_room_counts_no_longer(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, quorum=2)
    rig.hs.join(rig.leads, rig.owner)
    leads = replace(rig.policy.routes[LEADS], approvers=frozenset({rig.lead, rig.owner}))
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: leads})
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        vote = rig.hs.say(rig.leads, rig.lead, "2")
        await pod.handled(vote)
        await pod.handled(rig.hs.redact(rig.leads, rig.lead, vote))
        await pod.handled(rig.hs.say(rig.leads, rig.owner, "2"))
        assert (await pod.now(question)).is_open


async def test_whom_the_second_route_bars_from_approving_may_not_there(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, not_requester=True)
    rig.hs.join(rig.leads, rig.owner)
    leads = replace(rig.policy.routes[LEADS], approvers=frozenset({rig.lead, rig.owner}))
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: leads})
    async with rig.run() as pod:
        question = await pod.pending(replace(CALLER, requester=rig.owner))
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        clock.advance(1_000)
        await pod.handled(rig.hs.say(rig.leads, rig.owner, "1", reply_to=copy_id(question)))
        assert (await pod.now(question)).is_open
        rig.say("1")  # the first route bars nobody
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_whom_the_questions_own_route_bars_from_approving_may_not_in_the_second_room_either(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_route(not_requester=True)
    rig.with_second_route(after_ms=10 * MINUTE)
    rig.hs.join(rig.leads, rig.second)
    leads = replace(rig.policy.routes[LEADS], approvers=frozenset({rig.lead, rig.second}))
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: leads})
    async with rig.run() as pod:
        question = await escalated(pod, clock, caller=replace(CALLER, requester=rig.second))
        await pod.handled(rig.hs.say(rig.leads, rig.second, "1", reply_to=copy_id(question)))
        assert (await pod.now(question)).is_open
        await rig.hs.until(lambda: notices(rig, rig.leads))
        assert "was asked for you" in notices(rig, rig.leads)[0]
        rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
        assert (await decided(pod, question)).status is Status.DECIDED


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
async def test_what_either_route_masks_the_second_room_does_not_see(
    rig: Rig, clock: FakeClock, *, first: bool, second: bool
) -> None:
    rig.with_route(mask_secrets=first)
    rig.with_second_route(after_ms=10 * MINUTE, mask_secrets=second)
    async with rig.run() as pod:
        question = await escalated(pod, clock, title=f"Push with {SECRET}")
        rig.hs.say(rig.leads, rig.lead, "1 but")
        rig.hs.say(rig.leads, rig.lead, "1")
        await decided(pod, question)
        await rig.hs.until(lambda: outcomes(rig, copy_id(question)))
        assert SECRET not in str(rig.sent(rig.leads))
        assert (SECRET in str(rig.sent(rig.room))) is not first


async def test_a_secret_in_the_option_that_was_taken_in_the_first_room_is_masked_in_the_second(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_route(mask_secrets=False)
    options = (ALLOW, Option(OptionId("push"), f"Push with {SECRET}", Meaning.CHOOSE, None), REJECT)
    async with rig.run() as pod:
        question = await escalated(pod, clock, options=options)
        rig.say("2", reply_to=question)
        await decided(pod, question)
        clock.advance(1_000)
        rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
        await rig.hs.until(lambda: notices(rig, rig.leads) and outcomes(rig, copy_id(question)))
        assert "already answered" in notices(rig, rig.leads)[0]
        assert SECRET in str(rig.sent(rig.room))
        assert SECRET not in str(rig.sent(rig.leads))


async def test_without_masks_on_both_routes_both_rooms_see_all(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(mask_secrets=False)
    rig.with_second_route(after_ms=10 * MINUTE, mask_secrets=False)
    async with rig.run() as pod:
        await escalated(pod, clock, title=f"Push with {SECRET}")
        assert SECRET in str(rig.questions(rig.leads))


async def test_the_copy_keeps_to_the_quiet_hours_of_its_own_route(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, quiet=QuietHours(time(12), time(12, 20), UTC))
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        assert rig.questions(rig.room)[0]["m.mentions"]["user_ids"] != []
        assert rig.questions(rig.leads)[0]["m.mentions"] == {"user_ids": []}
        clock.advance(10 * MINUTE)
        pod.parts.outbox._bell.ring()
        await rig.hs.until(rig.reminders)
        [told] = rig.reminders()
        assert told["m.relates_to"]["event_id"] == copy_id(question)
        assert told["m.mentions"] == {"user_ids": [rig.lead]}


async def test_each_room_has_the_reminder_of_its_own_route(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(remind_before_ms=5 * MINUTE)
    rig.with_second_route(after_ms=10 * MINUTE, remind_before_ms=8 * MINUTE)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        clock.advance(16 * MINUTE)
        pod.parts.outbox._bell.ring()
        await rig.hs.until(lambda: len(rig.reminders()) == 2)
        mentioned = {r["m.relates_to"]["event_id"]: r["m.mentions"]["user_ids"] for r in rig.reminders()}
        assert mentioned == {
            question.event_id: sorted([rig.owner, rig.second]),
            copy_id(question): [rig.lead],
        }
        [reminder] = [e for e in rig.sent(rig.leads) if e["content"] in rig.reminders()]
        rig.hs.say(rig.leads, rig.lead, "1", reply_to=reminder["event_id"])
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_keycaps_are_offered_as_the_second_route_wants_it(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, reactions=Reactions.SEED)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        clock.advance(3_000)
        pod.parts.outbox._bell.ring()
        await rig.hs.until(lambda: len(rig.hs.sent_by(rig.pod, kind="m.reaction")) == 4)
        targets = {e["content"]["m.relates_to"]["event_id"] for e in rig.hs.sent_by(rig.pod, kind="m.reaction")}
        assert targets == {copy_id(question)}


# The file of a question that is cut


@pytest.mark.parametrize("masked", [True, False])
async def test_what_is_cut_has_its_file_in_the_second_room_too_and_is_approved_there_only_with_it(
    rig: Rig, clock: FakeClock, *, masked: bool
) -> None:
    rig.with_route(mask_secrets=masked)
    async with rig.run() as pod:
        question = await pod.pending(preview=(*LONG, TextPreview("Token", SECRET)))
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.event_id is not None)
        await pod.when(question, lambda now: now.copy is not None and now.copy.attachment is Attachment.SHOWN)
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        [there] = [e["content"] for e in rig.sent(rig.leads) if e["content"].get("msgtype") == "m.file"]
        assert there["m.relates_to"]["event_id"] == copy_id(question)
        name, _, content = rig.hs.files[there["url"]]
        assert name == f"{question.asked.code}.txt"
        assert "rm -rf ~/work" in content.decode()
        assert SECRET not in content.decode()
        assert len(rig.hs.files) == (1 if masked else 2)
        clock.advance(1_000)
        rig.hs.say(rig.leads, rig.lead, "1")
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_before_its_file_is_in_the_second_room_nothing_is_approved_there(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending(preview=LONG)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.attachment is Attachment.SHOWN)
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)

        def unshown(tx: Any) -> None:
            tx.attach_copy(question.row, Attachment.UPLOADED)

        await pod.store.run(unshown)  # as it is between the two events
        clock.advance(1_000)
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question)))
        await rig.hs.until(lambda: notices(rig, rig.leads))
        assert "is not in the room yet" in notices(rig, rig.leads)[0]
        assert (await pod.now(question)).is_open
        rig.say("1", reply_to=question)  # in the first room it is
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_where_the_second_rooms_own_file_cannot_be_uploaded_the_copy_is_tried_again(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_route(mask_secrets=False)
    async with rig.run() as pod:
        question = await pod.pending(preview=(*LONG, TextPreview("Token", SECRET)))
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        clock.advance(10 * MINUTE)
        fault = rig.hs.answer_with("POST", "/media/v3/upload", status=403, body={"errcode": "M_FORBIDDEN"})
        await pod.parts.deadlines.escalate()
        await fault.hit.wait()
        await pod.when(question, lambda now: now.copy is None)
        assert rig.questions(rig.leads) == []
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.attachment is Attachment.SHOWN)
        assert len(rig.questions(rig.leads)) == 1


async def test_a_file_that_was_redacted_in_the_second_room_is_not_there(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending(preview=LONG)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.attachment is Attachment.SHOWN)
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        [file] = [e for e in rig.sent(rig.leads) if e["content"].get("msgtype") == "m.file"]
        clock.advance(1_000)
        await pod.handled(rig.hs.redact(rig.leads, rig.lead, file["event_id"]))
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question)))
        assert (await pod.now(question)).is_open
        rig.say("1", reply_to=question)  # the first room has its own
        assert (await decided(pod, question)).status is Status.DECIDED


# Redactions


async def test_a_redacted_copy_takes_no_answers_and_the_question_stays_open_in_its_own_room(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        await pod.handled(rig.hs.redact(rig.leads, rig.lead, copy_id(question)))
        clock.advance(60_000)
        for event_id in (
            rig.hs.say(rig.leads, rig.lead, "1"),
            rig.hs.say(rig.leads, rig.lead, f"1 {question.asked.code}"),
            rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question)),
            rig.hs.react(rig.leads, rig.lead, copy_id(question), "1\ufe0f\u20e3"),
            rig.hs.say(rig.leads, rig.lead, f"!reject {question.asked.code}"),
        ):
            await pod.handled(event_id)
        assert (await pod.now(question)).status is Status.PENDING
        await pod.quiet()
        assert "it could not be kept in this room" in notices(rig, rig.leads)[0]
        await pod.parts.deadlines.escalate()
        await pod.quiet()
        assert len(rig.sent(rig.leads)) == 1 + len(notices(rig, rig.leads))  # never asked there again
        rig.say("1")
        assert (await decided(pod, question)).status is Status.DECIDED
        await rig.hs.until(lambda: outcomes(rig, question.event_id))
        assert outcomes(rig, copy_id(question)) == []


async def test_a_redacted_original_is_over_in_both_rooms(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        await pod.handled(rig.hs.redact(rig.room, rig.owner, str(question.event_id)))
        assert (await pod.now(question)).status is Status.UNDELIVERABLE
        await rig.hs.until(lambda: outcomes(rig, copy_id(question)))
        assert outcomes(rig, question.event_id) == []
        clock.advance(1_000)
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question)))
        assert (await pod.now(question)).status is Status.UNDELIVERABLE


# Restarts


async def test_killed_before_the_copy_was_sent_it_is_asked_once(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(10 * MINUTE)
    async with rig.run(outbox=False) as pod:
        await pod.parts.deadlines.escalate()
        assert (await pod.now(question)).copy is not None
    fault = rig.hs.swallow("PUT", SEND)  # it is in the room, and nobody was told
    async with rig.run(caught_up=False) as pod:
        await fault.hit.wait()
    async with rig.run() as pod:
        await pod.parts.deadlines.escalate()
        question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        await pod.quiet()
        assert len(rig.questions(rig.leads)) == 1
        clock.advance(1_000)
        rig.hs.say(rig.leads, rig.lead, "1")
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_killed_in_the_transaction_that_escalates_it_is_asked_once_afterwards(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(10 * MINUTE)

        def dies(*_args: Any, **_more: Any) -> None:
            raise RuntimeError("killed here")

        with monkeypatch.context() as patched:
            patched.setattr(escalation, "audit", dies)
            with pytest.raises(RuntimeError, match="killed here"):
                await pod.parts.deadlines.escalate()
        assert (await pod.now(question)).copy is None
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
        assert len(rig.questions(rig.leads)) == 1


async def test_an_answer_to_the_copy_that_was_given_while_nobody_listened_counts(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
    rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
    clock.advance(MINUTE)
    async with rig.run() as pod:
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.answered_by == rig.lead
        await rig.hs.until(lambda: outcomes(rig, question.event_id) and outcomes(rig, copy_id(question)))


async def test_an_answer_to_a_copy_whose_id_was_never_told_counts_too(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(10 * MINUTE)
    async with rig.run(outbox=False) as pod:
        await pod.parts.deadlines.escalate()
    fault = rig.hs.swallow("PUT", SEND)
    async with rig.run(caught_up=False) as pod:
        await fault.hit.wait()
    clock.advance(1_000)
    rig.hs.say(rig.leads, rig.lead, "1")
    async with rig.run(outbox=False) as pod:
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_closed_before_the_copy_was_sent_the_second_room_never_hears_of_it(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(10 * MINUTE)
    async with rig.run(outbox=False) as pod:
        await pod.parts.deadlines.escalate()
        rig.say("1")
        await decided(pod, question)
    async with rig.run() as pod:
        await rig.hs.until(lambda: outcomes(rig, question.event_id))
        await pod.quiet()
    assert rig.sent(rig.leads) == []


async def test_a_route_that_goes_from_the_configuration_decides_nothing_more(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        first = replace(rig.policy.routes[ROUTE], escalation=None)
        pod.parts.world.policy = replace(rig.policy, routes={ROUTE: first})
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question)))
        assert (await pod.now(question)).is_open
        rig.say("1")
        assert (await decided(pod, question)).status is Status.DECIDED
        await rig.hs.until(lambda: outcomes(rig, copy_id(question)))


@pytest.mark.parametrize("how", ["reply", "bare", "reaction", "command"])
@pytest.mark.parametrize("gone", ["first", "second", "escalation"])
async def test_in_whatever_form_they_answer_a_copy_that_is_out_of_force_people_are_told_that(
    rig: Rig, clock: FakeClock, how: str, gone: str
) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        routes = dict(rig.policy.routes)
        routes[ROUTE] = replace(routes[ROUTE], escalation=None)
        others = replace(routes[LEADS], name=RouteName("others"))  # so that they still approve something in the room
        routes[others.name] = others
        if gone != "escalation":
            del routes[ROUTE if gone == "first" else LEADS]
        pod.parts.world.policy = replace(rig.policy, routes=routes)
        match how:
            case "reply":
                rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question))
            case "bare":
                rig.hs.say(rig.leads, rig.lead, "1")
            case "reaction":
                rig.hs.react(rig.leads, rig.lead, copy_id(question), "1\ufe0f\u20e3")
            case _:
                rig.hs.say(rig.leads, rig.lead, f"!reject {question.asked.code}: no")
        await rig.hs.until(lambda: notices(rig, rig.leads))
        [told] = notices(rig, rig.leads)
        assert "cannot be answered in this room any more" in told
        assert ("in the room in which it was asked first" in told) is (gone != "first" and how != "command")
        assert (await pod.now(question)).is_open


@pytest.mark.parametrize("taken_out", ["escalation", "route"])
async def test_a_second_route_that_the_first_one_no_longer_asks_decides_nothing_more(
    rig: Rig, clock: FakeClock, taken_out: str
) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, remind_before_ms=5 * MINUTE)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        routes = {LEADS: rig.policy.routes[LEADS]}
        if taken_out == "escalation":
            routes[ROUTE] = replace(rig.policy.routes[ROUTE], escalation=None)
        pod.parts.world.policy = replace(rig.policy, routes=routes)
        for text in ("1", "3"):
            await pod.handled(rig.hs.say(rig.leads, rig.lead, text, reply_to=copy_id(question)))
        assert (await pod.now(question)).is_open
        await rig.hs.until(lambda: notices(rig, rig.leads))
        [told] = notices(rig, rig.leads)
        assert told.startswith("The configuration was changed")
        assert "cannot be answered in this room any more. Nothing has been approved." in told
        assert ("in the room in which it was asked first" in told) is (taken_out == "escalation")
        clock.advance(16 * MINUTE)
        pod.parts.outbox._bell.ring()
        await rig.hs.until(rig.reminders)
        assert rig.reminders()[0]["m.mentions"] == {"user_ids": []}


async def test_where_another_route_is_asked_next_since_a_reload_the_copy_says_why_and_the_first_room_decides(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        other = replace(rig.policy.routes[LEADS], name=RouteName("others"), room_id=RoomId(rig.hs.room(rig.pod)))
        first = replace(rig.policy.routes[ROUTE], escalation=Escalation(10 * MINUTE, other.name))
        routes = {**rig.policy.routes, ROUTE: first, other.name: other}
        pod.parts.world.policy = replace(rig.policy, routes=routes)
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", reply_to=copy_id(question)))
        await rig.hs.until(lambda: notices(rig, rig.leads))
        assert notices(rig, rig.leads)[0].startswith("The configuration was changed")
        assert "not_asked_here" in await pod.audited(question)
        assert (await pod.now(question)).is_open
        rig.say("1", reply_to=question)
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_two_routes_that_come_to_mean_one_room_ask_once_there(rig: Rig, clock: FakeClock) -> None:
    leads = replace(rig.policy.routes[LEADS], room_id=rig.room)
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: leads})
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        assert (await pod.now(question)).copy is None
        assert len(rig.questions()) == 1
