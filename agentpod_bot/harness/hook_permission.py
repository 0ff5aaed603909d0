"""The two hook events that ask before a tool runs, as Claude Code shaped them and Qwen Code took them over.

`PermissionRequest` fires where a dialog is about to be shown and has no id of its own;
`PreToolUse` fires before every call and has one. Later events of the same session say that
nobody needs the answer any more: the dialog stays open beside the hook, and its answer is
told to nobody. Shapes: https://code.claude.com/docs/en/hooks
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.lifecycle import AnsweredElsewhere
from agentpod_bot.core.model import Claim
from agentpod_bot.errors import AgentpodError, Invalid
from agentpod_bot.harness import claude_code_questions, hook_call, naming, options, strict_json
from agentpod_bot.harness.adapter import Close, Settled
from agentpod_bot.harness.claude_code_suggestions import grants_in, notes_on
from agentpod_bot.harness.hook_call import PERMISSION_REQUEST, PRE_TOOL_USE, ToolCall

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Option
    from agentpod_bot.harness.adapter import Ask, Call, End, Json, Manner
    from agentpod_bot.harness.claude_code_questions import Presented
    from agentpod_bot.harness.claude_code_suggestions import Grant

TERMINAL = "the terminal"
"""Who is said to have answered where the harness went on by itself."""

_RAN = frozenset({"PostToolUse", "PostToolUseFailure"})
_STOPPED = frozenset({"Stop", "SubagentStop"})
_SESSION_END = "SessionEnd"
_TELLING = _RAN | {"PostToolBatch", "PermissionDenied"}
"""Events that look like a tool call and decide nothing about it."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the harnesses that have these events."""

    name: str
    kinds: Mapping[str, str]
    """Kinds of its tools, as the Agent Client Protocol calls them."""
    has_question_tools: bool
    """Whether AskUserQuestion and ExitPlanMode are its own tools."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A call with everything that it offers."""

    call: ToolCall
    presented: Presented | None
    grants: tuple[Grant, ...]
    options: tuple[Option, ...]
    suggestions: Any


def parse(dialect: Dialect, body: bytes) -> Call:
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    content = strict_json.read(body)
    event = hook_call.event_of(content)
    if event in {PERMISSION_REQUEST, PRE_TOOL_USE}:
        return _ask(dialect, _asked(dialect, content, event), body)
    if event in _RAN | _STOPPED or event == _SESSION_END:
        return _close(dialect, content, event)
    if hook_call.decides_nothing(event, content, _TELLING):
        return Settled({}, hook_call.NOTHING_TO_DECIDE)
    raise hook_call.unknown_event()


def answer(dialect: Dialect, asked: bytes, end: End, manner: Manner) -> Json:
    """What the harness is told about the call `asked`."""
    try:
        content = strict_json.read(asked)
        known = _asked(dialect, content, hook_call.event_of(content))
    except AgentpodError:  # no question was ever made of such a body
        return refuse(asked, end, manner)
    option = hook_call.chosen(known.options, end)
    if option is None:
        return _no(known.call.event, end, manner)
    call = known.call
    goes_on = None if known.presented is None else claude_code_questions.answered(call.tool, call.tool_input, option)
    updated = {} if goes_on is None else {"updatedInput": goes_on}
    if call.event == PRE_TOOL_USE:
        return _output(
            PRE_TOOL_USE,
            {
                "permissionDecision": "allow",
                "permissionDecisionReason": naming.text_of(end.reason, "Allowed."),
                **updated,
            },
        )
    granted = [grant.entry for grant in known.grants if grant.option.option_id == option.option_id]
    always = {"updatedPermissions": granted} if granted else {}
    return _output(PERMISSION_REQUEST, {"decision": {"behavior": "allow", **updated, **always}})


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """The no for a call that nobody was asked about: it stops the agent where not even the event can be read."""
    content = hook_call.read_leniently(call)
    match content.get(hook_call.EVENT):
        case "PermissionRequest" | "PreToolUse" as event:
            return _no(event, end, manner)
        case str(event) if event.strip() and hook_call.decides_nothing(event, content, _TELLING):
            return {}
        case _:
            # That the agent stops is no decision: the tool would still run where the harness's own rules allow it.
            reason = hook_call.why_not(end)
            return {"continue": False, "stopReason": reason, "decision": "block", "reason": reason}


