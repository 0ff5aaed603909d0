"""Codex's hooks, run as a command. Its answers are closed objects: one member too many is no answer at all.

Shapes: https://github.com/openai/codex (codex-rs/hooks/schema/generated)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentpod_bot.core.model import TextPreview
from agentpod_bot.errors import AgentpodError, Invalid
from agentpod_bot.harness import hook_call, naming, options, strict_json, tool_input
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.hook_call import PERMISSION_REQUEST, PRE_TOOL_USE, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "codex-hook"
HOOK = True
PATIENCE_S: int | None = 600

KINDS: Mapping[str, str] = {"Bash": "execute", "apply_patch": "edit"}
"""Kinds of its tools, as the Agent Client Protocol calls them; others' are not known."""
OPTIONS = (options.allow_once(), options.reject_once())

_PATCH = "apply_patch"
_PATCHED_FILE = re.compile(r"^\*\*\* ((?:Add|Update|Delete) File: .*)$", re.MULTILINE)
_TELLING = frozenset({"PostToolUse", "PostToolUseFailure"})


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    content = strict_json.read(body)
    event = hook_call.event_of(content)
    if event in {PERMISSION_REQUEST, PRE_TOOL_USE}:
        call = _call(content, event)
        patch = _patch(call)
        return hook_call.question(
            call,
            body,
            OPTIONS,
            hold_twin=hook_call.twin(call, content.get("turn_id")),
            kinds=KINDS,
            shown=None if patch is None else _shown(call, patch),
            headline=None if patch is None else _first_file(patch),
        )
    if hook_call.decides_nothing(event, content, _TELLING):
        return Settled({}, hook_call.NOTHING_TO_DECIDE)
    raise hook_call.unknown_event()


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - a repeat says the same
    """What Codex is told."""
    try:
        content = strict_json.read(asked)
        known = _call(content, hook_call.event_of(content))
    except AgentpodError:  # no question was ever made of such a body
        return refuse(asked, end, manner)
    if hook_call.chosen(OPTIONS, end) is None:
        return _no(known.event, end, manner)
    if known.event == PRE_TOOL_USE:
        # Without an input to go on with, Codex takes an allow for no answer.
        return _output(PRE_TOOL_USE, {"permissionDecision": "allow", "updatedInput": known.tool_input})
    return _output(PERMISSION_REQUEST, {"decision": {"behavior": "allow"}})


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """The same for a call of which no question was made."""
    content = hook_call.read_leniently(call)
    match content.get(hook_call.EVENT):
        case "PermissionRequest" | "PreToolUse" as event:
            return _no(event, end, manner)
        case str(event) if event.strip() and hook_call.decides_nothing(event, content, _TELLING):
            return {}
        case _:
            return {"continue": False, "stopReason": hook_call.why_not(end)}


def _call(content: Json, event: str) -> ToolCall:
    if event not in {PERMISSION_REQUEST, PRE_TOOL_USE}:
        raise hook_call.unknown_event()
    if "tool_input" not in content:
        raise Invalid(("tool_input",), "must be given")
    call_id = naming.text_of(content.get("tool_use_id")) if event == PRE_TOOL_USE else ""
    return ToolCall(
        harness=NAME,
        event=event,
        session=content.get("session_id"),
        tool=hook_call.required(content, "tool_name"),
        tool_input=content["tool_input"],
        cwd=naming.text_of(content.get("cwd")),
        agent_id=content.get("agent_id") or None,
        agent=naming.name_of(content.get("agent_type")),
        call_id=call_id or None,
    )


def _patch(call: ToolCall) -> str | None:
    if call.tool != _PATCH or not isinstance(call.tool_input, dict):
        return None
    return naming.text_of(call.tool_input.get(tool_input.COMMAND)) or None


def _shown(call: ToolCall, patch: str) -> tuple[Preview, ...]:
    rest = {name: value for name, value in call.tool_input.items() if name != tool_input.COMMAND}
    return (TextPreview("Patch", patch), *tool_input.preview_of(rest))


def _first_file(patch: str) -> str:
    found = _PATCHED_FILE.search(patch)
    return "" if found is None else found[1]


def _no(event: str, end: End, manner: Manner) -> Json:
    reason = hook_call.why_not(end)
    if event == PRE_TOOL_USE:
        # Codex knows no "ask" here, and an empty answer lets a tool run that nobody would be asked about.
        return _output(PRE_TOOL_USE, {"permissionDecision": "deny", "permissionDecisionReason": reason})
    if hook_call.hands_back(end, manner):
        return {}
    return _output(PERMISSION_REQUEST, {"decision": {"behavior": "deny", "message": reason}})


def _output(event: str, members: Json) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}
