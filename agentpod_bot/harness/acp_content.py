"""What ACP says of a tool call, as previews: its input, its content, the files that it touches.

Formats: https://agentclientprotocol.com/protocol/tool-calls#content and .../protocol/content, and
their drafts of version 2. As the schemas say, a bad item of a list is skipped; the preview
is then not complete.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from agentpod_bot.core.model import DiffPreview, FieldPreview, TextPreview
from agentpod_bot.harness import naming
from agentpod_bot.harness.tool_input import (
    COMMAND,
    COMMAND_LABEL,
    WHOLE_LABEL,
    as_text,
    fields_of,
    headline,
    preview_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Json

NO_PATH = "(no path)"
DIFF = "diff"
GIT_PATCH = "git_patch"
KNOWN_CONTENT = frozenset({"content", DIFF, "terminal"})
KNOWN_BLOCKS = frozenset({"text", "image", "audio", "resource_link", "resource"})
CHANGES_FILES = frozenset({"edit", "delete", "move"})
"""Kinds of which more has to be said than that they happen."""
DONE_BY: Mapping[str, str] = {
    "read": "Read",
    "edit": "Edit",
    "delete": "Delete",
    "move": "Move",
    "search": "Search",
    "execute": "Run",
    "think": "Think",
    "fetch": "Fetch",
    "switch_mode": "Switch the mode",
    "other": "Use a tool",
}
"""Each kind of tool of https://agentclientprotocol.com/protocol/tool-calls#creating in words, for a title."""
ONLY_LOOKS = frozenset({"read", "search"})
"""Kinds of which it is enough to say where."""
KIND, LOCATION = "Kind", "Location"
COMMANDS = frozenset({COMMAND_LABEL, COMMAND, "commands", "cmd", "script", "code", WHOLE_LABEL})
"""Labels under which an input that says what will run is shown."""
EMPTY = frozenset({"", "null", '""', "[]", "{}"})
NAMES_OF_CODEX = frozenset(
    {"threadId", "turnId", "itemId", "callId", "approvalId", "conversationId", "startedAtMs", "availableDecisions"}
)
"""What Codex's own parameters hold beside what will happen: names, and the options, which are offered anyway."""


@dataclass(frozen=True, slots=True)
class Shown:
    """Previews, and whether they show all that was sent."""

    parts: tuple[Preview, ...] = ()
    complete: bool = True

    def __add__(self, other: Shown) -> Shown:
        """Both, one after the other."""
        return Shown(self.parts + other.parts, self.complete and other.complete)

    @classmethod
    def field(cls, label: str, value: str, *, complete: bool = True) -> Self:
        """One labelled value."""
        return cls((FieldPreview(label, value),), complete)

    @classmethod
    def text(cls, label: str, text: str, language: str | None = None, *, complete: bool = True) -> Self:
        """One labelled text."""
        return cls((TextPreview(label, text, language),), complete)


LOST = Shown(complete=False)
"""Something was sent that cannot be read."""


def tool_call(call: Json) -> Shown:
    """Show everything that a tool call says of what it will do."""
    raw, content = call.get("rawInput"), call.get("content")
    given = Shown(preview_of(raw))
    shown = given + _without_repeats(_every(content, of_content), given)
    if kind_of(call) in CHANGES_FILES and not shown.parts:
        shown += LOST  # what changes came earlier, or never
    shown += _every(call.get("locations"), _location)
    kind = naming.text_of(call.get("kind"))
    if kind and kind not in DONE_BY:
        shown += Shown.field(KIND, kind)
    return shown


def is_described(call: Json, shown: Shown) -> bool:
    """Whether more is shown of a call than what it is called: a title is written for people, and need not say all."""
    labels = {DIFF if isinstance(part, DiffPreview) else part.label for part in shown.parts}
    return bool(labels - ({KIND} if kind_of(call) in ONLY_LOOKS else {KIND, LOCATION}))


def shows_command(shown: Shown) -> bool:
    """Whether it is shown what will run."""
    said = {
        part.label: part.text if isinstance(part, TextPreview) else part.value
        for part in shown.parts
        if not isinstance(part, DiffPreview)
    }
    return any(said.get(label, "").strip() not in EMPTY for label in COMMANDS)


def kind_of(call: Json) -> str | None:
    """Return the tool's kind where it is one that ACP knows."""
    kind = call.get("kind")
    return kind if isinstance(kind, str) and kind in DONE_BY else None


def title_of(call: Json) -> str:
    """Return the call's own title, else what its input says, else that it says nothing."""
    if title := naming.text_of(call.get("title")):
        return title
    if said := headline(call.get("rawInput")):
        return naming.title_of(DONE_BY[kind_of(call) or "other"], said)
    done = DONE_BY.get(kind_of(call) or "", "Tool call")
    return naming.title_of(f"{done}, not described by the agent", naming.text_of(call.get("toolCallId")))


def titled(title: str, shown: Shown) -> tuple[str, Shown]:
    """Return a title that no reader cuts; where it had to be shortened, all of it stands before the rest."""
    if len(title) <= naming.MOST_TITLE:
        return title, shown
    texts = {part.text for part in shown.parts if isinstance(part, TextPreview)}
    whole = Shown() if title in texts else Shown.text("Title", title)
    return naming.title_of(title), whole + shown


