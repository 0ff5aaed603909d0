"""Whether a client may ask one more question now, by its own rate. Lost at a restart, which gives at most one burst."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.rate import Bucket
from agentpod_bot.errors import TooManyRequests

if TYPE_CHECKING:
    from agentpod_bot.core.ids import ClientName
    from agentpod_bot.core.model import Caller
    from agentpod_bot.ports import Clock


class Rates:
    """One bucket a client. Used by one thread only, the store's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[ClientName, Bucket] = {}

    def take(self, caller: Caller) -> None:
        """Count one more question of this client. Raises `TooManyRequests` where its rate has none left."""
        if caller.rate is None:
            self._buckets.pop(caller.client, None)
            return
        now_ms = int(self._clock.monotonic() * 1000)
        kept = self._buckets.get(caller.client)
        if kept is None or kept.rate != caller.rate:
            kept = Bucket.full(caller.rate, now_ms)
        bucket = kept.at(now_ms)
        match bucket.take():
            case Bucket() as less:
                self._buckets[caller.client] = less
            case wait_ms:
                raise TooManyRequests(-(-wait_ms // 1000))
