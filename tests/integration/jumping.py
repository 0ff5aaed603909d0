"""The real daemon, whose monotonic clock jumps: `python jumping.py run …` is `agentpod-bot run …` but for that.

Each SIGUSR1 lets half a minute pass at once. Only the daemon's own reckoning hears of it; what
sleeps, sleeps on.
"""

from __future__ import annotations

import signal

from agentpod_bot import system
from agentpod_bot.__main__ import main

JUMP_S = 30.0


class JumpingClock(system.SystemClock):
    """Stands in for the system's."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        """Seconds that never go back, but sometimes far ahead."""
        return super().monotonic() + self.ahead_s

    @classmethod
    def jump(cls, *_: object) -> None:
        """Go ahead."""
        cls.ahead_s += JUMP_S


if __name__ == "__main__":
    system.SystemClock = JumpingClock  # type: ignore[misc]  # before the daemon takes its clock from there
    signal.signal(signal.SIGUSR1, JumpingClock.jump)
    main()
