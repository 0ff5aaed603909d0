"""Hook calls as real programs send them, and the ways in which their questions end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import BOTS_OWN_REJECT, Meaning, Option, Outcome, Scope
from agentpod_bot.harness import options
from agentpod_bot.harness.adapter import Ask, End, Manner, WhenUnanswered
from agentpod_bot.harness.reasons import NOT_READ, unasked
from tests.examples import OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentpod_bot.core.model import PermissionRequest
    from agentpod_bot.harness.adapter import Harness

DENY = Manner()
TERMINAL = Manner(when_unanswered=WhenUnanswered.TERMINAL)

COMMON = {
    "session_id": "896e5561-d643-4a08-9474-2456767996ff",
    "transcript_path": "/home/dev/.claude/projects/x/896e.jsonl",
    "cwd": "/home/dev/project",
    "permission_mode": "default",
}
BASH = {"command": "npm test", "description": "Run the tests"}
RULE = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "npm test:*"}],
    "behavior": "allow",
    "destination": "localSettings",
}
PERMISSION = {**COMMON, "hook_event_name": "PermissionRequest", "tool_name": "Bash", "tool_input": BASH}
SUGGESTED = {**PERMISSION, "permission_suggestions": [RULE]}
BEFORE_USE = {
    **COMMON,
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": BASH,
    "tool_use_id": "toolu_01ABC",
}
QUESTION = {
    "question": "Which database should I use?",
    "header": "Database",
    "options": [{"label": "SQLite", "description": "Simple file"}, {"label": "Postgres", "description": "Server"}],
    "multiSelect": False,
}
ASKING = {**PERMISSION, "tool_name": "AskUserQuestion", "tool_input": {"questions": [QUESTION]}}
LEAVING_PLAN = {**PERMISSION, "tool_name": "ExitPlanMode", "tool_input": {"plan": "# Plan\nFirst the tests."}}
CODEX = {"turn_id": "01a22c9b-c20c", "model": "gpt-5.2-codex", **PERMISSION}
CODEX_USE = {"turn_id": "01a22c9b-c20c", "model": "gpt-5.2-codex", **BEFORE_USE}
COPILOT = {
    "hook_event_name": "PermissionRequest",
    "session_id": "s1",
    "timestamp": "2026-08-01T10:00:00Z",
    "cwd": "/repo",
    "tool_name": "Bash",
    "tool_input": {"command": "npm test"},
}
COPILOT_USE = {**COPILOT, "hook_event_name": "PreToolUse"}
COPILOT_UNNAMED = {
    "sessionId": "s1",
    "timestamp": 1_760_000_000_000,
    "cwd": "/repo",
    "toolName": "bash",
    "toolArgs": {"command": "npm test"},
}
GEMINI = {
    "session_id": "g1",
    "transcript_path": "/t.json",
    "cwd": "/repo",
    "hook_event_name": "BeforeTool",
    "timestamp": "2026-08-01T10:00:00Z",
    "tool_name": "run_shell_command",
    "tool_input": {"command": "npm test"},
}
CURSOR = {
    "conversation_id": "c1",
    "generation_id": "g1",
    "hook_event_name": "beforeShellExecution",
    "workspace_roots": ["/repo"],
    "command": "npm test",
    "cwd": "/repo",
}
CURSOR_MCP = {
    "conversation_id": "c1",
    "generation_id": "g1",
    "hook_event_name": "beforeMCPExecution",
    "workspace_roots": ["/repo"],
    "tool_name": "search_docs",
    "tool_input": '{"query": "tests"}',
    "url": "https://mcp.example/sse",
}
PROMPT = {"tool_name": "Bash", "input": {"command": "npm test"}, "tool_use_id": "toolu_01ABC"}

ALLOWED = End(Outcome.SELECTED, f"{OWNER} allowed this in Matrix.", options.allow_once(), OWNER)
REFUSED = End(
    Outcome.SELECTED, f"{OWNER} refused this in Matrix: use staging", options.reject_once(), OWNER, "use staging"
)
OWN_REJECT = End(
    Outcome.SELECTED,
    f"{OWNER} refused this in Matrix.",
    Option(BOTS_OWN_REJECT, "Reject", Meaning.REJECT, Scope.ONCE),
    OWNER,
)
EXPIRED = End(Outcome.EXPIRED, "Nobody answered in time. Nobody refused, and nothing was allowed.")
CANCELLED = End(Outcome.CANCELLED, "The question was cancelled (the agent stopped). Nothing was allowed.")
SUPERSEDED = End(Outcome.SUPERSEDED, "A newer question took the place of this one. Nothing was allowed.")
ELSEWHERE = End(Outcome.ANSWERED_ELSEWHERE, "The question was answered in another place.")
UNDELIVERABLE = End(Outcome.UNDELIVERABLE, "The question did not stay in the room (M_FORBIDDEN). Nothing was allowed.")
UNAVAILABLE = unasked("Matrix cannot be reached", unavailable=True)
TOO_MANY = unasked("there are already 10 open requests for this session")
NOT_READABLE = End(None, NOT_READ)
NO_DECISIONS = (EXPIRED, CANCELLED, SUPERSEDED, ELSEWHERE, UNDELIVERABLE, UNAVAILABLE, TOO_MANY, NOT_READABLE)
HANDED_BACK = (EXPIRED, UNAVAILABLE)
"""Ends with which `when_unanswered: terminal` lets the harness's own question decide."""
REJECTIONS = (REFUSED, OWN_REJECT)

_ALLOWING = ("allow", "approve", "approved", "accept", "yes")


def body_of(call: Any) -> bytes:
    """A call as it is sent."""
    return json.dumps(call).encode()


def asked(harness: Harness, call: Any, manner: Manner = DENY) -> PermissionRequest:
    """The question that a call becomes."""
    parsed = harness.parse(body_of(call), manner)
    assert isinstance(parsed, Ask)
    return parsed.request


def told(harness: Harness, call: Any, end: End, manner: Manner = DENY) -> dict[str, Any]:
    """What the harness is told when the question of a call ended so."""
    return harness.answer(body_of(call), body_of(call), end, manner)


def picked(option: Option) -> End:
    """An approver selected this option."""
    return End(Outcome.SELECTED, f"{OWNER} selected this in Matrix.", option, OWNER)


def forged() -> Iterator[Option]:
    """Options that approve, and that no hook's question offers."""
    yield Option(OptionId("suggestion:99"), "Always allow", Meaning.APPROVE, Scope.ALWAYS)
    yield Option(OptionId("suggestion:-1"), "Always allow", Meaning.APPROVE, Scope.ALWAYS)
    yield Option(OptionId("choice:99"), "SQLite", Meaning.CHOOSE, None)
    yield Option(OptionId("allow_once"), "Allow once", Meaning.APPROVE, Scope.ALWAYS)
    yield Option(OptionId("reject_once"), "Reject", Meaning.APPROVE, Scope.ONCE)
    yield Option(OptionId("allow"), "Allow", Meaning.APPROVE, None)


def allows(answer: Any) -> bool:
    """Whether any word anywhere in an answer's members is one that lets a tool run."""
    decisive = {"behavior", "permissionDecision", "permission", "decision"}
    match answer:
        case dict():
            return any(
                (name in decisive and isinstance(value, str) and value in _ALLOWING)
                or (name not in {"updatedInput", "updatedPermissions"} and allows(value))
                for name, value in answer.items()
            )
        case _:
            return False