def _asked(dialect: Dialect, content: Json, event: str) -> _Asked:
    if event not in {PERMISSION_REQUEST, PRE_TOOL_USE}:
        raise hook_call.unknown_event()
    call = _call(dialect, content, event)
    if not isinstance(call.tool_input, dict):
        raise Invalid(("tool_input",), "must be an object")
    presented = claude_code_questions.presented(call.tool, call.tool_input) if dialect.has_question_tools else None
    offered = (options.allow_once(), options.reject_once()) if presented is None else presented.options
    # A suggestion goes with an allow: there is none where the tool's own choices are asked.
    takes_grants = event == PERMISSION_REQUEST and offered[0].option_id == options.ALLOW
    suggestions = content.get("permission_suggestions") if takes_grants else None
    grants = grants_in(suggestions)
    first, *rest = offered
    return _Asked(call, presented, grants, (first, *(grant.option for grant in grants), *rest), suggestions)


def _call(dialect: Dialect, content: Json, event: str) -> ToolCall:
    return ToolCall(
        harness=dialect.name,
        event=event,
        session=content.get("session_id"),
        tool=hook_call.required(content, "tool_name"),
        tool_input=content.get("tool_input"),
        cwd=naming.text_of(content.get("cwd")),
        agent_id=content.get("agent_id") or None,
        agent=naming.name_of(content.get("agent_type")),
        call_id=(naming.text_of(content.get("tool_use_id")) or None) if event == PRE_TOOL_USE else None,
    )


def _ask(dialect: Dialect, asked: _Asked, body: bytes) -> Ask:
    presented = asked.presented
    notes = notes_on(asked.suggestions, asked.grants)
    return hook_call.question(
        asked.call,
        body,
        asked.options,
        hold_twin=_twin(dialect, asked.call),
        kinds=dialect.kinds,
        shown=None if presented is None else presented.shown,
        notes=notes if presented is None else (*presented.notes, *notes),
        headline=None if presented is None else presented.headline,
        preview_complete=presented is None or presented.complete,
    )


def _twin(dialect: Dialect, call: ToolCall) -> str:
    if not dialect.has_question_tools:
        return hook_call.twin(call)
    return hook_call.twin(replace(call, tool_input=claude_code_questions.without_answers(call.tool, call.tool_input)))


def _close(dialect: Dialect, content: Json, event: str) -> Close | Settled:
    """What a later event says is over. What it does not name stays open."""
    agent_id = content.get("agent_id") or None
    everything = hook_call.agent_prefix(dialect.name, agent_id)
    match event:
        case "PostToolUse" | "PostToolUseFailure":
            prefixes = _names_of_run(dialect, content)
        case "SubagentStop":
            prefixes = () if agent_id is None else (f"{everything}:",)
        case "Stop":
            prefixes = (f"{everything}:",)
        case _:
            prefixes = ("",)
    if not prefixes:
        return Settled({}, hook_call.NOTHING_TO_DECIDE)
    return Close(
        event=AnsweredElsewhere(Claim(None, TERMINAL)),
        session_id=naming.session_id(content.get("session_id")),
        prefixes=prefixes,
        every=event not in _RAN,
        answer={},
    )


def _names_of_run(dialect: Dialect, content: Json) -> tuple[str, ...]:
    """The id and the twin that the question of a call had which ran meanwhile."""
    try:
        before = _call(dialect, content, PRE_TOOL_USE)
    except Invalid:
        return ()
    named = hook_call.request_id(before)
    dialog = replace(before, event=PERMISSION_REQUEST, call_id=None)
    twin = _twin(dialect, dialog)
    return (twin,) if named is None else (named, twin)


def _no(event: str, end: End, manner: Manner) -> Json:
    reason = hook_call.why_not(end)
    back = hook_call.hands_back(end, manner)
    if event == PRE_TOOL_USE:
        # An empty answer would let a tool run that the harness's own rules allow: "ask" is what shows the dialog.
        decision = "ask" if back else "deny"
        return _output(PRE_TOOL_USE, {"permissionDecision": decision, "permissionDecisionReason": reason})
    return {} if back else _output(PERMISSION_REQUEST, {"decision": {"behavior": "deny", "message": reason}})


def _output(event: str, members: Json) -> Json:
    return {"hookSpecificOutput": {"hookEventName": event, **members}}
