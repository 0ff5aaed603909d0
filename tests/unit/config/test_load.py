from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from agentpod_bot.config.load import find, load, store_path
from agentpod_bot.config.model import (
    ClientSettings,
    HomeserverSettings,
    HttpSettings,
    RequestsSettings,
    RouteSettings,
    Settings,
)
from agentpod_bot.config.source import Default, InFile, SecretFile
from agentpod_bot.config.values import Listen
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from tests.unit.config.conftest import Site


def test_a_short_file_is_enough_and_the_rest_are_the_documented_defaults(site: Site) -> None:
    found = site.load().settings
    assert found.http == HttpSettings()
    assert found.http.listen == Listen("127.0.0.1", 8470)
    assert found.http.body_limit == 1_048_576
    assert found.requests.time_to_live_ms == 1_800_000
    assert found.requests.max_time_to_live_ms == 86_400_000
    assert found.requests.retention_ms == 604_800_000
    assert found.routes["ops"].approvers == ("@owner:hs.test",)
    assert found.routes["ops"].reactions == "seed"
    assert found.clients["laptop"].harnesses == ("native",)


def test_every_value_can_be_given(site: Site) -> None:
    site.set("http", {"listen": "[::1]:9000", "allowed_hosts": ["Bot.hs.test"], "body_limit": "64KiB"})
    site.set("requests", {"time_to_live": "45s", "max_time_to_live": "2h", "retention": "1d"})
    site.set("routes.ops.reactions", "off").set("routes.ops.max_pending", 7).set("log", {"level": "debug"})
    site.set("homeserver.device_id", "PODDEVICE").set("homeserver.agents", ["@hermes:hs.test"])
    found = site.load().settings
    assert found.http.listen == Listen("::1", 9000)
    assert found.http.allowed_hosts == ("bot.hs.test",)
    assert found.http.body_limit == 65_536
    assert found.requests.time_to_live_ms == 45_000
    assert found.routes["ops"].reactions == "off"
    assert found.homeserver.agents == ("@hermes:hs.test",)


def test_a_socket_takes_the_place_of_the_default_address(site: Site) -> None:
    http = site.set("http.socket", "bot.sock").load().settings.http
    assert (http.listen, http.socket) == (None, site.folder / "bot.sock")


def test_relative_paths_count_from_the_files_folder(site: Site) -> None:
    site.set("store.path", "data/pod.db").set("clients.laptop.token_file", "laptop")
    found = site.load().settings
    assert found.store.path == site.folder / "data/pod.db"
    assert found.clients["laptop"].token_file == site.folder / "laptop"


def test_where_the_store_is_can_be_read_whatever_is_wrong_with_the_rest(site: Site) -> None:
    site.set("store.path", "data/pod.db").drop("clients").set("homeserver.access_token_file", "gone")
    site.set("routes.ops.aprovers", ["@owner:hs.test"]).env("AGENTPOD_BOT_HTTP__LISTEN", "nonsense")
    assert len(site.faults()) > 2
    assert store_path(site.path, site.environ) == site.folder / "data/pod.db"
    site.env("AGENTPOD_BOT_STORE__PATH", "/srv/pod.db")
    assert store_path(site.path, site.environ) == Path("/srv/pod.db")


@pytest.mark.parametrize(
    ("key", "value"), [("store.pth", "a.db"), ("stor.path", "a.db"), ("store.path", 7), ("store", "a.db")]
)
def test_what_is_wrong_with_where_the_store_is_never_leads_to_another_store(site: Site, key: str, value: Any) -> None:
    site.set(key, value)
    faults = site.faults()
    with pytest.raises(ConfigurationError) as refused:
        store_path(site.path, site.environ)
    assert refused.value.problems == faults


def test_a_misspelt_variable_for_the_store_is_a_fault_too(site: Site) -> None:
    (fault,) = site.env("AGENTPOD_BOT_STOR__PATH", "a.db").faults()
    with pytest.raises(ConfigurationError) as refused:
        store_path(site.path, site.environ)
    assert tuple(refused.value.problems) == (fault,)


def test_two_routes_may_share_a_room(site: Site) -> None:
    site.set("routes.night", {"room": "!ops:hs.test", "approvers": ["@second:hs.test"]})
    assert site.load().settings.routes["night"].room == "!ops:hs.test"


