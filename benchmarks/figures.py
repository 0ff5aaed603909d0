"""Rounds as they were measured; tails and ratios of them, and how far chance may have moved those. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

T = TypeVar("T")

RESAMPLES = 1_000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Round:
    """What one round took, in seconds; the phases add up to `total`."""

    total: float
    before: float
    """From the ask to the question on the wire."""
    away: float
    """The homeserver, the person, and the homeserver again."""
    late: float
    """For how long the homeserver had taken the answer when the sync that brought it was only begun."""
    after: float
    """From the answer on the wire, as a sync response, to the end of the ask."""

    @property
    def own(self) -> float:
        """Everything outside the homeserver and the person."""
        return self.before + self.late + self.after


@dataclass(frozen=True, slots=True)
class Ratio:
    """Median through median, with the interval that holds it at `LEVEL`."""

    value: float
    low: float
    high: float


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` (0 to 1) of the values lie, interpolated between neighbours.

    Raises ValueError where there is no value.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def pooled(groups: Iterable[Iterable[T]]) -> list[T]:
    """Return the values of all groups together."""
    return list(chain.from_iterable(groups))


def ratio(
    over: Sequence[Sequence[float]],
    under: Sequence[Sequence[float]],
    chance: Random,
    *,
    resamples: int = RESAMPLES,
) -> Ratio:
    """Return the ratio of the pooled medians, and its bootstrap interval.

    The arguments are the values of two arms, one group for each pair of accounts; no
    group is empty.

    Each resample draws groups first and then values inside of them: two pairs of accounts
    that do the same thing differ by more than their rounds' own scatter, and an interval
    that drew from the pool alone would be too narrow.
    """
    drawn = [median(_resampled(over, chance)) / median(_resampled(under, chance)) for _ in range(resamples)]
    rest = (1 - LEVEL) / 2
    value = median(pooled(over)) / median(pooled(under))
    return Ratio(value, percentile(drawn, rest), percentile(drawn, 1 - rest))


def _resampled(groups: Sequence[Sequence[float]], chance: Random) -> list[float]:
    drawn = chance.choices(groups, k=len(groups))
    return pooled([chance.choices(group, k=len(group)) for group in drawn])
