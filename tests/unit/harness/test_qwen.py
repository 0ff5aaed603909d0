from __future__ import annotations

import pytest

from agentpod_bot.core.model import Hold
from agentpod_bot.harness import qwen
from agentpod_bot.harness.adapter import Close, End
from tests.unit.harness import hooks
from tests.unit.harness.hooks import ALLOWED, BEFORE_USE, DENY, SUGGESTED, TERMINAL, asked, body_of, told

SHELL = {**BEFORE_USE, "tool_name": "run_shell_command", "tool_call_id": "call_1", "permission_mode": "auto_edit"}


def test_a_call_before_use_is_known_by_its_id_and_shows_the_tool() -> None:
    request = asked(qwen, SHELL)
    assert request.title == "run_shell_command: npm test"
    assert request.tool_kind == "execute"
    assert request.hold == Hold()
    assert str(request.request_id).startswith("qwen:main:")


def test_it_is_told_in_the_words_that_it_shares_with_claude_code() -> None:
    assert told(qwen, SHELL, ALLOWED)["hookSpecificOutput"]["permissionDecision"] == "allow"
    assert told(qwen, SUGGESTED, ALLOWED)["hookSpecificOutput"]["decision"] == {"behavior": "allow"}


def test_its_suggestions_can_be_allowed_always() -> None:
    always = asked(qwen, SUGGESTED).options[1]
    decision = told(qwen, SUGGESTED, hooks.picked(always))["hookSpecificOutput"]["decision"]
    assert decision["updatedPermissions"] == [hooks.RULE]


def test_claude_codes_own_tools_are_not_known_to_it() -> None:
    """Nothing says that Qwen would read an answer in such an input."""
    request = asked(qwen, hooks.ASKING)
    assert [option.option_id for option in request.options] == ["allow_once", "reject_once"]
    assert "updatedInput" not in str(told(qwen, hooks.ASKING, ALLOWED))


@pytest.mark.parametrize("end", hooks.HANDED_BACK)
def test_the_terminal_decides_where_nobody_did_and_it_is_configured_so(end: End) -> None:
    assert told(qwen, SUGGESTED, end, TERMINAL) == {}
    assert told(qwen, SHELL, end, TERMINAL)["hookSpecificOutput"]["permissionDecision"] == "ask"


def test_a_tool_that_ran_closes_its_question_and_none_of_another_harness() -> None:
    close = qwen.parse(body_of({**SHELL, "hook_event_name": "PostToolUse", "tool_response": {}}), DENY)
    assert isinstance(close, Close)
    assert str(asked(qwen, SHELL).request_id).startswith(close.prefixes)
    assert all(prefix.startswith("qwen:") for prefix in close.prefixes)
