"""Routes on which nothing can be asked now, and why; told in the log once for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from agentpod_bot.core.policy import check_reachable
from agentpod_bot.errors import RoomReplaced, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.broker.world import World
    from agentpod_bot.core.ids import RouteName

log = structlog.get_logger(__name__)


class ClosedRoutes:
    """Looks at every route with the eyes of a new request."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._told: Mapping[RouteName, str] = {}

    def now(self) -> Mapping[RouteName, str]:
        """Closed routes, each with the code that a request on it is refused with."""
        policy = self._world.policy
        closed: dict[RouteName, str] = {}
        for name, route in policy.routes.items():
            try:
                room = self._world.room(route.room_id)
                check_reachable(policy, route, room, can_encrypt=self._world.can_encrypt)
            except Unavailable as error:
                closed[name] = RoomReplaced.code if self._world.is_replaced(route.room_id) else error.code
        return closed

    def look(self) -> None:
        """Log which routes were closed or opened since the last look."""
        closed = self.now()
        for name, code in closed.items():
            if self._told.get(name) != code:
                log.warning("route_closed", route=name, code=code)
        for name in self._told.keys() - closed.keys():
            log.info("route_open", route=name)
        self._told = closed