def test_an_upper_case_user_id_is_taken_and_stays_another_person(site: Site) -> None:
    site.set("routes.ops.approvers", ["@Owner:hs.test", "@owner:hs.test"])
    assert site.load().settings.routes["ops"].approvers == ("@Owner:hs.test", "@owner:hs.test")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("routes.ops.aprovers", ["@owner:hs.test"], "routes.ops.aprovers: unknown key; did you mean `approvers`?"),
        ("http.listn", "127.0.0.1:1", "http.listn: unknown key; did you mean `listen`?"),
        ("homserver", {}, "homserver: unknown key; did you mean `homeserver`?"),
        ("time_to_live", "30m", "time_to_live: unknown key; did you mean `requests.time_to_live`?"),
        ("http.approvers", [], "http.approvers: unknown key; did you mean `routes.NAME.approvers`?"),
        ("requests.time_to_live_ms", 1000, "requests.time_to_live_ms: unknown key; did you mean `time_to_live`?"),
        ("log.zzz", 1, "log.zzz: unknown key"),
        ("routes.ops.approvers", [], "routes.ops.approvers: [] is empty; name at least one"),
        ("routes.ops.approvers", [""], 'routes.ops.approvers[0]: "" is no full Matrix user id'),
        ("routes.ops.approvers", "*", 'routes.ops.approvers: "*" is one text; write a list'),
        ("routes.ops.approvers", ["*"], 'routes.ops.approvers[0]: "*" is a pattern'),
        ("routes.ops.approvers", ["owner"], 'routes.ops.approvers[0]: "owner" is no full Matrix user id'),
        ("routes.ops.approvers", ["@owner"], 'routes.ops.approvers[0]: "@owner" is no full Matrix user id'),
        ("routes.ops.approvers", "@owner:hs.test", 'routes.ops.approvers: "@owner:hs.test" is one text; write a list'),
        ("routes.ops.approvers", {"@owner:hs.test": 1}, "routes.ops.approvers: a mapping is no list"),
        ("routes.ops.approvers", [7], "routes.ops.approvers[0]: 7 is no text"),
        ("routes.ops.approvers", None, "routes.ops.approvers: has no value"),
        ("routes.ops.approvers", ["@o:hs.test", "@o:hs.test"], "routes.ops.approvers: a list names something twice"),
        (
            "routes.ops.approvers",
            ["@o:hs.test", "@pod:hs.test"],
            'routes.ops.approvers[1]: "@pod:hs.test" is the bot\'s',
        ),
        ("routes.ops.room", "ops", 'routes.ops.room: "ops" is no room'),
        ("routes.ops.room", "#ops", 'routes.ops.room: "#ops" is no room alias'),
        ("routes.ops.room", None, "routes.ops.room: has no value (what begins with # is a comment: put it in quotes)"),
        (
            "routes.ops.reactions",
            "sed",
            'routes.ops.reactions: "sed" is none of seed, accept, off; did you mean `seed`?',
        ),
        ("routes.ops.reactions", False, "routes.ops.reactions: false is none of seed, accept, off"),
        ("routes.ops.max_pending", 0, "routes.ops.max_pending: 0 is less than 1"),
        ("routes.ops.max_pending", 10_001, "routes.ops.max_pending: 10001 is more than 10000"),
        ("routes.ops.max_pending", True, "routes.ops.max_pending: true is no whole number"),
        ("routes.ops.max_pending", "50", 'routes.ops.max_pending: "50" is no whole number'),
        ("routes.ops.max_pending", 1.5, "routes.ops.max_pending: 1.5 is no whole number"),
        (
            "routes.ops.harnesses",
            ["nativ"],
            'routes.ops.harnesses[0]: "nativ" is no known harness; known are native, acp, claude-code, ',
        ),
        ("clients.laptop.harnesses", [], "clients.laptop.harnesses: [] is empty"),
        ("clients.laptop.rate", 60, "clients.laptop.rate: 60 is no text; write 60/min in quotes"),
        ("clients.laptop.rate", "60", 'clients.laptop.rate: "60" is no rate; write a whole number, / and s, min or h'),
        ("clients.laptop.rate", "1/m", 'clients.laptop.rate: "1/m" is no rate'),
        ("clients.laptop.rate", "0/min", 'clients.laptop.rate: "0/min" lets nothing through'),
        ("requests.max_pending", 0, "requests.max_pending: 0 is less than 1"),
        ("clients.laptop.routes", [], "clients.laptop.routes: [] is empty"),
        (
            "clients.laptop.routes",
            ["osp"],
            'clients.laptop.routes[0]: "osp" is no route of `routes`; did you mean `ops`?',
        ),
        ("clients", {}, "clients: is required: name at least one of the clients"),
        ("routes.ops", "!ops:hs.test", "routes.ops: is no mapping of keys"),
        ("routes.a__b", {"room": "!a", "approvers": ["@o:hs.test"]}, "routes.a__b: is no name"),
        ("routes.OPS", {"room": "!a", "approvers": ["@o:hs.test"]}, "routes.OPS: cannot be told from `ops`"),
        ("homeserver.user_id", "pod", 'homeserver.user_id: "pod" is no full Matrix user id'),
        ("homeserver.agents", ["hermes"], 'homeserver.agents[0]: "hermes" is no full Matrix user id'),
        ("homeserver.url", "hs.test", 'homeserver.url: "hs.test" is no URL'),
        ("homeserver.url", 5, "homeserver.url: 5 is no text; put it in quotes"),
        ("homeserver.device_id", "A B", 'homeserver.device_id: "A B" is no device id'),
        ("homeserver.access_token_file", 5, "homeserver.access_token_file: 5 is no path"),
        (
            "http.listen",
            "0.0.0.0:8470",
            'http.listen: "0.0.0.0:8470" can be reached from other machines; that needs `http.allow',
        ),
        ("http.listen", "[::]:8470", 'http.listen: "[::]:8470" can be reached from other machines'),
        ("http.listen", "bot.hs.test:8470", 'http.listen: "bot.hs.test:8470" can be reached'),
        ("http.listen", 8470, "http.listen: 8470 is no address"),
        ("http.listen", None, "http.listen: neither `http.listen` nor `http.socket`"),
        ("http", {"listen": "127.0.0.1:1", "socket": "/run/bot.sock"}, "http.socket: is given beside `http.listen`"),
        ("http.socket", "/" + "a" * 107, "is longer than the 107 bytes"),
        ("http.socket", "~/bot.sock", 'http.socket: "~/bot.sock" begins with ~'),
        ("http.allow_remote", "yes", 'http.allow_remote: "yes" is neither true nor false'),
        ("http.allow_remote", 1, "http.allow_remote: 1 is neither true nor false"),
        ("http.allowed_hosts", ["*"], 'http.allowed_hosts[0]: "*" is no host name'),
        ("http.allowed_hosts", ["https://bot.hs.test"], "is no host name; write the bare name"),
        ("http.body_limit", "1MB", 'http.body_limit: "1MB" is no size'),
        ("http.body_limit", 1_048_576, "http.body_limit: 1048576 has no unit"),
        ("http.body_limit", "1B", 'http.body_limit: "1B" is less than 1KiB'),
        ("http.body_limit", "1GiB", 'http.body_limit: "1GiB" is more than 64MiB'),
        ("http.max_waits_per_token", 0, "http.max_waits_per_token: 0 is less than 1"),
        ("requests.time_to_live", "soon", 'requests.time_to_live: "soon" is no duration'),
        ("requests.time_to_live", 1800, "requests.time_to_live: 1800 has no unit; write something like 1s"),
        ("requests.time_to_live", "0s", 'requests.time_to_live: "0s" is less than 1s'),
        (
            "requests.time_to_live",
            "25h",
            "requests.time_to_live: 25h is more than `requests.max_time_to_live`, which is 24h",
        ),
        ("requests.max_time_to_live", "31d", 'requests.max_time_to_live: "31d" is more than 30d'),
        ("requests.retention", "23h", 'requests.retention: "23h" is less than 1d'),
        ("requests.max_pending_per_session", -1, "requests.max_pending_per_session: -1 is less than 1"),
        ("store.path", "", 'store.path: "" is no path'),
        ("store.path", "/", 'store.path: "/" is a folder; name a file in it, like /agentpod.db'),
        ("log.level", "verbose", 'log.level: "verbose" is none of debug, info, warning, error'),
        ("log.format", "xml", 'log.format: "xml" is none of auto, json, console'),
    ],
)
def test_a_wrong_value_is_refused_by_its_key_and_reason(site: Site, key: str, value: Any, says: str) -> None:
    assert says in site.set(key, value).fault()


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("homeserver.url", "homeserver.url: is required: the homeserver's base URL"),
        ("homeserver.user_id", "homeserver.user_id: is required"),
        (
            "homeserver.access_token_file",
            "homeserver.access_token: is required, and never stands in this file: set `home",
        ),
        ("clients", "clients: is required"),
        ("clients.laptop.token_file", "clients.laptop.token: is required"),
        ("clients.laptop.routes", "clients.laptop.routes: is required: the routes that this client may ask on"),
        ("routes.ops.room", "routes.ops.room: is required"),
        (
            "routes.ops.approvers",
            "routes.ops.approvers: is required: the exact Matrix user ids of those who may answer",
        ),
    ],
)
def test_a_missing_value_is_refused_by_its_key(site: Site, key: str, says: str) -> None:
    assert says in site.drop(key).fault()


