from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import cursor
from agentpod_bot.harness.adapter import Settled
from tests.unit.harness import hooks
from tests.unit.harness.hooks import ALLOWED, CURSOR, CURSOR_MCP, DENY, TERMINAL, asked, body_of, told


def test_a_shell_command_is_shown_with_its_folder() -> None:
    request = asked(cursor, CURSOR)
    assert request.title == "Shell: npm test"
    assert request.tool_kind == "execute"
    assert request.session_id == "c1"
    assert request.preview == (
        FieldPreview("Tool", "Shell"),
        FieldPreview("Folder", "/repo"),
        TextPreview("Command", "npm test", "bash"),
    )


def test_a_tools_input_is_shown_as_what_its_text_says() -> None:
    request = asked(cursor, CURSOR_MCP)
    assert request.title == "search_docs: tests"
    assert request.tool_kind is None
    assert request.preview[1:] == (
        FieldPreview("query", "tests"),
        FieldPreview("Server url", "https://mcp.example/sse"),
    )


@pytest.mark.parametrize("text", ["", "not json", "[1]", '{"a": 1, "a": 2}', '{"a": NaN}', '{"a": 1e999}'])
def test_an_input_that_is_no_plain_json_object_is_shown_as_it_came(text: str) -> None:
    assert TextPreview("Input", text) in asked(cursor, {**CURSOR_MCP, "tool_input": text}).preview


def test_the_command_of_a_server_is_not_taken_for_the_tools() -> None:
    call = {name: value for name, value in CURSOR_MCP.items() if name != "url"}
    request = asked(cursor, {**call, "command": "docs-server --stdio"})
    assert request.preview[-1] == FieldPreview("Server command", "docs-server --stdio")
    assert request.title == "search_docs: tests"


@pytest.mark.parametrize("call", [CURSOR, CURSOR_MCP])
@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("sandbox", False, "false"),
        ("sandbox", True, "true"),
        ("timeout", None, "null"),
        ("env", {"A": "b"}, '{"A": "b"}'),
        ("Tool", "Read", "Read"),
    ],
)
def test_whatever_else_a_call_says_is_shown(call: Any, name: str, value: Any, shown: str) -> None:
    assert asked(cursor, {**call, name: value}).preview == (
        *asked(cursor, call).preview,
        FieldPreview(f"Call {name}", shown),
    )


@pytest.mark.parametrize("call", [CURSOR, CURSOR_MCP])
def test_what_only_says_who_calls_is_not_shown(call: Any) -> None:
    who = {
        "model": "m",
        "cursor_version": "3",
        "user_email": "a@example.org",
        "session_id": "s",
        "transcript_path": "/t",
    }
    assert asked(cursor, {**call, **who}).preview == asked(cursor, call).preview


def test_a_member_of_another_event_and_a_folder_that_is_no_text_are_shown_too() -> None:
    assert asked(cursor, {**CURSOR, "url": "https://x.example", "tool_input": "{}"}).preview[3:] == (
        FieldPreview("Call url", "https://x.example"),
        FieldPreview("Call tool_input", "{}"),
    )
    assert FieldPreview("Call cwd", "7") in asked(cursor, {**CURSOR, "cwd": 7}).preview


@pytest.mark.parametrize("call", [CURSOR, CURSOR_MCP])
@pytest.mark.parametrize("end", [*hooks.NO_DECISIONS, *hooks.REJECTIONS])
def test_every_no_is_a_denial_that_tells_person_and_agent_why(call: Any, end: Any) -> None:
    denied = {"permission": "deny", "user_message": end.reason, "agent_message": end.reason}
    assert told(cursor, call, end) == denied
    assert cursor.refuse(body_of(call), end, DENY) == denied
    back = end in hooks.HANDED_BACK
    assert told(cursor, call, end, TERMINAL) == {**denied, "permission": "ask" if back else "deny"}


def test_an_allow_holds_nothing_else() -> None:
    assert told(cursor, CURSOR, ALLOWED) == told(cursor, CURSOR_MCP, ALLOWED) == {"permission": "allow"}


@pytest.mark.parametrize(
    "call",
    [
        {**CURSOR, "command": ""},
        {**CURSOR, "command": ["npm", "test"]},
        {**CURSOR_MCP, "tool_name": None},
        {name: value for name, value in CURSOR_MCP.items() if name != "tool_input"},
        {**CURSOR, "hook_event_name": "beforeshellexecution"},
        {**CURSOR, "hook_event_name": None},
        {"hook_event_name": "beforeReadFile", "file_path": "/etc/passwd"},
        {"hook_event_name": "preToolUse"},
        {"hook_event_name": "subagentStart"},
    ],
)
def test_a_call_that_cannot_be_asked_is_denied(call: Any) -> None:
    with pytest.raises(Invalid):
        cursor.parse(body_of(call), DENY)
    assert cursor.refuse(body_of(call), hooks.NOT_READABLE, DENY)["permission"] == "deny"


@pytest.mark.parametrize("call", [None, b"", b"{", b"[]"])
def test_a_call_that_cannot_be_read_is_denied(call: bytes | None) -> None:
    assert cursor.refuse(call, hooks.NOT_READABLE, TERMINAL)["permission"] == "deny"


@pytest.mark.parametrize("event", ["afterShellExecution", "afterMCPExecution", "stop", "beforeSubmitPrompt"])
def test_an_event_that_only_tells_something_gets_no_decision(event: str) -> None:
    call = body_of({"hook_event_name": event, "conversation_id": "c1"})
    assert isinstance(cursor.parse(call, DENY), Settled)
    assert cursor.refuse(call, hooks.UNAVAILABLE, DENY) == {}


@pytest.mark.parametrize(
    "other",
    [
        {"command": "ls"},
        {"conversation_id": "c2"},
        {"generation_id": "g2"},
    ],
)
def test_only_equal_calls_are_twins(other: dict[str, Any]) -> None:
    assert asked(cursor, CURSOR).hold == asked(cursor, {**CURSOR, "cursor_version": "3"}).hold
    assert asked(cursor, CURSOR).hold != asked(cursor, {**CURSOR, **other}).hold


def test_equal_tools_of_two_servers_are_no_twins() -> None:
    assert asked(cursor, CURSOR_MCP).hold != asked(cursor, {**CURSOR_MCP, "url": "https://other.example"}).hold
