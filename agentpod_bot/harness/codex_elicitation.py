"""What an MCP server asks through Codex: `mcpServer/elicitation/request`.

A tool's call, a plain yes or no, or one choice out of several can be asked in a room. Other
forms, and addresses to open, cannot; they are declined. `_meta.codex_approval_kind` marks a
tool's call, and `_meta.persist` what its approval may be remembered for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.harness import acp_elicitation, naming, tool_input
from agentpod_bot.harness.acp_elicitation import FORM, Unaskable
from agentpod_bot.harness.adapter import Settled
from agentpod_bot.harness.codex_choices import Choice, chosen, options_of
from agentpod_bot.harness.codex_message import NAME, Shape, Text, ask, framed, read_params
from agentpod_bot.harness.codex_shown import members, unknown
from agentpod_bot.harness.options import allow_always, allow_once, reject_once

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Ask, End, Json
    from agentpod_bot.harness.codex_message import Message

ELICITATION = "mcpServer/elicitation/request"
TOOL_CALL = "mcp_tool_call"

_META = "_meta"
_CALLED_WITH = "tool_params"
_PLACE = ("params",)
_KNOWN = frozenset({"threadId", "turnId", "serverName", "mode", "message", "requestedSchema", _META})
_KNOWN_OF_META = frozenset({"codex_approval_kind", "persist", _CALLED_WITH})
_LASTING = {
    "session": "Always allow this tool for this session",
    "always": "Always allow this tool in every session",
}


class _Params(Shape):
    thread_id: Text
    server_name: str
    mode: Text


class _FormParams(Shape):
    message: str
    requested_schema: dict[str, Any]


def question(message: Message) -> Ask | Settled:
    """Return the question of a message, or the answer where it cannot be asked; raises `Invalid`."""
    params = message.params
    asked = read_params(_Params, params)
    if asked.mode != FORM:
        return Settled(framed(message, _declined()), "an elicitation that is no form")
    text = read_params(_FormParams, params).message
    if _is_empty(params):
        options = options_of(_choices(params))
        preview = members({"Message": text})
    else:
        form = acp_elicitation.read(params, _PLACE)
        if isinstance(form, Unaskable):
            return Settled(framed(message, _declined()), form.why)
        options = form.options
        preview = (
            *members({"Message": text}),
            *(part for part in form.preview if part != TextPreview("Message", text)),
        )
    return ask(
        message,
        session_id=naming.session_id(asked.thread_id),
        request_id=request_id(message),
        title=naming.title_of(naming.text_of(asked.server_name, "An MCP server"), text),
        tool_kind=None,
        options=options,
        preview=(
            FieldPreview("MCP server", asked.server_name),
            *preview,
            *_about_tool(_meta(params)),
            *unknown(params, _KNOWN),
        ),
    )


def request_id(message: Message) -> RequestId | None:
    """The id of a question; Codex names it by its JSON-RPC id alone, which begins again with each start."""
    if message.rpc_id is None:
        return None
    params = message.params
    names = (params.get("threadId"), params.get("turnId"), message.rpc_id, naming.hashed(params))
    return naming.request_id(NAME, message.method, *names)


def result(message: Message, end: End) -> Json:
    """Return the answer to a message of which a question was made."""
    params = message.params
    if params.get("mode") != FORM:
        return _declined()
    if not _is_empty(params):
        return _answer(**acp_elicitation.result(params, _PLACE, end))
    choice = chosen(_choices(params), end)
    if choice is not None and choice.says is not None:
        return dict(choice.says)
    return _declined() if end.rejects else no()


def no() -> Json:
    """Return the answer where nobody decided: the question went away, and nobody declined."""
    return _answer("cancel")


def _declined() -> Json:
    return _answer("decline")


def _answer(action: str, content: Json | None = None, meta: Json | None = None) -> Json:
    return {"action": action, "content": content, _META: meta}


def _is_empty(params: Json) -> bool:
    """Whether nothing has to be filled in: then accepting says yes, to a tool's call or to the message."""
    return params["requestedSchema"].get("properties") == {} and not params["requestedSchema"].get("required")


def _choices(params: Json) -> tuple[Choice, ...]:
    meta = _meta(params)
    return (
        Choice(allow_once(option_id=OptionId("accept")), _answer("accept", {})),
        *(_lasting(meta.get("persist")) if meta.get("codex_approval_kind") == TOOL_CALL else ()),
        Choice(reject_once(option_id=OptionId("decline")), None),
    )


def _lasting(offered: Any) -> list[Choice]:
    # Codex names one or several; what it does not name would not be remembered, whatever the answer says.
    names = offered if isinstance(offered, list) else [offered]
    return [
        Choice(allow_always(label, option_id=OptionId(f"accept:{name}")), _answer("accept", {}, {"persist": name}))
        for name, label in _LASTING.items()
        if name in names
    ]


def _meta(params: Json) -> Json:
    meta = params.get(_META)
    return meta if isinstance(meta, dict) else {}


def _about_tool(meta: Json) -> tuple[Preview, ...]:
    """Show what a tool would be called with, each value apart, and what else is said of it."""
    given = meta.get(_CALLED_WITH)
    shown = tool_input.preview_of(given) if isinstance(given, dict) else members({_CALLED_WITH: given})
    return (*shown, *unknown(meta, _KNOWN_OF_META))
