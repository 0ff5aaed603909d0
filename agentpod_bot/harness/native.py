"""The native request: the JSON object of `POST /v1/requests`, read into what the core knows."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from agentpod_bot.core.ids import OptionId, RequestId, RouteName, SessionId
from agentpod_bot.core.labels import (
    ALLOW_ALWAYS,
    ALLOW_ONCE,
    MAX_OPTIONS,
    REJECT_ALWAYS,
    REJECT_ONCE,
    RESERVED_IDS,
    kind_of,
)
from agentpod_bot.core.model import (
    DiffPreview,
    FieldPreview,
    Meaning,
    Option,
    PermissionRequest,
    Preview,
    Scope,
    TextPreview,
)
from agentpod_bot.harness.opaque import OpaqueId, OpaqueOptionId  # noqa: TC001 - pydantic reads annotations
from agentpod_bot.harness.strict_json import MAX_SAFE_INTEGER, Loc, invalid, validated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.labels import Kind

NAME = "native"
"""Name of this harness in the configuration."""
MAX_PREVIEWS = 200
MAX_NAME = 255
"""Characters of an agent's name, a tool's kind or a route."""
MAX_LABEL = 1_000
MAX_PATH = 4_096
MAX_TTL_S = MAX_SAFE_INTEGER // 1_000
EXPIRES_AT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"
"""The schema's pattern of a point in time: RFC 3339, upper case, seconds and offset required."""