def codex_params(meta: Any, call: Json) -> Shown:
    """Show what codex-acp adds of Codex's own request (`_meta.codex.params`) and the call does not say itself."""
    match meta:
        case {"codex": {"params": dict() as params}}:
            raw = call.get("rawInput")
            known = raw if isinstance(raw, dict) else {}
            more = {
                name: value
                for name, value in params.items()
                if name not in NAMES_OF_CODEX and value is not None and (name not in known or known[name] != value)
            }
            return Shown(preview_of(more))
        case _:
            return Shown()


def of_content(item: Any) -> Shown:
    """Show one item of a tool call's `content`."""
    match item:
        case {"type": "content", "content": dict() as block}:
            return _block(block)
        case {"type": "diff"}:
            return _diff(item)
        case {"type": "terminal", "terminalId": str() as terminal_id}:
            return Shown.field("Terminal", terminal_id)
        case {"type": str() as kind} if kind not in KNOWN_CONTENT:
            return Shown.text("Content", as_text(item), "json", complete=False)
        case _:
            return LOST


def _block(block: Json) -> Shown:
    match block:
        case {"type": "text", "text": str() as text}:
            return Shown.text("Text", text) if text else Shown()
        case {"type": "image" | "audio" as kind, "data": str() as blob, "mimeType": str() as mime}:
            uri = naming.text_of(block.get("uri"))
            origin = f", from {uri}" if uri else ""
            return Shown.field(kind.capitalize(), f"{mime}, {_size(blob)}, not shown{origin}", complete=False)
        case {"type": "resource_link", "name": str() as name, "uri": str() as uri}:
            extra = {key: block.get(key) for key in ("title", "description", "mimeType", "size")}
            more = {f"Resource {key}": value for key, value in extra.items() if value is not None}
            return Shown.field("Resource", f"{name}: {uri}") + Shown(fields_of(more))
        case {"type": "resource", "resource": {"uri": str() as uri, "text": str() as text}}:
            return Shown.field("Resource", uri) + Shown.text("Text of the resource", text)
        case {"type": "resource", "resource": {"uri": str() as uri, "blob": str() as blob, **rest}}:
            mime = naming.text_of(rest.get("mimeType"), "unknown type")
            return Shown.field("Resource", f"{uri} ({mime}, {_size(blob)}, not shown)", complete=False)
        case {"type": str() as kind} if kind not in KNOWN_BLOCKS:
            return Shown.text("Content", as_text(block), "json", complete=False)
        case _:
            return LOST


def _size(base64: str) -> str:
    bare = base64.rstrip("=")
    return f"{len(bare) * 3 // 4} bytes"


def _diff(item: Json) -> Shown:
    """Show a diff of version 1, of the draft of version 2, or of both in one."""
    shown: Shown | None = None
    if isinstance(item.get("changes"), list):
        shown = _every(item["changes"], _change) + _patch(item.get("patch"))
    match item:
        case {"path": str() as path, "newText": str() as new}:
            old = item.get("oldText")
            is_old = isinstance(old, str)
            diff = DiffPreview(path or NO_PATH, old if is_old else None, new)
            shown = (shown or Shown()) + Shown((diff,), is_old or old is None)
        case _:
            pass
    return LOST if shown is None else shown


def _change(change: Any) -> Shown:
    match change:
        case {"operation": str() as operation, "path": str() as path}:
            old = naming.text_of(change.get("oldPath"))
            more = [text for key in ("fileType", "mimeType") if (text := naming.text_of(change.get(key)))]
            what = f"{operation} {f'{old} to ' if old else ''}{path or NO_PATH}"
            return Shown.field("Change", f"{what} ({', '.join(more)})" if more else what)
        case {"operation": str()}:
            return Shown.text("Change", as_text(change), "json", complete=False)
        case _:
            return LOST


def _patch(patch: Any) -> Shown:
    match patch:
        case {"format": str() as form, "text": str() as text}:
            return Shown.text("Patch", text, DIFF if form == GIT_PATCH else None)
        case _:
            return LOST


def _location(location: Any) -> Shown:
    match location:
        case {"path": str() as path}:
            line = location.get("line")
            has_line = isinstance(line, int) and not isinstance(line, bool)
            return Shown.field(LOCATION, f"{path}, line {line}" if has_line else path)
        case _:
            return LOST


def _every(items: Any, show: Callable[[Any], Shown]) -> Shown:
    """Show all items of an optional list; one that is no list is as good as none, and something is missing."""
    if items is None:
        return Shown()
    if not isinstance(items, list):
        return LOST
    parts = [show(item) for item in items]
    return Shown(tuple(part for each in parts for part in each.parts), all(each.complete for each in parts))


def _without_repeats(shown: Shown, given: Shown) -> Shown:
    """Drop a text that says, word for word, what another part of it, or of the input, shows already."""
    seen = {
        part.text if isinstance(part, TextPreview) else part.value
        for part in given.parts
        if not isinstance(part, DiffPreview)
    }
    left: list[Preview] = []
    for part in shown.parts:
        match part:
            case TextPreview(label="Text", text=text) if text in seen:
                continue
            case TextPreview(text=text):
                seen.add(text)
            case FieldPreview(value=value):
                seen.add(value)
            case DiffPreview():
                pass
        left.append(part)
    return Shown(tuple(left), shown.complete)