@pytest.mark.parametrize("section", ["homeserver", "http", "clients", "routes", "requests", "store", "log"])
def test_a_section_that_is_no_mapping_is_refused(site: Site, section: str) -> None:
    faults = site.set(section, ["x"]).faults()
    assert any(fault.startswith(f"{section}: is no mapping of ") for fault in faults)


def test_a_section_with_nothing_in_it_is_an_absent_one(site: Site) -> None:
    assert site.set("http", None).load().settings.http == HttpSettings()
    assert site.set("clients.laptop", None).faults()


def test_an_agent_is_no_approver(site: Site) -> None:
    site.set("homeserver.agents", ["@hermes:hs.test"]).set("routes.ops.approvers", ["@o:hs.test", "@hermes:hs.test"])
    assert site.fault().startswith('routes.ops.approvers[1]: "@hermes:hs.test" is one of `homeserver.agents`')


def test_a_remote_address_is_taken_where_it_is_wanted(site: Site) -> None:
    site.set("http", {"listen": "0.0.0.0:8470", "allow_remote": True})
    assert str(site.load().settings.http.listen) == "0.0.0.0:8470"


def test_every_fault_is_told_at_once_one_line_each_in_the_order_of_the_sections(site: Site) -> None:
    site.set("log.level", "loud").set("routes.ops.approvers", ["@pod:hs.test", "owner"]).set("http.lisen", 1)
    site.set("homeserver.url", "nowhere").set("requests.time_to_live", "48h").set("clients.laptop.routes", ["none"])
    site.set("http.listen", "0.0.0.0:1").set("http.body_limit", 5)
    faults = site.faults()
    assert [fault.partition(": ")[0] for fault in faults] == [
        "homeserver.url",
        "http.lisen",
        "http.body_limit",
        "http.listen",
        "clients.laptop.routes[0]",
        "routes.ops.approvers[1]",
        "requests.time_to_live",
        "log.level",
    ]
    assert not any("\n" in fault for fault in faults)


