"""When people are reached, as the configuration says it."""

from __future__ import annotations

from datetime import time
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.app.meaning import policy_of
from agentpod_bot.config.report import report
from agentpod_bot.core.ids import RouteName
from agentpod_bot.core.policy import Escalation

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site

OPS = RouteName("ops")
NIGHT = {"from": "22:00", "to": "07:00", "timezone": "Europe/Berlin"}


def test_all_of_it_is_off_unless_it_is_said(site: Site) -> None:
    route = policy_of(site.load().settings, {}).routes[OPS]
    assert (route.remind_before_ms, route.escalation, route.quiet) == (None, None, None)


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


def leads(site: Site, **values: Any) -> Site:
    """A second route to ask on."""
    return site.set("routes.leads", {"room": "!leads:hs.test", "approvers": ["@lead:hs.test"], **values})


def test_the_second_route_need_not_be_the_clients_own(site: Site) -> None:
    loaded = leads(site).set("routes.ops.escalate", {"after": "10m", "to": "leads"}).load()
    assert policy_of(loaded.settings, {}).routes[OPS].escalation == Escalation(600_000, RouteName("leads"))
    assert "routes.ops.escalate = {after: 10m, to: leads}   (config.yaml:" in "\n".join(report(loaded))


def test_two_routes_may_ask_on_each_other(site: Site) -> None:
    leads(site, escalate={"after": "1m", "to": "ops"}).set(
        "routes.ops.escalate", {"after": "10m", "to": "leads"}
    ).load()


@pytest.mark.parametrize(
    ("to", "why"),
    [
        ("lead", '"lead" is no route of `routes`; did you mean `leads`?'),
        ("ops", '"ops" is this route itself'),
        ("same", '"same" has the same room as this route'),
    ],
)
def test_a_question_is_asked_next_on_another_route_in_another_room(site: Site, to: str, why: str) -> None:
    leads(site).set("routes.same", {"room": "!ops:hs.test", "approvers": ["@lead:hs.test"]})
    fault = site.set("routes.ops.escalate", {"after": "10m", "to": to}).fault()
    assert fault.startswith(f"routes.ops.escalate: {why}")


def test_a_second_route_that_bars_the_requester_needs_to_know_who_that_is(site: Site) -> None:
    leads(site, not_requester=True).set("routes.ops.escalate", {"after": "10m", "to": "leads"})
    assert "`routes.leads.not_requester` keeps that person from approving" in site.fault()
    site.set("clients.laptop.requester", "@lead:hs.test")
    assert site.fault().startswith("routes.leads.approvers: is too few: without")
    site.set("clients.laptop.requester", "@dev:hs.test").load()


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("escalate", "10m", "is no mapping; write {after"),
        ("escalate", {"after": "10m"}, "has no `to`"),
        ("escalate", {"after": "10m", "to": "leads", "then": "x"}, 'has the unknown key "then"'),
        ("escalate", {"after": "10", "to": "leads"}, 'has "10" as `after`, which is no duration'),
        ("escalate", {"after": 600, "to": "leads"}, "has 600 as `after`; write something like 10m"),
        ("escalate", {"after": "0s", "to": "leads"}, "which is not between 1s and 30d"),
        ("escalate", {"after": "31d", "to": "leads"}, "which is not between 1s and 30d"),
        ("escalate", {"after": "10m", "to": 3}, "has 3 as `to`, which is no route's name"),
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
    assert "a mapping has" not in fault
