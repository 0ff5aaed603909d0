from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.config.source import InEnvironment, InFile

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site


@pytest.mark.parametrize(
    ("variable", "text", "attribute", "value"),
    [
        ("AGENTPOD_BOT_HOMESERVER__URL", "http://127.0.0.1:8008", "homeserver.url", "http://127.0.0.1:8008"),
        ("AGENTPOD_BOT_HTTP__ALLOW_REMOTE", "true", "http.allow_remote", True),
        ("AGENTPOD_BOT_HTTP__ALLOWED_HOSTS", "a.test, b.test", "http.allowed_hosts", ("a.test", "b.test")),
        ("AGENTPOD_BOT_HTTP__ALLOWED_HOSTS", '["a.test"]', "http.allowed_hosts", ("a.test",)),
        ("AGENTPOD_BOT_HTTP__ALLOWED_HOSTS", "", "http.allowed_hosts", ()),
        ("AGENTPOD_BOT_HTTP__BODY_LIMIT", "2MiB", "http.body_limit", 2_097_152),
        ("AGENTPOD_BOT_HTTP__SOCKET", "", "http.socket", None),
        ("AGENTPOD_BOT_HTTP__SOCKET", "null", "http.socket", None),
        ("AGENTPOD_BOT_REQUESTS__TIME_TO_LIVE", "5m", "requests.time_to_live_ms", 300_000),
        ("AGENTPOD_BOT_REQUESTS__MAX_PENDING_PER_TOKEN", "3", "requests.max_pending_per_token", 3),
        ("AGENTPOD_BOT_LOG__LEVEL", "debug", "log.level", "debug"),
        ("agentpod_bot_log__level", "error", "log.level", "error"),
        ("AGENTPOD_BOT_Log__Level", "error", "log.level", "error"),
    ],
)
def test_a_variable_overrides_its_key(site: Site, variable: str, text: str, attribute: str, value: Any) -> None:
    loaded = site.env(variable, text).load()
    assert attrgetter(attribute)(loaded.settings) == value
    key = variable.upper().removeprefix("AGENTPOD_BOT_").lower().replace("__", ".")
    assert loaded.sources[key] == InEnvironment(variable)


def test_a_variable_goes_before_the_file(site: Site) -> None:
    site.env("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", "@second:hs.test,@third:hs.test")
    loaded = site.load()
    assert loaded.settings.routes["ops"].approvers == ("@second:hs.test", "@third:hs.test")
    assert isinstance(loaded.sources["routes.ops.room"], InFile)


def test_names_are_found_whatever_their_case_and_with_underscores_for_dashes(site: Site) -> None:
    site.set("routes.Night-Shift", {"room": "!night", "approvers": ["@owner:hs.test"]})
    site.env("AGENTPOD_BOT_ROUTES__NIGHT_SHIFT__MAX_PENDING", "4")
    routes = site.load().settings.routes
    assert list(routes) == ["ops", "Night-Shift"]
    assert routes["Night-Shift"].max_pending == 4


def test_a_route_and_a_client_can_stand_in_the_environment_alone(site: Site) -> None:
    site.drop("routes").drop("clients")
    site.env("AGENTPOD_BOT_ROUTES__NIGHT__ROOM", "!night").env(
        "AGENTPOD_BOT_ROUTES__NIGHT__APPROVERS", "@owner:hs.test"
    )
    site.env("AGENTPOD_BOT_CLIENTS__PC__TOKEN", "x" * 16).env("AGENTPOD_BOT_CLIENTS__PC__ROUTES", "night")
    settings = site.load().settings
    assert settings.routes["night"].room == "!night"
    assert settings.clients["pc"].routes == ("night",)


