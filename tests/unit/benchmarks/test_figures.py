from __future__ import annotations

from random import Random
from statistics import median

import pytest

from benchmarks.figures import Round, percentile, pooled, ratio


@pytest.mark.parametrize(
    ("share", "value"),
    [(0.0, 1.0), (0.5, 3.0), (0.75, 4.0), (0.95, 4.8), (1.0, 5.0)],
)
def test_a_percentile_lies_between_its_neighbours(share: float, value: float) -> None:
    assert percentile([5.0, 1.0, 4.0, 2.0, 3.0], share) == pytest.approx(value)


def test_the_percentile_of_one_value_is_that_value() -> None:
    assert percentile([7.0], 0.95) == 7.0


def test_there_is_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.95)


def test_the_ratio_is_that_of_the_pooled_medians() -> None:
    over, under = [[2.0, 4.0, 6.0], [8.0, 100.0]], [[1.0], [2.0, 3.0]]
    assert ratio(over, under, Random(1)).value == median(pooled(over)) / median(pooled(under)) == 3.0


def test_the_interval_of_an_arm_to_one_just_like_it_holds_one() -> None:
    chance = Random(2)
    arms = [[[chance.gauss(100, 10) for _ in range(40)] for _ in range(5)] for _ in range(2)]
    found = ratio(arms[0], arms[1], chance, resamples=300)
    assert found.low < 1 < found.high
    assert found.high - found.low < 0.2


def test_the_interval_of_an_arm_that_is_a_third_slower_says_so() -> None:
    chance = Random(3)
    under = [[chance.gauss(90, 5) for _ in range(40)] for _ in range(5)]
    over = [[chance.gauss(120, 5) for _ in range(40)] for _ in range(5)]
    found = ratio(over, under, chance, resamples=300)
    assert 1.2 < found.low < found.value < found.high < 1.5


def test_pairs_that_differ_make_the_interval_wider_than_their_rounds_alone_would() -> None:
    under = [[100.0, 101.0] * 20 for _ in range(5)]
    apart = [[level, level + 1] * 20 for level in (80.0, 90.0, 100.0, 110.0, 120.0)]
    mixed = [pooled(apart)[n::5] for n in range(5)]
    by_pair = ratio(apart, under, Random(4), resamples=300)
    by_round = ratio(mixed, under, Random(4), resamples=300)
    assert by_pair.value == by_round.value
    assert by_pair.high - by_pair.low > by_round.high - by_round.low


def test_what_is_not_the_homeserver_or_the_person_is_our_own() -> None:
    assert Round(total=0.1, before=0.01, away=0.07, late=0.005, after=0.015).own == pytest.approx(0.03)
