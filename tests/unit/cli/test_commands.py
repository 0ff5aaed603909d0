from __future__ import annotations

import json
import subprocess
import sys
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import agentpod_bot

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command

COMMANDS = (
    *("run", "demo", "check-config", "login", "doctor", "backup", "verify", "ask", "list", "cancel", "healthcheck"),
    *("hook", "connect", "mcp", "schema", "version", "audit", "proxy"),
)


def configured(folder: Path) -> Path:
    """A whole configuration in a folder."""
    for name in ("access_token", "laptop"):
        (folder / name).write_text(f"made-up-secret-of-{name}-0123456789\n")
        (folder / name).chmod(0o600)
    path = folder / "config.yaml"
    path.write_text(
        "homeserver:\n"
        "  url: https://matrix.test\n"
        '  user_id: "@pod:matrix.test"\n'
        "  access_token_file: access_token\n"
        "clients:\n"
        "  laptop:\n"
        "    token_file: laptop\n"
        "    routes: [ops]\n"
        "routes:\n"
        "  ops:\n"
        '    room: "!abc"\n'
        '    approvers: ["@owner:matrix.test"]\n'
        "store:\n"
        "  path: agentpod.db\n"
    )
    return path


@pytest.mark.parametrize("words", [[], *([name] for name in COMMANDS)])
def test_every_command_explains_itself(command: Command, words: list[str]) -> None:
    result = command(*words, "--help")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: {' '.join(['agentpod-bot', *words])} ")
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "completion" not in result.stdout


def test_the_first_page_names_every_command_in_full(command: Command) -> None:
    listed = command("--help").stdout.partition("Commands:\n")[2].splitlines()
    assert tuple(line.split()[0] for line in listed) == COMMANDS
    assert not [line for line in listed if line.endswith("...")]


def test_ask_documents_that_only_an_approval_exits_0(command: Command) -> None:
    text = command("ask", "--help").stdout
    assert "&& ./deploy.sh" in text
    assert "exit 0 only if the answer is an approval" in text


@pytest.mark.parametrize(
    "words", [[], ["no-such-command"], ["ask"], ["login"], ["schema", "no-such-shape"], ["run", "--x"]]
)
def test_wrong_usage_exits_2_without_a_traceback(command: Command, words: list[str]) -> None:
    result = command(*words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output


def test_check_config_refuses_a_folder_of_the_store_that_others_can_use(command: Command, tmp_path: Path) -> None:
    """The daemon would: better said before it is started."""
    path = configured(tmp_path)
    assert command("check-config", "--config", str(path)).exit_code == 0
    tmp_path.chmod(0o755)
    result = command("check-config", "--config", str(path))
    assert (result.exit_code, result.stdout) == (78, "")
    assert f"the folder {tmp_path} of the store has mode 0755" in result.stderr


def test_the_version_is_printed(command: Command) -> None:
    for word in ("version", "--version"):
        result = command(word)
        assert (result.exit_code, result.stdout) == (0, f"agentpod-bot {agentpod_bot.__version__}\n")


def test_a_command_starts_without_what_only_the_daemon_needs() -> None:
    code = (
        "import sys; import agentpod_bot.cli.commands; "
        "print(sorted({'aiohttp', 'nio', 'pydantic', 'sqlalchemy', 'structlog', 'yaml'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"


SHAPES = ("permission", "answer", "outcome", "request", "view")


@pytest.mark.parametrize("shape", SHAPES)
def test_each_shape_has_a_schema_with_the_keys_of_the_wire(command: Command, shape: str) -> None:
    schema = json.loads(command("schema", shape).stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "request_id" in schema["properties"]


def test_schemas_name_what_is_required(command: Command) -> None:
    every = json.loads(command("schema").stdout)
    assert tuple(every) == SHAPES
    assert sorted(every["request"]["required"]) == ["options", "session_id", "title"]
    assert "dev.agentpod.permission" in every["permission"]["properties"]
    assert "schema" in every["permission"]["$defs"]["Subject"]["properties"]
    assert "decision" in every["view"]["required"]


def test_check_config_says_where_values_come_from_and_hides_secrets(command: Command, tmp_path: Path) -> None:
    result = command("check-config", "--config", str(configured(tmp_path)))
    assert result.exit_code == 0, result.output
    assert "routes.ops.room" in result.stdout
    assert "made-up-secret" not in result.output
    assert "***" in result.stdout


def test_a_faulty_configuration_exits_78_and_names_the_key(command: Command, tmp_path: Path) -> None:
    path = configured(tmp_path)
    path.write_text(path.read_text().replace("approvers:", "aprovers:"))
    for words in (["check-config"], ["run"], ["healthcheck"], ["list"]):
        result = command(*words, "--config", str(path))
        assert (result.exit_code, result.stdout) == (78, "")
        assert "routes.ops.aprovers" in result.stderr
        assert "Traceback" not in result.stderr


def test_run_hands_the_configuration_to_the_daemon_and_exits_with_its_code(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def run(loaded: Any) -> int:
        seen.append(loaded.settings.homeserver.user_id)
        return 77

    daemon = ModuleType("agentpod_bot.app.daemon")
    daemon.__dict__["run"] = run
    monkeypatch.setitem(sys.modules, "agentpod_bot.app.daemon", daemon)
    monkeypatch.setattr("agentpod_bot.log.configure", lambda *args: seen.append(args[:2]))
    assert command("run", "--config", str(configured(tmp_path))).exit_code == 77
    assert seen == [("info", "auto"), "@pod:matrix.test"]


def test_demo_hands_its_options_on_and_exits_with_the_talks_code(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    async def run_demo(options: Any) -> int:
        seen.append((options.answers, options.script, options.keep))
        return 1

    talk = SimpleNamespace(run_demo=run_demo, DemoOptions=SimpleNamespace)
    monkeypatch.setitem(sys.modules, "agentpod_bot.demo.talk", talk)
    assert command("demo", "--answers", "1,Reject").exit_code == 1
    assert command("demo", "--script", str(tmp_path), "--keep").exit_code == 1
    assert seen == [("1,Reject", None, False), (None, tmp_path, True)]
