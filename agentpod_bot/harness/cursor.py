"""Cursor's hooks before a shell command and before an MCP tool, run as a command.

Shapes: https://cursor.com/docs/agent/hooks
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import FieldPreview
from agentpod_bot.errors import AgentpodError, Invalid
from agentpod_bot.harness import hook_call, naming, options, strict_json, tool_input
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.hook_call import ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "cursor"
HOOK = True
PATIENCE_S: int | None = 60
"""Cursor does not say how long it waits: short enough that the answer does not come too late."""

SHELL = "beforeShellExecution"
MCP = "beforeMCPExecution"
SHELL_TOOL = "Shell"
OPTIONS = (options.allow_once(), options.reject_once())

_KINDS: Mapping[str, str] = {SHELL_TOOL: "execute"}
_TELLING = frozenset({"afterShellExecution", "afterMCPExecution", "postToolUse", "postToolUseFailure"})
_PERMITS = frozenset({"beforeReadFile", "beforeTabFileRead", "preToolUse", "subagentStart"})
"""Events that want a permission too, and of which nobody is asked here: they get a plain no."""
_HARMLESS = frozenset(
    {
        hook_call.EVENT,
        "conversation_id",
        "generation_id",
        "session_id",
        "model",
        "cursor_version",
        "workspace_roots",
        "user_email",
        "transcript_path",
    }
)
"""Members that say who calls, and nothing of what will be done."""


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    content = strict_json.read(body)
    event = hook_call.event_of(content)
    match event:
        case "beforeShellExecution" | "beforeMCPExecution":
            call = _call(content, event)
            server = _server(content) if event == MCP else {}
            return hook_call.question(
                call,
                body,
                OPTIONS,
                hold_twin=hook_call.twin(call, content.get("generation_id"), server),
                kinds=_KINDS if event == SHELL else None,
                notes=(
                    *(FieldPreview(f"Server {name}", tool_input.as_line(value)) for name, value in server.items()),
                    *_besides(content, event),
                ),
            )
        case _ if _tells_only(event, content):
            return Settled({}, hook_call.NOTHING_TO_DECIDE)
        case _:
            raise hook_call.unknown_event()


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - a repeat says the same
    """What Cursor is told."""
    try:
        content = strict_json.read(asked)
        _call(content, hook_call.event_of(content))
    except AgentpodError:  # no question was ever made of such a body
        return refuse(asked, end, manner)
    return _no(end, manner) if hook_call.chosen(OPTIONS, end) is None else {"permission": "allow"}


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """The same for a call of which no question was made."""
    content = hook_call.read_leniently(call)
    event = content.get(hook_call.EVENT)
    if isinstance(event, str) and event.strip() and event not in {SHELL, MCP} and _tells_only(event, content):
        return {}
    return _no(end, manner)


def _tells_only(event: str, content: Json) -> bool:
    return event not in _PERMITS and hook_call.decides_nothing(event, content, _TELLING)


def _call(content: Json, event: str) -> ToolCall:
    match event:
        case "beforeShellExecution":
            tool, asked = SHELL_TOOL, {tool_input.COMMAND: hook_call.required(content, "command")}
        case "beforeMCPExecution":
            if "tool_input" not in content:
                raise Invalid(("tool_input",), "must be given")
            tool, asked = hook_call.required(content, "tool_name"), hook_call.unquoted(content["tool_input"])
        case _:
            raise hook_call.unknown_event()
    return ToolCall(
        harness=NAME,
        event=event,
        session=content.get("conversation_id"),
        tool=tool,
        tool_input=asked,
        cwd=naming.text_of(content.get("cwd")),
    )


def _server(content: Json) -> dict[str, Any]:
    """Where the tool runs: the address or the command line of its server."""
    return {name: content[name] for name in ("url", "command") if name in content}


def _besides(content: Json, event: str) -> tuple[Preview, ...]:
    """Whatever else the call says, such as whether a command runs in the sandbox: it may change what is allowed."""
    shown = {"command"} if event == SHELL else {"command", "url", "tool_name", "tool_input"}
    if naming.text_of(content.get("cwd")):
        shown.add("cwd")
    said = {name: value for name, value in content.items() if name not in shown | _HARMLESS}
    # A name of ours before each, so that none can pass for a member of the tool's input.
    return tool_input.fields_of({f"Call {name}": value for name, value in said.items()})


def _no(end: End, manner: Manner) -> Json:
    reason = hook_call.why_not(end)
    permission = "ask" if hook_call.hands_back(end, manner) else "deny"
    return {"permission": permission, "user_message": reason, "agent_message": reason}
