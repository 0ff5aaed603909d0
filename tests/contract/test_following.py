"""When rooms that were replaced are looked at, how often, and how far a route goes; with a homeserver by the script."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from agentpod_bot.broker.assembly import assemble
from agentpod_bot.broker.upgrades import FIRST_RETRY_S, LONGEST_RETRY_S, MOST_HOPS, SOONEST_S
from agentpod_bot.core.ids import RoomId, RouteName
from agentpod_bot.core.upgrades import NotFollowed, Origin, Successor, Tombstone
from agentpod_bot.errors import HomeserverUnavailable, Refused, StoreUnavailable
from agentpod_bot.store.database import open_store
from tests.contract.sealed_homeserver import SealedHomeserver
from tests.examples import CALLER, OPS, OPS_ROUTE, OWNER, POLICY, ROOM, ROUTE, START, request
from tests.fakes import FakeChance, FakeClock, FakeMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from agentpod_bot.broker.assembly import Parts
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.ports import Store

NEW, NEWER, ELSE = RoomId("!new"), RoomId("!newer"), RoomId("!else")
LEADS = RouteName("leads")
FOLLOWS = replace(OPS_ROUTE, follow_upgrades=True)
FOLLOWING = replace(POLICY, routes={ROUTE: FOLLOWS})


class Upgraded(SealedHomeserver):
    """A homeserver whose rooms are replaced, and which says what it is told to."""

    def __init__(self) -> None:
        super().__init__(ROOM)
        self.rooms: dict[RoomId, RoomState] = {}
        self.named: dict[RoomId, Successor | None] = {}
        self.origins: dict[RoomId, Origin] = {}
        self.shut: set[RoomId] = set()
        """Rooms that nobody may join."""
        self.down = False
        self.looks = 0
        """How often it was asked for a successor."""
        self.joins: list[RoomId] = []
        self.meanwhile: Callable[[], object] = lambda: None
        """What happens while the bot reads the beginning of a room."""

    def upgrade(self, old: RoomId, new: RoomId) -> None:
        self.rooms[old] = replace(self.rooms.get(old, replace(ROOM, room_id=old)), replaced=True)
        self.rooms.setdefault(new, replace(ROOM, room_id=new, bot_joined=False))
        self.named[old] = Successor(new, OWNER)
        self.origins[new] = Origin(predecessor=old, creators=frozenset({OWNER}), speaks=True)

    async def successor(self, room_id: RoomId) -> Successor | None:
        self.looks += 1
        if self.down:
            raise HomeserverUnavailable("no answer")
        return self.named[room_id]

    async def origin(self, room_id: RoomId) -> Origin:
        self.meanwhile()
        return self.origins[room_id]

    async def join(self, room_id: RoomId, servers: Sequence[str] = ()) -> None:
        assert servers == ("hs.example",)
        self.joins.append(room_id)
        if room_id in self.shut:
            raise Refused("M_FORBIDDEN", status=403)
        self.rooms[room_id] = replace(self.rooms[room_id], bot_joined=True)

    async def room_state(self, room_id: RoomId) -> RoomState:
        return self.rooms.get(room_id, replace(ROOM, room_id=room_id))


class Bot:
    """The parts that follow, over a real store; nothing goes on by itself."""

    def __init__(self, parts: Parts, store: Store, hs: Upgraded, clock: FakeClock) -> None:
        self.parts = parts
        self.store = store
        self.hs = hs
        self.clock = clock
        self.upgrades = parts.upgrades

    async def upgraded(self, old: RoomId = OPS, new: RoomId = NEW, *, caught_up: bool = True) -> None:
        """A room is replaced, and the bot has heard of it."""
        self.hs.upgrade(old, new)
        if caught_up:
            await self.processed(old)
        await self.parts.world.refresh(old)

    async def processed(self, room_id: RoomId) -> None:
        await self.store.run(lambda tx: tx.mark_replaced(room_id, Tombstone(None, encrypted=False)))

    async def asked(self) -> Question:
        return (await self.parts.broker.submit(request(request_id=None, request_seq=None), CALLER)).question

    async def look(self, *, after_s: float = 0) -> int:
        """Look once, after some time; returns how often the homeserver was asked."""
        self.clock.advance(int(after_s * 1000))
        before = self.hs.looks
        await self.upgrades.look()
        return self.hs.looks - before

    @property
    def why(self) -> str:
        return self.parts.world.policy.routes[ROUTE].not_followed

    @property
    def lives_in(self) -> RoomId:
        return self.parts.world.policy.routes[ROUTE].room_id


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def hs() -> Upgraded:
    return Upgraded()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "agentpod.db"


@asynccontextmanager
async def running(path: Path, hs: Upgraded, clock: FakeClock, policy: Policy = FOLLOWING) -> AsyncIterator[Bot]:
    store = open_store(path)
    parts = assemble(store, hs, policy, clock=clock, chance=FakeChance(clock.now_ms()), meter=FakeMeter())
    parts.world.trouble = lambda: None
    try:
        await parts.rooms.settle()
        yield Bot(parts, store, hs, clock)
    finally:
        await store.close()


@pytest.fixture
async def bot(path: Path, hs: Upgraded, clock: FakeClock) -> AsyncIterator[Bot]:
    async with running(path, hs, clock) as made:
        yield made


# How often


async def test_what_does_not_succeed_is_tried_again_after_twice_as_long_up_to_a_bound(bot: Bot) -> None:
    bot.hs.shut.add(NEW)
    await bot.upgraded()
    assert await bot.look() == 1
    wait_s = FIRST_RETRY_S
    for _ in range(8):
        assert bot.upgrades.due_in_s() == wait_s
        assert await bot.look(after_s=wait_s - 1) == 0
        assert await bot.look(after_s=1) == 1
        wait_s = min(LONGEST_RETRY_S, wait_s * 2)
    assert wait_s == LONGEST_RETRY_S
    assert bot.why == NotFollowed.NOT_JOINED.said


async def test_where_nothing_was_tried_or_all_went_well_nothing_is_due_soon(bot: Bot) -> None:
    assert bot.upgrades.due_in_s() == LONGEST_RETRY_S
    bot.hs.shut.add(NEW)
    await bot.upgraded()
    await bot.look()
    bot.hs.shut.clear()
    await bot.look(after_s=FIRST_RETRY_S)
    assert bot.lives_in == NEW
    assert bot.upgrades.due_in_s() == LONGEST_RETRY_S


async def test_what_is_due_first_of_several_is_waited_for(path: Path, hs: Upgraded, clock: FakeClock) -> None:
    leads = replace(FOLLOWS, name=LEADS, room_id=ELSE)
    async with running(path, hs, clock, replace(POLICY, routes={ROUTE: FOLLOWS, LEADS: leads})) as bot:
        hs.shut = {NEW, NEWER}
        await bot.upgraded()
        assert await bot.look() == 1
        await bot.upgraded(ELSE, NEWER)
        assert await bot.look(after_s=FIRST_RETRY_S) == 2
        assert bot.upgrades.due_in_s() == FIRST_RETRY_S
        assert await bot.look(after_s=FIRST_RETRY_S) == 1


async def test_what_happens_in_a_room_that_matters_has_it_looked_at_soon_and_nothing_else_does(bot: Bot) -> None:
    bot.hs.shut.add(NEW)
    assert not bot.upgrades.wake([OPS])
    await bot.upgraded()
    assert bot.upgrades.wake([ELSE, OPS])  # it was replaced
    await bot.look()
    assert not bot.upgrades.wake([ELSE])
    assert bot.upgrades.wake([NEW])  # the route may go there
    bot.parts.world.forget(OPS)
    assert bot.upgrades.wake([OPS])  # it was looked at
    await bot.parts.world.refresh(OPS)
    assert await bot.look(after_s=SOONEST_S - 1) == 0
    assert await bot.look(after_s=1) == 1


async def test_a_room_that_the_bot_joined_is_looked_at_at_once(bot: Bot) -> None:
    bot.hs.shut.add(NEW)
    await bot.upgraded()
    await bot.look()
    assert bot.upgrades.wake([NEW], at_once=True)
    assert await bot.look() == 1


async def test_what_happened_during_a_look_has_another_one_follow_soon(bot: Bot) -> None:
    await bot.upgraded()
    bot.hs.origins[NEW] = replace(bot.hs.origins[NEW], speaks=False)
    bot.hs.meanwhile = lambda: bot.upgrades.wake([NEW])
    assert await bot.look() == 1
    assert bot.upgrades.due_in_s() == SOONEST_S
    bot.hs.meanwhile = lambda: None
    assert await bot.look(after_s=SOONEST_S) == 1
    assert bot.upgrades.due_in_s() > SOONEST_S


async def test_before_all_that_was_said_is_read_nothing_is_asked_and_then_it_is_gone_into_at_once(bot: Bot) -> None:
    await bot.upgraded(caught_up=False)
    assert await bot.look() == 0
    assert bot.why == NotFollowed.NOT_CAUGHT_UP.said
    await bot.processed(OPS)
    assert bot.upgrades.wake([OPS])
    assert await bot.look() == 1
    assert (bot.lives_in, bot.why) == (NEW, "")


async def test_while_what_was_sent_is_not_known_nothing_is_looked_at(bot: Bot) -> None:
    await bot.upgraded()
    bot.parts.world.held = lambda: True
    assert await bot.look() == 0
    bot.parts.world.held = lambda: False
    assert await bot.look() == 1


async def test_a_route_that_does_not_follow_has_nothing_looked_at_though_another_does(
    path: Path, hs: Upgraded, clock: FakeClock
) -> None:
    stays = replace(OPS_ROUTE, name=LEADS, room_id=ELSE)
    async with running(path, hs, clock, replace(POLICY, routes={ROUTE: FOLLOWS, LEADS: stays})) as bot:
        await bot.upgraded(ELSE, NEWER)
        assert await bot.look() == 0
        assert hs.joins == []


async def test_why_it_is_not_followed_is_logged_once_until_it_changes(bot: Bot) -> None:
    bot.hs.shut.add(NEW)
    await bot.upgraded()
    with capture_logs() as lines:
        await bot.look()
        await bot.look(after_s=LONGEST_RETRY_S)
        bot.hs.shut.clear()
        bot.hs.origins[NEW] = replace(bot.hs.origins[NEW], predecessor=ELSE)
        await bot.look(after_s=LONGEST_RETRY_S)
    whys = [line["why"] for line in lines if line["event"] == "upgrade_not_followed"]
    assert whys == ["successor_not_joined", "predecessor_differs"]


async def test_what_a_route_waited_for_before_it_stopped_following_is_forgotten(bot: Bot) -> None:
    bot.hs.shut.add(NEW)
    await bot.upgraded()
    await bot.look()
    other = replace(FOLLOWS, name=LEADS, room_id=ELSE)
    bot.parts.world.policy = replace(POLICY, routes={ROUTE: OPS_ROUTE, LEADS: other})
    assert await bot.look() == 0
    bot.parts.world.policy = FOLLOWING
    assert await bot.look() == 1


async def test_a_homeserver_that_does_not_answer_is_asked_again(bot: Bot) -> None:
    await bot.upgraded()
    bot.hs.down = True
    await bot.look()
    assert bot.why == NotFollowed.UNREACHABLE.said
    bot.hs.down = False
    await bot.look(after_s=FIRST_RETRY_S)
    assert bot.lives_in == NEW


async def test_a_store_that_cannot_be_read_only_delays(bot: Bot, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_args: object) -> Any:
        raise StoreUnavailable("the disk is full")

    await bot.upgraded()
    with monkeypatch.context() as patched:
        patched.setattr(bot.store, "run", broken)
        await bot.look()
    assert bot.lives_in == OPS
    await bot.look()
    assert bot.lives_in == NEW


# How far


async def test_a_room_in_which_the_bot_is_already_is_not_joined(bot: Bot) -> None:
    await bot.upgraded()
    bot.hs.rooms[NEW] = replace(ROOM, room_id=NEW)
    await bot.parts.world.refresh(NEW)
    await bot.look()
    assert (bot.lives_in, bot.hs.joins) == (NEW, [])


async def test_a_room_into_which_it_was_let_and_in_which_it_is_not_is_not_gone_into(
    bot: Bot, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def let_in(*_args: object) -> None:
        """And put out again at once."""

    await bot.upgraded()
    monkeypatch.setattr(bot.hs, "join", let_in)
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, NotFollowed.NOT_JOINED.said)


async def test_who_is_put_out_while_looking_goes_nowhere(bot: Bot) -> None:
    await bot.upgraded()

    def put_out() -> None:
        bot.parts.world._rooms[NEW] = replace(ROOM, room_id=NEW, bot_joined=False)

    bot.hs.meanwhile = put_out
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, NotFollowed.NOT_CAUGHT_UP.said)


async def test_a_room_whose_state_is_lost_while_looking_is_not_gone_into(bot: Bot) -> None:
    await bot.upgraded()
    bot.hs.meanwhile = lambda: bot.parts.world.forget(NEW)
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, NotFollowed.UNREACHABLE.said)


async def test_a_room_that_is_not_replaced_leads_nowhere(bot: Bot) -> None:
    assert await bot.upgrades._follow(ROUTE, OPS) is NotFollowed.UNREACHABLE


async def test_in_a_room_on_the_way_it_need_not_be_allowed_to_speak(bot: Bot) -> None:
    await bot.upgraded(OPS, NEWER)
    await bot.upgraded(NEWER, NEW)
    bot.hs.origins[NEWER] = replace(bot.hs.origins[NEWER], speaks=False)
    await bot.look()
    assert bot.lives_in == NEW


async def test_more_upgrades_than_anybody_makes_are_not_followed(bot: Bot) -> None:
    way = [OPS, *(RoomId(f"!{number}") for number in range(MOST_HOPS + 1))]
    for old, new in pairwise(way):
        await bot.upgraded(old, new)
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, NotFollowed.CYCLE.said)


async def test_as_many_as_are_followed_are_followed(bot: Bot) -> None:
    way = [OPS, *(RoomId(f"!{number}") for number in range(MOST_HOPS))]
    for old, new in pairwise(way):
        await bot.upgraded(old, new)
    await bot.look()
    assert bot.lives_in == way[-1]


async def test_a_room_that_replaces_itself_leads_nowhere(bot: Bot) -> None:
    await bot.upgraded()
    bot.hs.named[OPS] = Successor(OPS, OWNER)
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, NotFollowed.CYCLE.said)


async def test_where_another_route_went_before_says_nothing_of_this_one(
    path: Path, hs: Upgraded, clock: FakeClock
) -> None:
    leads = replace(FOLLOWS, name=LEADS, room_id=NEW)
    async with running(path, hs, clock, replace(POLICY, routes={ROUTE: FOLLOWS, LEADS: leads})) as bot:
        await bot.upgraded(NEW, NEWER)
        await bot.look()
        await bot.upgraded(OPS, NEW)
        await bot.look()
        assert bot.lives_in == NEWER


# What the tombstone said


def _kept(encrypted: bool | None) -> Tombstone:
    return Tombstone(Successor(NEW, OWNER), encrypted=encrypted)


@pytest.mark.parametrize(
    ("now", "why"), [(None, NotFollowed.UNNAMED), (Refused("M_FORBIDDEN", status=403), NotFollowed.UNREACHABLE)]
)
async def test_in_a_room_that_the_bot_is_in_it_counts_what_its_tombstone_says_now(
    bot: Bot, now: Refused | None, why: NotFollowed, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def says(_room_id: RoomId) -> None:
        if now is not None:
            raise now

    await bot.upgraded()
    await bot.store.run(lambda tx: tx.mark_replaced(OPS, _kept(encrypted=False)))
    monkeypatch.setattr(bot.hs, "successor", says)
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, why.said)


async def test_in_a_room_that_the_bot_is_in_it_counts_how_it_is_encrypted_now(bot: Bot) -> None:
    await bot.upgraded()
    await bot.store.run(lambda tx: tx.mark_replaced(OPS, _kept(encrypted=False)))
    bot.hs.rooms[OPS] = replace(bot.hs.rooms[OPS], encrypted=None)
    await bot.parts.world.refresh(OPS)
    await bot.look()
    assert (bot.lives_in, bot.why) == (OPS, NotFollowed.ENCRYPTION_UNKNOWN.said)


@pytest.mark.parametrize(
    ("readable", "kept", "goes"),
    [(False, None, True), (False, True, True), (None, False, True), (None, True, False), (None, None, False)],
)
async def test_of_a_room_that_the_bot_left_it_counts_what_may_still_be_read_and_else_what_was_known(
    bot: Bot, readable: bool | None, kept: bool | None, goes: bool
) -> None:
    await bot.upgraded(caught_up=False)
    await bot.store.run(lambda tx: tx.mark_replaced(OPS, _kept(encrypted=kept)))
    bot.hs.rooms[OPS] = replace(bot.hs.rooms[OPS], bot_joined=False, encrypted=readable)
    bot.hs.named[OPS] = None
    await bot.parts.world.refresh(OPS)
    await bot.look()
    assert (bot.lives_in == NEW) is goes


# Questions that stayed behind


async def test_what_stayed_in_a_room_that_was_left_long_ago_goes_the_same_way(bot: Bot) -> None:
    await bot.upgraded()
    await bot.look()
    await bot.upgraded(NEW, NEWER)
    await bot.look()
    stays = await _asked_in(bot, OPS)
    await bot.look(after_s=LONGEST_RETRY_S)
    assert (await bot.parts.broker.question(stays.row)).asked.room_id == NEWER


async def _asked_in(bot: Bot, room_id: RoomId) -> Question:
    """A question that stands in a room in which its route does not live."""
    question = await bot.asked()
    await bot.store.run(lambda tx: tx.leave(question, room_id, question.asked.attachment, bot.clock.now_ms()))
    return question


async def test_why_what_stayed_behind_does_not_go_is_no_fault_of_the_route(bot: Bot) -> None:
    bot.parts.world.policy = replace(POLICY, routes={ROUTE: replace(FOLLOWS, room_id=NEW)})
    await bot.parts.world.refresh(NEW)
    await _asked_in(bot, OPS)
    await bot.upgraded(OPS, ELSE)
    bot.hs.named[OPS] = None
    assert await bot.look() == 1
    assert (bot.lives_in, bot.why) == (NEW, "")


async def test_what_stayed_behind_goes_only_where_its_route_lives(bot: Bot) -> None:
    bot.parts.world.policy = replace(POLICY, routes={ROUTE: replace(FOLLOWS, room_id=NEW)})
    await bot.parts.world.refresh(NEW)
    question = await _asked_in(bot, OPS)
    await bot.upgraded(OPS, ELSE)
    with capture_logs() as lines:
        await bot.look()
    assert [line["why"] for line in lines if line["event"] == "upgrade_not_followed"] == ["leads_elsewhere"]
    assert (await bot.parts.broker.question(question.row)).asked.room_id == OPS
    await bot.upgraded(OPS, NEW)
    await bot.look(after_s=LONGEST_RETRY_S)
    assert (await bot.parts.broker.question(question.row)).asked.room_id == NEW
