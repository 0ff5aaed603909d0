"""OpenCode: the permission events of its three generations, and the replies that its server takes.

A call is an event as its stream has it (https://opencode.ai/docs/server/#events): an object with
`type`, and `properties` or `data`. An answer is the body of the reply in the same generation:
`{"response": …}` for `permission.updated`, else `{"reply": …}`, and `message` beside a "reject".
A rejection without a message would halt the turn and reject whatever else the session asks,
so every one carries the reason; the first generation has no place for it. The plugin adds `input` to
a payload where it knows what the tool is called with: OpenCode does not say it of every tool.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId, RequestId
from agentpod_bot.core.lifecycle import AnsweredElsewhere
from agentpod_bot.core.model import Claim, DiffPreview, FieldPreview, Hold, PermissionRequest, Preview, TextPreview
from agentpod_bot.core.text import fits
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import naming, strict_json
from agentpod_bot.harness.adapter import Ask, Close
from agentpod_bot.harness.options import allow_always, allow_once, reject_once
from agentpod_bot.harness.tool_input import WHOLE_LABEL, as_text, headline, preview_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "opencode"
HOOK = False
PATIENCE_S: int | None = None
"""It waits until it is answered."""
AGENT = "OpenCode"

ONCE = OptionId("once")
ALWAYS = OptionId("always")
REJECT = OptionId("reject")
WORDS = frozenset({ONCE, ALWAYS, REJECT})

NOT_OFFERED = "The answer is none of those that were offered. Nothing was allowed."
NO_REASON = "Nothing was allowed."
LISTED = "What Always allow would allow"
"""Label of the patterns that a label has no place for."""
DIFF = "diff"
EDIT = "edit"
INPUT = "input"
EVERYTHING = "*"
"""The pattern of a tool that has none of its own."""
TOOL_KINDS: Mapping[str, str] = {
    "bash": "execute",
    "edit": "edit",
    "write": "edit",
    "patch": "edit",
    "read": "read",
    "glob": "search",
    "grep": "search",
    "webfetch": "fetch",
}


@dataclass(frozen=True, slots=True)
class _Names:
    """What a generation calls the same things."""

    permission: str
    patterns: str
    saved: str
    """The patterns that "always" allows from then on."""


FIRST = "permission.updated"
_ASKED: Mapping[str, _Names] = {
    FIRST: _Names("type", "pattern", "pattern"),
    "permission.asked": _Names("permission", "patterns", "always"),
    "permission.v2.asked": _Names("action", "resources", "save"),
}
_REPLIED: Mapping[str, tuple[str, ...]] = {
    "permission.replied": ("requestID", "permissionID"),
    "permission.v2.replied": ("requestID",),
}


@dataclass(frozen=True, slots=True)
class _Event:
    kind: str
    place: str
    """Under which name the payload stands."""
    payload: Json


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one event. Raises `MalformedJson`, or `Invalid` for one that neither asks nor was replied to."""
    event = _event(body)
    if event.kind in _REPLIED:
        return _closed(event)
    asked, names = event.payload, _ASKED[event.kind]
    session, permission_id = _named(event, "sessionID"), _named(event, "id")
    options, preview = [allow_once(option_id=ONCE)], [*_preview(asked, names)]
    if saved := _saved(event):
        label, whole = _always_label(asked, names, saved)
        options.append(allow_always(label, option_id=ALWAYS))
        preview += [] if whole else [TextPreview(LISTED, as_text(list(saved)), "json")]
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(session),
            title=_title(asked, names),
            options=(*options, reject_once(option_id=REJECT)),
            request_id=_request_id(session, permission_id),
            tool_kind=TOOL_KINDS.get(naming.text_of(asked.get(names.permission))),
            agent=AGENT,
            preview=tuple(preview),
            preview_complete=not (_lacks_its_diff(asked, names) or _lacks_its_input(asked, names)),
            hold=Hold(),
            raw=body,
        )
    )


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """The body of the reply to `call`: once or always where a person chose that, else a rejection."""
    if not end.approves:
        return _rejection(call, end.reason)
    match end.option and end.option.option_id:
        case "once":
            return _reply(call, ONCE)
        case "always" if _offers_always(asked):
            return _reply(call, ALWAYS)
        case _:
            return _rejection(call, NOT_OFFERED)


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """A rejection that says why, in the call's generation where that can be read, else in the latest."""
    return _rejection(call, end.reason)


def _closed(event: _Event) -> Close:
    session = _named(event, "sessionID")
    names = _REPLIED[event.kind]
    permission_id = _named(event, next((name for name in names if name in event.payload), names[0]))
    said = event.payload.get("reply", event.payload.get("response"))
    claimed = said if isinstance(said, str) and said in WORDS else None
    return Close(
        event=AnsweredElsewhere(Claim(option_id=claimed, by=AGENT)),
        session_id=naming.session_id(session),
        prefixes=(_request_id(session, permission_id),),
        every=True,
        answer={},
    )


