from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.cli.bridging import HookOf
from agentpod_bot.harness.hook_exits import COMMANDS
from agentpod_bot.harness.registry import ADAPTERS
from agentpod_bot.proxy import hook
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from tests.unit.cli.conftest import Command, FakeDaemon

CALLS: dict[str, dict[str, Any]] = {
    "claude-code": {
        "session_id": "s",
        "cwd": "/x",
        "hook_event_name": "PermissionRequest",
        "tool_name": "Bash",
        "tool_input": {"command": "npm test"},
    },
    "codex-hook": {
        "session_id": "s",
        "turn_id": "t",
        "cwd": "/x",
        "hook_event_name": "PermissionRequest",
        "model": "m",
        "permission_mode": "default",
        "tool_name": "Bash",
        "tool_input": {"command": "npm test"},
    },
    "copilot": {
        "hook_event_name": "PermissionRequest",
        "session_id": "s",
        "cwd": "/x",
        "tool_name": "Bash",
        "tool_input": {"command": "npm test"},
    },
    "qwen": {
        "session_id": "s",
        "cwd": "/x",
        "hook_event_name": "PermissionRequest",
        "permission_mode": "default",
        "tool_name": "Bash",
        "tool_input": {"command": "npm test"},
    },
    "gemini": {
        "session_id": "s",
        "cwd": "/x",
        "hook_event_name": "BeforeTool",
        "tool_name": "run_shell_command",
        "tool_input": {"command": "npm test"},
    },
    "cursor": {
        "conversation_id": "s",
        "generation_id": "g",
        "hook_event_name": "beforeShellExecution",
        "workspace_roots": ["/x"],
        "command": "npm test",
        "cwd": "/x",
    },
}
ALLOWED = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}


