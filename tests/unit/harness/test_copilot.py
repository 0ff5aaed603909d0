from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import copilot
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.copilot import LEAVES_SANDBOX
from tests.unit.harness import hooks
from tests.unit.harness.hooks import (
    ALLOWED,
    COPILOT,
    COPILOT_UNNAMED,
    COPILOT_USE,
    DENY,
    TERMINAL,
    allows,
    asked,
    body_of,
    told,
)

REQUEST_MEMBERS = {"behavior", "message", "interrupt"}
USE_MEMBERS = {"permissionDecision", "permissionDecisionReason", "modifiedArgs"}


def test_each_casing_is_read() -> None:
    for call in (COPILOT, COPILOT_USE, COPILOT_UNNAMED):
        request = asked(copilot, call)
        assert request.title.casefold() == "bash: npm test"
        assert request.session_id == "s1"
        assert request.tool_kind == "execute"
        assert request.preview[1:] == (FieldPreview("Folder", "/repo"), TextPreview("Command", "npm test", "bash"))


def test_an_answer_is_flat_and_has_the_members_of_its_event() -> None:
    assert told(copilot, COPILOT, ALLOWED) == {"behavior": "allow"}
    assert told(copilot, COPILOT_USE, ALLOWED) == {"permissionDecision": "allow"}
    assert told(copilot, COPILOT_UNNAMED, ALLOWED) == {"behavior": "allow", "permissionDecision": "allow"}


@pytest.mark.parametrize("end", [ALLOWED, *hooks.REJECTIONS, *hooks.NO_DECISIONS])
@pytest.mark.parametrize("manner", [DENY, TERMINAL])
def test_a_call_that_does_not_name_its_event_has_the_answer_of_both(end: Any, manner: Any) -> None:
    unnamed = told(copilot, COPILOT_UNNAMED, end, manner)
    assert {name: unnamed[name] for name in unnamed.keys() & REQUEST_MEMBERS} == told(copilot, COPILOT, end, manner)
    assert {name: unnamed[name] for name in unnamed.keys() & USE_MEMBERS} == told(copilot, COPILOT_USE, end, manner)


@pytest.mark.parametrize("end", hooks.HANDED_BACK)
def test_only_what_surely_asks_in_the_terminal_hands_back(end: Any) -> None:
    """With no answer to a permission request, Copilot's own rules may allow the tool."""
    assert told(copilot, COPILOT_USE, end, TERMINAL)["permissionDecision"] == "ask"
    assert told(copilot, COPILOT, end, TERMINAL)["behavior"] == "deny"


@pytest.mark.parametrize("call", [None, b"", b"{", b"[]", b'{"hook_event_name": 7}', b'{"hook_event_name": "x"}'])
def test_a_no_to_what_cannot_be_read_is_one_to_both_events(call: bytes | None) -> None:
    answer = copilot.refuse(call, hooks.NOT_READABLE, DENY)
    if call == b'{"hook_event_name": "x"}':
        assert answer == {}
    else:
        assert (answer["behavior"], answer["permissionDecision"]) == ("deny", "deny")


def test_arguments_that_were_sent_as_a_text_are_shown_as_what_they_say() -> None:
    call = {**COPILOT_UNNAMED, "toolArgs": '{"command": "npm test"}'}
    assert asked(copilot, call).preview[2] == TextPreview("Command", "npm test", "bash")
    twice = {**COPILOT_UNNAMED, "toolArgs": '{"command": "ls", "command": "rm -rf ~"}'}
    assert asked(copilot, twice).preview[2] == TextPreview("Input", '{"command": "ls", "command": "rm -rf ~"}')


@pytest.mark.parametrize("given", [None, 7, "ls", ["ls"], {}])
def test_arguments_of_any_kind_are_shown(given: Any) -> None:
    assert len(asked(copilot, {**COPILOT_UNNAMED, "toolArgs": given}).preview) == 3


def test_a_permission_request_may_call_its_arguments_input() -> None:
    call = {name: value for name, value in COPILOT_UNNAMED.items() if name != "toolArgs"}
    request = asked(copilot, {**call, "toolInput": {"command": "ls", "requestSandboxBypass": True}})
    assert request.preview[2] == TextPreview("Command", "ls", "bash")
    assert request.preview[-1] == FieldPreview("Outside the sandbox", LEAVES_SANDBOX)


@pytest.mark.parametrize(
    "broken",
    [
        {"toolName": ""},
        {"toolName": None},
        {"toolInput": {"command": "rm -rf ~"}},
        {"hook_event_name": None},
        {"hook_event_name": "preToolUse"},
        {"hook_event_name": "pretooluse"},
    ],
)
def test_a_call_that_does_not_say_what_runs_is_not_asked(broken: dict[str, Any]) -> None:
    call = body_of({**COPILOT_UNNAMED, **broken})
    with pytest.raises(Invalid):
        copilot.parse(call, DENY)
    answer = copilot.refuse(call, hooks.NOT_READABLE, DENY)
    assert (answer["behavior"], answer["permissionDecision"]) == ("deny", "deny")


@pytest.mark.parametrize("missing", ["toolName", "toolArgs"])
def test_a_call_without_tool_or_arguments_is_not_asked(missing: str) -> None:
    call = {name: value for name, value in COPILOT_UNNAMED.items() if name != missing}
    with pytest.raises(Invalid):
        copilot.parse(body_of(call), DENY)


@pytest.mark.parametrize(
    "call",
    [
        {**COPILOT_UNNAMED, "toolResult": {"resultType": "success"}},
        {**COPILOT_UNNAMED, "error": "exit 1"},
        {**COPILOT, "hook_event_name": "PostToolUse", "tool_result": {}},
        {**COPILOT, "hook_event_name": "PostToolUseFailure", "error": "exit 1"},
        {"hook_event_name": "SessionStart", "session_id": "s1"},
        {"hook_event_name": "Notification", "sessionId": "s1", "notification_type": "permission_prompt"},
    ],
)
def test_an_event_that_only_tells_something_gets_no_decision(call: Any) -> None:
    parsed = copilot.parse(body_of(call), DENY)
    assert isinstance(parsed, Settled)
    assert parsed.answer == copilot.refuse(body_of(call), hooks.UNAVAILABLE, DENY) == {}


@pytest.mark.parametrize("odd", [{"toolResult": None}, {"error": None}, {"error": ""}, {"toolResult": "x"}])
def test_a_result_that_is_none_does_not_end_the_question(odd: dict[str, Any]) -> None:
    assert asked(copilot, {**COPILOT_UNNAMED, **odd}).title == "bash: npm test"


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
def test_a_call_that_asks_is_asked_whatever_else_it_holds(event: str) -> None:
    call = {**COPILOT, "hook_event_name": event, "toolName": "bash", "toolResult": {}, "error": "x"}
    assert asked(copilot, call).title == "Bash: npm test"
    assert not allows(copilot.refuse(body_of(call), hooks.UNAVAILABLE, TERMINAL))


def test_equal_calls_of_one_session_are_twins_and_no_others() -> None:
    later = {**COPILOT_UNNAMED, "timestamp": 1}
    other = {**COPILOT_UNNAMED, "toolArgs": {"command": "ls"}}
    holds = [asked(copilot, call).hold for call in (COPILOT_UNNAMED, later, other, COPILOT)]
    assert holds[0] == holds[1]
    assert len(set(holds)) == 3