def _event(body: bytes) -> _Event:
    content = strict_json.read(body)
    kind = content.get("type")
    if not isinstance(kind, str) or not (kind in _ASKED or kind in _REPLIED):
        raise Invalid(("type",), f"must be one of {', '.join([*_ASKED, *_REPLIED])}")
    places = [place for place in ("properties", "data") if content.get(place) is not None]
    if not places:
        raise Invalid(("properties",), "is required")
    if len(places) > 1 and len({naming.hashed(content[place]) for place in places}) > 1:
        raise Invalid(("data",), "must not differ from properties")
    payload = content[places[0]]
    if not isinstance(payload, dict):
        raise Invalid((places[0],), "must be an object")
    return _Event(kind, places[0], payload)


def _named(event: _Event, name: str) -> str:
    value = event.payload.get(name)
    if not isinstance(value, str) or not value:
        raise Invalid((event.place, name), "must be a text that is not empty")
    return value


def _request_id(session: str, permission_id: str) -> RequestId:
    return naming.request_id(NAME, session, permission_id)


def _saved(event: _Event) -> tuple[str, ...]:
    """The patterns that "always" would save; empty where any of it is unclear, and it must not be offered."""
    names = _ASKED[event.kind]
    if not naming.text_of(event.payload.get(names.permission)):
        return ()
    return _texts(event.payload.get(names.saved))


def _offers_always(asked: bytes) -> bool:
    try:
        event = _event(asked)
    except (MalformedJson, Invalid):
        return False
    return event.kind in _ASKED and bool(_saved(event))


def _always_label(asked: Json, names: _Names, saved: Sequence[str]) -> tuple[str, bool]:
    """Name what is allowed from then on, and say whether all of it is named: only whole patterns are."""
    label, shown = f"Always allow what is listed above ({len(saved)} pattern{'' if len(saved) == 1 else 's'})", 0
    for count in range(1, min(len(saved), naming.MOST_LABEL) + 1):
        more = len(saved) - count
        named = ", ".join(f"`{pattern}`" for pattern in saved[:count]) + (f" and {more} more" if more else "")
        candidate = f"Always allow {asked[names.permission]} {named}"
        if fits(candidate, naming.MOST_LABEL):
            label, shown = candidate, count
    return label, shown == len(saved)


def _title(asked: Json, names: _Names) -> str:
    if title := naming.text_of(asked.get("title")):
        return title
    metadata = asked.get("metadata")
    filepath = metadata.get("filepath") if isinstance(metadata, dict) else None
    detail = (
        headline(metadata)
        or headline(asked.get(INPUT))
        or naming.text_of(filepath)
        or ", ".join(_texts(asked.get(names.patterns)))
    )
    return naming.title_of(naming.text_of(asked.get(names.permission), AGENT), detail)


def _texts(value: Any) -> tuple[str, ...]:
    """One text or a list of texts, none of them blank; empty where it is anything else."""
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(naming.text_of(text) for text in texts):
        return ()
    return tuple(texts)


def _preview(asked: Json, names: _Names) -> tuple[Preview, ...]:
    """What the tool will do, and what it asks permission for."""
    named = {name: asked[name] for name in (names.permission, names.patterns) if asked.get(name) is not None}
    return (*_metadata(asked.get("metadata")), *_input(asked), *preview_of(named))


def _input(asked: Json) -> tuple[Preview, ...]:
    """What the tool is called with, but for what the metadata say already."""
    said, metadata = asked.get(INPUT), asked.get("metadata")
    if isinstance(said, dict) and isinstance(metadata, dict):
        said = {name: value for name, value in said.items() if not _is_said(name, value, metadata)}
    return tuple(
        part
        if isinstance(part, DiffPreview) or part.label.startswith(WHOLE_LABEL)
        else replace(part, label=f"{WHOLE_LABEL} {part.label}")
        for part in preview_of(said)
    )


def _is_said(name: str, value: Any, metadata: Json) -> bool:
    return name in metadata and naming.hashed(metadata[name]) == naming.hashed(value)


def _metadata(metadata: Any) -> tuple[Preview, ...]:
    parts = preview_of(metadata)
    diff = metadata.get(DIFF) if isinstance(metadata, dict) else None
    if not isinstance(diff, str):
        return parts
    return tuple(_as_diff(part, diff) for part in parts)


def _as_diff(part: Preview, diff: str) -> Preview:
    match part:
        case FieldPreview(label="diff") | TextPreview(label="diff"):
            return TextPreview(DIFF, diff, DIFF)
        case _:
            return part


def _lacks_its_diff(asked: Json, names: _Names) -> bool:
    if asked.get(names.permission) != EDIT:
        return False
    metadata = asked.get("metadata")
    return not isinstance(metadata, dict) or not naming.text_of(metadata.get(DIFF))


def _lacks_its_input(asked: Json, names: _Names) -> bool:
    """Whether nothing says with what a tool is called, as OpenCode sends it for the tools of MCP servers."""
    return (
        asked.get(INPUT) is None
        and not asked.get("metadata")
        and set(_texts(asked.get(names.patterns))) <= {EVERYTHING}
    )


def _reply(call: bytes, word: OptionId) -> Json:
    return {"response": word} if _is_first(call) else {"reply": word}


def _rejection(call: bytes | None, reason: str) -> Json:
    return {"response": REJECT} if _is_first(call) else {"reply": REJECT, "message": reason or NO_REASON}


def _is_first(call: bytes | None) -> bool:
    try:
        return call is not None and strict_json.read(call).get("type") == FIRST
    except (MalformedJson, Invalid):
        return False
