"""The real clock and real randomness; everything else gets them handed in."""

from __future__ import annotations

import asyncio
import secrets
import time


class SystemClock:
    """Fits `ports.Clock`."""

    def now_ms(self) -> int:
        """UTC milliseconds since 1970, by the wall clock."""
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds`."""
        await asyncio.sleep(seconds)


class SystemChance:
    """Fits `ports.Chance`, from the operating system's randomness."""

    def hex(self, bits: int) -> str:
        """`bits` random bits as lower-case hex."""
        return secrets.token_hex(bits // 8)

    def choose(self, candidates: str) -> str:
        """One character of `candidates`."""
        return secrets.choice(candidates)
