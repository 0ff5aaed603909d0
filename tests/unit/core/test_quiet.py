"""Quiet hours by the wall clocks of a zone, also where those are put forward or back."""

from __future__ import annotations

from datetime import UTC, datetime, time
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.quiet import QuietHours

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = QuietHours(time(22), time(7), BERLIN)
LUNCH = QuietHours(time(12), time(13), BERLIN)


def ms(text: str) -> int:
    """A UTC time as the bot counts it."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("hours", "at", "quiet"),
    [
        (NIGHT, "2026-11-07T20:59:59.999", False),
        (NIGHT, "2026-11-07T21:00", True),  # 22:00 in winter
        (NIGHT, "2026-11-08T05:59:59.999", True),
        (NIGHT, "2026-11-08T06:00", False),
        (NIGHT, "2026-07-07T20:00", True),  # 22:00 in summer
        (NIGHT, "2026-07-08T05:00", False),
        (LUNCH, "2026-11-07T10:59", False),
        (LUNCH, "2026-11-07T11:00", True),
        (LUNCH, "2026-11-07T12:00", False),
        (LUNCH, "2026-11-07T23:30", False),
    ],
)
def test_it_is_quiet_from_the_first_time_up_to_the_second(hours: QuietHours, at: str, *, quiet: bool) -> None:
    assert hours.holds(ms(at)) is quiet


@pytest.mark.parametrize(
    ("hours", "at", "ends"),
    [
        (NIGHT, "2026-11-07T21:00", "2026-11-08T06:00"),
        (NIGHT, "2026-11-08T03:00", "2026-11-08T06:00"),
        (NIGHT, "2026-10-24T20:00", "2026-10-25T06:00"),  # the night in which clocks go back is an hour longer
        (NIGHT, "2026-03-28T21:00", "2026-03-29T05:00"),  # and an hour shorter in spring
        (LUNCH, "2026-11-07T11:30", "2026-11-07T12:00"),
        (NIGHT, "2026-11-07T12:00", "2026-11-07T12:00"),  # not quiet at all
    ],
)
def test_the_end_is_where_the_wall_clock_says(hours: QuietHours, at: str, ends: str) -> None:
    assert hours.end_of(ms(at)) == ms(ends)


def test_an_end_that_the_clocks_skip_is_over_with_the_skip() -> None:
    hours = QuietHours(time(22), time(2, 30), BERLIN)
    assert hours.end_of(ms("2026-03-28T22:00")) == ms("2026-03-29T01:00")


def test_an_end_that_comes_twice_counts_as_often_as_the_wall_clock_shows_it() -> None:
    hours = QuietHours(time(22), time(2, 30), BERLIN)
    assert hours.end_of(ms("2026-10-24T22:00")) == ms("2026-10-25T00:30")
    assert hours.holds(ms("2026-10-25T01:10"))  # 02:10 for the second time
    assert hours.end_of(ms("2026-10-25T01:10")) == ms("2026-10-25T01:30")


def test_clocks_that_skip_all_that_is_not_quiet_make_it_end_the_next_day() -> None:
    hours = QuietHours(time(3), time(2, 30), BERLIN)  # loud from 02:30 to 03:00, which that day does not have
    assert hours.end_of(ms("2026-03-29T00:30")) == ms("2026-03-30T00:30")


def test_an_end_that_clocks_put_back_bring_again_is_not_missed() -> None:
    hours = QuietHours(time(2, 30), time(2, 15), BERLIN)
    assert hours.end_of(ms("2026-10-25T00:40")) == ms("2026-10-25T01:15")  # 02:40, and then 02:15 once more


minutes = st.integers(0, 24 * 60 - 1).map(lambda minute: time(*divmod(minute, 60)))


@given(start=minutes, end=minutes, at_ms=st.integers(1_790_000_000_000, 1_830_000_000_000))
def test_at_its_end_it_is_quiet_no_more_and_it_was_till_then(start: time, end: time, at_ms: int) -> None:
    hours = QuietHours(start, end, BERLIN)
    loud = (start.hour * 60 + start.minute - end.hour * 60 - end.minute) % (24 * 60)
    if loud < 120 or not hours.holds(at_ms):  # the configuration refuses what a change of the clocks could skip
        return
    ends_ms = hours.end_of(at_ms)
    assert at_ms < ends_ms <= at_ms + 26 * 3_600_000
    assert not hours.holds(ends_ms)
    assert hours.holds(ends_ms - 1)
