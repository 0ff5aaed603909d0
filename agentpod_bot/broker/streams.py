"""Streams of what changes: each reader has its place among its client's changes, and is woken after a commit.

The changes are lines of the audit, so that a place means the same after a restart. Nothing
is kept for a reader but its place: one that is slow reads later, and one that comes back
reads what it missed.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from agentpod_bot.errors import ShuttingDown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from agentpod_bot.broker.waiters import Waiters
    from agentpod_bot.core.ids import ClientName
    from agentpod_bot.core.journal import Link, Place
    from agentpod_bot.core.kept import Change
    from agentpod_bot.ports import Store, Tx

TOGETHER = 50
"""Changes that are read at a time: what one stream keeps in memory at most."""


class Stream:
    """One reader's place among the changes of a client's requests."""

    def __init__(self, streams: Streams, client: ClientName, begins: Link, *, reset: bool) -> None:
        self._streams = streams
        self._client = client
        self._after = begins.seq
        self._more = True
        self.bell = asyncio.Event()
        self.begins = begins
        """The line after which it begins."""
        self.reset = reset
        """Whether the wanted place is not known, so that changes may have been missed."""

    async def next(self, *, up_to_s: float) -> tuple[Change, ...]:
        """The next changes, oldest first, as soon as there may be any; none where nothing came in `up_to_s` seconds.

        Raises `ShuttingDown`, `StoreUnavailable`.
        """
        if not self._more:
            try:
                async with asyncio.timeout(up_to_s):
                    await self.bell.wait()
            except TimeoutError:
                return ()
        self._streams.check()
        self.bell.clear()  # before the look: what is committed during it rings again
        found = await self._streams.look(self._client, self._after)
        self._more = len(found) == TOGETHER
        if found:
            self._after = found[-1].link.seq
        return found


class Streams:
    """Who reads which client's changes."""

    def __init__(self, store: Store, waiters: Waiters, *, limit: Callable[[], int]) -> None:
        """`limit` says how many calls of one client may wait now."""
        self._store = store
        self._limit = limit
        self._waiters = waiters
        self._open: defaultdict[ClientName, set[Stream]] = defaultdict(set)
        self._rings: Counter[ClientName] = Counter()
        self._looks: dict[tuple[ClientName, int, int], asyncio.Task[tuple[Change, ...]]] = {}
        waiters.at_stop(lambda: self.ring(tuple(self._open)))

    @asynccontextmanager
    async def open(self, client: ClientName, place: Place | None) -> AsyncIterator[Stream]:
        """Read a client's changes after a place, or from now on; it counts as one of its waiting calls.

        A place that is not known (older than what is kept, or of a store that is no longer
        here) is told by `reset`, and it begins now. Raises `ShuttingDown`, `TooManyWaits`,
        `StoreUnavailable` on entering.
        """
        with self._waiters.counted(client, limit=self._limit()):
            begins, reset = await self._store.run(lambda tx: _begins(tx, place))
            stream = Stream(self, client, begins, reset=reset)
            self._open[client].add(stream)
            try:
                yield stream
            finally:
                self._open[client].discard(stream)
                if not self._open[client]:
                    del self._open[client]

    def ring(self, clients: Iterable[ClientName]) -> None:
        """Changes of these clients' requests were committed, or nothing will be any more."""
        for client in clients:
            if client in self._open:
                self._rings[client] += 1
                for stream in self._open[client]:
                    stream.bell.set()

    def check(self) -> None:
        """Raise `ShuttingDown` once the daemon goes down."""
        if self._waiters.stopping:
            raise ShuttingDown(None)

    async def look(self, client: ClientName, after: int) -> tuple[Change, ...]:
        """Read changes after a line. Streams at the same place look once, all of them since the last ring."""
        key = (client, after, self._rings[client])
        look = self._looks.get(key)
        if look is None:
            work = self._store.run(lambda tx: tx.changes(client, after=after, at_most=TOGETHER))
            look = self._looks[key] = asyncio.ensure_future(work)
            look.add_done_callback(lambda done: self._looked(key, done))
        return await asyncio.shield(look)

    def _looked(self, key: tuple[ClientName, int, int], look: asyncio.Task[tuple[Change, ...]]) -> None:
        del self._looks[key]
        if not look.cancelled():
            look.exception()  # whoever waits for it gets it; everybody may have gone


def _begins(tx: Tx, place: Place | None) -> tuple[Link, bool]:
    """After which line a stream begins, and whether that is not the place that was wanted."""
    head = tx.head()
    if place is None:
        return head, False
    link = tx.link(place.seq)
    if link is None or not place.is_of(link):
        return head, True
    return link, False
