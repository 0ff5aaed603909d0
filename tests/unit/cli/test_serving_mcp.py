from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.cli.test_calls import CANCEL, POST, WAIT, allowed, ends, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.unit.cli.conftest import Command, FakeDaemon

DOOR = ("POST", "/v1/harness/claude-prompt")
CALL = {"tool_name": "Bash", "input": {"command": "npm test"}, "tool_use_id": "toolu_1"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Client:
    """A client of MCP at the other end of `agentpod-bot mcp`."""

    def __init__(self, url: str, token_file: str, *words: str) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTPOD_BOT_")}
        start = [sys.executable, "-m", "agentpod_bot", "mcp", "--url", url, "--token-file", token_file, *words]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(start, stdin=pipe, stdout=pipe, stderr=pipe, env=environ)
        self.say(id=0, method="initialize", params=HELLO)
        assert self.hear()["result"]["serverInfo"]["name"] == "agentpod"
        self.say(method="notifications/initialized")

    def say(self, **members: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def call(self, tool: str, arguments: dict[str, Any]) -> None:
        self.say(id=1, method="tools/call", params={"name": tool, "arguments": arguments})

    def result(self, tool: str, arguments: dict[str, Any]) -> Any:
        self.call(tool, arguments)
        return self.hear()["result"]

    def ended(self, *, close: bool = True) -> int:
        assert self.process.stdin is not None
        if close:
            self.process.stdin.close()
            self.process.stdin = None
        self.process.communicate(timeout=30)
        return self.process.returncode


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Callable[..., Client]]:
    path = tmp_path / "token"
    path.write_text("made-up-token\n")
    started: list[Client] = []

    def start(url: str, *words: str) -> Client:
        started.append(Client(url, str(path), *words))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate(timeout=30)


def posted(daemon: FakeDaemon, path: str) -> list[Any]:
    return [each for each in daemon.calls if each[1].split("?")[0] == path]


def test_a_permission_prompt_is_answered_with_what_a_person_decided(
    daemon: FakeDaemon, client: Callable[..., Client]
) -> None:
    answer = {"behavior": "allow", "updatedInput": {"command": "npm test"}}
    daemon.will(*DOOR, (200, answer))
    claude = client(daemon.url, "--route", "ops", "--timeout", "60")
    result = claude.result("approve", CALL)
    assert [json.loads(each["text"]) for each in result["content"]] == [answer]
    ((_, _, query, body, authorization),) = posted(daemon, DOOR[1])
    assert (query, body, authorization) == ({"route": "ops", "timeout": "60"}, CALL, "Bearer made-up-token")
    assert claude.ended() == 0


def test_where_no_daemon_is_there_a_permission_prompt_is_denied(client: Callable[..., Client]) -> None:
    (only,) = client("http://127.0.0.1:1").result("approve", CALL)["content"]
    said = json.loads(only["text"])
    assert said["behavior"] == "deny"
    assert "could not be reached" in said["message"]


def test_ask_says_what_was_chosen(daemon: FakeDaemon, client: Callable[..., Client]) -> None:
    ends(daemon, "decided", **allowed("reject_once", "reject", label="Reject", comment="not today"))
    result = client(daemon.url).result("ask", {"title": "Deploy?"})
    assert result["content"][0]["text"] == "Rejected: Reject, by @owner:example.org: not today"
    assert not result["isError"]


def opened(daemon: FakeDaemon, claude: Client) -> None:
    """`ask` was called, and its question is open."""
    daemon.will(*POST, lambda body: (201, view(body)))
    waiting = threading.Event()

    def wait(_: object) -> tuple[int, dict[str, Any]]:
        waiting.set()
        return 200, view(daemon.posted)

    daemon.will(*WAIT, wait)
    daemon.will(*CANCEL, lambda _: (200, view(daemon.posted, "cancelled", outcome="cancelled")))
    claude.call("ask", {"title": "Deploy?"})
    assert waiting.wait(30)


def cancelled(daemon: FakeDaemon) -> bool:
    return any(path.endswith("/cancel") for _, path, *_ in daemon.calls)


def test_a_client_that_goes_away_takes_its_question_back(daemon: FakeDaemon, client: Callable[..., Client]) -> None:
    claude = client(daemon.url)
    opened(daemon, claude)
    assert claude.ended() == 0
    assert cancelled(daemon)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_the_question_back(daemon: FakeDaemon, client: Callable[..., Client], number: int) -> None:
    claude = client(daemon.url)
    opened(daemon, claude)
    claude.process.send_signal(number)
    assert claude.ended(close=False) == 128 + number
    assert cancelled(daemon)


def test_a_cancelled_call_takes_its_question_back_and_the_next_one_is_served(
    daemon: FakeDaemon, client: Callable[..., Client]
) -> None:
    claude = client(daemon.url)
    opened(daemon, claude)
    claude.say(method="notifications/cancelled", params={"requestId": 1})
    daemon.will(*DOOR, (200, {"behavior": "deny", "message": "no"}))
    claude.say(id=2, method="tools/call", params={"name": "approve", "arguments": CALL})
    assert claude.hear()["id"] == 2
    assert claude.ended() == 0
    assert cancelled(daemon)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("0.0.0.0:8471", "--allow-remote"),
        ("192.0.2.1:8471", "--allow-remote"),
        ("gate.example.org:8471", "--allow-remote"),
        ("127.0.0.1", "must look like"),
        (":8471", "must look like"),
        ("127.0.0.1:0", "must look like"),
        ("127.0.0.1:99999", "must look like"),
        ("127.0.0.1:٨", "must look like"),
    ],
)
def test_http_listens_for_this_machine_alone_unless_it_is_told_otherwise(
    command: Command, address: str, words: str
) -> None:
    result = command("mcp", "--http", address, "--url", "http://127.0.0.1:1")
    assert result.exit_code == 2
    assert words in result.stderr
