"""Routes that follow upgrades: looks into the rooms that replaced theirs, and goes there once all conditions hold.

Until they do a route stays closed, with a reason that is logged once and told to whoever
asks. It is looked at again when something happens in one of the rooms, and now and then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.moving import Moved, move
from agentpod_bot.core.upgrades import NotFollowed, link_fault
from agentpod_bot.errors import MatrixError, Refused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentpod_bot.broker.change import Means
    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.core.ids import RoomId, RouteName
    from agentpod_bot.core.policy import Route
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.core.upgrades import Successor
    from agentpod_bot.ports import Homeserver, Store

log = structlog.get_logger(__name__)

SOONEST_S = 5.0
"""However much happens in the rooms, they are not looked at more often."""
FIRST_RETRY_S = 30.0
LONGEST_RETRY_S = 600.0
MOST_HOPS = 20
"""So many upgrades in a row are followed at once; nobody upgrades a room so often while nothing looks."""


@dataclass(slots=True)
class Tried:
    """A try that did not succeed: why, and by the monotonic clock when it was, and when the next one is due."""

    why: NotFollowed
    at_s: float
    next_s: float
    wait_s: float


class Upgrades:
    """Moves routes. What it has done stands in the store; what it waits for is found out anew at each start."""

    def __init__(self, store: Store, homeserver: Homeserver, means: Means, commit: Commit) -> None:
        self._store = store
        self._homeserver = homeserver
        self._means = means
        self._commit = commit
        self._tried: dict[tuple[RouteName, RoomId], Tried] = {}
        self._wakes = 0

    async def recover(self) -> None:
        """Have each route live where it went in an earlier run. Raises `StoreUnavailable`."""
        self._means.world.settle(await self._store.run(lambda tx: tx.moves()), {})

    def wake(self, rooms: Iterable[RoomId], *, at_once: bool = False) -> bool:
        """Something happened in these rooms: look again now where that may matter. True where it may.

        `at_once`, where the bot joined them: what was found before says nothing of them.
        """
        world = self._means.world
        looked = {room_id for _, room_id in self._tried}
        matters = any(
            room_id in looked or world.is_awaited(room_id) or _is_replaced(world.room(room_id)) for room_id in rooms
        )
        if matters:
            self._wakes += 1
            for tried in self._tried.values():
                tried.next_s = min(tried.next_s, tried.at_s + (0.0 if at_once else SOONEST_S))
        return matters

    def due_in_s(self) -> float:
        """Seconds until something is to be looked at again, if nothing happens."""
        now = self._means.clock.monotonic()
        return max(1.0, min((tried.next_s - now for tried in self._tried.values()), default=LONGEST_RETRY_S))

    async def look(self) -> None:
        """Try what is due: every route that follows and whose room was replaced."""
        world = self._means.world
        if world.held() or not any(route.follow_upgrades for route in world.policy.routes.values()):
            return
        try:
            wanted = {key for route in world.policy.routes.values() for key in await self._left_behind(route)}
            self._tried = {key: tried for key, tried in self._tried.items() if key in wanted}
            for name, room_id in sorted(wanted):
                await self._try(name, room_id)
        except StoreUnavailable as error:
            log.warning("upgrades_wait_for_the_store", error=str(error))
        here = {name: tried.why for (name, room_id), tried in self._tried.items() if self._lives_in(name, room_id)}
        world.settle(world.moves, here)

    async def _left_behind(self, route: Route) -> list[tuple[RouteName, RoomId]]:
        """Replaced rooms of a route: that in which it lives, and those in which questions of it still stand.

        Of the latter there are some where the configuration named the new room before the route went there.
        """
        if not route.follow_upgrades:
            return []
        now_ms = self._means.clock.now_ms()
        strays = await self._store.run(lambda tx: tx.stray_rooms(route.name, route.room_id, now_ms))
        rooms = sorted({route.room_id, *strays})
        return [(route.name, room_id) for room_id in rooms if _is_replaced(self._means.world.room(room_id))]

    async def _try(self, name: RouteName, room_id: RoomId) -> None:
        now = self._means.clock.monotonic()
        before = self._tried.get((name, room_id))
        if before is not None and now < before.next_s:
            return
        wakes = self._wakes
        caught_up = await self._store.run(lambda tx: tx.is_replaced(room_id))
        done = await self._follow(name, room_id) if caught_up else NotFollowed.NOT_CAUGHT_UP
        if done is NotFollowed.NOT_CAUGHT_UP:
            # What is to be read there may hold answers; once it is read, there is no reason to wait.
            self._tried[name, room_id] = Tried(done, now - SOONEST_S, now + FIRST_RETRY_S, FIRST_RETRY_S)
            return
        if isinstance(done, Moved):
            self._tried.pop((name, room_id), None)
            return
        if before is None or before.why is not done:
            log.warning("upgrade_not_followed", route=name, room_id=room_id, why=done.value)
        wait_s = FIRST_RETRY_S if before is None else min(LONGEST_RETRY_S, before.wait_s * 2)
        # What happened during the try may have come too late for it.
        next_s = now + (wait_s if wakes == self._wakes else SOONEST_S)
        self._tried[name, room_id] = Tried(done, now, next_s, wait_s)

    async def _follow(self, name: RouteName, start: RoomId) -> Moved | NotFollowed:
        """Go as far as the upgrades lead, if every condition holds there."""
        world = self._means.world
        try:
            hops = await self._hops(world.policy.routes[name], start)
        except MatrixError as error:
            log.warning("successor_unknown", route=name, room_id=start, error=error.code, reason=str(error))
            return NotFollowed.UNREACHABLE
        if isinstance(hops, NotFollowed):
            return hops
        if not self._lives_in(name, start) and not self._lives_in(name, hops[-1]):
            return NotFollowed.ELSEWHERE  # the configuration names another room by now
        target = world.room(hops[-1])
        if target is None or not target.bot_joined:
            return NotFollowed.NOT_CAUGHT_UP  # a sync that is older than the joining went over what was read
        done = await self._commit(lambda tx, after: move(tx, name, hops, target, after=after, means=self._means))
        if isinstance(done, Moved):
            world.settle(world.moves | {(name, left): entered for left, entered in pairwise(hops)}, {})
            log.info(
                "upgrade_followed",
                route=name,
                room_id=hops[-1],
                asked_again=done.asked_again,
                given_up=done.given_up,
            )
        return done

    async def _hops(self, route: Route, start: RoomId) -> Sequence[RoomId] | NotFollowed:
        """The rooms from the first to the one that was not replaced. Raises `MatrixError`."""
        world = self._means.world
        hops = [start]
        left = {room_id for name, room_id in world.moves if name == route.name}
        while (old := world.room(hops[-1])) is not None and old.replaced:
            tombstone = await self._named_by(old)
            if tombstone is None:
                return NotFollowed.UNNAMED
            if tombstone.room_id in hops or (tombstone.room_id in left and start not in left) or len(hops) > MOST_HOPS:
                return NotFollowed.CYCLE
            new = await self._enter(tombstone, route.name)
            if new is None:
                return NotFollowed.NOT_JOINED
            origin = await self._homeserver.origin(new.room_id)
            fault = link_fault(route, await self._remembered(old), new, origin, tombstone)
            if fault is not None:
                return fault
            if not origin.speaks and not new.replaced:
                return NotFollowed.NOT_SPEAKING
            hops.append(new.room_id)
        return hops if old is not None and len(hops) > 1 else NotFollowed.UNREACHABLE

    async def _enter(self, tombstone: Successor, name: RouteName) -> RoomState | None:
        """The state of the room that a tombstone names, once the bot is in it; None where it may not join."""
        world = self._means.world
        world.wait_for(tombstone.room_id, name)
        room = world.room(tombstone.room_id)
        if room is None or not room.bot_joined:
            try:
                await self._homeserver.join(tombstone.room_id, tombstone.servers)
            except Refused as error:
                log.info("successor_not_joined", route=name, room_id=tombstone.room_id, errcode=error.errcode)
                return None
            log.info("successor_joined", route=name, room_id=tombstone.room_id)
            await world.refresh(tombstone.room_id)
        room = world.room(tombstone.room_id)
        return room if room is not None and room.bot_joined else None

    async def _named_by(self, room: RoomState) -> Successor | None:
        """The room that a room's tombstone names. Raises `MatrixError`.

        Of one that the bot is out of, the homeserver may say nothing: then it is what the
        tombstone said when it was processed.
        """
        if room.bot_joined:
            return await self._homeserver.successor(room.room_id)
        try:
            named = await self._homeserver.successor(room.room_id)
        except Refused:
            named = None
        if named is None:
            kept = await self._store.run(lambda tx: tx.tombstone(room.room_id))
            named = None if kept is None else kept.successor
        return named

    async def _remembered(self, room: RoomState) -> RoomState:
        """A room's state; one that ever was encrypted still is, whatever the homeserver says."""
        was = await self._store.run(lambda tx: tx.is_encrypted(room.room_id))
        if was:
            return replace(room, encrypted=True)
        if room.encrypted is None and not room.bot_joined:
            kept = await self._store.run(lambda tx: tx.tombstone(room.room_id))
            return room if kept is None else replace(room, encrypted=kept.encrypted)
        return room

    def _lives_in(self, name: RouteName, room_id: RoomId) -> bool:
        route = self._means.world.policy.routes.get(name)
        return route is not None and route.room_id == room_id


def _is_replaced(room: RoomState | None) -> bool:
    return room is not None and room.replaced
