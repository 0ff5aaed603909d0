"""What the running process knows beside the store: the policy, the rooms, and how Matrix is.

All of it is asked for anew at every start; none of it decides what an answer was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from agentpod_bot.core.policy import Trust
from agentpod_bot.core.room import Created, EncryptionOn, Membered, Membership, Powered, Replaced, RoomState
from agentpod_bot.core.upgrades import settled, stations
from agentpod_bot.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agentpod_bot.core.ids import RoomId, RouteName, UserId
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import Device, RoomBatch
    from agentpod_bot.core.upgrades import Moves, NotFollowed
    from agentpod_bot.ports import Homeserver, Store, Tx

LATE_MS = 86_400_000
"""For so long after its end an answer to a question may still come, whose sender is owed a word."""


class World:
    """The policy in force and the last known state of every configured room."""

    def __init__(self, policy: Policy, homeserver: Homeserver, store: Store) -> None:
        self._configured = self._policy = policy
        self._store = store
        self._moves: Moves = {}
        self._not_followed: Mapping[RouteName, NotFollowed] = {}
        self._awaited: dict[RoomId, frozenset[RouteName]] = {}
        """Rooms into which routes may go, and those routes."""
        self.trouble: Callable[[], str | None] = lambda: "the first sync is not done yet"
        """Why nothing can be asked now (never synced, token refused, sync stale), or None."""
        self.held: Callable[[], bool] = lambda: False
        """Whether nothing may be sent now, because what was sent before is not known yet."""
        self._homeserver = homeserver
        self._rooms: dict[RoomId, RoomState] = {}
        self._replaced: set[RoomId] = set()
        """Rooms that were replaced, and of which nothing is known now."""
        self._lingering: frozenset[RoomId] = frozenset()
        self._touched: Counter[RoomId] = Counter()

    @property
    def policy(self) -> Policy:
        """The rules in force: those configured, with routes that follow upgrades in the rooms where they live now."""
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        # Somebody may still answer a question in a room that no route names any more.
        self.linger(self._policy.rooms() & self._rooms.keys())
        self._configured = policy
        following = {name for name, route in policy.routes.items() if route.follow_upgrades}
        self._awaited = {room_id: left for room_id, names in self._awaited.items() if (left := names & following)}
        self.settle(self._moves, self._not_followed)

    @property
    def moves(self) -> Moves:
        """Every step that a route made into the room that replaced its own."""
        return self._moves

    def settle(self, moves: Moves, not_followed: Mapping[RouteName, NotFollowed]) -> None:
        """Have each route live where it went, and say of the others why they did not go."""
        self._moves, self._not_followed = moves, not_followed
        for route in self._configured.routes.values():
            if route.follow_upgrades:  # whoever answers in a room that was left is told why that counts no longer
                self.linger(stations(route, moves)[:-1])
        self._policy = settled(self._configured, moves, not_followed)

    def wait_for(self, room_id: RoomId, route: RouteName) -> None:
        """A route may go into this room: what happens there is heard, and an approver may invite the bot."""
        self._awaited[room_id] = self._awaited.get(room_id, frozenset()) | {route}

    def is_awaited(self, room_id: RoomId) -> bool:
        """Whether a route may go into this room."""
        return room_id in self._awaited

    def may_invite(self, sender: UserId, room_id: RoomId) -> bool:
        """Whether an invitation is followed: an approver's, into a room of a route or one that may become it."""
        routes = (self.policy.routes.get(name) for name in self._awaited.get(room_id, ()))
        awaited = any(route is not None and sender in route.approvers for route in routes)
        return awaited or self.policy.may_invite(sender, room_id)

    @property
    def own(self) -> UserId:
        """The bot's account."""
        return self.policy.own

    def room(self, room_id: RoomId) -> RoomState | None:
        """The room's state, None while it is not known."""
        return self._rooms.get(room_id)

    def known(self, room_id: RoomId) -> bool:
        """Whether answers in this room can be judged."""
        room = self._rooms.get(room_id)
        return room is not None and _is_known(room)

    @property
    def can_encrypt(self) -> bool:
        """Whether the bot has keys to encrypt with."""
        return self._homeserver.can_encrypt

    def vouches(self, device: Device) -> bool:
        """Whether a device is known to be one that its account has now, and is verified; from any thread."""
        return self._homeserver.vouches(device)

    async def know_voters(self, find: Callable[[Tx], frozenset[UserId]]) -> None:
        """Where votes count by their devices, have the devices of those who are found known as they are now.

        Raises a `MatrixError` where the homeserver does not say, and `StoreUnavailable`.
        """
        if self.policy.trust is not Trust.ALL and (voters := await self._store.run(find)):
            await self._homeserver.know_devices(voters)

    def writable(self, room_id: RoomId) -> RoomState | None:
        """The room as it is known now, if something may be sent into it; None otherwise.

        Nothing may where it is not known whether the room is encrypted, or it is in a way
        that the bot cannot.
        """
        room = self._rooms.get(room_id)
        if room is None or not room.bot_joined or self.held():
            return None
        match room.encrypted:
            case None:
                return None
            case True:
                return room if self.can_encrypt and room.encryption.is_megolm else None
            case False:
                return room

    async def refresh(self, room_id: RoomId) -> None:
        """Ask the homeserver for a room's state; asked again where a sync changed it meanwhile.

        A room that was ever seen encrypted is encrypted, whatever the homeserver says now,
        and one whose tombstone was processed is replaced. Raises `MatrixError`, and
        `StoreUnavailable` where that cannot be looked up or kept.
        """
        while True:
            before = self._touched[room_id]
            asked = await self._homeserver.room_state(room_id)
            room = await self._store.run(lambda tx, asked=asked: _remembered(tx, asked))  # type: ignore[misc]  # bound now
            if self._touched[room_id] == before:
                self._rooms[room_id] = room
                return

    def switch_on(self, parts: Iterable[RoomBatch]) -> None:
        """Take over at once where parts of a response switch encryption on: nothing may go out in clear meanwhile.

        It is never undone, so it holds also where the rest of the response is handled later.
        """
        for part in parts:
            room = self._rooms.get(part.room_id)
            for event in (*part.state, *part.timeline):
                if room is not None and not room.encrypted and isinstance(event, EncryptionOn):
                    room = replace(room, encrypted=True, encryption=event.encryption)
                    self._touched[part.room_id] += 1
                    self._rooms[part.room_id] = room

    def heard(self) -> frozenset[RoomId]:
        """Rooms whose events are judged: those of the routes, those with earlier questions, and such as may be next."""
        return self.policy.rooms() | self._lingering | self._awaited.keys()

    def linger(self, rooms: Iterable[RoomId]) -> None:
        """Go on hearing these rooms, though no route may name them any more."""
        self._lingering |= frozenset(rooms)

    async def recover(self, now_ms: int) -> None:
        """Hear the rooms in which an earlier run asked something that may still be answered, or has something to say.

        Raises `StoreUnavailable`.
        """

        def look(tx: Tx) -> frozenset[RoomId]:
            return tx.asked_in(since_ms=now_ms - LATE_MS) | tx.rooms_due().keys()

        self.linger(await self._store.run(look))

    def after(self, part: RoomBatch) -> RoomState:
        """A known room's state after all of its part of a response, without keeping it yet.

        Membership counts as it is at the end of the part: who left in it decides nothing.
        Raises `Unavailable` where the state is not known, or no longer: it is read by
        others too, and may be lost after somebody looked whether it is known.
        """
        room = self._rooms.get(part.room_id)
        if room is None or not _is_known(room):
            raise Unavailable("the state of a room is not known now", retry_after_s=1)
        return _after(room, part, self.own)

    def adopt(self, rooms: Mapping[RoomId, RoomState]) -> frozenset[RoomId]:
        """Keep new states, once what they belong to is committed. Returns rooms that the bot newly joined."""
        entered = {
            room_id
            for room_id, room in rooms.items()
            if room.bot_joined and not ((old := self._rooms.get(room_id)) and old.bot_joined)
        }
        for room_id, room in rooms.items():
            self._touched[room_id] += 1
            old = self._rooms.get(room_id)
            # What the batch did not know may have been read while it was handled.
            new = room
            if old is not None and room.powers is None:
                new = replace(new, powers=old.powers, creators=old.creators)
            if old is not None and old.encrypted and not room.encrypted:
                new = replace(new, encrypted=True, encryption=old.encryption)
            self._rooms[room_id] = new
        return frozenset(entered)

    def forget(self, room_id: RoomId) -> None:
        """What is known of a room may be wrong: nothing is asked there until it was read anew."""
        room = self._rooms.pop(room_id, None)
        if room is not None and room.replaced:
            self._replaced.add(room_id)

    def is_replaced(self, room_id: RoomId) -> bool:
        """Whether a room is known to be replaced by another: for good, so also while nothing else is known of it."""
        room = self._rooms.get(room_id)
        return room_id in self._replaced if room is None else room.replaced

    def unknown(self) -> frozenset[RoomId]:
        """Configured rooms whose state has to be read."""
        return frozenset(room_id for room_id in self.heard() if not self.known(room_id))

    def powerless(self) -> frozenset[RoomId]:
        """Rooms in which a route's approvers go by power levels that are not known: read again, now and then."""
        wanted = {route.room_id for route in self.policy.routes.values() if route.approver_level is not None}
        return frozenset(
            room_id
            for room_id in wanted
            if (room := self._rooms.get(room_id)) is not None and room.bot_joined and room.powers is None
        )


