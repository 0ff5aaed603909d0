"""Claude Code's permission prompt tool: the arguments of one MCP call, answered by one JSON object.

It is asked in `-p` runs alone, where no terminal could decide. An allow has to carry the
input to go on with. Shapes: https://code.claude.com/docs/en/cli-reference (`--permission-prompt-tool`)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.errors import AgentpodError, Invalid
from agentpod_bot.harness import claude_code_questions, hook_call, naming, options, strict_json
from agentpod_bot.harness.claude_code import KINDS
from agentpod_bot.harness.hook_call import ToolCall

if TYPE_CHECKING:
    from agentpod_bot.core.model import Option
    from agentpod_bot.harness.adapter import Call, End, Json, Manner
    from agentpod_bot.harness.claude_code_questions import Presented

NAME = "claude-prompt"
HOOK = False
PATIENCE_S: int | None = None


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one call's arguments; raises `MalformedJson` or `Invalid`."""
    call = _call(body)
    presented = claude_code_questions.presented(call.tool, call.tool_input)
    if presented is None:
        return hook_call.question(call, body, _options(presented), kinds=KINDS)
    return hook_call.question(
        call,
        body,
        _options(presented),
        kinds=KINDS,
        shown=presented.shown,
        notes=presented.notes,
        headline=presented.headline,
        preview_complete=presented.complete,
    )


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:
    """What the tool's one text says, as an object."""
    try:
        known = _call(asked)
    except AgentpodError:  # no question was ever made of such a body
        return refuse(call, end, manner)
    option = hook_call.chosen(_options(claude_code_questions.presented(known.tool, known.tool_input)), end)
    if option is None:
        return refuse(call, end, manner)
    goes_on = claude_code_questions.answered(known.tool, known.tool_input, option)
    return {"behavior": "allow", "updatedInput": known.tool_input if goes_on is None else goes_on}


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:  # noqa: ARG001 - one no, whatever was asked
    """The no, with its reason."""
    return {"behavior": "deny", "message": hook_call.why_not(end)}


def _options(presented: Presented | None) -> tuple[Option, ...]:
    return (options.allow_once(), options.reject_once()) if presented is None else presented.options


def _call(body: bytes) -> ToolCall:
    content = strict_json.read(body)
    asked = content.get("input")
    if not isinstance(asked, dict):
        raise Invalid(("input",), "must be an object")
    return ToolCall(
        harness=NAME,
        event="",
        session=None,
        tool=hook_call.required(content, "tool_name"),
        tool_input=asked,
        call_id=naming.text_of(content.get("tool_use_id")) or None,
    )
