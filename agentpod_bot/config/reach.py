"""How a route's values are written that say when somebody is reached: small mappings in the file.

From the environment they come as JSON. Each reader gives the value, or raises `ValueError`
with the rest of a sentence that begins with the key.
"""

from __future__ import annotations

import json
import re
from datetime import time
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentpod_bot.config.fault import nearest, shown
from agentpod_bot.config.values import duration_ms
from agentpod_bot.core.ids import RouteName
from agentpod_bot.core.policy import Escalation
from agentpod_bot.core.quiet import QuietHours

if TYPE_CHECKING:
    from collections.abc import Mapping

CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
ESCALATE = "{after: 10m, to: other-route}"
LEAST_AFTER_MS = 1_000
MOST_AFTER_MS = 30 * 86_400_000
QUIET_HOURS = '{from: "22:00", to: "07:00", timezone: Europe/Berlin}'


def escalation(value: object) -> Escalation:
    """Read `{after, to}`: a duration, and the name of another route."""
    if isinstance(value, Escalation):
        return value
    written = mapping(value, ("after", "to"), like=ESCALATE)
    after, to = written["after"], written["to"]
    if not isinstance(after, str):
        raise ValueError(f"has {shown(after)} as `after`; write something like 10m")  # noqa: TRY004 - as below
    try:
        after_ms = duration_ms(after)
    except ValueError as error:
        raise ValueError(f"has {shown(after)} as `after`, which {error}") from None
    if not LEAST_AFTER_MS <= after_ms <= MOST_AFTER_MS:
        raise ValueError(f"has {shown(after)} as `after`, which is not between 1s and 30d")
    if not isinstance(to, str):
        raise ValueError(f"has {shown(to)} as `to`, which is no route's name")  # noqa: TRY004 - as below
    return Escalation(after_ms, RouteName(to))


LEAST_LOUD_MINUTES = 120
"""Clocks skip an hour once a year, here and there a little more: what is not quiet must outlast that."""


def quiet_hours(value: object) -> QuietHours:
    """Read `{from, to, timezone}`: two clock times, and the IANA name of a time zone."""
    if isinstance(value, QuietHours):
        return value
    written = mapping(value, ("from", "to", "timezone"), like=QUIET_HOURS)
    start, end = (clock_time(key, written[key]) for key in ("from", "to"))
    if start == end:
        raise ValueError("has the same time in `from` and `to`")
    if (_minutes(start) - _minutes(end)) % (24 * 60) < LEAST_LOUD_MINUTES:
        raise ValueError("leaves less than two hours of the day; a change of the clocks could skip all of them")
    return QuietHours(start, end, time_zone(written["timezone"]))


def _minutes(at: time) -> int:
    return at.hour * 60 + at.minute


def mapping(value: object, keys: tuple[str, ...], *, like: str) -> Mapping[str, Any]:
    """A mapping that has exactly these keys; `like` is an example of it."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise ValueError(f"is no mapping; write {like}, in the environment as JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"is no mapping; write {like}")  # noqa: TRY004 - pydantic collects ValueError only
    for key in value:
        if key not in keys:
            raise ValueError(f"has the unknown key {shown(key)}{nearest(str(key), keys)}")
    if missing := [key for key in keys if key not in value]:
        raise ValueError(f"has no `{missing[0]}`; write {like}")
    return value


def clock_time(key: str, value: object) -> time:
    """A time of the day, from 00:00 to 23:59."""
    found = CLOCK.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f'has {shown(value)} as `{key}`, which is no time of the day; write "07:00"')
    return time(int(found[1]), int(found[2]))


def time_zone(value: object) -> ZoneInfo:
    """A time zone by its IANA name."""
    try:
        return ZoneInfo(value if isinstance(value, str) else "")
    except (ZoneInfoNotFoundError, ValueError, OSError):  # also a name that is a path, or a folder's
        reason = f"has {shown(value)} as `timezone`, which this machine knows no time zone by; write Europe/Berlin, say"
        raise ValueError(reason) from None