def _is_known(room: RoomState) -> bool:
    return room.encrypted is not None or not room.bot_joined


def _remembered(tx: Tx, room: RoomState) -> RoomState:
    """A room's state as it was asked for, with what the store remembers of it."""
    if room.encrypted:
        tx.mark_encrypted(room.room_id, judged=False)  # its timeline may still show when that began
    elif room.encrypted is False and tx.is_encrypted(room.room_id):
        room = replace(room, encrypted=True)
    # A tombstone is never taken back; whoever is out of the room may be told nothing of it.
    return replace(room, replaced=True) if tx.is_replaced(room.room_id) else room


def _after(room: RoomState, part: RoomBatch, own: UserId) -> RoomState:
    events: Iterable[object] = (*part.state, *part.timeline)
    for event in events:
        match event:
            case Membered(user_id=user_id, membership=Membership.JOIN):
                room = replace(room, joined=room.joined | {user_id}, bot_joined=room.bot_joined or user_id == own)
            case Membered(user_id=user_id):
                room = replace(room, joined=room.joined - {user_id}, bot_joined=room.bot_joined and user_id != own)
            case EncryptionOn(encryption=encryption):
                room = replace(room, encrypted=True, encryption=encryption)
            case Replaced():
                room = replace(room, replaced=True)
            case Powered(powers=powers):
                room = replace(room, powers=powers)
            case Created(creators=creators):
                room = replace(room, creators=creators)
            case _:
                pass  # says nothing about the room itself
    return replace(room, bot_joined=False) if part.left else room
