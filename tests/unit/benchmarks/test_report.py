from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from benchmarks.figures import Round
from benchmarks.report import report

if TYPE_CHECKING:
    from benchmarks.report import Results


def results(daemon_s: float, own_s: float, *, rounds: int = 40, pairs: int = 5) -> Results:
    """Raw and nio take 100 ms; the daemon takes `daemon_s`, of it `own_s` by itself."""

    def arm(total: float, own: float) -> list[list[Round]]:
        one = Round(total=total, before=own, away=total - own, late=0.0, after=0.0)
        return [[one] * rounds for _ in range(pairs)]

    return {"daemon": arm(daemon_s, own_s), "raw": arm(0.1, 0.001), "nio": arm(0.1, 0.001)}


def test_a_run_within_both_bounds_passes_and_shows_its_numbers() -> None:
    text, kept = report(results(0.11, 0.007), Random(1))
    assert kept
    assert "PASS  1.100 times raw, at most 1.15" in text
    assert "PASS  7.0 ms own path, at most 15.0 ms" in text
    assert "through the daemon             200      5  110.0 ms  110.0 ms" in text
    assert "a look" not in text


def test_encrypted_arms_stand_beside_the_plain_ones_and_change_no_verdict() -> None:
    plain = results(0.11, 0.007)
    sealed = {"sealed-daemon": results(0.18, 0.03)["daemon"], "sealed-nio": results(0.15, 0.02)["daemon"]}
    text, kept = report({**plain, **sealed}, Random(1))
    assert kept
    assert "the daemon, encrypted          200      5  180.0 ms  180.0 ms" in text
    assert "encrypted daemon to nio          1.200   1.200 to 1.200" in text
    assert "daemon encrypted to plain        1.636   1.636 to 1.636" in text
    assert "encrypted" not in report(plain, Random(1))[0]


@pytest.mark.parametrize(
    ("daemon_s", "own_s", "said"),
    [
        (0.116, 0.007, "FAIL  1.160 times raw, at most 1.15"),
        (0.11, 0.0151, "FAIL  15.1 ms own path, at most 15.0 ms"),
    ],
)
def test_one_bound_that_is_not_kept_fails_the_run(daemon_s: float, own_s: float, said: str) -> None:
    text, kept = report(results(daemon_s, own_s), Random(1))
    assert not kept
    assert said in text


@pytest.mark.parametrize(("rounds", "pairs"), [(39, 5), (60, 4)])
def test_a_short_run_says_that_it_is_only_a_look(rounds: int, pairs: int) -> None:
    text, _ = report(results(0.11, 0.007, rounds=rounds, pairs=pairs), Random(1))
    assert "this was a look" in text


def test_a_pair_without_a_round_is_no_result() -> None:
    with pytest.raises(ValueError, match="without a round"):
        report(results(0.11, 0.007, rounds=0), Random(1))
