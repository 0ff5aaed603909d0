from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.broker.world import World
from agentpod_bot.core.ids import EventId, RoomId, UserId
from agentpod_bot.core.room import (
    Created,
    Encryption,
    EncryptionOn,
    Membered,
    Membership,
    Powered,
    Powers,
    Replaced,
    RoomBatch,
    RoomState,
)
from tests.examples import MALLORY, OPS, OPS_ROUTE, OWNER, POD, POLICY, ROOM, ROUTE, SECOND, START

if TYPE_CHECKING:
    from collections.abc import Callable


class Rooms:
    """A homeserver that only knows what it is told of one room."""

    user_id = POD
    can_encrypt = False

    def __init__(self, state: RoomState = ROOM) -> None:
        self.state = state
        self.meanwhile: Callable[[], object] = lambda: None
        self.asked = 0

    async def room_state(self, room_id: RoomId) -> RoomState:
        assert room_id == OPS
        self.asked += 1
        state = self.state
        self.meanwhile()
        return state


def membered(user_id: UserId, membership: Membership) -> Membered:
    return Membered(event_id=EventId("$m"), sender=user_id, ts=START, user_id=user_id, membership=membership)


def part(*timeline: object, state: tuple[object, ...] = (), left: bool = False) -> RoomBatch:
    return RoomBatch(room_id=OPS, state=state, timeline=timeline, left=left)  # type: ignore[arg-type]  # events


class Remembered:
    """A store that only knows which rooms are encrypted, and which were replaced."""

    def __init__(self) -> None:
        self.rooms: dict[RoomId, bool] = {}
        self.replaced: set[RoomId] = set()

    async def run(self, work: Callable[[Remembered], object]) -> object:
        return work(self)

    def is_encrypted(self, room_id: RoomId) -> bool:
        return room_id in self.rooms

    def mark_encrypted(self, room_id: RoomId, *, judged: bool) -> None:
        self.rooms[room_id] = judged

    def is_replaced(self, room_id: RoomId) -> bool:
        return room_id in self.replaced


def world_of(rooms: Rooms, store: Remembered | None = None) -> World:
    return World(POLICY, rooms, store or Remembered())  # type: ignore[arg-type]  # all that is asked of them


@pytest.fixture
async def world() -> World:
    world = world_of(Rooms())
    await world.refresh(OPS)
    return world


async def test_a_batch_changes_nothing_until_it_is_adopted(world: World) -> None:
    after = world.after(part(membered(OWNER, Membership.LEAVE)))
    assert after.joined == ROOM.joined - {OWNER}
    assert world.room(OPS) == ROOM
    assert world.adopt({OPS: after}) == frozenset()
    assert world.room(OPS) == after


async def test_membership_counts_as_it_is_at_the_end_of_the_part(world: World) -> None:
    there_and_gone = part(
        membered(SECOND, Membership.BAN), membered(OWNER, Membership.LEAVE), membered(OWNER, Membership.JOIN)
    )
    assert world.after(there_and_gone).joined == {POD, OWNER, MALLORY}


@pytest.mark.parametrize("membership", [Membership.LEAVE, Membership.BAN, Membership.INVITE, Membership.KNOCK])
async def test_only_a_joined_member_is_joined(world: World, membership: Membership) -> None:
    assert OWNER not in world.after(part(membered(OWNER, membership))).joined


async def test_encryption_and_a_tombstone_are_never_taken_back(world: World) -> None:
    on = EncryptionOn(event_id=EventId("$e"), sender=MALLORY, ts=START)
    gone = Replaced(event_id=EventId("$t"), sender=OWNER, ts=START)
    world.adopt({OPS: world.after(part(on, state=(gone,)))})
    now = world.room(OPS)
    assert now is not None
    assert now.encrypted
    assert now.replaced
    assert world.writable(OPS) is None


@pytest.mark.parametrize(
    "changes", [part(membered(POD, Membership.LEAVE)), part(membered(POD, Membership.BAN)), part(left=True)]
)
async def test_a_bot_that_left_or_was_put_out_is_in_the_room_no_longer(world: World, changes: RoomBatch) -> None:
    assert not world.after(changes).bot_joined


async def test_a_room_that_the_bot_newly_joined_is_told(world: World) -> None:
    world.adopt({OPS: replace(ROOM, bot_joined=False)})
    assert world.adopt({OPS: world.after(part(membered(POD, Membership.JOIN)))}) == {OPS}


async def test_a_state_that_was_read_while_a_sync_changed_the_room_is_read_again() -> None:
    rooms = Rooms()
    world = world_of(rooms)
    gone = replace(ROOM, joined=frozenset({POD}))

    def sync() -> None:
        rooms.meanwhile = lambda: None
        rooms.state = gone
        world.adopt({OPS: gone})

    rooms.meanwhile = sync
    await world.refresh(OPS)
    assert rooms.asked == 2
    assert world.room(OPS) == gone


