"""When a target is tried: how long each outcome waits, and when the whole target is left in peace."""

from __future__ import annotations

RETRY_S = (2, 4, 8, 15, 30, 60, 120, 300, 600, 1200, 2400, 3600)
"""How long to wait after the first, second … failed try at most; the last stands for all that follow."""
FAILURES_TO_OPEN = 5
PROBE_EVERY_MS = 60_000
MOST_AT_ONCE = 4
"""Outcomes that one target is posted at the same time."""


def backoff_ms(attempts: int, chance: float) -> int:
    """Milliseconds until the next try: the second half of each step is left to chance (0 to 1)."""
    full = RETRY_S[min(attempts, len(RETRY_S)) - 1] * 1000
    return full // 2 + int(full / 2 * chance)


class Circuit:
    """One target. After `FAILURES_TO_OPEN` failures in a row it is only probed, one outcome at a time.

    Kept in memory: after a restart a target is taken to be well until it shows otherwise.
    """

    def __init__(self) -> None:
        self._failures = 0
        self._not_before_ms = 0

    @property
    def is_open(self) -> bool:
        """Whether the target is only probed."""
        return self._failures >= FAILURES_TO_OPEN

    @property
    def not_before_ms(self) -> int:
        """The target is left in peace until then."""
        return self._not_before_ms

    def room(self, now_ms: int, *, under_way: int) -> int:
        """How many more outcomes may be posted now."""
        if now_ms < self._not_before_ms:
            return 0
        return max(0, (1 if self.is_open else MOST_AT_ONCE) - under_way)

    def answered(self) -> bool:
        """The target is well. True where it was only probed until now."""
        was_open = self.is_open
        self._failures = 0
        self._not_before_ms = 0
        return was_open

    def failed(self, now_ms: int, retry_after_ms: int | None) -> bool:
        """A try failed; `retry_after_ms` is what the target asked for. True where this opened the circuit."""
        was_open = self.is_open
        self._failures += 1
        wait_ms = max(retry_after_ms or 0, PROBE_EVERY_MS if self.is_open else 0)
        self._not_before_ms = max(self._not_before_ms, now_ms + wait_ms)
        return self.is_open and not was_open
