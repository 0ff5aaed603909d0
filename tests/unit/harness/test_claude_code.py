from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentpod_bot.core.lifecycle import AnsweredElsewhere
from agentpod_bot.core.model import Claim, FieldPreview, Hold, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import claude_code
from agentpod_bot.harness.adapter import Close, Settled
from tests.unit.harness import hooks
from tests.unit.harness.hooks import BEFORE_USE, DENY, PERMISSION, SUGGESTED, TERMINAL, asked, body_of, picked, told

CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "tools" / "captures"
AFTER_USE = {**BEFORE_USE, "hook_event_name": "PostToolUse", "tool_response": {"stdout": "", "stderr": ""}}
STOP = {**hooks.COMMON, "hook_event_name": "Stop", "stop_hook_active": False}
SESSION_END = {**hooks.COMMON, "hook_event_name": "SessionEnd", "reason": "other"}


def stopped(reason: str) -> dict[str, object]:
    """The no where not even the event is known; "block" is what keeps a tool from running."""
    return {"continue": False, "stopReason": reason, "decision": "block", "reason": reason}


STOPPED = stopped(hooks.NOT_READABLE.reason)


def closed_by(call: Any) -> Close:
    """What a later event closes."""
    parsed = claude_code.parse(body_of(call), DENY)
    assert isinstance(parsed, Close)
    return parsed


def name_of(call: Any) -> str:
    """The id, or the twin, by which the question of a call is known."""
    request = asked(claude_code, call)
    assert request.hold is not None
    return str(request.request_id or request.hold.twin)


def fits(close: Close, call: Any) -> bool:
    """Whether an event closes the question of a call."""
    return close.session_id in {None, asked(claude_code, call).session_id} and name_of(call).startswith(close.prefixes)


def captured(name: str) -> dict[str, Any]:
    """What the real program sent."""
    content: dict[str, Any] = json.loads((CAPTURES / f"claude-code-2.1.332-{name}.json").read_text())
    return content


@pytest.mark.shared
@pytest.mark.skipif(not CAPTURES.exists(), reason="the specification's files are not beside the project")
def test_what_the_real_program_sent_is_read() -> None:
    request = asked(claude_code, captured("PermissionRequest-bash"))
    assert request.title == "Bash: mkdir -p made_by_agent && touch made_by_agent/x.txt"
    assert request.options[1].label == (
        "Always allow in this project on this machine: Bash commands that match `mkdir -p made_by_agent` "
        "and `touch made_by_agent/x.txt`"
    )
    choices = asked(claude_code, captured("PermissionRequest-AskUserQuestion"))
    assert [option.label for option in choices.options] == ["SQLite", "Postgres", "Reject"]
    session = captured("PreToolUse-bash")["session_id"]
    ran = closed_by({**captured("PostToolUse-bash"), "session_id": session})
    assert fits(ran, captured("PermissionRequest-bash"))
    assert fits(closed_by(captured("Stop")), captured("PreToolUse-bash"))
    assert not fits(closed_by(captured("SessionEnd")), captured("PreToolUse-bash"))


def test_a_permission_request_shows_the_tool_where_it_runs_and_each_member_of_its_input() -> None:
    request = asked(claude_code, PERMISSION)
    assert request.title == "Bash: npm test"
    assert request.tool_kind == "execute"
    assert request.session_id == hooks.COMMON["session_id"]
    assert request.agent is None
    assert request.preview == (
        FieldPreview("Tool", "Bash"),
        FieldPreview("Folder", "/home/dev/project"),
        TextPreview("Command", "npm test", "bash"),
        FieldPreview("description", "Run the tests"),
    )
    assert request.preview_complete


@pytest.mark.parametrize(
    ("tool", "kind"),
    [("Write", "edit"), ("Read", "read"), ("Grep", "search"), ("WebFetch", "fetch"), ("mcp__x__Bash", None)],
)
def test_only_tools_of_its_own_have_a_kind(tool: str, kind: str | None) -> None:
    assert asked(claude_code, {**PERMISSION, "tool_name": tool}).tool_kind == kind


def test_a_subagents_question_names_what_kind_of_agent_it_is() -> None:
    assert asked(claude_code, {**PERMISSION, "agent_id": "a1", "agent_type": "Explore"}).agent == "Explore"


def test_a_tool_without_input_is_shown_so() -> None:
    assert FieldPreview("Input", "{}") in asked(claude_code, {**PERMISSION, "tool_input": {}}).preview


