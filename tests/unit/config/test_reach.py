"""When people are reached, as the configuration says it."""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.app import policy_of
from agentpod_bot.config.report import report
from agentpod_bot.core.ids import RouteName

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site

OPS = RouteName("ops")
NIGHT = {"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin"}


def test_all_of_it_is_off_unless_it_is_said(site: Site) -> None:
    route = policy_of(site.load().settings, {}).routes[OPS]
    assert (route.remind_before_ms, route.quiet) == (None, None)


def test_all_of_it_reaches_the_policy(site: Site) -> None:
    loaded = site.set("routes.ops.remind_before", "5m").set("routes.ops.quiet_hours", NIGHT).load()
    route = policy_of(loaded.settings, {}).routes[OPS]
    assert route.remind_before_ms == 300_000
    assert route.quiet is not None
    assert (route.quiet.start, route.quiet.end, str(route.quiet.zone)) == (time(22), time(7), "Europe/Berlin")
    lines = "\n".join(report(loaded))
    assert "routes.ops.remind_before = 5m   (config.yaml:" in lines
    assert 'routes.ops.quiet_hours = {from: "22:00", to: "07:00", timezone: Europe/Berlin}   (config.yaml:' in lines


def test_from_the_environment_a_mapping_comes_as_json(site: Site) -> None:
    site.env(
        "AGENTPOD_BOT_ROUTES__OPS__QUIET_HOURS", '{"from": "12:00", "to": "13:30", "timezone": "America/New_York"}'
    )
    quiet = policy_of(site.load().settings, {}).routes[OPS].quiet
    assert quiet is not None
    assert (quiet.end, str(quiet.zone)) == (time(13, 30), "America/New_York")


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("remind_before", "5", "is no duration"),
        ("remind_before", 300, "has no unit"),
        ("remind_before", "0s", "is less than 1s"),
        ("remind_before", "31d", "is more than 30d"),
        ("quiet_hours", "22:00-07:00", "is no mapping; write {from"),
        ("quiet_hours", [], "is no mapping"),
        ("quiet_hours", {"from": "22:00", "to": "07:00"}, "has no `timezone`"),
        ("quiet_hours", {**NIGHT, "until": "07:00"}, 'has the unknown key "until"'),
        ("quiet_hours", {**NIGHT, "to": "22:00"}, "has the same time in `from` and `to`"),
        ("quiet_hours", {**NIGHT, "to": "24:00"}, 'has "24:00" as `to`, which is no time of the day'),
        ("quiet_hours", {**NIGHT, "from": "7:00"}, 'has "7:00" as `from`, which is no time of the day'),
        ("quiet_hours", {**NIGHT, "from": "0\u0667:00"}, "is no time of the day"),
        ("quiet_hours", {**NIGHT, "from": 1320}, "has 1320 as `from`, which is no time of the day"),
        ("quiet_hours", {**NIGHT, "timezone": "Europe/Berlim"}, 'has "Europe/Berlim" as `timezone`'),
        ("quiet_hours", {**NIGHT, "timezone": "Europe"}, 'has "Europe" as `timezone`'),
        ("quiet_hours", {**NIGHT, "timezone": "../../etc/passwd"}, "which this machine knows no time zone by"),
        ("quiet_hours", {**NIGHT, "timezone": ""}, "which this machine knows no time zone by"),
        ("quiet_hours", {**NIGHT, "timezone": 1}, "which this machine knows no time zone by"),
    ],
)
def test_what_says_nothing_certain_is_refused_and_named(site: Site, key: str, value: Any, why: str) -> None:
    fault = site.set(f"routes.ops.{key}", value).fault()
    assert fault.startswith(f"routes.ops.{key}: ")
    assert why in fault
