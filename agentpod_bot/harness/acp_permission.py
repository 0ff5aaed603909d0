"""`session/request_permission` of ACP, version 1 and the draft of version 2: read, and answered.

Format: https://agentclientprotocol.com/protocol/tool-calls#requesting-permission. Version 1 has `toolCall`;
version 2 has `title`, `description` and `subject`. A request that has both shows both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.harness import acp_content, acp_options, naming
from agentpod_bot.harness.acp_content import LOST, Shown
from agentpod_bot.harness.strict_json import invalid
from agentpod_bot.harness.tool_input import COMMAND_LABEL, SHELL, as_text

if TYPE_CHECKING:
    from agentpod_bot.core.model import Option, Preview
    from agentpod_bot.harness.acp_options import Sent
    from agentpod_bot.harness.adapter import End, Json
    from agentpod_bot.harness.strict_json import Loc

METHOD = "session/request_permission"
EXECUTE = "execute"
UNDESCRIBED = "Something that the agent did not describe"
COMMENT = "dev.agentpod.comment"
"""Under which name of `_meta` a person's reason goes to the agent: the outcome itself has no place for it."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One request. Without options there is nothing that a person could be asked."""

    session: str
    tool_call_id: str | None
    offered: tuple[Sent, ...]
    title: str
    tool_kind: str | None
    preview: tuple[Preview, ...]
    preview_complete: bool

    @property
    def options(self) -> tuple[Option, ...]:
        """What a room is offered."""
        return tuple(sent.option for sent in self.offered)


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a request is about, as one of the two versions says it."""

    title: str
    tool_call_id: str | None
    tool_kind: str | None
    shown: Shown


def read(params: Json, at: Loc) -> Permission:
    """Read the request's parameters, which stand at `at`. Raises `Invalid` with every field at fault."""
    faults: list[tuple[Loc, str]] = []
    session = params.get("sessionId")
    if not isinstance(session, str):
        faults.append(((*at, "sessionId"), "is required, and must be a text"))
    options = acp_options.read(params.get("options"), (*at, "options"), faults)
    subject = _subject(params, at, faults)
    if faults or subject is None:
        raise invalid(faults)
    offered = acp_options.kept(options)
    title, shown = acp_content.titled(subject.title, subject.shown)
    if subject.tool_kind == EXECUTE and not acp_content.shows_command(subject.shown):
        shown += LOST
    return Permission(
        session=str(session),
        tool_call_id=subject.tool_call_id,
        offered=offered,
        title=title,
        tool_kind=subject.tool_kind,
        preview=shown.parts + acp_options.what_is_missing(options, offered),
        preview_complete=shown.complete,
    )


def result(params: Json, at: Loc, end: End) -> Json:
    """Say how the request ended: the option that a person selected, else `cancelled`. Raises as `read` does."""
    faults: list[tuple[Loc, str]] = []
    options = acp_options.read(params.get("options"), (*at, "options"), faults)
    if faults:
        raise invalid(faults)
    option_id = acp_options.selected(acp_options.kept(options), end)
    told = cancelled() if option_id is None else {"outcome": {"outcome": "selected", "optionId": option_id}}
    return told | {"_meta": {COMMENT: end.comment}} if end.rejects and end.comment else told


def cancelled() -> Json:
    """Say that nobody selected anything."""
    return {"outcome": {"outcome": "cancelled"}}


def _subject(params: Json, at: Loc, faults: list[tuple[Loc, str]]) -> _Subject | None:
    call, title = params.get("toolCall"), naming.text_of(params.get("title"))
    if call is None and "title" in params:
        return _second(params, title, at, faults)
    if not isinstance(call, dict) or not isinstance(call.get("toolCallId"), str):
        faults.append(((*at, "toolCall", "toolCallId"), "is required, and must be a text"))
        return None
    first = _of_call(call, params.get("_meta"))
    if params.get("subject") is None and not title:
        return first
    second = _second(params, title or first.title, at, faults)
    if second is None:
        return None
    shown = _called(call, second.title) + first.shown + second.shown
    return _Subject(second.title, first.tool_call_id, first.tool_kind, shown)


def _second(params: Json, title: str, at: Loc, faults: list[tuple[Loc, str]]) -> _Subject | None:
    description = naming.text_of(params.get("description"))
    said = Shown.text("Description", description) if description else Shown()
    match params.get("subject"):
        case None:
            return _Subject(title or UNDESCRIBED, None, None, said if title else said + LOST)
        case {"type": "tool_call", "toolCall": {"toolCallId": str()} as call}:
            about = _of_call(call, params.get("_meta"))
            said += _called(call, title or about.title)
        case {"type": "command", "command": str() as command, "cwd": str() as cwd} as named:
            about = _of_command(named, command, cwd)
        case {"type": "tool_call" | "command"}:
            faults.append(((*at, "subject"), "lacks what its type requires"))
            return None
        case unknown:
            shown = Shown.text("Subject", as_text(unknown), "json", complete=False)
            about = _Subject(UNDESCRIBED, None, None, shown)
    return _Subject(title or about.title, about.tool_call_id, about.tool_kind, said + about.shown)


def _of_call(call: Json, meta: Any) -> _Subject:
    shown = acp_content.tool_call(call)
    for each in (meta, call.get("_meta")):
        shown += acp_content.codex_params(each, call)
    if not acp_content.is_described(call, shown):
        shown += LOST
    return _Subject(acp_content.title_of(call), call["toolCallId"], acp_content.kind_of(call), shown)


def _of_command(subject: Json, command: str, cwd: str) -> _Subject:
    parts: list[Preview] = [TextPreview(COMMAND_LABEL, command, SHELL), FieldPreview("Directory", cwd)]
    if terminal := naming.text_of(subject.get("terminalId")):
        parts.append(FieldPreview("Terminal", terminal))
    title = acp_content.title_of({"kind": EXECUTE, "rawInput": {"command": command}})
    tool_call_id = naming.text_of(subject.get("toolCallId")) or None
    return _Subject(title, tool_call_id, EXECUTE, Shown(tuple(parts)))


def _called(call: Json, title: str) -> Shown:
    """Show a tool call's own title where another one took its place."""
    own = naming.text_of(call.get("title"))
    return Shown() if own in ("", title) else Shown.field("Tool call", own)
