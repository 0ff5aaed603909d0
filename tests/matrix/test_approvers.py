"""Who approves, and how many: told against a real store, the real broker and a real Matrix client."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot import errors
from agentpod_bot.broker import votes as broker_votes
from agentpod_bot.core.ids import OptionId, SessionId, UserId
from agentpod_bot.core.model import Meaning, Option, Outcome, Question, Scope, Status
from tests.examples import ALLOW, ALWAYS, CALLER, MINUTE, NEVER, REJECT, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.matrix.rig import Pod

SEND = r"/send/m\.room\.message/"
WIDER = Option(OptionId("wider"), "Always allow everything", Meaning.APPROVE, Scope.ALWAYS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


@pytest.fixture
def two(rig: Rig) -> Rig:
    """A room whose route needs two people for always."""
    rig.with_route(quorum=2)
    return rig


def shown(rig: Rig, question: Question) -> list[str]:
    """The new bodies of a question's edits."""
    return [edit["m.new_content"]["body"] for edit in rig.outcomes(question)]


async def votes(pod: Pod, question: Question) -> dict[str, str]:
    stored = await pod.store.run(lambda tx: tx.votes(question.row))
    return {vote.sender: vote.option_id for vote in stored}


async def decided(pod: Pod, question: Question) -> Question:
    return await pod.when(question, lambda now: not now.is_open)


# Several people for always


