"""A store as it is, with a stopwatch around each transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.ports import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.metrics import Metrics
    from agentpod_bot.ports import Clock, T, Tx


class MeasuredStore(Store):
    """The same store; every transaction is counted, also one whose work raises."""

    def __init__(self, store: Store, metrics: Metrics, clock: Clock) -> None:
        self._store = store
        self._metrics = metrics
        self._clock = clock

    async def run(self, work: Callable[[Tx], T]) -> T:
        """Run `work`, and measure it."""
        began = self._clock.monotonic()
        kept = True
        try:
            return await self._store.run(work)
        except StoreUnavailable:
            kept = False
            raise
        finally:
            self._metrics.stored(self._clock.monotonic() - began, kept=kept)
