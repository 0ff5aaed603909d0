from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.main import get_command

from agentpod_bot.cli import connecting, trying
from agentpod_bot.cli.commands import app
from agentpod_bot.config.model import KNOWN_HARNESSES
from agentpod_bot.harness.snippets import Place
from agentpod_bot.harness.snippets_all import SNIPPETS, shapes_of
from agentpod_bot.proxy.client import connected
from agentpod_bot.proxy.endpoint import Endpoint

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command, FakeDaemon

TOKEN = "made-up-token-0123456789"
LIST = ("GET", "/v1/requests")
CONFIG = """
homeserver:
  url: https://matrix.invalid
  user_id: "@pod:matrix.invalid"
  access_token_file: access_token
http:
  listen: 127.0.0.1:9470
clients:
  laptop: {token_file: laptop.token, routes: [ops]}
routes:
  ops: {room: "#agents:matrix.invalid", approvers: ["@owner:matrix.invalid"]}
store: {path: data/agentpod.db}
"""


PROGRAM = connecting.program


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run where there is no configuration, with a program of a known path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(connecting, "program", lambda: "/opt/agentpod-bot/bin/agentpod-bot")


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "laptop.token"
    path.write_text(f"{TOKEN}\n")
    return str(path)


@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_names_the_tokens_file_and_never_holds_the_token(
    command: Command, token_file: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("AGENTPOD_BOT_TOKEN", TOKEN)
    result = command("connect", name, "--url", "http://127.0.0.1:8470", "--token-file", token_file, "--route", "ops")
    assert result.exit_code == 0
    assert token_file in result.stdout
    assert TOKEN not in result.output
    assert "ops" in result.stdout


def test_without_a_word_about_it_the_daemon_is_where_it_is_by_default(command: Command, tmp_path: Path) -> None:
    result = command("connect", "claude-code", "--version", "2.1.332")
    assert "http://127.0.0.1:8470/v1/harness/claude-code" in result.stdout
    assert str(tmp_path / "agentpod.token") in result.stdout
    assert "--token-file" in result.stderr


def test_the_configuration_says_the_address_and_the_tokens_file(command: Command, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    for name in ("access_token", "laptop.token"):
        (tmp_path / name).write_text(name[:1] * 32)
        (tmp_path / name).chmod(0o600)
    result = command("connect", "mcp")
    assert result.exit_code == 0, result.output
    assert "http://127.0.0.1:9470" in result.stdout
    assert str(tmp_path / "laptop.token") in result.stdout
    assert 'clients:\n  "laptop":\n    harnesses: [native, claude-prompt]' in result.stdout
    assert command("connect", "mcp", "--client", "other").exit_code == 2


@pytest.mark.parametrize("file", ["phone.token", "other.token"])
def test_of_several_clients_the_one_whose_token_is_in_the_file_is_named(
    command: Command, tmp_path: Path, file: str
) -> None:
    phone = "  phone: {token_file: phone.token, routes: [ops], harnesses: [codex]}\n"
    (tmp_path / "config.yaml").write_text(CONFIG.replace("routes:\n", f"{phone}routes:\n"))
    for name in ("access_token", "laptop.token", "phone.token"):
        (tmp_path / name).write_text(name[:1] * 32)
        (tmp_path / name).chmod(0o600)
    line = {
        "phone.token": '"phone":\n    harnesses: [codex, codex-hook]',
        "other.token": '"NAME":\n    harnesses: [codex-hook]',
    }
    assert line[file] in command("connect", "codex-hook", "--token-file", file).stdout


@pytest.mark.parametrize("name", SNIPPETS)
def test_the_line_without_which_a_harness_may_not_ask_is_printed_first(command: Command, name: str) -> None:
    result = command("connect", name)
    needed = shapes_of(name)
    assert set(needed) <= set(KNOWN_HARNESSES)
    before, line, after = result.stdout.partition(f"    harnesses: [{', '.join(needed)}]\n")
    assert line
    assert "```" in after
    assert before.endswith('keep what its list names already:\n\n```yaml\nclients:\n  "NAME":\n')
    assert yaml.safe_load(f"clients:\n  NAME:\n{line}") == {"clients": {"NAME": {"harnesses": list(needed)}}}


def test_a_configuration_that_was_named_must_be_there(command: Command) -> None:
    assert command("connect", "mcp", "--config", "nowhere.yaml").exit_code == 78


def test_the_environment_says_where_the_daemon_is(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTPOD_BOT_SOCKET", "/run/agentpod-bot.sock")
    monkeypatch.setenv("AGENTPOD_BOT_TOKEN_FILE", "laptop.token")
    result = command("connect", "claude-code", "--version", "2.1.332")
    assert "--socket /run/agentpod-bot.sock" in result.stdout
    assert "8470" not in result.stdout
    assert command("connect", "opencode").exit_code == 2


@pytest.mark.parametrize(
    "words", [["vim"], ["claude-code", "--url", "http://127.0.0.1:1", "--socket", "/a"], ["acp", "--timeout", "0"]]
)
def test_what_cannot_be_meant_is_wrong_usage(command: Command, words: list[str]) -> None:
    assert command("connect", *words).exit_code == 2


def asked(daemon: FakeDaemon, name: str, answer: tuple[int, dict[str, Any]], *views: dict[str, Any]) -> None:
    """The daemon answers the trial so, and then lists these new questions beside an older one."""
    old = {"request_id": "old", "status": "decided", "decision": {"outcome": "selected", "label": "Allow once"}}
    daemon.will("POST", f"/v1/harness/{name}", answer)
    daemon.will(*LIST, (200, {"requests": [old]}), (200, {"requests": [*views, old]}))


ALLOW = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
SELECTED = {"outcome": "selected", "label": "Allow once", "answered_by": "@owner:example.org", "meaning": "approve"}


@pytest.mark.parametrize("label", ["Allow once", "Reject"])
def test_a_test_question_that_a_person_answered_exits_0_with_what_the_harness_would_be_told(
    daemon: FakeDaemon, command: Command, token_file: str, label: str
) -> None:
    view = {"request_id": "new", "status": "decided", "decision": SELECTED | {"label": label}}
    asked(daemon, "claude-code", (200, ALLOW), view)
    result = command("connect", "claude-code", "--check", "--url", daemon.url, "--token-file", token_file)
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == ALLOW
    assert f"{label}, by @owner:example.org" in result.stderr
    (posted,) = [body for method, _, _, body, _ in daemon.calls if method == "POST"]
    assert posted["hook_event_name"] == "PermissionRequest"
    assert {authorization for *_, authorization in daemon.calls} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("answer", "views", "code", "words"),
    [
        ((200, {}), [{"request_id": "n", "decision": {"outcome": "expired"}}], 3, "Nobody answered in time"),
        ((200, {}), [{"request_id": "n", "decision": {"outcome": "cancelled"}}], 3, "was cancelled"),
        ((200, {}), [{"request_id": "n", "decision": None}], 3, "still open"),
        ((200, {}), [], 3, "Nobody was asked"),
        ((200, {}), [{"request_id": "n"}, {"request_id": "m"}], 3, "Several questions"),
        ((401, {"detail": "no such token"}), [], 77, "no such token"),
        ((404, {"detail": "no such harness"}), [], 3, "no such harness"),
        ((422, {"detail": "bad"}), [], 2, "bad"),
        ((503, {"detail": "no approver is in the room"}), [], 69, "no approver"),
    ],
)
def test_a_test_question_that_nobody_answered_says_why(
    daemon: FakeDaemon,
    command: Command,
    token_file: str,
    *,
    answer: tuple[int, dict[str, Any]],
    views: list[dict[str, Any]],
    code: int,
    words: str,
) -> None:
    asked(daemon, "acp", answer, *views)
    result = command("connect", "acp", "--check", "--url", daemon.url, "--token-file", token_file)
    assert result.exit_code == code, result.output
    assert words in result.stderr


def test_mcps_test_question_goes_through_the_door_of_the_permission_prompt(
    daemon: FakeDaemon, command: Command, token_file: str
) -> None:
    asked(daemon, "claude-prompt", (200, {"behavior": "deny", "message": "no"}))
    words = ["--check", "--route", "ops", "--timeout", "60", "--url", daemon.url, "--token-file", token_file]
    assert command("connect", "mcp", *words).exit_code == 3
    ((path, query),) = [(path.split("?")[0], query) for method, path, query, *_ in daemon.calls if method == "POST"]
    assert (path, query) == ("/v1/harness/claude-prompt", {"route": "ops", "timeout": "60"})


def test_a_daemon_that_is_not_there_exits_69(command: Command, token_file: str) -> None:
    words = ["--check", "--url", "http://127.0.0.1:1", "--token-file", token_file]
    assert command("connect", "codex", *words).exit_code == 69


def test_the_program_is_named_by_its_whole_path_so_that_a_hook_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "agentpod-bot"
    started.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(started)])
    assert PROGRAM() == str(started)
    monkeypatch.setattr("sys.argv", ["/usr/lib/agentpod_bot/__main__.py"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert PROGRAM() == str(started)
    monkeypatch.setenv("PATH", "/nowhere")
    assert PROGRAM() == "agentpod-bot"


async def test_an_interrupted_test_question_is_taken_back_and_no_other(daemon: FakeDaemon) -> None:
    views = [
        {"request_id": "new:1", "status": "pending"},
        {"request_id": "new:2", "status": "decided"},
        {"request_id": "old", "status": "pending"},
    ]
    daemon.will(*LIST, (200, {"requests": views}))
    daemon.will("POST", "/v1/requests/ID/cancel", (200, {}))
    async with connected(Endpoint(daemon.url, token=TOKEN)) as client:
        await trying.withdraw(client, {"old"})
    assert [path for method, path, *_ in daemon.calls if method == "POST"] == ["/v1/requests/new%3A1/cancel"]


def started_by(name: str) -> list[list[str]]:
    """The words of every command of ours in a snippet."""
    place = Place(token_file="/etc/laptop.token", program="agentpod-bot", route="ops")
    found: list[list[str]] = []
    for piece in SNIPPETS[name](place, None).pieces:
        match piece.language, piece.text:
            case "sh", text if text.startswith("agentpod-bot "):
                found.append(shlex.split(text))
            case "json", text:
                found += commands_in(json.loads(text))
            case _:
                pass
    return found


def commands_in(content: Any) -> list[list[str]]:
    match content:
        case {"command": "agentpod-bot", "args": [*words]}:
            return [["agentpod-bot", *words]]
        case {"command": str(line)} | {"bash": str(line)} if line.startswith("agentpod-bot "):
            return [shlex.split(line)]
        case dict():
            return [each for value in content.values() for each in commands_in(value)]
        case list():
            return [each for value in content for each in commands_in(value)]
        case _:
            return []


def read(words: list[str]) -> dict[str, Any]:
    """The options of a command line, as our program reads them; raises where it takes no such one."""
    command: Any = get_command(app)
    context = command.make_context("agentpod-bot", words, resilient_parsing=True)
    while hasattr(command, "resolve_command"):
        called, command, left = command.resolve_command(context, [*context._protected_args, *context.args])
        is_group = hasattr(command, "resolve_command")
        context = command.make_context(called, list(left), parent=context, resilient_parsing=is_group)
    found: dict[str, Any] = context.params
    return found


@pytest.mark.parametrize("name", [name for name in SNIPPETS if started_by(name)])
def test_every_command_in_a_snippet_is_one_that_this_program_takes(name: str) -> None:
    """An option that does not exist would make a hook fail, which most harnesses take for a yes."""
    for _, *words in started_by(name):
        params = read(words)
        assert params["route"] == "ops"
        assert str(params["token_file"]) == "/etc/laptop.token"
