"""Quiet hours: a part of every day, in one time zone, in which nobody is to be woken."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import time, tzinfo

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From `start` up to, and without, `end`, by the wall clocks of `zone`; over midnight where `end` is the earlier.

    The two differ, and both are whole minutes.
    """

    start: time
    end: time
    zone: tzinfo

    def __str__(self) -> str:
        """As the configuration writes it."""
        return f'{{from: "{self.start:%H:%M}", to: "{self.end:%H:%M}", timezone: {self.zone}}}'

    def holds(self, at_ms: int) -> bool:
        """Whether it is quiet then."""
        return self._holds(_EPOCH + timedelta(milliseconds=at_ms))

    def end_of(self, at_ms: int) -> int:
        """When the quiet that holds at `at_ms` is over, in UTC milliseconds; `at_ms` itself where none does."""
        if not self.holds(at_ms):
            return at_ms
        at = _EPOCH + timedelta(milliseconds=at_ms)
        today = at.astimezone(self.zone).date()
        # A day may have an end twice, or none: clocks can also skip all of it that is not quiet.
        days = [datetime.combine(today + timedelta(days=later), self.end, self.zone) for later in range(3)]
        ends = [end.replace(fold=fold).astimezone(UTC) for end in days for fold in (0, 1)]
        end = min(each for each in ends if each > at and not self._holds(each))
        # Where clocks skip the end itself, the quiet is over with the skip.
        while end - _MINUTE > at and not self._holds(end - _MINUTE):
            end -= _MINUTE
        return (end - _EPOCH) // timedelta(milliseconds=1)

    def _holds(self, at: datetime) -> bool:
        now = at.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end
