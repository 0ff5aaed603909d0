"""Gemini CLI's `BeforeTool` hook, run as a command.

It has no answer that makes Gemini ask in its own terminal, so no answer means no here.
Shapes: https://geminicli.com/docs/hooks/reference/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.model import FieldPreview
from agentpod_bot.errors import AgentpodError, Invalid
from agentpod_bot.harness import hook_call, naming, options, strict_json, tool_input
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.hook_call import ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "gemini"
HOOK = True
PATIENCE_S: int | None = 60

BEFORE_TOOL = "BeforeTool"
KINDS: Mapping[str, str] = {
    "run_shell_command": "execute",
    "replace": "edit",
    "write_file": "edit",
    "read_file": "read",
    "read_many_files": "read",
    "glob": "search",
    "google_web_search": "search",
    "grep_search": "search",
    "search_file_content": "search",
    "web_fetch": "fetch",
}
"""Kinds of its tools, as the Agent Client Protocol calls them; others' are not known."""
OPTIONS = (options.allow_once(), options.reject_once())

_TELLING = frozenset({"AfterTool", "BeforeToolSelection", "Notification"})


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    content = strict_json.read(body)
    event = hook_call.event_of(content)
    if event == BEFORE_TOOL:
        call = _call(content)
        server = content.get("mcp_context")
        return hook_call.question(
            call,
            body,
            OPTIONS,
            hold_twin=hook_call.twin(call, server),
            kinds=KINDS if server is None else None,
            notes=_server(server),
        )
    if hook_call.decides_nothing(event, content, _TELLING):
        return Settled({}, hook_call.NOTHING_TO_DECIDE)
    raise hook_call.unknown_event()


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - a repeat says the same
    """What Gemini is told."""
    try:
        _call(strict_json.read(asked))
    except AgentpodError:  # no question was ever made of such a body
        return refuse(asked, end, manner)
    if hook_call.chosen(OPTIONS, end) is None:
        return _no(end)
    return {"decision": "allow", "reason": naming.text_of(end.reason, "Allowed.")}


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:  # noqa: ARG001 - nothing can be handed back
    """The same for a call of which no question was made."""
    content = hook_call.read_leniently(call)
    match content.get(hook_call.EVENT):
        case "BeforeTool":
            return _no(end)
        case str(event) if event.strip() and hook_call.decides_nothing(event, content, _TELLING):
            return {}
        case _:
            return {"continue": False, "stopReason": hook_call.why_not(end), **_no(end)}


def _call(content: Json) -> ToolCall:
    if hook_call.event_of(content) != BEFORE_TOOL:
        raise hook_call.unknown_event()
    asked = content.get("tool_input")
    if not isinstance(asked, dict):
        raise Invalid(("tool_input",), "must be an object")
    return ToolCall(
        harness=NAME,
        event=BEFORE_TOOL,
        session=content.get("session_id"),
        tool=hook_call.required(content, "tool_name"),
        tool_input=asked,
        cwd=naming.text_of(content.get("cwd")),
    )


def _server(context: object) -> tuple[Preview, ...]:
    return () if context is None else (FieldPreview("MCP server", tool_input.as_line(context)),)


def _no(end: End) -> Json:
    return {"decision": "deny", "reason": hook_call.why_not(end)}