def test_what_is_missing_or_odd_and_not_needed_is_left_out() -> None:
    call = {"hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": {"command": "ls"}, "cwd": 7}
    request = asked(claude_code, {**call, "agent_type": ["x"], "permission_suggestions": {"type": "addRules"}})
    assert request.session_id == "none"
    assert request.agent is None
    assert [option.option_id for option in request.options] == ["allow_once", "reject_once"]
    assert [part.label for part in request.preview if not hasattr(part, "path")] == ["Tool", "Command"]


@pytest.mark.parametrize("event", ["PermissionRequest", "PreToolUse"])
@pytest.mark.parametrize(
    ("broken", "loc"),
    [
        ({"tool_name": ""}, ("tool_name",)),
        ({"tool_name": None}, ("tool_name",)),
        ({"tool_name": ["Bash"]}, ("tool_name",)),
        ({"tool_input": None}, ("tool_input",)),
        ({"tool_input": "npm test"}, ("tool_input",)),
        ({"tool_input": ["npm", "test"]}, ("tool_input",)),
    ],
)
def test_a_call_without_tool_or_input_is_denied_in_the_shape_of_its_event(
    event: str, broken: dict[str, Any], loc: tuple[str, ...]
) -> None:
    call = {**PERMISSION, "hook_event_name": event, **broken}
    with pytest.raises(Invalid) as refused:
        claude_code.parse(body_of(call), DENY)
    assert refused.value.loc == loc
    answer = claude_code.refuse(body_of(call), hooks.NOT_READABLE, DENY)
    assert answer["hookSpecificOutput"]["hookEventName"] == event


@pytest.mark.parametrize(
    "event", ["Pretooluse", "PRETOOLUSE", "PreToolUse ", "permissionRequest", "PermissionRequests", "Pre\u200bToolUse"]
)
def test_an_event_that_is_only_spelled_like_one_that_asks_stops_the_agent(event: str) -> None:
    for more in ({}, {"tool_name": "Bash"}):
        call = {"hook_event_name": event, **more}
        with pytest.raises(Invalid):
            claude_code.parse(body_of(call), DENY)
        assert claude_code.refuse(body_of(call), hooks.NOT_READABLE, TERMINAL) == STOPPED


@pytest.mark.parametrize("event", [None, "", " ", 7, ["PreToolUse"], {"PreToolUse": 1}])
def test_a_call_that_names_no_event_stops_the_agent(event: Any) -> None:
    call = body_of({**BEFORE_USE, "hook_event_name": event})
    with pytest.raises(Invalid):
        claude_code.parse(call, DENY)
    assert claude_code.refuse(call, hooks.NOT_READABLE, DENY) == STOPPED


def test_an_unknown_event_with_a_tool_in_it_stops_the_agent() -> None:
    call = body_of({"hook_event_name": "BeforeAnything", "tool_name": "Bash"})
    with pytest.raises(Invalid):
        claude_code.parse(call, DENY)
    assert claude_code.refuse(call, hooks.TOO_MANY, DENY) == stopped(hooks.TOO_MANY.reason)


def test_an_event_that_is_named_twice_is_not_known() -> None:
    body = b'{"hook_event_name": "PermissionRequest", "hook_event_name": "PreToolUse", "tool_name": "Bash"}'
    assert claude_code.refuse(body, hooks.NOT_READABLE, DENY) == STOPPED


def test_a_call_with_a_member_twice_is_denied_in_the_shape_of_its_event() -> None:
    body = b'{"hook_event_name": "PreToolUse", "tool_input": {"command": "ls", "command": "rm -rf ~"}}'
    answer = claude_code.refuse(body, hooks.NOT_READABLE, DENY)
    assert answer["hookSpecificOutput"]["permissionDecision"] == "deny"


@pytest.mark.parametrize(
    "event",
    [
        "Notification",
        "UserPromptSubmit",
        "SessionStart",
        "PreCompact",
        "CwdChanged",
        "PermissionDenied",
        "PostToolBatch",
    ],
)
def test_an_event_that_only_tells_something_gets_no_decision(event: str) -> None:
    call = {**hooks.COMMON, "hook_event_name": event, "message": "Claude needs your permission"}
    parsed = claude_code.parse(body_of(call), DENY)
    assert isinstance(parsed, Settled)
    assert parsed.answer == {}
    assert claude_code.refuse(body_of(call), hooks.UNAVAILABLE, DENY) == {}


