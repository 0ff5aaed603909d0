from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import gemini
from agentpod_bot.harness.adapter import Settled
from tests.unit.harness import hooks
from tests.unit.harness.hooks import ALLOWED, DENY, GEMINI, TERMINAL, asked, body_of, told

SERVER = {"server_name": "docs", "tool_name": "search", "url": "https://mcp.example"}


def test_a_call_shows_the_tool_and_its_input() -> None:
    request = asked(gemini, GEMINI)
    assert request.title == "run_shell_command: npm test"
    assert request.tool_kind == "execute"
    assert request.preview[1:] == (FieldPreview("Folder", "/repo"), TextPreview("Command", "npm test", "bash"))


def test_a_tool_of_a_server_shows_the_server_and_has_no_kind() -> None:
    request = asked(gemini, {**GEMINI, "mcp_context": SERVER})
    assert request.tool_kind is None
    assert "https://mcp.example" in str(request.preview[-1])
    assert request.hold != asked(gemini, {**GEMINI, "mcp_context": {**SERVER, "url": "https://evil.example"}}).hold


@pytest.mark.parametrize("manner", [DENY, TERMINAL])
@pytest.mark.parametrize("end", [*hooks.NO_DECISIONS, *hooks.REJECTIONS])
def test_every_end_but_an_allow_is_a_denial_for_nothing_makes_gemini_ask(end: Any, manner: Any) -> None:
    denied = {"decision": "deny", "reason": end.reason}
    assert told(gemini, GEMINI, end, manner) == denied
    assert gemini.refuse(body_of(GEMINI), end, manner) == denied


def test_an_allow_says_who() -> None:
    assert told(gemini, GEMINI, ALLOWED) == {"decision": "allow", "reason": ALLOWED.reason}


def test_a_call_that_cannot_be_read_is_denied_and_stops_the_agent() -> None:
    reason = hooks.NOT_READABLE.reason
    stopped = {"continue": False, "stopReason": reason, "decision": "deny", "reason": reason}
    for call in (None, b"{", b"{}", body_of({**GEMINI, "hook_event_name": "beforeTool"})):
        assert gemini.refuse(call, hooks.NOT_READABLE, DENY) == stopped


@pytest.mark.parametrize(
    "broken",
    [
        {"tool_name": ""},
        {"tool_input": None},
        {"tool_input": "x"},
        {"hook_event_name": "beforetool"},
        {"hook_event_name": None},
    ],
)
def test_a_call_that_does_not_say_what_runs_is_not_asked(broken: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        gemini.parse(body_of({**GEMINI, **broken}), DENY)


@pytest.mark.parametrize("event", ["AfterTool", "BeforeToolSelection", "Notification", "SessionEnd", "BeforeModel"])
def test_an_event_that_only_tells_something_gets_no_decision(event: str) -> None:
    call = body_of({"hook_event_name": event, "session_id": "g1", "notification_type": "ToolPermission"})
    assert isinstance(gemini.parse(call, DENY), Settled)
    assert gemini.refuse(call, hooks.UNAVAILABLE, DENY) == {}


def test_equal_calls_of_one_session_are_twins_and_no_others() -> None:
    later = {**GEMINI, "timestamp": "2026-08-01T11:00:00Z"}
    other = {**GEMINI, "tool_input": {"command": "ls"}}
    holds = [asked(gemini, call).hold for call in (GEMINI, later, other, {**GEMINI, "session_id": "g2"})]
    assert holds[0] == holds[1]
    assert len(set(holds)) == 3
