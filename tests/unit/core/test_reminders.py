"""When people are reminded, and when nobody is notified."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, time

import pytest

from agentpod_bot.core.quiet import QuietHours
from agentpod_bot.core.reminders import is_quiet, quiet_until, remind_at
from tests.examples import MINUTE, OPS_ROUTE, START

NOON = int(datetime(2026, 11, 7, 12, tzinfo=UTC).timestamp()) * 1000
LUNCH = replace(OPS_ROUTE, quiet=QuietHours(time(12), time(13), UTC))


def test_nobody_is_reminded_unless_the_route_wants_it() -> None:
    assert OPS_ROUTE.remind_before_ms is None
    assert remind_at(OPS_ROUTE, asked_ms=START, expires_at_ms=START + 30 * MINUTE) is None


@pytest.mark.parametrize(("life_min", "at_min"), [(30, 25), (6, 1), (5, None), (4, None)])
def test_a_question_that_is_open_for_no_longer_than_the_notice_has_no_reminder(
    life_min: int, at_min: int | None
) -> None:
    route = replace(OPS_ROUTE, remind_before_ms=5 * MINUTE)
    at_ms = remind_at(route, asked_ms=START, expires_at_ms=START + life_min * MINUTE)
    assert at_ms == (None if at_min is None else START + at_min * MINUTE)


def test_a_route_without_quiet_hours_is_never_quiet() -> None:
    assert not is_quiet(OPS_ROUTE, NOON)
    assert quiet_until(OPS_ROUTE, now_ms=NOON, expires_at_ms=NOON + 90 * MINUTE) is None


@pytest.mark.parametrize(("life_min", "until_min"), [(90, 60), (61, 60), (60, None), (30, None)])
def test_quiet_hours_hold_something_back_only_for_a_question_that_outlives_them(
    life_min: int, until_min: int | None
) -> None:
    until_ms = quiet_until(LUNCH, now_ms=NOON, expires_at_ms=NOON + life_min * MINUTE)
    assert until_ms == (None if until_min is None else NOON + until_min * MINUTE)
    assert is_quiet(LUNCH, NOON)
