"""One tool call as a hook tells it, and what the hooks of all harnesses have in common.

A hook is a call that a harness makes before a tool runs. Each tells the tool's name, what
it is called with, and for which session; the names of the members differ.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import FieldPreview, Hold, PermissionRequest
from agentpod_bot.core.text import fold
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import naming, strict_json, tool_input
from agentpod_bot.harness.adapter import Ask, WhenUnanswered

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.core.model import Option, Preview
    from agentpod_bot.harness.adapter import End, Json, Manner

EVENT = "hook_event_name"
"""The member that names the event, in every harness but one."""
PERMISSION_REQUEST = "PermissionRequest"
PRE_TOOL_USE = "PreToolUse"
NOT_OFFERED = "The answer names nothing that this question offered. Nothing was allowed."
NO_REASON = "Nothing was allowed."
NOTHING_TO_DECIDE = "an event that decides nothing"

_TOOL_LIKE = ("tool", "permission", "shell", "mcp")
# A backslash before it would make it a part of some text.
_ASKING = re.compile(rb'(?<!\\)"hook_event_name"\s*:\s*"(PermissionRequest|PreToolUse|BeforeTool)"')


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that waits for an answer. Names are the harness's own."""

    harness: str
    event: str
    session: Any
    """The session's name as it came: any JSON value, or None."""
    tool: str
    tool_input: Any
    cwd: str = ""
    agent_id: Any = None
    """Which of a session's agents calls; None for its main one."""
    agent: str | None = None
    """What kind of agent that is."""
    call_id: str | None = None
    """The harness's name for this one call; None where it gives none."""


def read_leniently(body: bytes | None) -> Json:
    """What can be said of a body that may be broken: its members, or none. Never raises.

    An event that an object names twice is named by none, for nobody knows which is meant.
    Of a body that was cut, or is nested too deeply, the one event that asks is still
    found, so that the no can be the event's own.
    """

    def members(pairs: list[tuple[str, Any]]) -> Json:
        names = [name for name, _ in pairs]
        return {name: value for name, value in pairs if name != EVENT or names.count(EVENT) == 1}

    try:
        content = json.loads((body or b"").decode("utf-8", errors="replace"), object_pairs_hook=members)
    except (ValueError, RecursionError):
        named = set(_ASKING.findall(body or b""))
        return {EVENT: named.pop().decode()} if len(named) == 1 else {}
    return content if isinstance(content, dict) else {}


def required(content: Json, name: str) -> str:
    """A member's text. Raises `Invalid` where there is none, or only white space."""
    text = naming.text_of(content.get(name))
    if not text:
        raise Invalid((name,), "must be a text that is not blank")
    return text


def event_of(content: Json) -> str:
    """The event's name, exactly as it came. Raises `Invalid` where there is none."""
    return required(content, EVENT)


def decides_nothing(event: str, content: Json, known: frozenset[str]) -> bool:
    """Whether an event only tells something: it is `known` to, or nothing in it looks like a tool call.

    A name that is only nearly the one of an event that asks is none of those.
    """
    if event in known:
        return True
    name = fold(event)
    return not any(part in name for part in _TOOL_LIKE) and not {"tool_name", "tool_input", "command"} & content.keys()


def unknown_event() -> Invalid:
    """The error for an event that may want an answer, and is none that can be given one."""
    return Invalid((EVENT,), "names no event that can be answered here")


def agent_prefix(harness: str, agent_id: Any) -> str:
    """With which the ids and twins of one agent's calls begin."""
    return f"{harness}:main" if agent_id is None else f"{harness}:agent:{naming.hashed(agent_id)}"


def request_id(call: ToolCall) -> RequestId | None:
    """The call's id, where the harness names its calls."""
    if call.call_id is None:
        return None
    return naming.request_id(agent_prefix(call.harness, call.agent_id), call.session, call.call_id)


def twin(call: ToolCall, *extra: Any) -> str:
    """Equal for calls of one agent that ask the same in the same event."""
    same = [call.event, call.session, call.tool, call.tool_input, *extra]
    return f"{agent_prefix(call.harness, call.agent_id)}:{naming.hashed(same)}"


def question(
    call: ToolCall,
    raw: bytes,
    options: tuple[Option, ...],
    *,
    hold_twin: str | None = None,
    kinds: Mapping[str, str] | None = None,
    shown: tuple[Preview, ...] | None = None,
    notes: tuple[Preview, ...] = (),
    headline: str | None = None,
    preview_complete: bool = True,
) -> Ask:
    """The question of one call.

    `shown` is what stands for the input where it is not shown member by member, `headline`
    what the title says of it; `notes` are ours.
    """
    name = request_id(call)
    whole = shown or tool_input.preview_of(call.tool_input)
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(call.session),
            title=naming.title_of(call.tool, tool_input.headline(call.tool_input) if headline is None else headline),
            options=options,
            request_id=name,
            tool_kind=(kinds or {}).get(call.tool),
            agent=call.agent,
            preview=(
                FieldPreview("Tool", call.tool),
                *((FieldPreview("Folder", call.cwd),) if call.cwd else ()),
                *(whole or (FieldPreview(tool_input.WHOLE_LABEL, tool_input.as_text(call.tool_input)),)),
                *notes,
            ),
            preview_complete=preview_complete,
            hold=Hold() if name is not None else Hold(twin=hold_twin or twin(call)),
            raw=raw,
        )
    )


def chosen(options: tuple[Option, ...], end: End) -> Option | None:
    """The option that lets the call go on: a person chose it, and the question really offered it. Else None."""
    picked = end.option
    if picked is None or not (end.approves or end.chooses):
        return None
    for option in options:
        if (option.option_id, option.meaning, option.scope) == (picked.option_id, picked.meaning, picked.scope):
            return option
    return None


def why_not(end: End) -> str:
    """What the harness is told with a no; never blank, and never that somebody allowed it."""
    return NOT_OFFERED if end.approves or end.chooses else naming.text_of(end.reason, NO_REASON)


def hands_back(end: End, manner: Manner) -> bool:
    """Whether the harness's own question decides; only for an answer with which it surely asks one."""
    return end.hands_back and manner.when_unanswered is WhenUnanswered.TERMINAL


def unquoted(value: Any) -> Any:
    """A JSON object that was sent as a text; any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return strict_json.read(value.encode())
    except (Invalid, MalformedJson, UnicodeEncodeError):
        return value
