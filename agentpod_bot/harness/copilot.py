"""GitHub Copilot CLI's hooks: two casings of one call, and flat answers.

Where the configuration writes an event's name with a capital, the call names the event;
otherwise it does not, and the answer says the same for both events that ask: each reads its
own members. Shapes: https://docs.github.com/en/copilot/reference/hooks-reference
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import FieldPreview
from agentpod_bot.errors import AgentpodError, Invalid
from agentpod_bot.harness import hook_call, naming, options, strict_json
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.claude_code import KINDS as CLAUDE_KINDS
from agentpod_bot.harness.hook_call import PERMISSION_REQUEST, PRE_TOOL_USE, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "copilot"
HOOK = True
PATIENCE_S: int | None = 30

KINDS: Mapping[str, str] = {
    **CLAUDE_KINDS,
    "bash": "execute",
    "powershell": "execute",
    "create": "edit",
    "edit": "edit",
    "view": "read",
    "glob": "search",
    "grep": "search",
    "web_fetch": "fetch",
}
"""Kinds of its tools, as the Agent Client Protocol calls them; others' are not known."""
OPTIONS = (options.allow_once(), options.reject_once())
LEAVES_SANDBOX = "Copilot asks in its terminal all the same before anything leaves the sandbox; a rejection counts."

_UNNAMED = ""
"""The event of a call that does not name it."""
_TELLING = frozenset({"PostToolUse", "PostToolUseFailure"})


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    content = strict_json.read(body)
    if _tells_only(content):
        return Settled({}, hook_call.NOTHING_TO_DECIDE)
    call = _call(content)
    return hook_call.question(call, body, OPTIONS, kinds=KINDS, notes=_notes(call.tool_input))


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - a repeat says the same
    """What Copilot is told."""
    try:
        event = _call(strict_json.read(asked)).event
    except AgentpodError:  # no question was ever made of such a body
        return refuse(asked, end, manner)
    if hook_call.chosen(OPTIONS, end) is None:
        return _no(event, end, manner)
    return _for(event, request={"behavior": "allow"}, use={"permissionDecision": "allow"})


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """The same for a call of which no question was made; a no to both events where the event cannot be read."""
    content = hook_call.read_leniently(call)
    if _tells_only(content):
        return {}
    match content.get(hook_call.EVENT):
        case "PermissionRequest" | "PreToolUse" as event:
            return _no(event, end, manner)
        case _:
            return _no(_UNNAMED, end, manner)


def _tells_only(content: Json) -> bool:
    """Whether nothing waits for a decision: another event by its name, or a tool's result where there is no name."""
    if hook_call.EVENT not in content:
        ran = isinstance(content.get("toolResult"), dict) or bool(naming.text_of(content.get("error")))
        return "toolName" in content and ran
    match content[hook_call.EVENT]:
        case "PermissionRequest" | "PreToolUse":
            return False
        case str(event) if event.strip():
            return "toolName" not in content and hook_call.decides_nothing(event, content, _TELLING)
        case _:
            return False


def _call(content: Json) -> ToolCall:
    if hook_call.EVENT in content:
        event = hook_call.event_of(content)
        if event not in {PERMISSION_REQUEST, PRE_TOOL_USE}:
            raise hook_call.unknown_event()
        session, tool, given = "session_id", "tool_name", ["tool_input"]
    else:
        event, session, tool, given = _UNNAMED, "sessionId", "toolName", ["toolArgs", "toolInput"]
    named = [name for name in given if name in content]
    if len(named) != 1:  # with two, nobody could say with which the tool runs
        raise Invalid((given[0],), "must be given, once")
    return ToolCall(
        harness=NAME,
        event=event,
        session=content.get(session),
        tool=hook_call.required(content, tool),
        tool_input=hook_call.unquoted(content[named[0]]),
        cwd=naming.text_of(content.get("cwd")),
    )


def _notes(given: Any) -> tuple[FieldPreview, ...]:
    if isinstance(given, dict) and given.get("requestSandboxBypass") is True:
        return (FieldPreview("Outside the sandbox", LEAVES_SANDBOX),)
    return ()


def _no(event: str, end: End, manner: Manner) -> Json:
    reason = hook_call.why_not(end)
    # Only "ask" surely shows a dialog: with no answer to a permission request, Copilot's own rules may allow it.
    decision = "ask" if hook_call.hands_back(end, manner) else "deny"
    return _for(
        event,
        request={"behavior": "deny", "message": reason},
        use={"permissionDecision": decision, "permissionDecisionReason": reason},
    )


def _for(event: str, *, request: Json, use: Json) -> Json:
    match event:
        case "PermissionRequest":
            return request
        case "PreToolUse":
            return use
        case _:
            return {**request, **use}