def test_a_fault_says_its_file_and_line(site: Site) -> None:
    site.path.write_text(
        "homeserver:\n  url: x\n  user_id: '@pod:hs.test'\nclients: {}\nroutes: {}\nlog:\n  level: loud\n"
    )
    with pytest.raises(ConfigurationError) as refused:
        load(site.path, {})
    assert any(line.endswith("(config.yaml:2)") for line in refused.value.problems)
    assert any(line.startswith("log.level: ") and line.endswith("(config.yaml:7)") for line in refused.value.problems)
    assert any(line.startswith("homeserver.access_token: ") for line in refused.value.problems)


def test_a_value_with_line_breaks_stays_on_the_faults_one_line(site: Site) -> None:
    assert "\n" not in site.set("routes.ops.room", "a\nb\u2028c\x1b[2K").fault()
    assert "\x1b" not in site.fault()


def test_a_url_with_a_password_is_refused_without_repeating_it(site: Site) -> None:
    fault = site.set("homeserver.url", "https://pod:hunter2@hs.test").fault()
    assert "holds a user name or a password" in fault
    assert "hunter2" not in fault


def test_a_key_given_twice_is_refused(site: Site) -> None:
    site.load()
    site.path.write_text(site.path.read_text() + "log:\n  level: info\nlog:\n  level: error\n")
    with pytest.raises(ConfigurationError, match="log: is given twice"):
        load(site.path, {})