@pytest.mark.parametrize("call", [AFTER_USE, STOP, SESSION_END])
def test_an_event_that_closes_questions_is_refused_without_a_decision(call: Any) -> None:
    """A wrong token, say: the tool has run, and the agent need not stop for it."""
    assert claude_code.refuse(body_of(call), hooks.TOO_MANY, DENY) == {}


def test_a_tool_that_ran_closes_the_oldest_question_about_this_very_call() -> None:
    close = closed_by(AFTER_USE)
    assert close.event == AnsweredElsewhere(Claim(None, "the terminal"))
    assert not close.every
    assert close.answer == {}
    assert close.session_id == hooks.COMMON["session_id"]
    assert fits(close, PERMISSION)
    assert fits(close, BEFORE_USE)


@pytest.mark.parametrize(
    "other",
    [
        {"tool_input": {"command": "npm test -- --ci", "description": "Run the tests"}},
        {"tool_name": "BashOutput"},
        {"session_id": "another"},
        {"agent_id": "a1"},
    ],
)
def test_a_tool_that_ran_closes_no_question_about_another_call(other: dict[str, Any]) -> None:
    close = closed_by(AFTER_USE)
    assert not fits(close, {**PERMISSION, **other})
    assert not fits(close, {**BEFORE_USE, **other, "tool_use_id": "toolu_02"})


def test_a_tool_that_failed_closes_its_question_too() -> None:
    assert fits(closed_by({**AFTER_USE, "hook_event_name": "PostToolUseFailure", "error": "exit 1"}), PERMISSION)


def test_a_question_of_the_tool_is_known_again_by_its_questions_though_answers_came_in() -> None:
    answered = {**hooks.ASKING["tool_input"], "answers": {"Which database should I use?": "SQLite"}}  # type: ignore[dict-item]
    close = closed_by({**hooks.ASKING, "hook_event_name": "PostToolUse", "tool_input": answered})
    assert fits(close, hooks.ASKING)
    assert not fits(close, {**hooks.ASKING, "tool_input": {"questions": [{**hooks.QUESTION, "question": "Which?"}]}})


def test_a_tool_without_a_name_that_ran_closes_nothing() -> None:
    parsed = claude_code.parse(body_of({**AFTER_USE, "tool_name": ""}), DENY)
    assert isinstance(parsed, Settled)


def test_the_end_of_a_turn_closes_what_the_main_agent_asked_and_nothing_else() -> None:
    close = closed_by(STOP)
    assert close.every
    assert fits(close, PERMISSION)
    assert fits(close, BEFORE_USE)
    assert not fits(close, {**PERMISSION, "agent_id": "a1"})
    assert not fits(close, {**BEFORE_USE, "agent_id": "a1"})
    assert not fits(close, {**PERMISSION, "session_id": "another"})


@pytest.mark.parametrize("event", ["Stop", "SubagentStop"])
def test_the_end_of_a_subagent_closes_what_it_asked_and_nothing_else(event: str) -> None:
    close = closed_by({**STOP, "hook_event_name": event, "agent_id": "a1"})
    assert fits(close, {**PERMISSION, "agent_id": "a1"})
    assert fits(close, {**BEFORE_USE, "agent_id": "a1"})
    assert not fits(close, PERMISSION)
    assert not fits(close, {**PERMISSION, "agent_id": "a11"})


def test_the_end_of_a_subagent_without_a_name_closes_nothing() -> None:
    assert isinstance(claude_code.parse(body_of({**STOP, "hook_event_name": "SubagentStop"}), DENY), Settled)


def test_the_end_of_a_session_closes_all_of_it_and_no_other() -> None:
    close = closed_by(SESSION_END)
    assert close.every
    for call in (PERMISSION, BEFORE_USE, {**PERMISSION, "agent_id": "a1"}, hooks.ASKING):
        assert fits(close, call)
        assert not fits(close, {**call, "session_id": "another"})


@pytest.mark.parametrize("call", [AFTER_USE, STOP, SESSION_END])
def test_an_event_without_a_session_closes_nothing_of_sessions_that_have_one(call: dict[str, Any]) -> None:
    close = closed_by({name: value for name, value in call.items() if name != "session_id"})
    assert close.session_id is not None
    assert not fits(close, PERMISSION)


def test_each_call_before_use_has_its_own_name_and_needs_no_twin() -> None:
    first, second = asked(claude_code, BEFORE_USE), asked(claude_code, {**BEFORE_USE, "tool_use_id": "toolu_02"})
    assert first.hold == second.hold == Hold()
    assert first.request_id != second.request_id
    assert first.request_id == asked(claude_code, {**BEFORE_USE, "prompt_id": "p2"}).request_id