_TIME = re.compile(
    r"(?P<second>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(\.(?P<fraction>[0-9]+))?"
    r"(Z|(?P<sign>[+-])(?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_HOURS = 24
_HOUR_MINUTES = 60


KINDS: Mapping[str, Kind] = {
    "allow_once": ALLOW_ONCE,
    "allow_always": ALLOW_ALWAYS,
    "reject_once": REJECT_ONCE,
    "reject_always": REJECT_ALWAYS,
}
"""The kinds of https://agentclientprotocol.com/protocol/tool-calls#permission-options; any other is a choice."""


class Shape(BaseModel):
    """Strict types, unknown fields ignored, and no input in error messages."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, hide_input_in_errors=True)


class NativeOption(Shape):
    """One way to answer. It gives `kind`, or `meaning` (and `scope`), or both in agreement."""

    id: OpaqueOptionId = Field(description="Comes back in the decision. Must not begin with `agentpod.`.")
    kind: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = Field(
        default=None,
        description="An ACP kind: allow_once, allow_always, reject_once or reject_always. Any other is a choice.",
    )
    label: Annotated[str, Field(min_length=1)] | None = Field(
        default=None, description="The harness's own words; the kind's standard label where it is left out."
    )
    meaning: Literal["approve", "reject", "choose"] | None = None
    scope: Literal["once", "always"] | None = None


class NativeField(Shape):
    """A labelled one-line value."""

    type: Literal["field"]
    label: Annotated[str, Field(max_length=MAX_LABEL)]
    value: str


class NativeText(Shape):
    """A labelled text of any length: a command, a patch."""

    type: Literal["text"]
    label: Annotated[str, Field(max_length=MAX_LABEL)]
    text: str


class NativeDiff(Shape):
    """What happens to one file, as the Agent Client Protocol says it; the room shows it as a unified diff."""

    type: Literal["diff"]
    path: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
    old_text: str | None = Field(default=None, description="All of the file as it is; null where it is a new one.")
    new_text: str | None = Field(description="All of the file as it will be; null where it is deleted.")


NativePreview = Annotated[NativeField | NativeText | NativeDiff, Field(discriminator="type")]


class NativeRequest(Shape):
    """A permission request in the native form."""

    session_id: OpaqueId
    request_seq: Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER)] | None = Field(
        default=None, description="The session's next number where it is left out."
    )
    request_id: OpaqueId | None = Field(
        default=None,
        description="Names the request for its client; `session_id:request_seq` where it is left out.",
    )
    title: str = Field(description="What the agent wants to do, in one line. Not blank.")
    tool_kind: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = None
    agent: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = Field(
        default=None, description="What the agent calls itself. It is shown as a claim."
    )
    route: Annotated[str, Field(min_length=1, max_length=MAX_NAME)] | None = Field(
        default=None, description="One of the routes that the token may use; its only one where it is left out."
    )
    options: Annotated[list[NativeOption], Field(min_length=1, max_length=MAX_OPTIONS)]
    preview: Annotated[list[NativePreview], Field(max_length=MAX_PREVIEWS)] = Field(default_factory=list)
    preview_complete: bool = Field(default=True, description="False where the preview does not show all there is.")
    expires_at: Annotated[str, Field(pattern=EXPIRES_AT)] | None = Field(
        default=None,
        description="When the request expires; not together with `ttl_s`.",
        json_schema_extra={"format": "date-time"},
    )
    ttl_s: Annotated[int, Field(gt=0, le=MAX_TTL_S)] | None = Field(
        default=None, description="Seconds until the request expires; not together with `expires_at`."
    )
    supersede: bool = Field(
        default=False, description="Whether this content replaces an open request of the same id and other content."
    )


def parse(body: bytes) -> PermissionRequest:
    """Return the request that `body` is.

    Raises `MalformedJson`, or `Invalid` with every field at fault. Whether the route is
    allowed and the deadline lies ahead is not looked at here.
    """
    shape = validated(NativeRequest, body, place=_without_tag)
    faults: list[tuple[Loc, str]] = []
    if not shape.title.strip():
        faults.append((("title",), "must not be blank"))
    options = _options(shape.options, faults)
    preview = tuple(_preview(each, ("preview", index), faults) for index, each in enumerate(shape.preview))
    expires_at_ms = _expires_at_ms(shape, faults)
    if faults:
        raise invalid(faults)
    return PermissionRequest(
        session_id=SessionId(shape.session_id),
        title=shape.title,
        options=options,
        request_id=None if shape.request_id is None else RequestId(shape.request_id),
        request_seq=shape.request_seq,
        tool_kind=shape.tool_kind,
        agent=shape.agent,
        route=None if shape.route is None else RouteName(shape.route),
        preview=preview,
        preview_complete=shape.preview_complete,
        expires_at_ms=expires_at_ms,
        ttl_ms=None if shape.ttl_s is None else shape.ttl_s * 1_000,
        supersede=shape.supersede,
        raw=body,
    )


def instant_ms(text: str) -> int | None:
    """UTC milliseconds of an RFC 3339 time; None for anything else, and for a day that no month has.

    A fraction finer than a millisecond is dropped: a deadline is never later than what was asked.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    hours, minutes = int(found["hours"] or 0), int(found["minutes"] or 0)
    if hours >= _DAY_HOURS or minutes >= _HOUR_MINUTES:
        return None
    try:
        local = datetime.strptime(found["second"], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        return None
    # In whole numbers: a datetime cannot hold what an offset makes of the first and last years.
    offset_ms = (hours * _HOUR_MINUTES + minutes) * 60_000 * (-1 if found["sign"] == "-" else 1)
    fraction_ms = int((found["fraction"] or "0")[:3].ljust(3, "0"))
    return (local - _EPOCH) // timedelta(milliseconds=1) + fraction_ms - offset_ms


def _options(shapes: list[NativeOption], faults: list[tuple[Loc, str]]) -> tuple[Option, ...]:
    options: list[Option] = []
    ids: set[str] = set()
    for index, shape in enumerate(shapes):
        at: Loc = ("options", index)
        if shape.id.startswith(RESERVED_IDS):
            faults.append(((*at, "id"), f"must not begin with {RESERVED_IDS!r}"))
        if shape.id in ids:
            faults.append(((*at, "id"), "is the id of an earlier option too"))
        ids.add(shape.id)
        if shape.label is not None and not shape.label.strip():
            faults.append(((*at, "label"), "must not be blank"))
        sense = _sense(shape, at, faults)
        if sense is None:
            continue
        option = Option(OptionId(shape.id), shape.label or "", *sense)
        if shape.label is None:
            kind = kind_of(option)
            if kind is None:
                faults.append(((*at, "label"), "is required for an option that neither approves nor rejects"))
                continue
            option = replace(option, label=kind.standard)
        options.append(option)
    meanings = {option.meaning for option in options}
    if len(shapes) == MAX_OPTIONS and Meaning.APPROVE in meanings and Meaning.REJECT not in meanings:
        faults.append((("options",), f"{MAX_OPTIONS} options leave no place for the rejecting one that is missing"))
    return tuple(options)


def _sense(shape: NativeOption, at: Loc, faults: list[tuple[Loc, str]]) -> tuple[Meaning, Scope | None] | None:
    """What an option means: by its kind, or else by its meaning and scope. They never contradict each other."""
    meaning = None if shape.meaning is None else Meaning(shape.meaning)
    scope = None if shape.scope is None else Scope(shape.scope)
    if shape.kind is None:
        if meaning is None:
            faults.append((at, "must have a kind or a meaning"))
            return None
        if meaning is Meaning.CHOOSE and scope is not None:
            faults.append(((*at, "scope"), "an option that neither approves nor rejects has no scope"))
            return None
        return meaning, scope
    kind = KINDS.get(shape.kind)
    of_kind = (Meaning.CHOOSE, None) if kind is None else (kind.meaning, kind.scope)
    if meaning is not None and meaning is not of_kind[0]:
        faults.append(((*at, "meaning"), f"contradicts the kind, which means {of_kind[0]}"))
        return None
    if scope is not None and scope is not of_kind[1]:
        faults.append(((*at, "scope"), f"contradicts the kind, whose scope is {of_kind[1] or 'none'}"))
        return None
    return of_kind


def _preview(shape: NativeField | NativeText | NativeDiff, at: Loc, faults: list[tuple[Loc, str]]) -> Preview:
    match shape:
        case NativeField(label=label, value=value):
            return FieldPreview(label, value)
        case NativeText(label=label, text=text):
            return TextPreview(label, text)
        case NativeDiff(path=path, old_text=old, new_text=new):
            if old is None and new is None:
                faults.append(((*at, "new_text"), "must not be null where old_text is, too"))
            return DiffPreview(path, old, new)


def _expires_at_ms(shape: NativeRequest, faults: list[tuple[Loc, str]]) -> int | None:
    if shape.expires_at is None:
        return None
    if shape.ttl_s is not None:
        faults.append((("ttl_s",), "must not be given together with expires_at"))
    expires_at_ms = instant_ms(shape.expires_at)
    if expires_at_ms is None:
        faults.append((("expires_at",), "must be a time that exists, like 2026-11-07T10:30:00Z"))
    return expires_at_ms


def _without_tag(loc: Loc) -> Loc:
    """Drop the name of the kind of preview, which pydantic writes into a path although the body has no such key."""
    match loc:
        case ("preview", int() as index, "field" | "text" | "diff", *rest) if rest:
            return ("preview", index, *rest)
        case _:
            return loc