@pytest.fixture
def ask(command: Command, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a hook against the scripted daemon."""
    monkeypatch.setenv("AGENTPOD_BOT_URL", daemon.url)
    monkeypatch.setenv("AGENTPOD_BOT_TOKEN", "made-up")

    def run(harness: str, *words: str, call: Any = None) -> Any:
        said = call if isinstance(call, bytes) else json.dumps(CALLS[harness] if call is None else call)
        return command("hook", harness, *words, input=said)

    return run


def decisions(value: Any) -> set[str]:
    """Every word in an answer by which a harness is told what to do."""
    if isinstance(value, dict):
        words = (value.get(key) for key in ("behavior", "permissionDecision", "permission", "decision"))
        return {each for each in words if isinstance(each, str)}.union(*map(decisions, value.values()))
    return set()


def test_every_hook_has_its_command_and_its_patience() -> None:
    assert set(hook.PATIENCE_S) == COMMANDS == {each.value for each in HookOf}
    assert all(ADAPTERS[name].HOOK for name in COMMANDS)
    for name, patience_s in hook.PATIENCE_S.items():
        usual = ADAPTERS[name].PATIENCE_S
        assert usual is None or patience_s <= usual


def test_an_answer_goes_from_the_room_to_the_harness(ask: Command, daemon: FakeDaemon) -> None:
    daemon.will("POST", "/v1/harness/claude-code", (200, ALLOWED))
    result = ask("claude-code", "--route", "ops", "--timeout", "86400")
    assert (result.exit_code, json.loads(result.stdout), result.stderr) == (0, ALLOWED, "")
    (called,) = daemon.calls
    method, _, query, body, token = called
    assert (method, query, body) == ("POST", {"route": "ops", "timeout": "86400"}, CALLS["claude-code"])
    assert token == "Bearer made-up"


@pytest.mark.parametrize("harness", sorted(COMMANDS))
def test_the_daemon_hears_how_long_the_harness_waits(ask: Command, daemon: FakeDaemon, harness: str) -> None:
    daemon.will("POST", f"/v1/harness/{harness}", (200, {}))
    assert json.loads(ask(harness).stdout) == {}
    assert daemon.calls[0][2] == {"timeout": str(hook.PATIENCE_S[harness])}


BAD = [
    (401, {"code": "unauthorized", "detail": "no such token"}),
    (404, {"code": "not_found", "detail": "no such harness"}),
    (500, {"detail": "it is broken"}),
    (503, {"code": "matrix_unavailable", "detail": "not synced"}),
    (200, [ALLOWED]),
    (200, "allow"),
    (200, None),
    (201, ALLOWED),
    (302, ALLOWED, {"Location": "/elsewhere"}),
    (200, ALLOWED, {"Content-Type": "text/html"}),
]


@pytest.mark.parametrize(
    ("harness", "bad"),
    [*(("claude-code", bad) for bad in BAD), *((harness, BAD[0]) for harness in sorted(COMMANDS - {"claude-code"}))],
)
def test_whatever_else_comes_back_is_the_harnesss_own_no(
    ask: Command, daemon: FakeDaemon, harness: str, bad: tuple[Any, ...]
) -> None:
    daemon.will("POST", f"/v1/harness/{harness}", bad)
    result = ask(harness, "--when-unanswered", "terminal")
    assert result.exit_code == 0
    assert decisions(json.loads(result.stdout)) == {"deny"}
    assert "agentpod-bot" in result.stdout
    assert "rejected" not in result.stdout
    assert "refused" not in result.stdout


@pytest.mark.parametrize("harness", sorted(COMMANDS))
def test_a_daemon_that_is_not_there_is_a_no_that_says_so(
    command: Command, unused_tcp_port: int, harness: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTPOD_BOT_TOKEN", "made-up")
    url = f"http://127.0.0.1:{unused_tcp_port}"
    result = command("hook", harness, "--url", url, input=json.dumps(CALLS[harness]))
    assert result.exit_code == 0
    assert decisions(json.loads(result.stdout)) == {"deny"}
    assert f"could not be reached at {url}: connection refused" in result.stdout
    assert "could not be reached" in result.stderr


@pytest.mark.parametrize("harness", sorted(COMMANDS))
def test_the_terminal_is_asked_instead_where_that_is_wanted_and_never_allows(
    command: Command, unused_tcp_port: int, harness: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTPOD_BOT_TOKEN", "made-up")
    words = ["--url", f"http://127.0.0.1:{unused_tcp_port}", "--when-unanswered", "terminal"]
    result = command("hook", harness, *words, input=json.dumps(CALLS[harness]))
    assert result.exit_code == 0
    assert decisions(json.loads(result.stdout)) <= {"ask", "deny"}


def test_a_connection_that_is_cut_does_not_hand_back(
    ask: Command, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentpod_bot.proxy.door.AWAY_S", 0.0)
    daemon.will("POST", "/v1/harness/claude-code", (503, {"code": "shutting_down", "detail": "it stops"}))
    result = ask("claude-code", "--when-unanswered", "terminal")
    assert decisions(json.loads(result.stdout)) == {"deny"}


@pytest.mark.parametrize("call", [b"", b"no JSON", b"[]", b"\xff", b'{"a":1}'], ids=repr)
def test_a_call_that_cannot_be_read_is_a_no(call: bytes) -> None:
    ended = hook.run("claude-code", lambda: call, no_endpoint)
    told = json.loads(ended.stdout)
    assert decisions(told) == {"block"}
    assert told["continue"] is False
    assert ended.code == 0


def test_of_a_call_larger_than_any_the_beginning_is_kept_and_the_harness_is_heard_to_its_end() -> None:
    size = hook.LARGEST_CALL + 300_000
    stdin = io.BytesIO(b"x" * size)
    assert len(hook.call_of(stdin)) == hook.LARGEST_CALL + 1
    assert stdin.tell() == size
    assert len(hook.call_of(io.BytesIO(b"x" * hook.LARGEST_CALL))) == hook.LARGEST_CALL


@pytest.mark.parametrize("harness", sorted(COMMANDS))
def test_a_call_larger_than_any_is_its_own_events_no(harness: str) -> None:
    call = json.dumps(CALLS[harness] | {"more": "x" * hook.LARGEST_CALL}).encode()
    ended = hook.run(harness, lambda: hook.call_of(io.BytesIO(call)), no_endpoint)
    assert decisions(json.loads(ended.stdout)) == {"deny"}
    assert b"larger than" in ended.stdout
    assert ended.code == 0


def no_endpoint() -> Any:
    raise Stopped(ExitCode.USAGE, "no token for http://127.0.0.1:8470")


def test_no_token_is_a_no_that_says_so() -> None:
    ended = hook.run("claude-code", lambda: json.dumps(CALLS["claude-code"]).encode(), no_endpoint)
    assert decisions(json.loads(ended.stdout)) == {"deny"}
    assert b"no token for" in ended.stdout
    assert ended.code == 0


@pytest.mark.parametrize("harness", sorted(COMMANDS))
def test_a_bug_of_ours_is_a_no(harness: str) -> None:
    def broken() -> Any:
        raise RuntimeError("a bug")

    ended = hook.run(harness, lambda: json.dumps(CALLS[harness]).encode(), broken)
    assert decisions(json.loads(ended.stdout)) == {"deny"}


def test_a_bug_where_the_no_is_made_still_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "exit_of", lambda *_: 1 / 0)
    ended = hook.run("claude-code", lambda: b"{}", no_endpoint)
    assert (ended.stdout, ended.code) == (b"", 2)
    assert "nothing was allowed" in ended.stderr


@pytest.mark.parametrize("patience_s", [1, 2, 4, 30, 600])
def test_this_gives_up_after_the_daemon_and_before_the_harness(patience_s: int) -> None:
    daemons = max(patience_s - 5, patience_s / 2)
    assert daemons < hook.own_limit_s(patience_s) < patience_s


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_a_no(daemon: FakeDaemon, number: signal.Signals) -> None:
    asked = threading.Event()

    def hold(_body: object) -> Any:
        asked.set()
        return 503, {"code": "shutting_down", "detail": "the daemon is stopping"}

    daemon.will("POST", "/v1/harness/claude-code", hold)
    words = [sys.executable, "-m", "agentpod_bot", "hook", "claude-code", "--url", daemon.url]
    environ = {**os.environ, "AGENTPOD_BOT_TOKEN": "made-up"}
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ
    ) as running:
        assert running.stdin is not None
        running.stdin.write(json.dumps(CALLS["claude-code"]).encode())
        running.stdin.close()
        running.stdin = None
        assert asked.wait(30)
        running.send_signal(number)
        stdout, _ = running.communicate(timeout=30)
    assert running.returncode == 0
    assert decisions(json.loads(stdout)) == {"deny"}
    assert b"told to stop" in stdout


ECHO = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer); sys.exit(5)"


@pytest.mark.parametrize("bridge", ["acp", "codex"])
def test_a_bridge_is_a_program_between_two_others(bridge: str) -> None:
    words = [sys.executable, "-m", "agentpod_bot", "proxy", bridge, "--url", "http://127.0.0.1:9"]
    environ = {**os.environ, "AGENTPOD_BOT_TOKEN": "made-up"}
    said = b'{"method":"x"}\nnot JSON\n' + b"x" * 200_000 + b"\nthe end"
    ran = subprocess.run(
        [*words, "--", sys.executable, "-c", ECHO],
        input=said,
        capture_output=True,
        env=environ,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (5, said, b"")


PROMPTED = """
import json, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def heard(): return json.loads(sys.stdin.readline())
call = heard()
assert not call["params"]["clientCapabilities"].get("terminal"), call
assert not any(call["params"]["clientCapabilities"].get("fs", {}).values()), call
say(id=call["id"], result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
call = heard()
say(id=call["id"], result={"sessionId": "s1"})
call = heard()
assert call["params"]["prompt"] == [{"type": "text", "text": "do it"}], call
options = [{"optionId": "yes", "name": "Allow", "kind": "allow_once"}]
say(id=0, method="session/request_permission",
    params={"sessionId": "s1", "toolCall": {"toolCallId": "c1", "title": "Run"}, "options": options})
outcome = heard()["result"]["outcome"]
text = {"type": "text", "text": "told " + json.dumps(outcome)}
say(method="session/update",
    params={"sessionId": "s1", "update": {"sessionUpdate": "agent_message_chunk", "content": text}})
say(id=call["id"], result={"stopReason": "end_turn"})
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((200, {"jsonrpc": "2.0", "id": 0, "result": {"outcome": {"outcome": "selected", "optionId": "yes"}}}), "yes"),
        ((503, {"code": "no_approver", "detail": "nobody is there"}), "cancelled"),
    ],
)
def test_an_agent_needs_no_editor(daemon: FakeDaemon, answer: tuple[Any, ...], told: str) -> None:
    pytest.importorskip("acp")
    daemon.will("POST", "/v1/harness/acp", answer)
    words = [sys.executable, "-m", "agentpod_bot", "proxy", "acp", "--url", daemon.url, "--prompt", "do it"]
    environ = {**os.environ, "AGENTPOD_BOT_TOKEN": "made-up"}
    ran = subprocess.run(
        [*words, "--", sys.executable, "-c", PROMPTED], capture_output=True, env=environ, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr.decode()
    assert told in ran.stdout.decode()
    assert ("nobody is there" in ran.stderr.decode()) == (told == "cancelled")


UNASKABLE = """
import json, sys
def say(**message): print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
def heard(): return json.loads(sys.stdin.readline())
say(id=heard()["id"], result={"protocolVersion": 1, "agentCapabilities": {}, "authMethods": []})
say(id=heard()["id"], result={"sessionId": "s1"})
prompt = heard()
schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
say(id=0, method="elicitation/create",
    params={"sessionId": "s1", "mode": "form", "message": "Who?", "requestedSchema": schema})
assert heard() == {"jsonrpc": "2.0", "id": 0, "result": {"action": "decline"}}
say(id=prompt["id"], result={"stopReason": "refusal"})
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (UNASKABLE, 1, "the agent stopped: refusal"),
        ("import sys; sys.exit(9)", 9, ""),
        ("import sys; sys.stdin.readline(); print('no JSON'); sys.exit(3)", 3, ""),
    ],
)
def test_an_agent_that_does_not_do_it_is_no_success(daemon: FakeDaemon, program: str, code: int, said: str) -> None:
    pytest.importorskip("acp")
    words = [sys.executable, "-m", "agentpod_bot", "proxy", "acp", "--url", daemon.url, "--prompt", "do it"]
    environ = {**os.environ, "AGENTPOD_BOT_TOKEN": "made-up"}
    ran = subprocess.run(
        [*words, "--", sys.executable, "-c", program], capture_output=True, env=environ, timeout=60, check=False
    )
    assert ran.returncode == code, ran.stderr.decode()
    assert said in ran.stderr.decode()
    assert "Traceback" not in ran.stderr.decode()
    assert daemon.calls == []