def test_two_sessions_share_no_name() -> None:
    assert name_of(BEFORE_USE) != name_of({**BEFORE_USE, "session_id": "another"})
    assert name_of(PERMISSION) != name_of({**PERMISSION, "session_id": "another"})


def test_a_permission_request_has_no_name_and_a_twin_for_one_that_asks_the_same() -> None:
    request = asked(claude_code, {**PERMISSION, "tool_use_id": "toolu_01ABC"})
    assert request.request_id is None
    again = {**PERMISSION, "prompt_id": "p2", "tool_input": dict(reversed(hooks.BASH.items()))}
    assert name_of(PERMISSION) == name_of(again)
    assert name_of(PERMISSION).startswith("claude-code:main:")


def test_a_call_before_use_without_its_id_is_no_twin_of_a_permission_request() -> None:
    assert name_of({**BEFORE_USE, "tool_use_id": ""}) != name_of(PERMISSION)


def test_the_choices_stand_in_the_order_of_the_terminals_dialog() -> None:
    assert [option.option_id for option in asked(claude_code, SUGGESTED).options] == [
        "allow_once",
        "suggestion:0",
        "reject_once",
    ]


def test_a_suggestion_goes_back_as_it_came() -> None:
    always = asked(claude_code, SUGGESTED).options[1]
    decision = told(claude_code, SUGGESTED, picked(always))["hookSpecificOutput"]["decision"]
    assert decision == {"behavior": "allow", "updatedPermissions": [hooks.RULE]}


def test_a_suggestion_goes_back_from_the_call_that_was_asked() -> None:
    """A repeat that carries another rule under the same twin must not bring it in."""
    always = asked(claude_code, SUGGESTED).options[1]
    wider = {**SUGGESTED, "permission_suggestions": [{**hooks.RULE, "rules": [{"toolName": "Bash"}]}]}
    answer = claude_code.answer(body_of(SUGGESTED), body_of(wider), picked(always), DENY)
    assert answer["hookSpecificOutput"]["decision"]["updatedPermissions"] == [hooks.RULE]


def test_nothing_is_always_allowed_before_use() -> None:
    call = {**BEFORE_USE, "permission_suggestions": [hooks.RULE]}
    assert [option.option_id for option in asked(claude_code, call).options] == ["allow_once", "reject_once"]


def test_a_plan_is_left_with_the_suggested_mode_and_its_own_input() -> None:
    mode = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    call = {**hooks.LEAVING_PLAN, "permission_suggestions": [mode]}
    always = asked(claude_code, call).options[1]
    assert told(claude_code, call, picked(always))["hookSpecificOutput"]["decision"] == {
        "behavior": "allow",
        "updatedInput": hooks.LEAVING_PLAN["tool_input"],
        "updatedPermissions": [mode],
    }


@pytest.mark.parametrize("end", hooks.HANDED_BACK)
def test_the_terminal_decides_where_nobody_did_and_it_is_configured_so(end: Any) -> None:
    assert told(claude_code, PERMISSION, end, TERMINAL) == {}
    output = told(claude_code, BEFORE_USE, end, TERMINAL)["hookSpecificOutput"]
    assert output["permissionDecision"] == "ask"
    assert claude_code.refuse(body_of(PERMISSION), end, TERMINAL) == {}


@pytest.mark.parametrize("call", [PERMISSION, BEFORE_USE, hooks.ASKING])
@pytest.mark.parametrize(
    "end", [end for end in (*hooks.NO_DECISIONS, *hooks.REJECTIONS) if end not in hooks.HANDED_BACK]
)
def test_nothing_else_goes_back_to_the_terminal(call: Any, end: Any) -> None:
    assert told(claude_code, call, end, TERMINAL) == told(claude_code, call, end, DENY)
    assert claude_code.refuse(body_of(call), end, TERMINAL) == claude_code.refuse(body_of(call), end, DENY) != {}


@pytest.mark.parametrize("end", hooks.REJECTIONS)
def test_a_rejection_does_not_interrupt_the_agent(end: Any) -> None:
    assert told(claude_code, PERMISSION, end)["hookSpecificOutput"]["decision"] == {
        "behavior": "deny",
        "message": end.reason,
    }


def test_a_body_of_which_no_question_was_made_is_answered_like_one_that_cannot_be_read() -> None:
    assert claude_code.answer(b"{", b"{", hooks.ALLOWED, DENY)["continue"] is False
