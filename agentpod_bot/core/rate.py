"""How often a client may ask: a token bucket as a value. Who keeps it, and the clock, are elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Rate:
    """So many in so many milliseconds; all of them may come at once, if none came before."""

    count: int
    per_ms: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """What is left of a rate at a time. `left` is counted in parts of which one question takes `per_ms`.

    So no fraction is ever rounded. `at_ms` is by a clock that never goes back.
    """

    rate: Rate
    left: int
    at_ms: int

    @classmethod
    def full(cls, rate: Rate, at_ms: int) -> Self:
        """A bucket of which nothing was taken."""
        return cls(rate, rate.count * rate.per_ms, at_ms)

    def at(self, now_ms: int) -> Bucket:
        """The same bucket later, with what came in meanwhile."""
        came = (now_ms - self.at_ms) * self.rate.count
        return Bucket(self.rate, min(self.rate.count * self.rate.per_ms, self.left + came), now_ms)

    def take(self) -> Bucket | int:
        """The bucket without one, or how many milliseconds it is until there is one."""
        missing = self.rate.per_ms - self.left
        if missing <= 0:
            return Bucket(self.rate, -missing, self.at_ms)
        return -(-missing // self.rate.count)