async def test_power_levels_take_effect_with_their_batch(world: World) -> None:
    levels, more = Powers(users={OWNER: 50}), Powers(users={OWNER: 50, SECOND: 50})
    first = Powered(event_id=EventId("$1"), sender=OWNER, ts=START, powers=levels)
    second = Powered(event_id=EventId("$2"), sender=OWNER, ts=START, powers=more)
    created = Created(event_id=EventId("$c"), sender=OWNER, ts=START, creators=frozenset({MALLORY}))
    after = world.after(part(second, state=(created, first)))
    assert (after.powers, after.creators) == (more, {MALLORY})
    now = world.room(OPS)
    assert now is not None
    assert now.powers is None


async def test_power_levels_that_were_read_while_a_batch_was_handled_are_kept(world: World) -> None:
    after = world.after(part(membered(SECOND, Membership.LEAVE)))
    world.adopt({OPS: replace(ROOM, powers=Powers(users={OWNER: 50}))})
    world.adopt({OPS: after})
    assert world.room(OPS) == replace(after, powers=Powers(users={OWNER: 50}))


async def test_a_room_without_levels_is_read_again_only_where_a_route_goes_by_them(world: World) -> None:
    assert world.powerless() == frozenset()
    world.policy = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, approver_level=50)})
    assert world.powerless() == {OPS}
    assert world.unknown() == frozenset()
    world.adopt({OPS: replace(ROOM, powers=Powers(users={}))})
    assert world.powerless() == frozenset()


async def test_a_forgotten_room_is_unknown_and_takes_nothing(world: World) -> None:
    assert world.unknown() == frozenset()
    assert world.writable(OPS) == ROOM
    world.forget(OPS)
    assert world.unknown() == {OPS}
    assert world.writable(OPS) is None
    assert not world.known(OPS)


async def test_a_room_whose_encryption_is_unknown_is_unknown(world: World) -> None:
    world.adopt({OPS: replace(ROOM, encrypted=None)})
    assert not world.known(OPS)
    assert world.writable(OPS) is None


async def test_rooms_of_an_earlier_configuration_are_still_heard(world: World) -> None:
    old = RoomId("!old")
    assert world.heard() == {OPS}
    world.linger({old})
    assert world.heard() == {OPS, old}
    assert world.unknown() == {old}


ON = EncryptionOn(
    event_id=EventId("$e"), sender=MALLORY, ts=START, encryption=Encryption(rotation_ms=1_000, rotation_messages=5)
)


async def test_an_encrypted_room_is_written_into_by_a_bot_that_can_encrypt_as_it_wants() -> None:
    rooms = Rooms()
    rooms.can_encrypt = True
    world = world_of(rooms)
    await world.refresh(OPS)
    world.adopt({OPS: world.after(part(ON))})
    assert world.writable(OPS) == replace(ROOM, encrypted=True, encryption=ON.encryption)
    odd = replace(ON, encryption=Encryption(is_megolm=False))
    world.adopt({OPS: world.after(part(odd))})
    assert world.writable(OPS) is None


async def test_a_room_once_seen_encrypted_is_encrypted_for_ever_whatever_the_homeserver_says() -> None:
    store = Remembered()
    world = world_of(Rooms(replace(ROOM, encrypted=True)), store)
    await world.refresh(OPS)
    assert store.rooms == {OPS: False}
    later = world_of(Rooms(ROOM), store)
    await later.refresh(OPS)
    assert later.room(OPS) == replace(ROOM, encrypted=True)
    assert later.writable(OPS) is None


@pytest.mark.parametrize("told", [ROOM, RoomState(room_id=OPS, joined=frozenset(), bot_joined=False, encrypted=None)])
async def test_a_room_whose_tombstone_was_processed_is_replaced_whatever_the_homeserver_says(told: RoomState) -> None:
    store = Remembered()
    store.replaced.add(OPS)
    world = world_of(Rooms(told), store)
    await world.refresh(OPS)
    assert world.room(OPS) == replace(told, replaced=True)


async def test_what_cannot_be_asked_is_not_known_also_of_a_room_that_was_encrypted() -> None:
    store = Remembered()
    store.rooms[OPS] = True
    world = world_of(Rooms(replace(ROOM, encrypted=None)), store)
    await world.refresh(OPS)
    assert not world.known(OPS)
    assert world.writable(OPS) is None


async def test_encryption_that_a_response_switches_on_holds_before_the_response_is_handled(world: World) -> None:
    world.switch_on([part(ON)])
    assert world.writable(OPS) is None
    assert world.room(OPS) == replace(ROOM, encrypted=True, encryption=ON.encryption)


async def test_a_state_of_before_encryption_that_is_adopted_late_does_not_undo_it(world: World) -> None:
    before = world.after(part(membered(SECOND, Membership.LEAVE)))
    world.switch_on([part(state=(ON,))])
    world.adopt({OPS: before})
    now = world.room(OPS)
    assert now == replace(before, encrypted=True, encryption=ON.encryption)
