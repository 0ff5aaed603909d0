from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.config.reload import reloadable
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("routes.ops.room", "!other"),
        ("routes.ops.approvers", ["@second:hs.test"]),
        ("routes.ops.reactions", "off"),
        ("routes.night", {"room": "!night", "approvers": ["@owner:hs.test"]}),
        ("clients.laptop.harnesses", ["native"]),
        ("requests.time_to_live", "5m"),
        ("requests.max_pending_per_token", 3),
        ("clients.laptop.rate", "60/min"),
        ("log.level", "debug"),
    ],
)
def test_routes_clients_limits_and_the_log_level_are_taken_over(site: Site, key: str, value: Any) -> None:
    old = site.load().settings
    new = site.set(key, value).load().settings
    assert reloadable(old, new) is new


def test_a_changed_token_and_a_client_that_is_gone_are_taken_over(site: Site) -> None:
    desktop = site.secret("desktop", "a-token-of-the-desktop")
    site.set("clients.desktop", {"token_file": str(desktop), "routes": ["ops"]})
    old = site.load().settings
    site.drop("clients.desktop").secret("laptop", "a-new-token-of-the-laptop")
    new = site.load().settings
    assert reloadable(old, new) is new
    assert new.clients["laptop"].token.get_secret_value() == "a-new-token-of-the-laptop"


def test_what_needs_a_restart_is_refused_whole_and_every_key_is_named(site: Site) -> None:
    old = site.load().settings
    site.set("homeserver.url", "https://other.test").set("homeserver.agents", ["@hermes:hs.test"])
    site.set("http.listen", "127.0.0.1:9000").set("http.body_limit", "2MiB").set("store.path", "/other.db")
    site.set("log.format", "json").set("log.level", "debug").set("routes.ops.room", "!other")
    with pytest.raises(ConfigurationError) as refused:
        reloadable(old, site.load().settings)
    assert [line.partition(":")[0] for line in refused.value.problems] == [
        "homeserver.url",
        "homeserver.agents",
        "http.listen",
        "http.body_limit",
        "store.path",
        "log.format",
    ]


def test_the_bots_own_secrets_are_taken_over(site: Site) -> None:
    site.set("homeserver.device_id", "POD").set("homeserver.password_file", str(site.secret("password", "one")))
    site.set("homeserver.refresh_token_file", str(site.secret("refresh", "a-refresh-token-1")))
    old = site.load().settings
    site.secret("access_token", "another-access-token")
    site.secret("password", "two")
    site.secret("refresh", "a-refresh-token-2")
    new = site.load().settings
    assert reloadable(old, new) is new
    assert new.homeserver.access_token.get_secret_value() == "another-access-token"


def test_nothing_changed_is_taken_over(site: Site) -> None:
    assert reloadable(site.load().settings, new := site.load().settings) is new
