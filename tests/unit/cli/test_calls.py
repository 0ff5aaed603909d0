from __future__ import annotations

import json
import os
import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.digest import digest
from agentpod_bot.harness.native import parse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Command, FakeDaemon

POST = ("POST", "/v1/requests")
WAIT = ("GET", "/v1/requests/ID")
CANCEL = ("POST", "/v1/requests/ID/cancel")
SALT = "5a17" * 8
LISTED = {"request_id": "s:1", "session_id": "s", "title": "Deploy?", "options": [{"id": "go", "kind": "allow_once"}]}
REFUSED: dict[str, Any] = {"code": "unauthorized", "detail": "there is no such token"}


def subject(body: Any) -> dict[str, Any]:
    """The subject of what was posted, bound to it by its digest."""
    bound = digest(parse(json.dumps(body).encode()), request_id=body["request_id"], revision=1, salt=SALT)
    return {"id": body["request_id"], "revision": 1, "digest": bound, "salt": SALT}


def view(body: Any, status: str = "pending", **decision: Any) -> dict[str, Any]:
    return {
        "request_id": body["request_id"],
        "session_id": body["session_id"],
        "status": status,
        "code": "K7",
        "created_at": "2026-11-07T10:00:00.000Z",
        "expires_at": "2026-11-07T10:30:00.000Z",
        "subject": subject(body),
        "decision": decision or None,
    }


def ends(daemon: FakeDaemon, status: str, **decision: Any) -> None:
    """The next question is pending at first, and then ends so."""
    daemon.will(*POST, lambda body: (201, view(body)))
    daemon.will(
        *WAIT,
        lambda _: (200, view(daemon.posted)),
        lambda _: (200, view(daemon.posted, status, **decision)),
    )


def allowed(option_id: str = "allow_once", meaning: str = "approve", **other: Any) -> dict[str, Any]:
    by = {"label": "Allow once", "answered_by": "@owner:example.org", "via": "number", "comment": None}
    return {"outcome": "selected", "option_id": option_id, "meaning": meaning, "scope": "once"} | by | other


@pytest.fixture
def token_file(tmp_path: Path) -> str:
    path = tmp_path / "token"
    path.write_text("made-up-token\n")
    return str(path)