NAMES = st.sampled_from(
    [
        "homeserver",
        "http",
        "clients",
        "routes",
        "requests",
        "log",
        "ops",
        "laptop",
        "url",
        "user_id",
        "agents",
        "room",
        "listen",
        "socket",
        "approvers",
        "token",
        "token_file",
        "time_to_live",
        "level",
        "a__b",
        "ä",
    ]
)
ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["@o:hs.test", "!r"]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(NAMES, inside, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, ANYTHING, max_size=6))
@settings(deadline=None, max_examples=60)
def test_no_file_whatever_stands_in_it_gives_anything_but_a_refusal_of_single_lines(says: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(says), encoding="utf-8")
        with pytest.raises(ConfigurationError) as refused:
            load(path, {})
    assert refused.value.problems
    assert all(len(line.splitlines()) == 1 for line in refused.value.problems)


def test_a_key_that_is_no_text_is_refused(site: Site) -> None:
    site.load()
    site.path.write_text(site.path.read_text() + "[1, 2]: 3\n")
    with pytest.raises(ConfigurationError, match="the file: has a key that is no plain text"):
        load(site.path, {})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("homeserver.url", "https://matrix.example.org"),
        ("homeserver.user_id", "@pod:example.com"),
        ("routes.ops.room", "!CHANGE_ME"),
        ("routes.ops.approvers", ["@owner:example.org"]),
        ("homeserver.agents", ["@hermes:example.net"]),
    ],
)
def test_a_value_left_as_the_example_has_it_is_refused(site: Site, key: str, value: Any) -> None:
    fault = site.set(key, value).fault()
    assert fault.startswith(key)
    assert "is a placeholder" in fault


def test_sources_say_where_each_value_came_from(site: Site) -> None:
    loaded = site.load()
    assert loaded.sources["homeserver.url"] == InFile(site.path, 2)
    assert loaded.sources["routes.ops.approvers"] == InFile(site.path, 13)
    assert loaded.sources["http.listen"] == Default()
    assert loaded.sources["homeserver.access_token"] == SecretFile(site.folder / "access_token")
    assert loaded.path == site.path


def test_the_file_is_the_named_one_else_the_environments_else_a_usual_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    environ = {"AGENTPOD_BOT_CONFIG": "/elsewhere/pod.yaml"}
    assert find(Path("given.yaml"), environ) == Path("given.yaml")
    assert find(None, environ) == Path("/elsewhere/pod.yaml")
    monkeypatch.setattr("agentpod_bot.config.load.SYSTEM", tmp_path / "system.yaml")
    with pytest.raises(ConfigurationError, match="there is no configuration file"):
        find(None, {})
    (tmp_path / "system.yaml").touch()
    assert find(None, {}) == tmp_path / "system.yaml"
    (tmp_path / "config.yaml").touch()
    assert find(None, {}) == Path("config.yaml")


def built(**changes: Any) -> Settings:
    whole: dict[str, Any] = {
        "homeserver": HomeserverSettings(
            url="https://hs.test", user_id="@pod:hs.test", access_token=SecretStr("a" * 16), agents=("@hermes:hs.test",)
        ),
        "clients": {"laptop": ClientSettings(token=SecretStr("b" * 16), routes=("ops",))},
        "routes": {"ops": RouteSettings(room="!ops", approvers=("@owner:hs.test",))},
    }
    return Settings(**(whole | changes))


def test_settings_can_be_built_in_code_with_plain_values() -> None:
    found = built(requests=RequestsSettings(time_to_live_ms=250), http=HttpSettings(listen=Listen("127.0.0.1", 0)))
    assert found.requests.time_to_live_ms == 250
    assert found.http.listen == Listen("127.0.0.1", 0)


@pytest.mark.parametrize(
    "changes",
    [
        {"routes": {"ops": RouteSettings(room="!ops", approvers=("@pod:hs.test",))}},
        {"routes": {"ops": RouteSettings(room="!ops", approvers=("@hermes:hs.test",))}},
        {"routes": {"other": RouteSettings(room="!ops", approvers=("@owner:hs.test",))}},
        {"clients": {name: ClientSettings(token=SecretStr("b" * 16), routes=("ops",)) for name in ("a", "b")}},
        {"clients": {"a": ClientSettings(token=SecretStr("a" * 16), routes=("ops",))}},
        {"http": HttpSettings(listen=Listen("0.0.0.0", 1))},  # noqa: S104 - the case that must be refused
        {"requests": RequestsSettings(time_to_live_ms=2, max_time_to_live_ms=1)},
    ],
)
def test_not_even_code_can_build_settings_that_break_a_rule(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        built(**changes)


def test_settings_do_not_change_once_they_are_read(site: Site) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        site.load().settings.routes["ops"].approvers = ()  # type: ignore[misc, assignment] - that it fails is the test
