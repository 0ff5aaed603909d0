"""What the running process knows beside the store: the policy, the rooms, and how Matrix is.

All of it is asked for anew at every start; none of it decides what an answer was.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from agentpod_bot.core.room import EncryptionOn, Membered, Membership, Replaced, RoomState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import Batch, RoomBatch
    from agentpod_bot.ports import Homeserver


class World:
    """The policy in force and the last known state of every configured room."""

    def __init__(self, policy: Policy, homeserver: Homeserver) -> None:
        self.policy = policy
        self.trouble: Callable[[], str | None] = lambda: "the first sync is not done yet"
        """Why nothing can be asked now (never synced, token refused, sync stale), or None."""
        self._homeserver = homeserver
        self._rooms: dict[RoomId, RoomState] = {}
        self._touched: Counter[RoomId] = Counter()

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
        return room is not None and (room.encrypted is not None or not room.bot_joined)

    def may_send(self, room_id: RoomId) -> bool:
        """Whether clear text may go into the room now: never where it is, or might be, encrypted."""
        room = self._rooms.get(room_id)
        return room is not None and room.bot_joined and room.encrypted is False

    async def refresh(self, room_id: RoomId) -> None:
        """Ask the homeserver for a room's state; asked again where a sync changed it meanwhile."""
        while True:
            before = self._touched[room_id]
            room = await self._homeserver.room_state(room_id)
            if self._touched[room_id] == before:
                self._rooms[room_id] = room
                return

    def after(self, batch: Batch) -> Mapping[RoomId, RoomState]:
        """The states of the batch's configured rooms after all of it, without keeping them yet.

        Membership counts as it is at the end of the batch: who left in it decides nothing.
        """
        configured = self.policy.rooms()
        return {
            part.room_id: _after(self._rooms[part.room_id], part, self.own)
            for part in batch.rooms
            if part.room_id in configured and part.room_id in self._rooms
        }

    def adopt(self, rooms: Mapping[RoomId, RoomState]) -> frozenset[RoomId]:
        """Keep new states, once what they belong to is committed. Returns rooms that the bot newly joined."""
        entered = {
            room_id
            for room_id, room in rooms.items()
            if room.bot_joined and not ((old := self._rooms.get(room_id)) and old.bot_joined)
        }
        for room_id, room in rooms.items():
            self._touched[room_id] += 1
            self._rooms[room_id] = room
        return frozenset(entered)

    def forget(self, room_id: RoomId) -> None:
        """What is known of a room may be wrong: nothing is asked there until it was read anew."""
        self._rooms.pop(room_id, None)

    def unknown(self) -> frozenset[RoomId]:
        """Configured rooms whose state has to be read."""
        return frozenset(room_id for room_id in self.policy.rooms() if not self.known(room_id))


def _after(room: RoomState, part: RoomBatch, own: UserId) -> RoomState:
    events: Iterable[object] = (*part.state, *part.timeline)
    for event in events:
        match event:
            case Membered(user_id=user_id, membership=Membership.JOIN):
                room = replace(room, joined=room.joined | {user_id}, bot_joined=room.bot_joined or user_id == own)
            case Membered(user_id=user_id):
                room = replace(room, joined=room.joined - {user_id}, bot_joined=room.bot_joined and user_id != own)
            case EncryptionOn():
                room = replace(room, encrypted=True)
            case Replaced():
                room = replace(room, replaced=True)
            case _:
                pass  # says nothing about the room itself
    return replace(room, bot_joined=False) if part.left else room
