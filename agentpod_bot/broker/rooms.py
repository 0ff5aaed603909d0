"""Follows invitations, and keeps the state of every configured room known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.closed_routes import ClosedRoutes
from agentpod_bot.broker.commit import Bell
from agentpod_bot.errors import MatrixError, Refused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.broker.upgrades import Upgrades
    from agentpod_bot.broker.world import World
    from agentpod_bot.core.ids import RoomId
    from agentpod_bot.core.room import Invite
    from agentpod_bot.ports import Homeserver

log = structlog.get_logger(__name__)

AGAIN_S = 5.0
LONGEST_S = 30.0


class Rooms:
    """Joins the rooms into which an approver invited the bot, and reads the state of rooms anew."""

    def __init__(self, world: World, homeserver: Homeserver, upgrades: Upgrades) -> None:
        self._world = world
        self._upgrades = upgrades
        self._homeserver = homeserver
        self._invited: set[RoomId] = set()
        self.closed = ClosedRoutes(world)
        self._bell = Bell()

    def follow(self, invites: Iterable[Invite]) -> None:
        """Join those soon into which an approver invites the bot. Strangers' other rooms are none of the log's."""
        for invite in invites:
            if self._world.may_invite(invite.sender, invite.room_id):
                self._invited.add(invite.room_id)
            elif any(route.room_id == invite.room_id for route in self._world.policy.routes.values()):
                log.warning("invitation_by_no_approver", room_id=invite.room_id, sender=invite.sender)
        if self._invited or self._world.unknown():
            self._bell.ring()

    def heard_of(self, rooms: Iterable[RoomId], *, entered: Iterable[RoomId] = ()) -> None:
        """Something happened in these rooms: routes may be closed or open by it, or go into the next room.

        `entered` are those that the bot joined, of which nothing was known for sure before.
        """
        self.closed.look()
        wakes = (self._upgrades.wake(rooms), self._upgrades.wake(entered, at_once=True))
        if any(wakes):
            self._bell.ring()

    async def settle(self) -> bool:
        """Join and read what is open. False where something has to be tried again."""
        done = True
        for room_id in tuple(self._invited):
            done &= await self._join(room_id)
        for room_id in self._world.unknown() | self._world.powerless():
            try:
                await self._world.refresh(room_id)
            except (MatrixError, StoreUnavailable) as error:
                log.warning("room_state_unknown", room_id=room_id, error=error.code)
                done = False
        await self._upgrades.look()
        self.closed.look()
        return done

    async def run(self) -> None:
        """Settle whenever there is something, until cancelled."""
        while True:
            done = await self.settle()
            await self._bell.heard(up_to_s=min(LONGEST_S if done else AGAIN_S, self._upgrades.due_in_s()))

    async def _join(self, room_id: RoomId) -> bool:
        try:
            await self._homeserver.join(room_id)
        except Refused as error:
            log.warning("invitation_refused", room_id=room_id, errcode=error.errcode)
        except MatrixError as error:
            log.warning("invitation_postponed", room_id=room_id, error=error.code)
            return False
        else:
            log.info("room_joined", room_id=room_id)
            self._world.forget(room_id)
            self._upgrades.wake([room_id], at_once=True)
        self._invited.discard(room_id)
        return True
