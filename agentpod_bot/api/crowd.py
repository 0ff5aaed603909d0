"""How many connections may be open: a process out of file descriptors can neither store nor hear an answer."""

from __future__ import annotations

import resource
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from asyncio import BaseProtocol

BACKLOG = 128
"""Connections that the system holds until they are accepted; the event loop accepts as many in one turn."""
RESERVED = 128 + 3 * BACKLOG
"""Descriptors that are left alone: for the store, the homeserver and files, and for connections that are
turned away, since an accepted one is closed in the third turn of the loop after it."""
MOST = 20_000
TOLD_EVERY_S = 60.0

log = structlog.get_logger(__name__)


class Crowd:
    """The open connections of one server, and whether there is room for one more."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._inside: set[BaseProtocol] = set()
        self._turned_away = 0
        self._told_at: float | None = None

    def enter(self, connection: BaseProtocol, now: float) -> bool:
        """Let a connection in, or tell, at most once a minute, that there is no room. `now` is monotonic."""
        if len(self._inside) < self._limit:
            self._inside.add(connection)
            return True
        self._turned_away += 1
        if self._told_at is None or now - self._told_at >= TOLD_EVERY_S:
            log.warning("http_connections_turned_away", limit=self._limit, turned_away=self._turned_away)
            self._told_at, self._turned_away = now, 0
        return False

    def leave(self, connection: BaseProtocol) -> None:
        """Make room, if the connection was let in."""
        self._inside.discard(connection)

    def __contains__(self, connection: object) -> bool:
        """Whether a connection was let in and is still there."""
        return connection in self._inside


def room_for() -> int:
    """How many connections this process may have open at a time, by its limit on file descriptors."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return connections_within(MOST if files == resource.RLIM_INFINITY else files)


def connections_within(files: int) -> int:
    """How many of so many descriptors connections may take: half of them at least, and never all."""
    return min(MOST, max(files // 2, files - RESERVED))
