"""A room that was upgraded, and a route that follows: told against a real store and a real Matrix client."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from agentpod_bot import errors
from agentpod_bot.core.ids import OptionId, RoomId
from agentpod_bot.core.model import Attachment, Meaning, Option, Outcome, Question, Scope, Status, TextPreview
from agentpod_bot.core.upgrades import NotFollowed
from tests.examples import ALLOW, CALLER, MINUTE, REJECT, ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import LEADS, Pod, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SOON_MS = 5_000
ALWAYS = Option(OptionId("allow_always"), "Always allow", Meaning.APPROVE, Scope.ALWAYS)
LONG = (TextPreview("Command", "echo ok; " + "a" * 5_000 + "; rm -rf ~/work"),)
BOTH = replace(CALLER, routes=frozenset({ROUTE, LEADS}))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        rig.with_route(follow_upgrades=True)
        yield rig


def closed(pod: Pod) -> dict[str, str]:
    return dict(pod.parts.rooms.closed.now())


def lives_in(pod: Pod) -> str:
    return pod.parts.world.policy.routes[ROUTE].room_id


def why(pod: Pod) -> str:
    return pod.parts.world.policy.routes[ROUTE].not_followed


async def followed(pod: Pod, new: str) -> None:
    """Return once the route lives in a room, while time goes on."""
    async with asyncio.timeout(20):
        while lives_in(pod) != new:
            pod.clock.advance(SOON_MS)
            pod.parts.rooms._bell.ring()
            await asyncio.sleep(0.02)


async def refused(rig: Rig, pod: Pod, reason: NotFollowed) -> None:
    """Return once the route does not follow for this reason, of which everybody can hear."""
    await rig.hs.until(lambda: why(pod) == reason.said)
    assert closed(pod) == {ROUTE: errors.RoomReplaced.code}
    with pytest.raises(errors.RoomReplaced, match=reason.said):
        await pod.ask()


async def moved(rig: Rig, pod: Pod, question: Question, clock: FakeClock, *members: str, **how: Any) -> Question:
    """The question as the new room shows it, after an upgrade that everybody follows."""
    new = rig.hs.upgrade(rig.room, rig.second, *members, by=rig.owner, **how)
    now = await pod.when(question, lambda now: now.asked.room_id == new and now.shown_ts is not None)
    clock.advance(1_000)
    return now


async def decided(pod: Pod, question: Question) -> Question:
    return await pod.when(question, lambda now: not now.is_open)


def notices(rig: Rig, room_id: str) -> list[str]:
    contents = [event["content"] for event in rig.sent(room_id)]
    return [content["body"] for content in contents if content.get("msgtype") == "m.notice"]


# Following


async def test_what_is_open_is_asked_again_in_the_new_room_once_and_answered_there(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        waiting = asyncio.create_task(_end(pod, question))
        now = await moved(rig, pod, question, clock)
        assert (now.row, now.key, now.asked.code, now.asked.digest) == (
            question.row,
            question.key,
            question.asked.code,
            question.asked.digest,
        )
        assert now.status is Status.PENDING
        [first], [again] = rig.questions(rig.room), rig.questions(now.asked.room_id)
        assert {**again, "body": "", "formatted_body": ""} == {**first, "body": "", "formatted_body": ""}
        assert "Asked again, for its first room was replaced by this one." in again["body"]
        rig.hs.say(now.asked.room_id, rig.owner, "1")
        done = await decided(pod, question)
        assert done.closing is not None
        assert (done.closing.outcome, done.closing.answered_by) == (Outcome.SELECTED, rig.owner)
        assert await waiting is Outcome.SELECTED
        await rig.hs.until(lambda: rig.outcomes(now))
        await pod.quiet()
        assert len(rig.questions()) == 2
        assert await pod.audited(question) == [
            "asked",
            "shown",
            "left_room",
            "asked_again",
            "shown",
            "selected",
            "delivered",
        ]


async def _end(pod: Pod, question: Question) -> Outcome | None:
    async with pod.parts.broker.waiting(question, up_to_s=None) as ended:
        return None if ended.closing is None else ended.closing.outcome


async def test_the_route_is_open_there_and_says_so_in_the_room_and_in_the_log(rig: Rig) -> None:
    async with rig.run() as pod:
        with capture_logs() as lines:
            new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
            await followed(pod, new)
            question = await pod.pending()
        assert (question.asked.room_id, closed(pod)) == (new, {})
        [line] = [line for line in lines if line["event"] == "upgrade_followed"]
        assert (line["route"], line["room_id"], line["asked_again"]) == (ROUTE, new, 0)
        await pod.quiet()
        [notice] = notices(rig, new)
        assert notice.startswith("This room replaces the one in which questions of route ops were asked.")
        audited = await pod.store.run(lambda tx: tx.head().seq)
        assert audited >= 2


async def test_a_route_that_does_not_want_it_does_not_follow(rig: Rig) -> None:
    rig.with_route(follow_upgrades=False)
    async with rig.run() as pod:
        question = await pod.pending()
        rig.hs.upgrade(rig.room, rig.second, rig.pod, by=rig.owner)
        await rig.hs.until(lambda: closed(pod) == {ROUTE: errors.RoomReplaced.code})
        await pod.parts.rooms.settle()
        assert lives_in(pod) == rig.room
        rig.say("1", reply_to=question)
        await decided(pod, question)


async def test_it_joins_over_the_server_of_whoever_upgraded(rig: Rig) -> None:
    async with rig.run() as pod:
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        await followed(pod, new)
        [join] = [call for call in rig.hs.calls if call.path.endswith(f"/join/{new}")]
        assert join.query["via"] == "hs.example"


async def test_the_following_survives_a_restart_while_the_configuration_names_the_old_room(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock)
    async with rig.run() as pod:
        assert lives_in(pod) == now.asked.room_id
        assert closed(pod) == {}
        rig.hs.say(now.asked.room_id, rig.owner, "3")
        await decided(pod, question)
        await pod.quiet()
        assert len(rig.questions()) == 2


async def test_an_upgrade_while_the_bot_was_down_is_followed_and_answers_before_it_count(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        answered, left = await pod.pending(), await pod.pending()
    clock.advance(1_000)
    rig.say("1", reply_to=answered)
    new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
    clock.advance(1_000)
    rig.say("1", reply_to=left)
    async with rig.run() as pod:
        done = await decided(pod, answered)
        assert done.closing is not None
        assert done.closing.outcome is Outcome.SELECTED
        assert done.asked.room_id == rig.room
        now = await pod.when(left, lambda now: now.asked.room_id == new and now.shown_ts is not None)
        assert now.is_open


async def test_killed_between_going_and_saying_so_it_asks_again_once(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    clock.advance(1_000)
    async with rig.run(outbox=False) as pod:
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        await followed(pod, new)
        assert (await pod.now(question)).status is Status.QUEUED
        assert rig.questions(new) == []
    clock.advance(1_000)
    async with rig.run() as pod:
        now = await pod.when(question, lambda now: now.shown_ts is not None)
        await pod.quiet()
        assert (len(rig.questions(new)), now.asked.room_id) == (1, new)
        clock.advance(1_000)
        rig.hs.say(new, rig.owner, "1")
        await decided(pod, question)


async def test_a_tombstone_of_long_ago_is_followed_by_a_new_store(rig: Rig, clock: FakeClock) -> None:
    new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
    clock.advance(3 * 60 * MINUTE)
    for number in range(60):
        rig.say(f"hello {number}", rig.mallory)
    async with rig.run() as pod:
        await followed(pod, new)
        await pod.pending()


async def test_a_reload_keeps_a_route_where_it_went_and_brings_back_one_that_follows_no_more(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock)
        pod.parts.world.policy = rig.policy
        assert lives_in(pod) == now.asked.room_id
        rig.with_route(follow_upgrades=False)
        pod.parts.world.policy = rig.policy
        assert (lives_in(pod), closed(pod)) == (rig.room, {ROUTE: errors.RoomReplaced.code})
        await pod.handled(rig.hs.say(now.asked.room_id, rig.owner, "1", reply_to=now.event_id))
        assert (await pod.now(question)).is_open


async def test_a_chain_of_upgrades_is_followed_to_its_end(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        middle = rig.hs.upgrade(rig.room, by=rig.owner)
        last = rig.hs.upgrade(middle, rig.second, by=rig.owner)
        await followed(pod, last)
        await pod.when(question, lambda now: now.asked.room_id == last and now.shown_ts is not None)
        assert rig.questions(middle) == []
        third = rig.hs.upgrade(last, rig.second, by=rig.owner)
        await followed(pod, third)
        await pod.when(question, lambda now: now.asked.room_id == third and now.shown_ts is not None)
    async with rig.run() as pod:
        assert lives_in(pod) == third


async def test_upgrades_in_a_circle_are_not_followed(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        await followed(pod, new)
        await pod.when(question, lambda now: now.asked.room_id == new)
        rig.hs.replace(new, by=rig.owner, replacement=rig.room)
        await refused(rig, pod, NotFollowed.CYCLE)
        assert (await pod.now(question)).asked.room_id == new


async def test_questions_in_the_old_room_are_asked_again_where_the_configuration_was_quicker(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    new = RoomId(rig.hs.upgrade(rig.room, rig.second, rig.pod, by=rig.owner))
    rig.with_route(room_id=new)
    async with rig.run() as pod:
        now = await pod.when(question, lambda now: now.asked.room_id == new and now.shown_ts is not None)
        clock.advance(1_000)
        rig.hs.say(new, rig.owner, "1", reply_to=now.event_id)
        await decided(pod, question)


# Conditions


async def test_a_new_room_that_names_another_predecessor_is_not_followed(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        with capture_logs() as lines:
            rig.hs.upgrade(rig.room, rig.second, by=rig.owner, predecessor="!other")
            await refused(rig, pod, NotFollowed.PREDECESSOR)
        [line] = [line for line in lines if line["event"] == "upgrade_not_followed"]
        assert (line["route"], line["why"]) == (ROUTE, "predecessor_differs")
        assert (await pod.now(question)).asked.room_id == rig.room


async def test_it_follows_once_enough_approvers_are_there(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quorum=2, approvers=frozenset({rig.owner, rig.second}))
    async with rig.run() as pod:
        question = await pod.pending()
        new = rig.hs.upgrade(rig.room, rig.mallory, by=rig.owner)
        await refused(rig, pod, NotFollowed.APPROVERS)
        assert rig.questions(new) == []
        clock.advance(SOON_MS)
        rig.hs.join(new, rig.second)
        await followed(pod, new)
        await pod.when(question, lambda now: now.shown_ts is not None and now.asked.room_id == new)


async def test_a_room_into_which_it_may_not_join_waits_for_an_approvers_invitation(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        new = rig.hs.upgrade(rig.room, rig.second, rig.mallory, by=rig.owner, is_open=False)
        await refused(rig, pod, NotFollowed.NOT_JOINED)
        joins = rig.hs.count("POST", "/join/")
        rig.hs.invite(new, rig.pod, by=rig.mallory)
        await pod.handled(rig.say("unrelated", rig.mallory))
        assert rig.hs.count("POST", "/join/") == joins
        rig.hs.kick(new, rig.pod, by=rig.mallory)
        clock.advance(SOON_MS)
        rig.hs.invite(new, rig.pod, by=rig.owner)
        await followed(pod, new)


async def test_however_much_is_said_in_the_rooms_they_are_looked_at_at_a_bounded_rate(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        rig.hs.upgrade(rig.room, by=rig.owner, is_open=False)
        await refused(rig, pod, NotFollowed.NOT_JOINED)
        tries = rig.hs.count("POST", "/join/")
        for _ in range(5):
            await pod.handled(rig.say("hello"))
        assert rig.hs.count("POST", "/join/") == tries
        clock.advance(SOON_MS)
        for _ in range(5):
            await pod.handled(rig.say("hello"))
        await rig.hs.until(lambda: rig.hs.count("POST", "/join/") > tries)
        for _ in range(5):
            await pod.handled(rig.say("hello"))
        assert rig.hs.count("POST", "/join/") == tries + 1


async def test_an_encrypted_room_is_never_left_for_a_clear_one(rig: Rig) -> None:
    async with rig.run() as pod:
        rig.hs.encrypt(rig.room, by=rig.owner)
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        await refused(rig, pod, NotFollowed.ENCRYPTION_LOST)
        assert rig.sent(new) == []


async def test_a_clear_room_is_not_left_for_one_in_which_this_bot_cannot_speak(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner, encrypted=True)
        await refused(rig, pod, NotFollowed.CANNOT_ENCRYPT)
        assert (rig.sent(new), (await pod.now(question)).is_open) == ([], True)


async def test_nothing_is_sent_while_it_is_not_known_whether_the_new_room_is_encrypted(rig: Rig) -> None:
    async with rig.run() as pod:
        await pod.pending()
        rig.hs.answer_with("GET", r"/state/m\.room\.encryption", status=500, body={}, times=50)
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        await refused(rig, pod, NotFollowed.ENCRYPTION_UNKNOWN)
        assert rig.sent(new) == []


async def test_where_it_may_not_speak_the_route_stays_closed(rig: Rig) -> None:
    async with rig.run() as pod:
        new = rig.hs.room(rig.owner, rig.second, rig.pod)
        rig.hs.create(new, by=rig.owner, predecessor={"room_id": rig.room})
        rig.hs.power(new, by=rig.owner, users={}, events_default=50)
        rig.hs.replace(rig.room, by=rig.owner, replacement=new)
        await refused(rig, pod, NotFollowed.NOT_SPEAKING)


@pytest.mark.parametrize("names", [{}, {"replacement_room": 7}, {"replacement_room": ""}])
async def test_a_tombstone_that_names_no_room_is_not_followed(rig: Rig, names: dict[str, Any]) -> None:
    async with rig.run() as pod:
        rig.hs.post(rig.room, rig.owner, {"body": "", **names}, kind="m.room.tombstone", state_key="")
        await refused(rig, pod, NotFollowed.UNNAMED)


async def test_who_upgrades_a_room_gains_no_approval_by_power_there(rig: Rig) -> None:
    rig.with_route(approver_level=50)
    rig.hs.create(rig.room, by=rig.owner, version="11")
    rig.hs.power(rig.room, by=rig.owner, users={rig.owner: 100, rig.mallory: 49})
    async with rig.run() as pod:
        await pod.pending()
        new = rig.hs.upgrade(rig.room, rig.owner, rig.second, by=rig.mallory)
        await refused(rig, pod, NotFollowed.POWERS)
        assert rig.sent(new) == []


async def test_approvers_by_power_are_those_of_the_new_room(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(approver_level=50)
    rig.hs.create(rig.room, by=rig.owner, version="11")
    rig.hs.power(rig.room, by=rig.owner, users={rig.owner: 100, rig.mallory: 50})
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock, rig.mallory)
        rig.hs.say(now.asked.room_id, rig.mallory, "1", reply_to=now.event_id)  # no power here any more
        await rig.hs.until(lambda: any("not an approver" in notice for notice in notices(rig, now.asked.room_id)))
        assert (await pod.now(question)).is_open


# Old answers


async def test_after_the_tombstone_nothing_in_the_old_room_decides_also_while_it_is_not_followed(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        rig.hs.upgrade(rig.room, rig.second, by=rig.owner, is_open=False)
        await refused(rig, pod, NotFollowed.NOT_JOINED)
        clock.advance(1_000)
        rig.say("1", reply_to=question)
        await rig.hs.until(lambda: any("can no longer be answered in this room" in each for each in rig.notices()))
        for body in ("1", f"1 {question.asked.code}", f"!reject {question.asked.code}"):
            await pod.handled(rig.say(body))
        assert (await pod.now(question)).is_open
        assert "waits_to_move" in await pod.audited(question)
        [first] = [each for each in rig.notices() if each.startswith("This room was replaced")]
        assert "nothing that is said here answers a question" in first


@pytest.mark.parametrize("how", ["reply", "bare", "code", "reaction", "structured", "rejection"])
async def test_an_answer_in_the_room_that_was_left_decides_nothing_and_is_told_why(
    rig: Rig, clock: FakeClock, how: str
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock)
        clock.advance(20 * MINUTE)
        match how:
            case "reply":
                sent = rig.say("1", reply_to=question)
            case "bare":
                sent = rig.say("1")
            case "code":
                sent = rig.say(f"1 {question.asked.code}")
            case "reaction":
                sent = rig.hs.react(rig.room, rig.owner, str(question.event_id), "1\ufe0f\u20e3")
            case "rejection":
                sent = rig.say(f"!reject {question.asked.code}")
            case _:
                sent = rig.hs.post(rig.room, rig.owner, structured(question))
        await pod.handled(sent)
        await rig.hs.until(lambda: any("was asked again in the room" in each for each in notices(rig, rig.room)))
        assert (await pod.now(question)).status is Status.PENDING
        rig.hs.say(now.asked.room_id, rig.owner, "1", reply_to=now.event_id)
        await decided(pod, question)


def structured(question: Question) -> dict[str, Any]:
    return {
        "suite_event_type": "dev.agentpod.permission.answer.v2",
        "schema_version": 1,
        "request_id": question.key.request_id,
        "option_id": "allow_once",
        "msgtype": "m.text",
        "body": "Allow once",
        "m.relates_to": {"rel_type": "m.reference", "event_id": question.event_id},
    }


@pytest.mark.parametrize("how", ["reply", "structured"])
async def test_in_the_new_room_an_answer_that_names_the_old_event_decides_nothing_and_is_told_why(
    rig: Rig, clock: FakeClock, how: str
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock)
        if how == "reply":
            rig.hs.say(now.asked.room_id, rig.owner, f"1 {question.asked.code}", reply_to=question.event_id)
        else:
            rig.hs.post(now.asked.room_id, rig.owner, structured(question))
        await rig.hs.until(lambda: any("was asked again" in each for each in notices(rig, now.asked.room_id)))
        assert (await pod.now(question)).is_open


async def test_a_code_that_another_account_had_in_the_new_room_needs_the_event_to_be_named_there(
    rig: Rig, clock: FakeClock
) -> None:
    new = beside(rig)
    async with rig.run() as pod:
        question = await pod.pending(BOTH, route=ROUTE)
        theirs = {
            "msgtype": "m.text",
            "body": "?",
            "suite_event_type": "dev.agentpod.permission.v2",
            "code": question.asked.code,
            "subject": {"expires_at": "2027-01-01T00:00:00.000Z"},
        }
        await pod.handled(asked := rig.hs.post(new, rig.mallory, theirs))
        clock.advance(1_000)
        await pod.handled(rig.hs.edit(new, rig.mallory, asked, "Expired"))
        clock.advance(5 * MINUTE)
        rig.hs.replace(rig.room, by=rig.owner, replacement=new)
        now = await pod.when(question, lambda now: now.asked.room_id == new and now.shown_ts is not None)
        clock.advance(1_000)
        # Meant for the other account's question, sent before ours came, and late on its way.
        await pod.handled(rig.hs.say(new, rig.owner, f"1 {question.asked.code}", ts=clock.now_ms() - 4 * MINUTE))
        assert (await pod.now(question)).is_open
        rig.hs.say(new, rig.owner, "1", reply_to=now.event_id)
        await decided(pod, question)


def beside(rig: Rig) -> RoomId:
    """A room of a route of its own, with the same approvers, that names the other room as its predecessor.

    Nothing replaces the other room yet.
    """
    room_id = rig.with_second_route(after_ms=MINUTE, follow_upgrades=True)
    ops, leads = rig.policy.routes[ROUTE], rig.policy.routes[LEADS]
    routes = {ROUTE: replace(ops, escalation=None), LEADS: replace(leads, approvers=ops.approvers)}
    rig.policy = replace(rig.policy, routes=routes)
    rig.hs.create(room_id, by=rig.owner, predecessor={"room_id": rig.room})
    rig.hs.join(room_id, rig.owner)
    return room_id


async def test_who_is_no_approver_hears_in_the_old_room_only_that(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await moved(rig, pod, question, clock)
        rig.say("1", rig.mallory, reply_to=question)
        await rig.hs.until(lambda: any("You are not an approver" in each for each in notices(rig, rig.room)))


async def test_the_old_message_says_that_it_moved_and_draws_no_buttons(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await moved(rig, pod, question, clock)
        await rig.hs.until(lambda: rig.outcomes(question))
        [edit] = rig.outcomes(question)
        assert "suite_event_type" not in edit
        assert set(edit["m.new_content"]) == {"msgtype", "body", "format", "formatted_body", "m.mentions"}
        assert edit["m.new_content"]["body"].startswith("This room was replaced; asked again")


async def test_a_redaction_of_the_old_message_ends_nothing(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock)
        await pod.handled(rig.hs.redact(rig.room, rig.owner, str(question.event_id)))
        assert (await pod.now(question)).is_open
        rig.hs.say(now.asked.room_id, rig.owner, "3", reply_to=now.event_id)
        await decided(pod, question)


async def test_what_ended_in_the_new_room_is_late_in_the_old_one(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        now = await moved(rig, pod, question, clock)
        rig.hs.say(now.asked.room_id, rig.owner, "3", reply_to=now.event_id)
        await decided(pod, question)
        clock.advance(1_000)
        rig.say("1", reply_to=question)
        await rig.hs.until(lambda: any("already answered" in each for each in notices(rig, rig.room)))


# What else hangs on a question


async def test_votes_of_the_old_room_count_no_longer(rig: Rig, clock: FakeClock) -> None:
    rig.with_route(quorum=2, approvers=frozenset({rig.owner, rig.second}))
    async with rig.run() as pod:
        question = await pod.pending(options=(ALWAYS, REJECT))
        clock.advance(1_000)
        await pod.handled(rig.say("1", reply_to=question))
        now = await moved(rig, pod, question, clock)
        await pod.handled(rig.hs.say(now.asked.room_id, rig.second, "1", reply_to=now.event_id))
        assert (await pod.now(question)).is_open
        assert "vote_void" in await pod.audited(question)
        rig.hs.say(now.asked.room_id, rig.owner, "1", reply_to=now.event_id)
        done = await decided(pod, question)
        assert done.closing is not None
        assert set(done.closing.voters) == {rig.owner, rig.second}


async def test_a_cut_questions_file_is_in_the_new_room_before_anybody_can_approve_there(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending(preview=LONG)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        fault = rig.hs.answer_with("POST", "/upload", status=500, body={})
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        await fault.hit.wait()
        assert (await pod.now(question)).asked.attachment is Attachment.WANTED
        assert rig.questions(new) == []
        clock.advance(MINUTE)
        pod.parts.rooms.heard_of([])
        now = await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        assert now.asked.room_id == new
        files = [event for event in rig.sent(new) if event["content"].get("msgtype") == "m.file"]
        assert len(files) == 1


async def test_where_the_file_cannot_be_uploaded_again_the_new_room_hears_all_the_same_that_it_is_asked_again(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending(preview=LONG)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        rig.hs.answer_with("POST", "/upload", status=413, body={"errcode": "M_TOO_LARGE"})
        now = await moved(rig, pod, question, clock)
        assert now.asked.attachment is Attachment.FAILED
        [again] = rig.questions(now.asked.room_id)
        assert "Asked again, for its first room was replaced by this one." in again["body"]
        assert "could not be uploaded" in again["body"]
        assert {option["meaning"] for option in again["options"]} == {"reject"}


async def test_a_copys_room_hears_of_the_option_that_was_taken_whatever_its_number_is_there(
    rig: Rig, clock: FakeClock
) -> None:
    rig.with_second_route(after_ms=10 * MINUTE)
    rig.with_route(follow_upgrades=True)
    async with rig.run() as pod:
        question = await pod.pending(preview=LONG, options=(ALLOW, REJECT))
        clock.advance(10 * MINUTE)
        await pod.parts.deadlines.escalate()
        question = await pod.when(
            question, lambda now: now.copy is not None and now.copy.attachment is Attachment.SHOWN
        )
        rig.hs.answer_with("POST", "/upload", status=413, body={"errcode": "M_TOO_LARGE"})
        now = await moved(rig, pod, question, clock)
        rig.hs.say(now.asked.room_id, rig.owner, "1", reply_to=now.event_id)  # all that is offered here: to reject
        await decided(pod, question)
        assert question.copy is not None
        there = replace(question, event_id=question.copy.event_id)
        await rig.hs.until(lambda: any("outcome" in edit for edit in rig.outcomes(there)))
        outcome = rig.outcomes(there)[-1]
        assert (outcome["option_id"], outcome["meaning"]) == ("reject_once", "reject")
        assert outcome["body"].startswith("* Rejected by")


async def test_a_copy_moves_with_its_own_route_and_the_question_stays(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE, follow_upgrades=True)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        new = rig.hs.upgrade(rig.leads, by=rig.lead)
        now = await pod.when(
            question, lambda now: now.copy is not None and now.copy.room_id == new and now.copy.shown_ts is not None
        )
        assert (now.event_id, now.status, now.asked.room_id) == (question.event_id, Status.PENDING, rig.room)
        clock.advance(1_000)
        assert question.copy is not None
        await pod.handled(rig.hs.say(rig.leads, rig.lead, "1", reply_to=question.copy.event_id))
        assert (await pod.now(question)).is_open
        rig.hs.say(new, rig.lead, "1")
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.answered_by == rig.lead


async def test_a_question_moves_and_its_copy_stays_and_answers_for_both(rig: Rig, clock: FakeClock) -> None:
    rig.with_second_route(after_ms=10 * MINUTE)
    rig.with_route(follow_upgrades=True)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        now = await moved(rig, pod, question, clock)
        rig.hs.say(rig.leads, rig.lead, "1")
        done = await decided(pod, question)
        assert done.closing is not None
        assert done.closing.answered_by == rig.lead
        await rig.hs.until(lambda: any("outcome" in edit for edit in rig.outcomes(now)))


async def test_a_room_in_which_its_questions_are_asked_next_is_not_followed_into(rig: Rig, clock: FakeClock) -> None:
    leads = rig.with_second_route(after_ms=10 * MINUTE)
    rig.with_route(follow_upgrades=True)
    rig.hs.create(leads, by=rig.owner, predecessor={"room_id": rig.room})
    rig.hs.join(leads, rig.owner)
    async with rig.run() as pod:
        question = await escalated(pod, clock)
        rig.hs.replace(rig.room, by=rig.owner, replacement=leads)
        await refused(rig, pod, NotFollowed.ASKED_THERE)
        assert (await pod.now(question)).asked.room_id == rig.room


async def escalated(pod: Pod, clock: FakeClock) -> Question:
    question = await pod.pending()
    clock.advance(10 * MINUTE)
    await pod.parts.deadlines.escalate()
    question = await pod.when(question, lambda now: now.copy is not None and now.copy.shown_ts is not None)
    clock.advance(1_000)
    return question


async def test_another_route_of_the_room_that_does_not_follow_is_left_as_it_was(rig: Rig, clock: FakeClock) -> None:
    stays = replace(rig.policy.routes[ROUTE], name=LEADS, follow_upgrades=False)
    rig.policy = replace(rig.policy, routes={**rig.policy.routes, LEADS: stays})
    async with rig.run() as pod:
        goes = await pod.pending(BOTH, route=ROUTE)
        stay = await pod.pending(BOTH, route=LEADS)
        await moved(rig, pod, goes, clock)
        assert (await pod.now(stay)).asked.room_id == rig.room
        await pod.handled(rig.say("1"))  # two were asked here, as the room shows it
        assert (await pod.now(stay)).is_open
        rig.say("1", reply_to=stay)
        await decided(pod, stay)
        assert (await pod.now(goes)).is_open


async def test_a_question_that_was_on_its_way_is_asked_in_the_new_room_and_the_late_arrival_is_known(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        release = asyncio.Event()
        held = rig.hs.hold("PUT", rf"/{rig.room}/send/m\.room\.message/", until=release)
        question = await pod.ask()
        await held.hit.wait()
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
        now = await pod.when(question, lambda now: now.asked.room_id == new and now.shown_ts is not None)
        release.set()
        await rig.hs.until(lambda: rig.questions(rig.room))
        [late] = [event for event in rig.sent(rig.room) if "code" in event["content"]]
        await pod.handled(late["event_id"])
        clock.advance(1_000)
        await pod.handled(rig.say("1", reply_to=late["event_id"]))
        still = await pod.now(question)
        assert (still.is_open, still.event_id) == (True, now.event_id)
        await rig.hs.until(lambda: any("was asked again" in each for each in notices(rig, rig.room)))
        assert (ALLOW.option_id, len(rig.questions(new))) == ("allow_once", 1)


async def test_the_stream_of_changes_tells_that_it_is_queued_again(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await moved(rig, pod, question, clock)
        changes = await pod.store.run(lambda tx: tx.changes(CALLER.client, after=0, at_most=10))
        assert [change.status.value for change in changes] == ["queued", "pending", "queued", "pending"]
        rooms = [change.question.room_id for change in changes if change.question is not None]
        assert rooms[:2] == [rig.room, rig.room]