def test_a_misspelt_route_is_not_made_up_in_silence(site: Site) -> None:
    faults = site.env("AGENTPOD_BOT_ROUTES__OSP__MAX_PENDING", "4").faults()
    assert [fault.partition(":")[0] for fault in faults] == ["routes.osp.room", "routes.osp.approvers"]
    for fault in faults:
        assert "only the environment has `routes.osp`; did you mean `ops`? (environment variable AGENTPOD_BOT_" in fault


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("AGENTPOD_BOT_HTTP__LISTN", "http.listn: unknown key; did you mean `AGENTPOD_BOT_HTTP__LISTEN`?"),
        ("AGENTPOD_BOT_HTTP_LISTEN", "http_listen: unknown key; did you mean `AGENTPOD_BOT_HTTP__LISTEN`?"),
        ("AGENTPOD_BOT_ROUTES__OPS__APROVERS", "did you mean `AGENTPOD_BOT_ROUTES__OPS__APPROVERS`?"),
        ("AGENTPOD_BOT_ROUTES__ROOM", "routes.room: unknown key"),
        ("AGENTPOD_BOT_ROUTES__OPS__ROOM__X", "routes.ops.room.x: unknown key"),
        ("AGENTPOD_BOT_HTTP__A__LISTEN", "http.a.listen: unknown key"),
        ("AGENTPOD_BOT_REQUESTS__TIME_TO_LIVE_MS", "did you mean `AGENTPOD_BOT_REQUESTS__TIME_TO_LIVE`?"),
        ("AGENTPOD_BOT_PASSWORD", "password: unknown key"),
        ("AGENTPOD_BOT___", "unknown key"),
    ],
)
def test_an_unknown_variable_is_refused_with_the_nearest_known_one(site: Site, variable: str, says: str) -> None:
    fault = site.env(variable, "hunter2").fault()
    assert says in fault
    assert fault.endswith(f"(environment variable {variable})")
    assert "hunter2" not in fault


def test_variables_of_others_and_those_that_are_no_settings_are_left_alone(site: Site) -> None:
    site.env("AGENTPOD_BOTTLE__X", "1").env("HTTP__LISTEN", "1").env("AGENTPOD_BOT_CONFIG", "x")
    site.env("AGENTPOD_BOT_TOKEN", "x").env("AGENTPOD_BOT_URL", "x")
    site.load()


def test_what_kubernetes_says_of_a_service_of_our_name_is_left_alone(site: Site) -> None:
    for name in ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT", "PORT_8470_TCP", "PORT_8470_TCP_ADDR"):
        site.env(f"AGENTPOD_BOT_{name}", "tcp://10.0.0.1:8470")
    site.load()


def test_two_variables_for_one_key_are_refused(site: Site) -> None:
    site.env("AGENTPOD_BOT_LOG__LEVEL", "info").env("AGENTPOD_BOT_LOG__level", "debug")
    assert site.fault().startswith("log.level: is given by AGENTPOD_BOT_LOG__LEVEL too")


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("AGENTPOD_BOT_HTTP__ALLOW_REMOTE", "yes", 'http.allow_remote: "yes" is neither true nor false'),
        ("AGENTPOD_BOT_REQUESTS__TIME_TO_LIVE", "1800", "requests.time_to_live: 1800 has no unit"),
        ("AGENTPOD_BOT_REQUESTS__MAX_PENDING_PER_TOKEN", "many", 'max_pending_per_token: "many" is no whole number'),
        ("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", "", "routes.ops.approvers: [] is empty"),
        ("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", "*", 'routes.ops.approvers[0]: "*" is a pattern'),
        ("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", "@o:hs.test,", 'routes.ops.approvers[1]: "" is no full Matrix user id'),
        ("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", "@pod:hs.test", "is the bot's own account"),
        ("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", "@o:example.org", "is a placeholder"),
        ("AGENTPOD_BOT_ROUTES__OPS__APPROVERS", '["@o:hs.test"', "begins like a JSON list and is none"),
        ("AGENTPOD_BOT_LOG__LEVEL", "", 'log.level: "" is none of debug'),
    ],
)
def test_a_wrong_value_of_a_variable_is_refused_like_the_files(site: Site, variable: str, text: str, says: str) -> None:
    fault = site.env(variable, text).fault()
    assert says in fault
    assert fault.endswith(f"(environment variable {variable})")
