"""How the daemon is: what `/readyz` and `/metrics` say, and why nothing can be asked now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agentpod_bot.api.probe import Probe
from agentpod_bot.errors import RoomReplaced, StoreUnavailable
from agentpod_bot.metrics import CONTENT_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.broker.closed_routes import ClosedRoutes
    from agentpod_bot.core.kept import Backlog
    from agentpod_bot.matrix.sync import SyncLoop
    from agentpod_bot.metrics import Metrics
    from agentpod_bot.ports import Clock, Store, Tx

STALE_S = 60.0
"""Older than this, the last good sync no longer says that Matrix is there."""
PROBE_S = 5.0
TROUBLES = {
    "never_synced": "Matrix was not reached yet",
    "token_refused": "the homeserver refuses the bot's access token",
    "sync_stale": f"the homeserver was not heard from for over {STALE_S:g} s",
}


class Health:
    """Looks at the store and at the sync loop whenever it is asked."""

    def __init__(self, store: Store, sync: SyncLoop, closed: ClosedRoutes, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._sync = sync
        self._closed = closed
        self._metrics = metrics
        self._clock = clock
        self._probe = Probe(self._backlog, clock.monotonic)

    def trouble(self) -> str | None:
        """Why Matrix is not there now, in words; None where it is."""
        code = self._trouble_code()
        return None if code is None else TROUBLES[code]

    async def problems(self) -> tuple[str, ...]:
        """Codes of what is wrong: the store must take a write, and Matrix must have been heard from."""
        problems = [StoreUnavailable.code] if await self._probe() is None else []
        if (trouble := self._trouble_code()) is not None:
            problems.append(trouble)
        elif RoomReplaced.code in self._closed.now().values():
            problems.append(RoomReplaced.code)  # for good: only another configuration opens that route
        return tuple(problems)

    def closed_routes(self) -> Mapping[str, str]:
        """Routes on which nothing can be asked, and the code of why."""
        return {str(name): code for name, code in self._closed.now().items()}

    async def exposition(self) -> tuple[bytes, str]:
        """The metrics as they are now, and their content type."""
        self._metrics.backlog(await self._probe(), self._clock.now_ms())
        return self._metrics.render(), CONTENT_TYPE

    def last_good_sync(self) -> float:
        """Seconds since 1970; 0 where there was none yet."""
        last = self._sync.last_good_sync
        return 0.0 if last is None else self._clock.now_ms() / 1000 - (self._clock.monotonic() - last)

    def _trouble_code(self) -> str | None:
        if self._sync.token_refused:
            return "token_refused"
        last = self._sync.last_good_sync
        if last is None:
            return "never_synced"
        return "sync_stale" if self._clock.monotonic() - last > STALE_S else None

    async def _backlog(self) -> Backlog | None:
        """What stands in the store, read in a transaction that writes; None where it takes no write."""

        def look(tx: Tx) -> Backlog:
            tx.touch(self._clock.now_ms())
            return tx.backlog()

        try:
            async with asyncio.timeout(PROBE_S):
                return await self._store.run(look)
        except (StoreUnavailable, TimeoutError):
            return None
