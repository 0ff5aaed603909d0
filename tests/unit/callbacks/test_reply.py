from __future__ import annotations

import pytest

from agentpod_bot.callbacks.reply import LONGEST_RETRY_AFTER_MS, Failed, Gone, Taken, Why, judged, wait_ms
from agentpod_bot.metrics import CALLBACK_FAILURES
from tests.examples import START


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_an_outcome_is_taken_by_any_2xx(status: int) -> None:
    assert judged(status, "5", START) == Taken()


def test_410_ends_the_tries() -> None:
    assert judged(410, None, START) == Gone()


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (301, Why.REDIRECTED),
        (307, Why.REDIRECTED),
        (400, Why.REFUSED),
        (401, Why.REFUSED),
        (404, Why.REFUSED),
        (429, Why.RATE_LIMITED),
        (500, Why.SERVER_ERROR),
        (503, Why.SERVER_ERROR),
    ],
)
def test_everything_else_is_tried_again(status: int, why: Why) -> None:
    assert judged(status, None, START) == Failed(why, status)


@pytest.mark.parametrize(("status", "heeded"), [(429, 7_000), (503, 7_000), (500, None), (404, None), (302, None)])
def test_retry_after_is_heeded_with_429_and_503(status: int, heeded: int | None) -> None:
    answer = judged(status, "7", START)
    assert isinstance(answer, Failed)
    assert answer.retry_after_ms == heeded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        (" 120 ", 120_000),
        ("99999999999999999999", LONGEST_RETRY_AFTER_MS),
        ("Mon, 26 Oct 2026 08:00:30 GMT", 30_000),
        ("Mon, 26 Oct 2026 08:00:30 -0000", 30_000),
        ("Mon, 26 Oct 2026 07:00:00 GMT", 0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", LONGEST_RETRY_AFTER_MS),
        ("", None),
        (None, None),
        ("-1", None),
        ("1.5", None),
        ("soon", None),
        ("²", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 26 Oct 2026 08:00:30 +99999999999999", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_never_more_than_a_day(text: str | None, expected: int | None) -> None:
    at_eight = 1_793_001_600_000
    assert wait_ms(text, at_eight) == expected


def test_every_reason_has_a_series_that_stands_at_zero() -> None:
    assert {why.value for why in Why} == set(CALLBACK_FAILURES)
