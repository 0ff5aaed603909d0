from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import SecretStr

from agentpod_bot.config.model import HttpSettings
from agentpod_bot.config.values import listen
from agentpod_bot.proxy import endpoint
from agentpod_bot.proxy.endpoint import Endpoint, Wanted, find
from agentpod_bot.proxy.stopped import ExitCode, Stopped

TOKEN = {"AGENTPOD_BOT_TOKEN": "from-environment"}
FROM_ENVIRONMENT = {"AGENTPOD_BOT_URL": "http://127.0.0.1:9", "AGENTPOD_BOT_TOKEN": "from-environment"}


def configure(monkeypatch: pytest.MonkeyPatch, http: HttpSettings, **tokens: str) -> None:
    """Make the configuration say this, without a file."""
    clients = {name: SimpleNamespace(token=SecretStr(token)) for name, token in tokens.items()}
    loaded = SimpleNamespace(settings=SimpleNamespace(http=http, clients=clients))
    monkeypatch.setattr("agentpod_bot.config.load.load", lambda _path, _environ: loaded)


def test_the_command_line_goes_before_the_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    found = find(Wanted(url="http://[::1]:8470/", token_file=tmp_path / "token"), FROM_ENVIRONMENT)
    assert found == Endpoint("http://[::1]:8470", None, "from-file")


def test_the_environment_alone_is_enough() -> None:
    assert find(Wanted(), FROM_ENVIRONMENT) == Endpoint("http://127.0.0.1:9", None, "from-environment")
    found = find(Wanted(), {"AGENTPOD_BOT_SOCKET": "/run/s"} | TOKEN)
    assert found == Endpoint("http://localhost", Path("/run/s"), "from-environment")


def test_a_token_file_of_the_environment_goes_before_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file")
    environ = FROM_ENVIRONMENT | {"AGENTPOD_BOT_TOKEN_FILE": str(tmp_path / "token")}
    assert find(Wanted(), environ).token == "from-file"


def test_a_socket_of_the_command_line_goes_before_an_address_of_the_environment() -> None:
    assert find(Wanted(socket=Path("/run/s")), FROM_ENVIRONMENT).socket == Path("/run/s")


def test_a_configured_token_never_goes_to_an_address_from_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, HttpSettings(), laptop="configured")
    with pytest.raises(Stopped, match="no token for http://elsewhere") as stopped:
        find(Wanted(url="http://elsewhere:1"), {})
    assert stopped.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize(
    ("http", "url"),
    [
        (HttpSettings(), "http://127.0.0.1:8470"),
        (HttpSettings(listen=listen("[::1]:8470")), "http://[::1]:8470"),
        (HttpSettings(listen=listen("0.0.0.0:8470"), allow_remote=True), "http://127.0.0.1:8470"),
        (HttpSettings(listen=listen("[::]:8470"), allow_remote=True), "http://[::1]:8470"),
        (HttpSettings(listen=listen("localhost:8470")), "http://localhost:8470"),
    ],
)
def test_the_configured_listener_is_called_from_its_own_machine(
    monkeypatch: pytest.MonkeyPatch, http: HttpSettings, url: str
) -> None:
    configure(monkeypatch, http, laptop="configured")
    assert find(Wanted(), {}) == Endpoint(url, None, "configured")


def test_a_configured_socket_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, HttpSettings(socket=Path("/run/s")), laptop="configured")
    assert find(Wanted(), {}) == Endpoint("http://localhost", Path("/run/s"), "configured")


def test_of_several_clients_one_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, HttpSettings(), laptop="one", server="two")
    assert find(Wanted(client="server"), {}).token == "two"
    for wanted in (Wanted(), Wanted(client="desktop")):
        with pytest.raises(Stopped, match="laptop, server") as stopped:
            find(wanted, {})
        assert stopped.value.exit_code is ExitCode.USAGE


@pytest.mark.parametrize("environ", [{}, FROM_ENVIRONMENT])
def test_the_address_alone_needs_no_token(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    configure(monkeypatch, HttpSettings())
    assert find(Wanted(), environ, token=False).token is None


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8470",
        "ftp://x",
        "http://",
        "http://x/path",
        "http://x?a",
        "http://u:p@x",
        "http://x:99999",
        "http://[",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(Stopped) as stopped:
        find(Wanted(url=url), TOKEN)
    assert stopped.value.exit_code is ExitCode.USAGE


def test_address_and_socket_exclude_each_other() -> None:
    with pytest.raises(Stopped):
        find(Wanted(url="http://x", socket=Path("/s")), TOKEN)


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe"])
def test_a_token_file_without_a_token_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Stopped, match="token file") as stopped:
        endpoint.token_in(path)
    assert stopped.value.exit_code is ExitCode.CONFIGURATION


def test_a_token_never_shows_in_a_representation() -> None:
    shown: Any = repr(Endpoint("http://x", None, "made-up"))
    assert "made-up" not in shown


@pytest.mark.parametrize("variable", ["AGENTPOD_BOT_TOKEN", "AGENTPOD_BOT_TOKEN_FILE"])
def test_a_named_client_is_never_another_ones_token_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    configure(monkeypatch, HttpSettings(), laptop="one", server="two")
    for wanted in (Wanted(client="server"), Wanted(client="server", url="http://127.0.0.1:1")):
        with pytest.raises(Stopped, match=f"--client and {variable} exclude each other") as stopped:
            find(wanted, {variable: "laptop.token"})
        assert stopped.value.exit_code is ExitCode.USAGE