async def test_two_people_are_needed_for_always_and_the_room_sees_how_it_stands(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await two.hs.until(lambda: two.outcomes(question))
        assert (await pod.now(question)).is_open
        [edit] = two.outcomes(question)
        assert edit["m.mentions"] == {}
        assert "suite_event_type" not in edit
        asked, new = two.questions()[0], edit["m.new_content"]
        line = f"1 of 2 votes for Always allow: {two.owner}"
        assert new["body"].replace(f"\n{line}", "") == asked["body"]
        assert new["formatted_body"].replace(f"<p>{line}</p>", "") == asked["formatted_body"]
        assert {**new, "body": "", "formatted_body": ""} == {**asked, "body": "", "formatted_body": ""}
        assert not re.search("approved|allowed", new["body"], re.IGNORECASE)
        clock.advance(1_000)
        two.say("2", two.second)
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.answered_by == two.second
        assert done.closing.voters == (two.owner, two.second)
        await two.hs.until(lambda: len(two.outcomes(question)) == 2)
        outcome = two.outcomes(question)[-1]
        assert outcome["decided_by"] == two.second
        assert f"Allowed always by {two.owner} and {two.second} at" in outcome["m.new_content"]["body"]
        assert await pod.audited(question) == ["asked", "shown", "voted", "voted", "selected"]


async def test_a_progress_edit_ends_nothing_and_the_edited_question_still_takes_answers(
    two: Rig, clock: FakeClock
) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await two.hs.until(lambda: two.outcomes(question))
        [edit] = [e for e in two.hs.sent_by(two.pod) if "m.new_content" in e["content"]]
        await pod.handled(edit["event_id"])
        now = await pod.now(question)
        assert (now.status, now.shown_closed_ts) == (Status.PENDING, None)
        two.say("3", two.second, reply_to=edit["event_id"])  # a reply to the edit is one to the question
        assert (await decided(pod, question)).status is Status.DECIDED


async def test_one_person_is_one_vote_however_often_and_in_whatever_form_they_give_it(
    two: Rig, clock: FakeClock
) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        structured = {
            "suite_event_type": "dev.agentpod.permission.answer.v2",
            "schema_version": 1,
            "request_id": question.key.request_id,
            "option_id": "allow_always",
            "msgtype": "m.text",
            "body": "Always allow",
        }
        for event_id in (
            two.say("2"),
            two.say("Always allow"),
            two.say(f"2 {question.asked.code}"),
            two.say("2", reply_to=question),
            two.hs.react(two.room, two.owner, str(question.event_id), "2\ufe0f\u20e3"),
            two.hs.post(two.room, two.owner, structured),
        ):
            await pod.handled(event_id)
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert (await pod.audited(question)).count("voted") == 6
        assert len(two.outcomes(question)) == 1  # nothing changed, so nothing is said again


async def test_people_who_approve_nothing_have_no_vote(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await pod.handled(two.say("2", two.mallory, reply_to=question))
        await pod.handled(two.hs.react(two.room, two.mallory, str(question.event_id), "2\ufe0f\u20e3"))
        await pod.handled(two.hs.react(two.room, two.pod, str(question.event_id), "2\ufe0f\u20e3"))
        assert (await pod.now(question)).is_open
        assert await votes(pod, question) == {two.owner: "allow_always"}


async def test_votes_survive_a_kill_between_them(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
    clock.advance(MINUTE)
    second = two.say("2", two.second)
    async with two.run() as pod:
        await pod.handled(second)
        done = await pod.now(question)
        assert done.closing is not None
        assert done.closing.voters == (two.owner, two.second)
        await two.hs.until(lambda: two.outcomes(question)[-1:] and "outcome" in two.outcomes(question)[-1])


async def test_a_vote_that_stood_when_the_question_expired_is_told_with_its_end(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        clock.advance(60 * MINUTE)
        await pod.parts.deadlines.expire()
        await two.hs.until(lambda: any("outcome" in edit for edit in two.outcomes(question)))
        [ended] = [edit for edit in two.outcomes(question) if "outcome" in edit]
        assert ended["outcome"] == "expired"
        assert " with only 1 of 2 votes for Always allow by then; nothing was allowed: " in ended["body"]


async def test_a_vote_that_is_read_again_after_a_kill_is_still_one(
    two: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the transaction that counts the vote: nothing of it is kept, and it is counted once."""
    async with two.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    first = two.say("2")
    real = broker_votes.show_again

    def dies(*args: Any) -> None:
        real(*args)
        raise errors.Unavailable("killed here")

    with monkeypatch.context() as patched:
        patched.setattr(broker_votes, "show_again", dies)
        async with two.run(outbox=False, caught_up=False) as pod:
            await asyncio.sleep(0.1)
            assert await votes(pod, question) == {}
    async with two.run() as pod:
        await pod.handled(first)
        assert await votes(pod, question) == {two.owner: "allow_always"}
        assert (await pod.audited(question)).count("voted") == 1
        assert (await pod.now(question)).is_open


async def test_a_vote_may_be_changed_and_votes_for_two_options_do_not_add_up(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending(options=(ALWAYS, WIDER, REJECT))
        clock.advance(1_000)
        await pod.handled(two.say("1"))
        await pod.handled(two.say("2", two.second))
        assert (await pod.now(question)).is_open
        await pod.quiet()
        assert f"1 of 2 votes for Always allow: {two.owner}\n" in shown(two, question)[-1]
        assert f"1 of 2 votes for Always allow everything: {two.second}\n" in shown(two, question)[-1]
        await pod.handled(two.say("2"))  # now both are for the second, and nobody is for the first
        done = await pod.now(question)
        assert done.closing is not None
        assert done.closing.option is not None
        assert done.closing.option.option == WIDER
        assert done.closing.voters == (two.second, two.owner)


async def test_a_changed_vote_leaves_the_other_option_with_none(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending(options=(ALWAYS, WIDER, REJECT))
        clock.advance(1_000)
        await pod.handled(two.say("1"))
        await pod.handled(two.say("2"))
        await pod.handled(two.say("1", two.second))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert await votes(pod, question) == {two.owner: "wider", two.second: "allow_always"}


async def test_a_voter_who_left_before_the_second_vote_does_not_count(two: Rig, clock: FakeClock) -> None:
    two.with_route(approvers=frozenset({two.owner, two.second, two.mallory}))
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await pod.handled(two.hs.leave(two.room, two.owner))
        await pod.handled(two.say("2", two.second))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert f"1 of 2 votes for Always allow: {two.second}\n" in shown(two, question)[-1]
        await pod.handled(two.say("2", two.mallory))
        done = await pod.now(question)
        assert done.closing is not None
        assert done.closing.voters == (two.second, two.mallory)


async def test_leaving_in_the_same_response_as_the_second_vote_is_leaving_before_it(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
    last = two.say("2", two.second)
    two.hs.leave(two.room, two.owner)
    async with two.run() as pod:
        await pod.handled(last)
        assert (await pod.now(question)).is_open


async def test_a_voter_who_is_no_approver_any_more_does_not_count(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        two.with_route(approvers=frozenset({two.second, two.mallory}))
        pod.parts.world.policy = two.policy
        await pod.handled(two.say("2", two.second))
        assert (await pod.now(question)).is_open


async def test_a_higher_quorum_after_a_reload_holds_for_open_questions(two: Rig, clock: FakeClock) -> None:
    two.with_route(approvers=frozenset({two.owner, two.second, two.mallory}))
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        two.with_route(quorum=3)
        pod.parts.world.policy = two.policy
        await pod.handled(two.say("2", two.second))
        assert (await pod.now(question)).is_open
        await pod.handled(two.say("2", two.mallory))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_a_lower_quorum_after_a_reload_decides_nothing_by_itself(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        two.with_route(quorum=1)
        pod.parts.world.policy = two.policy
        await pod.handled(two.say("hello", two.second))
        assert (await pod.now(question)).is_open


async def test_a_new_revision_starts_with_no_votes(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        first = await pod.pending(**named("r"))
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await pod.quiet()
        second = await pod.pending(**named("r"), title="Another", supersede=True)
        clock.advance(40_000)
        await pod.handled(two.say("2", two.second, reply_to=second))
        assert (await pod.now(second)).is_open
        assert await votes(pod, second) == {two.second: "allow_always"}
        closing = (await pod.now(first)).closing
        assert closing is not None
        assert closing.outcome is Outcome.SUPERSEDED


@pytest.mark.parametrize("rejection", ["3", "4", "Reject: no", "!reject"])
async def test_one_rejection_ends_it_whoever_voted(two: Rig, clock: FakeClock, rejection: str) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        two.say(f"{rejection} {question.asked.code}" if rejection == "!reject" else rejection, two.second)
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.option is not None
        assert done.closing.option.option.meaning is Meaning.REJECT
        assert (done.closing.answered_by, done.closing.voters) == (two.second, ())
        await pod.handled(two.say("2", two.second, reply_to=question))
        assert (await pod.now(question)).closing == done.closing


async def test_a_voter_may_reject_after_all(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        two.say("3")
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.option is not None
        assert done.closing.option.option == REJECT


async def test_allow_once_decides_at_once_also_after_a_vote(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        two.say("1")
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.option is not None
        assert (done.closing.option.option, done.closing.voters) == (ALLOW, ())


async def test_a_vote_whose_message_was_redacted_does_not_count(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        vote = two.hs.react(two.room, two.owner, str(question.event_id), "2\ufe0f\u20e3")
        await pod.handled(vote)
        await pod.quiet()
        await pod.handled(two.hs.redact(two.room, two.owner, vote))
        await pod.handled(two.say("2", two.second))
        await pod.quiet()
        assert (await pod.now(question)).is_open
        assert await votes(pod, question) == {two.second: "allow_always"}
        assert shown(two, question)[-1].count(two.owner) == 0
        assert "vote_withdrawn" in await pod.audited(question)


async def test_redacting_an_older_message_of_a_voter_takes_nothing_back(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        old = two.say("2")
        await pod.handled(old)
        await pod.handled(two.say("2"))
        await pod.handled(two.hs.redact(two.room, two.owner, old))
        await pod.handled(two.say("2", two.second))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_a_redaction_after_the_decision_changes_nothing(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        vote = two.say("2")
        await pod.handled(vote)
        two.say("2", two.second)
        done = await decided(pod, question)
        await pod.handled(two.hs.redact(two.room, two.owner, vote))
        assert (await pod.now(question)).closing == done.closing
        assert "vote_withdrawn" not in await pod.audited(question)


async def test_a_vote_after_the_deadline_is_late_and_counts_for_nothing(two: Rig, clock: FakeClock) -> None:
    async with two.run() as pod:
        question = await pod.pending(ttl_ms=MINUTE)
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        clock.advance(MINUTE)
        await pod.handled(two.say("2", two.second, reply_to=question))
        done = await pod.now(question)
        assert done.closing is not None
        assert done.closing.outcome is Outcome.EXPIRED
        await two.hs.until(two.notices)
        assert "too late" in two.notices()[0]
        assert await votes(pod, question) == {two.owner: "allow_always"}


async def test_a_progress_edit_that_waits_never_comes_after_the_outcome(two: Rig, clock: FakeClock) -> None:
    """It would make a closed question look open, with its buttons."""
    async with two.run() as pod:
        question = await pod.pending()
        await pod.quiet()
        two.hs.answer_with("PUT", SEND, status=500, body={"errcode": "M_UNKNOWN"})
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await two.hs.until(lambda: two.hs.count("PUT", SEND) == 2)
        await pod.handled(two.say("3", two.second))
        for _ in range(20):
            clock.advance(500)
            pod.parts.outbox._bell.ring()
            await asyncio.sleep(0.01)
        await pod.quiet()
        assert [edit.get("outcome") for edit in two.outcomes(question)] == ["selected"]


async def test_a_progress_edit_that_came_after_the_outcome_all_the_same_is_followed_by_another(
    two: Rig, clock: FakeClock
) -> None:
    async with two.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(two.say("2"))
        await two.hs.until(lambda: two.outcomes(question))
        late = two.outcomes(question)[0]
        two.say("3", two.second)
        await decided(pod, question)
        await pod.when(question, lambda now: now.shown_closed_ts is not None)
        await pod.quiet()
        await pod.handled(two.hs.post(two.room, two.pod, late))
        await two.hs.until(lambda: two.outcomes(question)[-1].get("outcome") == "selected")


async def test_votes_that_come_together_are_shown_by_one_edit(two: Rig, clock: FakeClock) -> None:
    two.with_route(quorum=3, approvers=frozenset({two.owner, two.second, two.mallory}))
    async with two.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    two.say("2")
    last = two.say("2", two.second)
    async with two.run() as pod:
        await pod.handled(last)
        await two.hs.until(lambda: two.outcomes(question))
        await pod.quiet()
        assert [body.count("2 of 3 votes") for body in shown(two, question)] == [1]


async def test_a_request_for_which_too_few_are_there_is_refused_at_once(two: Rig) -> None:
    two.hs.leave(two.room, two.second)
    async with two.run() as pod:
        with pytest.raises(errors.ApproverNotInRoom):
            await pod.ask()
        assert await pod.store.run(lambda tx: tx.open_questions()) == ()
        await pod.pending(options=(ALLOW, REJECT))
        assert len(two.questions()) == 1


async def test_another_bots_progress_edit_does_not_end_its_question_for_us(rig: Rig, clock: FakeClock) -> None:
    """A bare answer to the other question must not decide ours."""
    async with rig.run() as pod:
        question = await pod.pending()
        theirs = {**rig.questions()[0], "code": "Q9"}
        foreign = rig.hs.post(rig.room, rig.mallory, theirs)
        await pod.handled(foreign)
        relation = {"rel_type": "m.replace", "event_id": foreign}
        edit = {"msgtype": "m.text", "body": "* 1 of 2 votes", "m.new_content": theirs, "m.relates_to": relation}
        await pod.handled(rig.hs.post(rig.room, rig.mallory, edit))
        clock.advance(40_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).is_open
        edit["m.new_content"] = {"msgtype": "m.text", "body": "Allowed once"}
        await pod.handled(rig.hs.post(rig.room, rig.mallory, edit))
        clock.advance(40_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).status is Status.DECIDED


# Not by who asked


async def test_the_requester_may_reject_but_not_approve(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(not_requester=True)
    caller = replace(CALLER, requester=rig.owner)
    async with rig.run() as pod:
        first, second, third = [await pod.pending(caller) for _ in range(3)]
        clock.advance(1_000)
        await pod.handled(rig.say("1", reply_to=first))
        await pod.handled(rig.hs.react(rig.room, rig.owner, str(first.event_id), "2\ufe0f\u20e3"))
        await pod.handled(rig.say(f"always allow {first.asked.code}"))
        assert (await pod.now(first)).is_open
        await rig.hs.until(rig.notices)
        await pod.quiet()
        [notice] = rig.notices()
        assert "another approver has to approve it. Nothing has been approved." in notice
        assert (await pod.audited(first)).count("requester") == 3
        await pod.handled(rig.say("3", reply_to=second))
        await pod.handled(rig.say(f"!reject {third.asked.code}"))
        await pod.handled(rig.say("1", rig.second, reply_to=first))
        for question in (first, second, third):
            assert (await pod.now(question)).status is Status.DECIDED
        closing = (await pod.now(first)).closing
        assert closing is not None
        assert closing.answered_by == rig.second


async def test_a_reload_does_not_change_who_asked(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(not_requester=True)
    async with rig.run() as pod:
        question = await pod.pending(replace(CALLER, requester=rig.owner), **named("r"))
        again = await pod.ask(replace(CALLER, requester=rig.second), **named("r"))
        assert (again.row, again.asked.requester) == (question.row, rig.owner)
    async with rig.run() as pod:
        clock.advance(1_000)
        await pod.handled(rig.say("1"))
        assert (await pod.now(question)).is_open
        await pod.handled(rig.say("1", rig.second))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_the_requesters_vote_does_not_count_either(two: Rig, clock: FakeClock) -> None:
    two.with_route(approvers=frozenset({two.owner, two.second, two.mallory}))
    async with two.run() as pod:
        question = await pod.pending(replace(CALLER, requester=two.owner))
        clock.advance(1_000)
        await pod.handled(two.say("2"))  # they may still, and then the rules change
        two.with_route(not_requester=True)
        pod.parts.world.policy = two.policy
        await pod.handled(two.say("2", two.second))
        assert (await pod.now(question)).is_open
        await pod.handled(two.say("2", two.mallory))
        done = (await pod.now(question)).closing
        assert done is not None
        assert done.voters == (two.second, two.mallory)


# Power levels


@pytest.fixture
def levelled(rig: Rig) -> Rig:
    """A room in which members with power level 50 approve too."""
    rig.with_route(approvers=frozenset({rig.owner}), approver_level=50)
    return rig


async def test_a_member_with_the_power_answers_and_is_not_mentioned(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    rig.hs.power(rig.room, by=rig.owner, users={rig.owner: 100, rig.second: 50, rig.mallory: 49})
    async with rig.run() as pod:
        question = await pod.pending()
        assert rig.questions()[0]["m.mentions"] == {"user_ids": [rig.owner]}
        clock.advance(1_000)
        await pod.handled(rig.say("1", rig.mallory, reply_to=question))
        assert (await pod.now(question)).is_open
        await pod.handled(rig.say("1", rig.second))
        closing = (await pod.now(question)).closing
        assert closing is not None
        assert closing.answered_by == rig.second


@pytest.mark.parametrize("level", ["50", 50.0, True, None])
async def test_a_level_that_is_no_number_is_no_power(levelled: Rig, clock: FakeClock, level: Any) -> None:
    rig = levelled
    rig.hs.power(rig.room, by=rig.owner, users={rig.second: level})
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("1", rig.second, reply_to=question))
        assert (await pod.now(question)).is_open


async def test_power_that_is_given_or_taken_counts_from_then_on(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("1", rig.second, reply_to=first))
        assert (await pod.now(first)).is_open
        await pod.handled(rig.hs.power(rig.room, by=rig.owner, users={rig.second: 50}))
        await pod.handled(rig.say("1", rig.second, reply_to=first))
        assert (await pod.now(first)).status is Status.DECIDED
        await pod.handled(rig.hs.power(rig.room, by=rig.owner, users={rig.owner: 100}))
        await pod.handled(rig.say("1", rig.second, reply_to=second))
        assert (await pod.now(second)).is_open


async def test_power_that_was_taken_in_the_same_response_decides_nothing(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    rig.hs.power(rig.room, by=rig.owner, users={rig.second: 50})
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    answer = rig.say("1", rig.second)
    rig.hs.power(rig.room, by=rig.owner, users={rig.second: 0})
    async with rig.run() as pod:
        await pod.handled(answer)
        assert (await pod.now(question)).is_open


def given(rig: Rig, person: UserId, *, before: dict[str, Any] | None) -> str:
    """Give somebody the power, as a homeserver tells it: with the levels that stood before."""
    unsigned = {} if before is None else {"prev_content": before}
    return rig.hs.post(
        rig.room, rig.owner, {"users": {person: 50}}, kind="m.room.power_levels", state_key="", unsigned=unsigned
    )


@pytest.mark.parametrize("before", [{"users": {}}, None])
async def test_power_that_was_given_after_an_answer_does_not_make_it_one(
    levelled: Rig, clock: FakeClock, before: dict[str, Any] | None
) -> None:
    """Both came while the bot was away: at the start it knows of the power before it reads the answer."""
    rig = levelled
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    answer = rig.say("1", rig.second, reply_to=question)
    given(rig, rig.second, before=before)
    async with rig.run() as pod:
        await pod.handled(answer)
        assert (await pod.now(question)).is_open
        await pod.handled(rig.say("1", rig.second, reply_to=question))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_power_that_was_there_before_an_answer_and_after_it_makes_it_one(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    given(rig, rig.second, before={"users": {}})
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    answer = rig.say("1", rig.second, reply_to=question)
    given(rig, rig.second, before={"users": {rig.second: 50}})
    async with rig.run() as pod:
        await pod.handled(answer)
        assert (await pod.now(question)).status is Status.DECIDED


async def test_the_creators_of_a_room_of_version_12_outrank_every_level(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    rig.hs.create(rig.room, by=rig.second, version="12", additional_creators=[rig.mallory])
    rig.hs.power(rig.room, by=rig.second, users={})
    async with rig.run() as pod:
        for creator in (rig.second, rig.mallory):
            question = await pod.pending()
            clock.advance(40_000)
            await pod.handled(rig.say("1", creator, reply_to=question))
            assert (await pod.now(question)).status is Status.DECIDED


async def test_the_creator_of_an_older_room_has_the_level_that_it_says(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    rig.hs.create(rig.room, by=rig.second, version="11")
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.hs.power(rig.room, by=rig.second, users={rig.owner: 100}))
        await pod.handled(rig.say("1", rig.second, reply_to=question))
        assert (await pod.now(question)).is_open
    rig.hs.power(rig.room, by=rig.second, users={rig.second: 100})
    async with rig.run() as pod:
        await pod.handled(rig.say("1", rig.second, reply_to=question))
        assert (await pod.now(question)).status is Status.DECIDED


@pytest.mark.parametrize("kind", ["power_levels", "create"])
async def test_while_the_levels_are_not_known_only_the_list_counts(levelled: Rig, clock: FakeClock, kind: str) -> None:
    rig = levelled
    rig.hs.create(rig.room, by=rig.second)
    rig.hs.power(rig.room, by=rig.owner, users={rig.second: 50})
    async with rig.run() as pod:
        question = await pod.pending()
        while not pod.parts.world.powerless():  # a sync meanwhile makes it read once more
            rig.hs.answer_with("GET", rf"/state/m\.room\.{kind}", status=500, body={"errcode": "M_UNKNOWN"})
            await pod.parts.world.refresh(rig.room)
        clock.advance(1_000)
        await pod.handled(rig.say("1", rig.second, reply_to=question))
        assert (await pod.now(question)).is_open
        assert pod.parts.world.powerless() == {rig.room}
        await pod.parts.rooms.settle()  # asked again
        assert pod.parts.world.powerless() == frozenset()
        await pod.handled(rig.say("1", rig.second, reply_to=question))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_power_may_make_up_a_quorum_and_is_looked_at_when_it_is_reached(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    rig.with_route(quorum=2)
    rig.hs.power(rig.room, by=rig.owner, users={rig.second: 50})
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("2", rig.second))
        await pod.handled(rig.hs.power(rig.room, by=rig.owner, users={}))
        await pod.handled(rig.say("2"))
        assert (await pod.now(question)).is_open
        await pod.handled(rig.hs.power(rig.room, by=rig.owner, users={rig.second: 50}))
        await pod.handled(rig.say("2"))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_an_agent_with_every_power_approves_nothing(levelled: Rig, clock: FakeClock) -> None:
    rig = levelled
    agent = UserId(rig.hs.user("agent"))
    rig.hs.join(rig.room, agent)
    rig.policy = replace(rig.policy, agents=frozenset({agent}))
    rig.hs.create(rig.room, by=agent)
    rig.hs.power(rig.room, by=agent, users={}, users_default=100)
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("1", agent, reply_to=question))
        await pod.handled(rig.hs.react(rig.room, rig.pod, str(question.event_id), "1\ufe0f\u20e3"))
        assert (await pod.now(question)).is_open
        assert rig.notices() == []


# Several rejected at once


async def test_several_questions_are_rejected_by_their_codes_and_the_rest_stays(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second, third = [await pod.pending(session_id=SessionId(f"s{n}")) for n in range(3)]
        never = await pod.pending(options=(ALLOW, NEVER))
        clock.advance(1_000)
        codes = " ".join(question.asked.code for question in (first, second, never))
        await pod.handled(rig.say(f"!reject {codes}: too early", reply_to=third))
        for question, option in ((first, REJECT), (second, REJECT), (never, NEVER)):
            closing = (await pod.now(question)).closing
            assert closing is not None
            assert closing.option is not None
            assert (closing.option.option, closing.comment) == (option, "too early")
            assert closing.answered_by == rig.owner
        assert (await pod.now(third)).is_open
        await pod.quiet()
        assert rig.notices() == []


async def test_what_was_not_rejected_is_told_in_one_notice(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        lapsed = await pod.pending(ttl_ms=1_000)
        done, open_one = await pod.pending(), await pod.pending()
        clock.advance(500)
        await pod.handled(rig.say("1", reply_to=done))
        clock.advance(1_000)
        await pod.handled(rig.say(f"!reject {lapsed.asked.code} {done.asked.code} Z8Z {open_one.asked.code}"))
        await rig.hs.until(rig.notices)
        await pod.quiet()
        [notice] = rig.notices()
        assert notice.startswith("Not rejected by your message. Nothing has been approved.")
        assert "expired at" in notice
        assert "already answered by" in notice
        assert '"Z8Z": no question' in notice
        assert open_one.asked.code not in notice
        assert (await pod.now(open_one)).status is Status.DECIDED
        assert "not_rejected_closed" in await pod.audited(done)


async def test_a_rejection_without_codes_rejects_nothing_and_lists_what_could_be(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        await pod.handled(rig.say("!reject", reply_to=question))
        await rig.hs.until(rig.notices)
        assert rig.notices()[0].startswith("Nothing was rejected.")
        assert question.asked.code in rig.notices()[0]
        assert (await pod.now(question)).is_open


async def test_nobody_but_an_approver_rejects_several(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        first, second = await pod.pending(), await pod.pending()
        clock.advance(1_000)
        for _ in range(2):
            await pod.handled(rig.say(f"!reject {first.asked.code} {second.asked.code}", rig.mallory))
        await rig.hs.until(rig.notices)
        await pod.quiet()
        [notice] = rig.notices()
        assert "not an approver" in notice
        assert (await pod.now(first)).is_open
        assert (await pod.now(second)).is_open
