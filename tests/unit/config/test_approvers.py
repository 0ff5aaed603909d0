"""Who may approve, as the configuration says it: requester, quorum, power levels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.app.meaning import policy_of, tokens_of
from agentpod_bot.config.report import report
from agentpod_bot.core.ids import RouteName

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site

OPS = RouteName("ops")


def test_all_of_it_is_off_unless_it_is_said(site: Site) -> None:
    settings = site.load().settings
    route = policy_of(settings, {}).routes[OPS]
    assert (route.approver_level, route.quorum, route.not_requester) == (None, 1, False)
    assert not route.follow_upgrades
    assert tokens_of(settings)[0][1].requester is None


def test_all_of_it_reaches_the_policy(site: Site) -> None:
    site.set("routes.ops.approvers", ["@owner:hs.test", "@second:hs.test", "@third:hs.test"])
    site.set("routes.ops.approvers_from", "power_level >= 50").set("routes.ops.quorum", 2)
    site.set("routes.ops.not_requester", value=True).set("clients.laptop.requester", "@owner:hs.test")
    loaded = site.load()
    route = policy_of(loaded.settings, {}).routes[OPS]
    assert (route.approver_level, route.quorum, route.not_requester) == (50, 2, True)
    assert tokens_of(loaded.settings)[0][1].requester == "@owner:hs.test"
    assert "routes.ops.approvers_from = power_level >= 50   (config.yaml:" in "\n".join(report(loaded))


def test_that_a_route_follows_upgrades_reaches_the_policy(site: Site) -> None:
    settings = site.set("routes.ops.follow_upgrades", value=True).load().settings
    assert policy_of(settings, {}).routes[OPS].follow_upgrades


@pytest.mark.parametrize("text", ["power_level >= 50", "power_level>=50", " power_level  >=  50 "])
def test_a_power_level_may_be_written_with_or_without_spaces(site: Site, text: str) -> None:
    site.env("AGENTPOD_BOT_ROUTES__OPS__APPROVERS_FROM", text)
    assert policy_of(site.load().settings, {}).routes[OPS].approver_level == 50


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("routes.ops.approvers_from", "power_level > 50", "is no such rule; write power_level >= 50"),
        ("routes.ops.approvers_from", "power_level >= 0", "has a level that is not between 1 and"),
        ("routes.ops.approvers_from", "power_level >= -1", "is no such rule"),
        ("routes.ops.approvers_from", "power_level >= \u0665\u0660", "is no such rule"),
        ("routes.ops.approvers_from", "members", "is no such rule"),
        ("routes.ops.approvers_from", "", "is no such rule"),
        ("routes.ops.approvers_from", 50, "is no text; write power_level >= 50 in quotes"),
        ("routes.ops.quorum", 0, "0 is less than 1"),
        ("routes.ops.quorum", 21, "21 is more than 20"),
        ("routes.ops.quorum", "2", "is no whole number"),
        ("routes.ops.quorum", 1.5, "is no whole number"),
        ("routes.ops.not_requester", "yes", "is neither true nor false"),
        ("routes.ops.follow_upgrades", "yes", "is neither true nor false"),
        ("routes.ops.follow_upgrades", 1, "is neither true nor false"),
        ("clients.laptop.requester", "owner", "is no full Matrix user id"),
        ("clients.laptop.requester", "*", "is a pattern"),
        ("clients.laptop.requester", "@pod:hs.test", "is the bot's own account"),
    ],
)
def test_what_says_nothing_certain_is_refused_and_named(site: Site, key: str, value: Any, why: str) -> None:
    fault = site.set(key, value).fault()
    assert fault.startswith(f"{key}: ")
    assert why in fault


def test_an_agent_is_nobody_for_whom_a_client_asks(site: Site) -> None:
    site.set("homeserver.agents", ["@agent:hs.test"]).set("clients.laptop.requester", "@agent:hs.test")
    assert site.fault().startswith("clients.laptop.requester: ")


def test_a_level_never_stands_without_a_list(site: Site) -> None:
    site.set("routes.ops.approvers_from", "power_level >= 50").set("routes.ops.approvers", [])
    assert site.fault() == "routes.ops.approvers: [] is empty; name at least one (config.yaml:13)"


def test_a_route_that_bars_the_requester_needs_to_know_who_that_is(site: Site) -> None:
    site.set("routes.ops.approvers", ["@owner:hs.test", "@second:hs.test"]).set("routes.ops.not_requester", value=True)
    assert "`routes.ops.not_requester` keeps that person from approving" in site.fault()
    site.set("clients.laptop.requester", "@owner:hs.test").load()


def test_a_route_needs_as_many_approvers_as_its_quorum(site: Site) -> None:
    site.set("routes.ops.quorum", 2)
    assert site.fault().startswith("routes.ops.quorum: 2 is more than there are approvers (1)")
    site.set("routes.ops.approvers", ["@owner:hs.test", "@second:hs.test"]).load()


@pytest.mark.parametrize(("approvers", "quorum"), [(["@owner:hs.test"], 1), (["@owner:hs.test", "@second:hs.test"], 2)])
def test_the_requester_does_not_count_towards_the_quorum(site: Site, approvers: list[str], quorum: int) -> None:
    site.set("routes.ops.approvers", approvers).set("routes.ops.quorum", quorum)
    site.set("routes.ops.not_requester", value=True).set("clients.laptop.requester", "@owner:hs.test")
    assert site.fault().startswith("routes.ops.approvers: is too few: without")
    site.set("clients.laptop.requester", "@dev:hs.test").load()


def test_whom_a_power_level_makes_an_approver_is_not_counted_beforehand(site: Site) -> None:
    site.set("routes.ops.quorum", 3).set("routes.ops.approvers_from", "power_level >= 50").load()