def test_an_approval_exits_0_and_prints_the_option_alone_on_stdout(
    daemon: FakeDaemon, command: Command, token_file: str
) -> None:
    ends(daemon, "decided", **allowed())
    result = command("ask", "Deploy?", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (0, "allow_once\n")
    assert "K7" in result.stderr
    assert "Allow once, by @owner:example.org" in result.stderr
    assert {authorization for *_, authorization in daemon.calls} == {"Bearer made-up-token"}


def test_a_rejection_exits_1_and_shows_its_reason_without_control_characters(
    daemon: FakeDaemon, command: Command, token_file: str
) -> None:
    ends(daemon, "decided", **allowed("reject_once", "reject", label="Reject", comment="not\x1b[2K on a Friday"))
    result = command("ask", "Deploy?", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (1, "reject_once\n")
    assert "on a Friday" in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("status", "decision", "words"),
    [
        ("expired", {"outcome": "expired"}, "Nobody answered in time"),
        ("cancelled", {"outcome": "cancelled"}, "cancelled"),
        ("undeliverable", {"outcome": "undeliverable", "reason": "M_FORBIDDEN"}, "M_FORBIDDEN"),
        (
            "answered_elsewhere",
            {"outcome": "answered_elsewhere", "claimed": {"option_id": "allow_once", "by": "@owner:example.org"}},
            "no decision",
        ),
        ("decided", allowed("allow_once", "reject"), "counts as none"),
    ],
)
def test_every_other_end_exits_3_and_prints_no_option(
    daemon: FakeDaemon, command: Command, token_file: str, *, status: str, decision: dict[str, Any], words: str
) -> None:
    ends(daemon, status, **decision)
    result = command("ask", "Deploy?", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (3, "")
    assert words in result.stderr


def test_the_question_is_posted_as_the_command_line_says_it(
    daemon: FakeDaemon, command: Command, token_file: str
) -> None:
    ends(daemon, "decided", **allowed("go"))
    words = [
        "--option",
        "go:allow_once:Go",
        "--option",
        "no:reject_once",
        "--command",
        "./deploy.sh",
        "--field",
        "To=prod",
    ]
    more = ["--session", "deploys", "--route", "ops", "--ttl", "5m", "--agent", "ci", "--json"]
    result = command("ask", "Deploy?", *words, *more, "--url", daemon.url, "--token-file", token_file)
    assert daemon.posted["request_id"].startswith("deploys:")
    assert daemon.posted == {
        "request_id": daemon.posted["request_id"],
        "session_id": "deploys",
        "title": "Deploy?",
        "options": [{"id": "go", "kind": "allow_once", "label": "Go"}, {"id": "no", "kind": "reject_once"}],
        "preview": [
            {"type": "text", "label": "Command", "text": "./deploy.sh"},
            {"type": "field", "label": "To", "value": "prod"},
        ],
        "route": "ops",
        "ttl_s": 300,
        "agent": "ci",
    }
    assert json.loads(result.stdout)["decision"]["option_id"] == "go"


def test_a_question_other_than_the_one_that_was_asked_is_cancelled_and_never_waited_for(
    daemon: FakeDaemon, command: Command, token_file: str
) -> None:
    """The digest is over the asker's own words: what is approved is what was asked."""
    daemon.will(*POST, lambda body: (201, view(body | {"title": "Say hello?"}, "decided", **allowed())))
    daemon.will(*CANCEL, (200, {}))
    result = command("ask", "Deploy?", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "another question" in result.stderr
    assert daemon.calls[-1][1].endswith("/cancel")


def test_no_wait_never_exits_0(daemon: FakeDaemon, command: Command, token_file: str) -> None:
    """`ask --no-wait … && ./deploy.sh` must not deploy: nobody has answered."""
    daemon.will(*POST, lambda body: (201, view(body)))
    result = command("ask", "Deploy?", "--no-wait", "--url", daemon.url, "--token-file", token_file)
    assert result.exit_code == 3
    assert result.stdout == daemon.posted["request_id"] + "\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_cancels_the_question_and_wins_over_an_answer(
    daemon: FakeDaemon, command: Command, token_file: str, number: signal.Signals
) -> None:
    def interrupt(_: Any) -> tuple[int, Any]:
        os.kill(os.getpid(), number)
        return 200, view(daemon.posted, "decided", **allowed())

    daemon.will(*POST, lambda body: (201, view(body)))
    daemon.will(*WAIT, interrupt)
    daemon.will(*CANCEL, lambda _: (200, view(daemon.posted, "cancelled", outcome="cancelled")))
    result = command("ask", "Deploy?", "--url", daemon.url, "--token-file", token_file)
    assert result.exit_code == 128 + number
    assert daemon.calls[-1][1] == f"/v1/requests/{daemon.posted['request_id'].replace(':', '%3A')}/cancel"
    assert "the question is cancelled" in result.stderr


@pytest.mark.parametrize(
    ("status", "content", "exit_code", "words"),
    [
        (401, REFUSED, 77, "there is no such token"),
        (403, REFUSED | {"code": "forbidden", "detail": "not this route"}, 77, "not this route"),
        (
            422,
            {"code": "invalid", "detail": "invalid", "errors": [{"loc": ["ttl_s"], "msg": "too long"}]},
            2,
            "ttl_s: too long",
        ),
        (429, {"code": "too_many_pending", "detail": "there are already 30 open requests"}, 69, "too_many_pending"),
        (503, {"code": "no_approver", "detail": "the route has no approver"}, 69, "no_approver"),
        (302, {}, 69, "HTTP 302"),
    ],
)
def test_a_refusal_of_the_daemon_is_said_in_one_line_with_its_exit_code(
    daemon: FakeDaemon, command: Command, token_file: str, *, status: int, content: Any, exit_code: int, words: str
) -> None:
    daemon.will(*POST, (status, content))
    result = command("ask", "Deploy?", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert words in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [["ask", "x"], ["list"], ["cancel", "--all"]])
def test_without_a_daemon_the_commands_say_where_they_looked(
    command: Command, token_file: str, words: list[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = command(*words, "--url", url, "--token-file", token_file)
    assert result.exit_code == 69
    assert f"no daemon answers at {url}" in result.stderr


def test_a_socket_is_called_instead_of_an_address(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "s"
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                heard.append(connection.recv(65_536))
                body = b'{"requests": [], "next_cursor": null}'
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                connection.sendall(head.encode() + body)

        thread = threading.Thread(target=answer)
        thread.start()
        result = command("list", "--socket", str(path), env={"AGENTPOD_BOT_TOKEN": "made-up"})
        thread.join(10)
    assert result.exit_code == 0, result.stderr
    assert b"Host: localhost" in heard[0]
    assert b"Authorization: Bearer made-up" in heard[0]


def test_list_follows_the_pages_and_shows_one_line_each(daemon: FakeDaemon, command: Command, token_file: str) -> None:
    one = view(LISTED, "decided", **allowed())
    two = view(LISTED) | {"request_id": "s:2\u202e"}
    daemon.will("GET", "/v1/requests", (200, {"requests": [two], "next_cursor": 7}), (200, {"requests": [one]}))
    result = command("list", "--status", "pending", "--url", daemon.url, "--token-file", token_file)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith("s:1  allow_once by @owner:example.org")
    assert "\u202e" not in result.stdout
    assert [query for _, _, query, *_ in daemon.calls] == [
        {"limit": "100", "status": "pending"},
        {"limit": "100", "status": "pending", "cursor": "7"},
    ]


def test_list_as_json_is_an_array_of_views(daemon: FakeDaemon, command: Command, token_file: str) -> None:
    one = view(LISTED)
    daemon.will("GET", "/v1/requests", (200, {"requests": [one], "next_cursor": None}))
    result = command("list", "--json", "--url", daemon.url, "--token-file", token_file)
    assert json.loads(result.stdout) == [one]


def test_cancel_names_one_request_however_its_id_looks(daemon: FakeDaemon, command: Command, token_file: str) -> None:
    daemon.will(*CANCEL, (200, {}))
    result = command("cancel", "a/b%2F?:1", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (0, "a/b%2F?:1\n")
    assert daemon.calls[0][1] == "/v1/requests/a%2Fb%252F%3F%3A1/cancel"


@pytest.mark.parametrize(
    ("words", "path"), [(["--all"], "/v1/cancel-all"), (["--session", "acps_3f0c"], "/v1/sessions/acps_3f0c/cancel")]
)
def test_cancel_takes_a_session_or_all(
    daemon: FakeDaemon, command: Command, token_file: str, words: list[str], path: str
) -> None:
    daemon.will("POST", path, (200, {"cancelled": ["s:1", "s:2"]}))
    result = command("cancel", *words, "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stdout) == (0, "s:1\ns:2\n")


@pytest.mark.parametrize("status", [404, 409])
def test_cancelling_what_is_not_open_exits_1(
    daemon: FakeDaemon, command: Command, token_file: str, status: int
) -> None:
    daemon.will(*CANCEL, (status, {"code": "x", "detail": "it is not open"}))
    result = command("cancel", "s:1", "--url", daemon.url, "--token-file", token_file)
    assert (result.exit_code, result.stderr) == (1, "agentpod-bot: it is not open\n")


@pytest.mark.parametrize("words", [[], ["s:1", "--all"], ["--session", "s", "--all"], ["s:1", "--session", "s"]])
def test_cancel_wants_exactly_one_target(command: Command, words: list[str]) -> None:
    assert command("cancel", *words).exit_code == 2


def test_a_ready_daemon_is_healthy_and_needs_no_token(daemon: FakeDaemon, command: Command) -> None:
    daemon.will("GET", "/readyz", (200, {"ready": True}))
    result = command("healthcheck", "--url", daemon.url)
    assert (result.exit_code, result.output) == (0, "")
    assert daemon.calls[0][4] is None


def test_a_daemon_that_is_not_ready_exits_1_with_its_problems(daemon: FakeDaemon, command: Command) -> None:
    daemon.will("GET", "/readyz", (503, {"problems": ["no sync yet", "the store is full"]}))
    result = command("healthcheck", "--url", daemon.url)
    assert result.exit_code == 1
    assert result.stderr == "not ready: no sync yet\nnot ready: the store is full\n"


def test_no_daemon_is_not_healthy(command: Command, tmp_path: Path) -> None:
    result = command("healthcheck", "--socket", str(tmp_path / "nothing"))
    assert result.exit_code == 1
    assert "no daemon answers at" in result.stderr
