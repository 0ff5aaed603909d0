"""What one transaction does with the questions of a route that goes into another room; over a real store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.broker.change import PROGRESS, QUESTION, REMINDER, UPLOAD, After
from agentpod_bot.broker.moving import MOVED, NOT_ALIKE, Moved, move
from agentpod_bot.core.ids import EventId, RoomId, RouteName
from agentpod_bot.core.model import Attachment, Outcome, Status, TextPreview, Vote
from agentpod_bot.core.policy import Escalation
from agentpod_bot.core.room import Replaced
from agentpod_bot.core.upgrades import NotFollowed, Successor, Tombstone
from agentpod_bot.errors import Invalid, Refused, TooLarge
from agentpod_bot.render.question import compose
from tests.contract.sealed_homeserver import SealedHomeserver, running, said
from tests.examples import (
    ALWAYS,
    CALLER,
    MALLORY,
    MINUTE,
    OPS,
    OPS_ROUTE,
    OWNER,
    POD,
    POLICY,
    REJECT,
    ROOM,
    ROUTE,
    SECOND,
    START,
    request,
)
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import RoomState
    from tests.contract.sealed_homeserver import Pod

NEW, NEWER, LEADS_ROOM = RoomId("!new"), RoomId("!newer"), RoomId("!leads")
LEADS = RouteName("leads")
FOLLOWS = replace(OPS_ROUTE, follow_upgrades=True)
FOLLOWING = replace(POLICY, routes={ROUTE: FOLLOWS})
THERE = replace(ROOM, room_id=NEW)
BOTH = replace(
    POLICY,
    routes={
        ROUTE: replace(FOLLOWS, escalation=Escalation(MINUTE, LEADS)),
        LEADS: replace(FOLLOWS, name=LEADS, room_id=LEADS_ROOM),
    },
)
LONG = (TextPreview("Command", "echo ok; " + "a" * 5_000),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "agentpod.db"


@pytest.fixture
def hs() -> SealedHomeserver:
    return SealedHomeserver(ROOM)


async def going(
    pod: Pod,
    *hops: RoomId,
    route: RouteName = ROUTE,
    target: RoomState | None = THERE,
    after: After | None = None,
    caught_up: bool = True,
) -> Moved | NotFollowed:
    """Have the route go along these rooms, or from its own into the new one."""
    rooms = hops or (pod.parts.world.policy.routes[ROUTE].room_id, NEW)
    means = pod.parts.upgrades._means
    if caught_up:
        await pod.store.run(lambda tx: tx.mark_replaced(rooms[0], Tombstone(None, encrypted=False)))
    return await pod.store.run(lambda tx: move(tx, route, rooms, target, after=after or After(), means=means))


async def unsent(pod: Pod, question: Question, room_id: RoomId, effect: str) -> bool:
    return await pod.store.run(lambda tx: tx.unsent(question.row, room_id, effect)) is not None


async def escalated(pod: Pod, clock: FakeClock, **changes: Any) -> Question:
    """A question that is asked in two rooms."""
    question = await pod.shown(**changes)
    clock.advance(MINUTE)
    await pod.parts.deadlines.escalate()
    return await pod.when(question, lambda now: now.copy is not None and now.copy.event_id is not None)


# Everything or nothing


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"caught_up": False}, NotFollowed.NOT_CAUGHT_UP),
        ({"target": None}, NotFollowed.UNREACHABLE),
        ({"target": replace(THERE, joined=frozenset({POD, MALLORY}))}, NotFollowed.APPROVERS),
    ],
)
async def test_what_changed_since_the_rooms_were_looked_at_keeps_everything_where_it_is(
    path: Path, hs: SealedHomeserver, clock: FakeClock, changes: dict[str, Any], why: NotFollowed
) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        assert await going(pod, OPS, NEW, **changes) is why
        await _nothing_moved(pod, question)


@pytest.mark.parametrize("reloaded", [POLICY, replace(POLICY, routes={})])
async def test_a_route_that_follows_no_more_since_the_rooms_were_looked_at_does_not_go(
    path: Path, hs: SealedHomeserver, clock: FakeClock, reloaded: Policy
) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        pod.parts.world.policy = reloaded
        assert await going(pod, OPS, NEW) is NotFollowed.UNREACHABLE
        await _nothing_moved(pod, question)


async def _nothing_moved(pod: Pod, question: Question) -> None:
    now = await pod.now(question)
    assert (now.asked.room_id, now.status) == (OPS, Status.PENDING)
    assert await pod.store.run(lambda tx: tx.moves()) == {}
    assert not await unsent(pod, question, NEW, QUESTION)


@pytest.mark.parametrize("was_encrypted", [OPS, NEWER])
async def test_a_room_on_the_way_that_was_seen_encrypted_since_is_not_left_for_a_clear_one(
    path: Path, hs: SealedHomeserver, clock: FakeClock, was_encrypted: RoomId
) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        await pod.store.run(lambda tx: tx.mark_encrypted(was_encrypted, judged=False))
        assert await going(pod, OPS, NEWER, NEW) is NotFollowed.ENCRYPTION_LOST
        await _nothing_moved(pod, question)


async def test_where_only_who_may_not_approve_it_is_there_a_question_keeps_its_route_from_going(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    policy = replace(POLICY, routes={ROUTE: replace(FOLLOWS, not_requester=True)})
    async with running(path, hs, clock, policy) as pod:
        question = (await pod.parts.broker.submit(request(), replace(CALLER, requester=OWNER))).question
        await pod.when(question, lambda now: now.status is Status.PENDING)
        alone = replace(THERE, joined=frozenset({POD, OWNER}))
        assert await going(pod, OPS, NEW, target=alone) is NotFollowed.APPROVERS
        await _nothing_moved(pod, question)
        assert await going(pod, OPS, NEW) == Moved(1, 0)


async def test_a_copy_moves_only_where_its_questions_own_route_has_enough_people_too(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    routes = {**BOTH.routes, ROUTE: replace(BOTH.routes[ROUTE], quorum=2)}
    async with running(path, hs, clock, replace(BOTH, routes=routes)) as pod:
        question = await escalated(pod, clock)
        alone = replace(THERE, joined=frozenset({POD, OWNER}))
        assert await going(pod, LEADS_ROOM, NEW, route=LEADS, target=alone) is NotFollowed.APPROVERS
        assert await going(pod, LEADS_ROOM, NEW, route=LEADS) == Moved(1, 0)
        now = await pod.now(question)
        assert now.copy is not None
        assert (now.asked.room_id, now.copy.room_id) == (OPS, NEW)


async def test_each_step_of_a_longer_way_is_kept(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        await going(pod, OPS, NEWER, NEW)
        assert await pod.store.run(lambda tx: tx.moves()) == {(ROUTE, OPS): NEWER, (ROUTE, NEWER): NEW}


# Which questions go


async def test_a_question_that_is_over_but_for_being_noticed_is_not_asked_again(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        clock.advance(30 * MINUTE)
        assert await going(pod) == Moved(0, 0)
        assert (await pod.now(question)).asked.room_id == OPS


async def test_what_is_to_be_done_afterwards_is_said(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    after = After()
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        await going(pod, after=after)
        assert (after.rooms, after.clients) == ({OPS, NEW}, {question.key.client})
        assert await unsent(pod, question, OPS, MOVED)
        assert await unsent(pod, question, NEW, QUESTION)
        assert not await unsent(pod, question, NEW, UPLOAD)
        assert [what for what, _ in await pod.audited(question)][-2:] == ["left_room", "asked_again"]


async def test_where_a_question_never_came_into_the_old_room_nothing_is_said_of_it_there(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        pod.parts.world.held = lambda: True  # nothing may be sent
        question = (await pod.parts.broker.submit(request(), CALLER)).question
        await going(pod)
        assert not await unsent(pod, question, OPS, MOVED)
        assert not await unsent(pod, question, OPS, QUESTION)
        assert await unsent(pod, question, NEW, QUESTION)


async def test_people_are_reminded_in_the_new_room(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    policy = replace(POLICY, routes={ROUTE: replace(FOLLOWS, remind_before_ms=5 * MINUTE)})
    async with running(path, hs, clock, policy) as pod:
        question = await pod.shown()
        await going(pod)
        assert await unsent(pod, question, NEW, REMINDER)
        assert not await unsent(pod, question, OPS, REMINDER)


async def test_a_question_whose_file_was_lost_is_asked_again_as_it_was_asked(
    path: Path, hs: SealedHomeserver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_args: object) -> None:
        raise Refused("M_TOO_LARGE")

    monkeypatch.setattr(hs, "upload", refuse)
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown(preview=LONG)
        assert question.asked.attachment is Attachment.FAILED
        assert await going(pod) == Moved(1, 0)
        now = await pod.now(question)
        assert (now.asked.attachment, now.asked.offered) == (Attachment.FAILED, question.asked.offered)
        assert not await unsent(pod, question, NEW, UPLOAD)


async def test_a_question_that_is_asked_elsewhere_too_says_so_in_its_new_room(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, BOTH) as pod:
        question = await escalated(pod, clock)
        await pod.quiet()
        await going(pod)
        assert await unsent(pod, question, NEW, f"{PROGRESS}:1")


async def test_votes_that_were_given_where_it_is_asked_still_count_on(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    routes = {name: replace(route, quorum=3) for name, route in BOTH.routes.items()}
    routes = {name: replace(route, approvers=frozenset({OWNER, SECOND, MALLORY})) for name, route in routes.items()}
    async with running(path, hs, clock, replace(BOTH, routes=routes)) as pod:
        question = await escalated(pod, clock, options=(ALWAYS, REJECT))
        for sender, room_id in ((OWNER, OPS), (SECOND, LEADS_ROOM)):
            await pod.store.run(
                lambda tx, sender=sender, room_id=room_id: tx.vote(  # type: ignore[misc]  # bound now
                    question.row,
                    Vote(
                        sender=sender,
                        option_id=ALWAYS.option_id,
                        room_id=room_id,
                        event_id=EventId(f"${sender}"),
                        ts=START,
                        at_ms=START,
                    ),
                )
            )
        await going(pod)
        assert [vote.sender for vote in await pod.store.run(lambda tx: tx.votes(question.row))] == [SECOND]
        voided = [what for what, _ in await pod.audited(question)]
        assert voided.count("vote_void") == 1


async def test_a_moved_copy_is_told_as_one_in_the_audit(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    async with running(path, hs, clock, BOTH) as pod:
        question = await escalated(pod, clock)
        await going(pod, LEADS_ROOM, NEW, route=LEADS)
        whats = [what for what, _ in await pod.audited(question)]
        assert "copy_asked_again" in whats
        assert "asked_again" not in whats


# Before the tombstone, and after it


@pytest.mark.parametrize("also_as_state", [True, False])
async def test_what_was_said_before_the_tombstone_counts_whatever_else_the_response_says_of_it(
    path: Path, hs: SealedHomeserver, clock: FakeClock, *, also_as_state: bool
) -> None:
    tombstone = Replaced(event_id=EventId("$tombstone"), sender=OWNER, ts=START + 2_000, successor=NEW)
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        await pod.handle(said("1", clock), tombstone, state=(tombstone,) if also_as_state else ())
        assert (await pod.now(question)).status is Status.DECIDED


@pytest.mark.parametrize("as_state", [True, False])
async def test_a_tombstone_is_kept_with_what_was_known_of_its_room_and_nothing_counts_after_it(
    path: Path, hs: SealedHomeserver, clock: FakeClock, *, as_state: bool
) -> None:
    tombstone = Replaced(event_id=EventId("$tombstone"), sender=OWNER, ts=START, successor=NEW)
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        await pod.handle(*(() if as_state else (tombstone,)), said("1", clock), state=(tombstone,) if as_state else ())
        assert (await pod.now(question)).is_open
        kept = await pod.store.run(lambda tx: tx.tombstone(OPS))
        assert kept == Tombstone(Successor(NEW, OWNER), encrypted=False)


# What would not be the same question


def _too_large(*_args: object, **_more: object) -> None:
    raise TooLarge("preview", "the question does not fit into a room's event")


def _invalid(*_args: object, **_more: object) -> None:
    raise Invalid(("title",), "is no title")


def _other_options(_tx: object, asked: Any, *_args: object, **_more: object) -> object:
    return compose(replace(asked, options=(ALWAYS, REJECT)), mentions=(), other_codes=frozenset())


@pytest.mark.parametrize("becomes", [_too_large, _invalid, _other_options])
async def test_what_cannot_be_asked_there_alike_is_undeliverable_and_the_route_goes(
    path: Path, hs: SealedHomeserver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, becomes: Any
) -> None:
    async with running(path, hs, clock, FOLLOWING) as pod:
        question = await pod.shown()
        monkeypatch.setattr("agentpod_bot.broker.moving.composed", becomes)
        after = After()
        assert await going(pod, after=after) == Moved(0, 1)
        now = await pod.now(question)
        assert now.closing is not None
        assert (now.closing.outcome, now.closing.reason) == (Outcome.UNDELIVERABLE, NOT_ALIKE)
        assert [closed.row for closed in after.closed] == [question.row]
        assert not await unsent(pod, question, NEW, QUESTION)


async def test_of_a_copy_that_cannot_be_asked_there_alike_only_the_copy_ends_and_its_question_says_so(
    path: Path, hs: SealedHomeserver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(path, hs, clock, BOTH) as pod:
        question = await escalated(pod, clock)
        await pod.quiet()
        monkeypatch.setattr("agentpod_bot.broker.moving.composed", _too_large)
        after = After()
        assert await going(pod, LEADS_ROOM, NEW, route=LEADS, after=after) == Moved(0, 1)
        now = await pod.now(question)
        assert now.copy is not None
        assert (now.status, now.copy.withdrawn_at_ms) == (Status.PENDING, clock.now_ms())
        assert ("copy_refused", "it_cannot_be_asked_again_in_the_room_that_replaced_its_own") in await pod.audited(
            question
        )
        assert OPS in after.rooms
        assert not await unsent(pod, question, NEW, QUESTION)
