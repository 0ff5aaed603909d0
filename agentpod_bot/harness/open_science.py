"""Open Science: the requests of its permission broker in both generations, and what its `respond` takes.

A body is the request that the broker gives its windows: first with the whole ACP request in `raw`, later with
`rawInput`, `toolLocations` and their like. The answer is `{requestId, optionId}`, or `{requestId, cancelled: true}`.
Options stand as its windows show them: what allows for longer, once, what rejects, all others.

`{"cancelForSession": "<session id>"}` closes what that session has open; `{"cancelAll": true}`, or
`{"cancelAllPending": true}`, everything. Both are answered with `{}`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from agentpod_bot.core.labels import ALLOW_ALWAYS, ALLOW_ONCE, REJECT_ALWAYS, REJECT_ONCE, kind_of
from agentpod_bot.core.lifecycle import Cancelled
from agentpod_bot.core.model import FieldPreview, Hold, PermissionRequest
from agentpod_bot.core.text import folded
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import acp_content, acp_options, naming, strict_json
from agentpod_bot.harness.acp_content import LOST, Shown
from agentpod_bot.harness.adapter import Ask, Close, Settled
from agentpod_bot.harness.tool_input import preview_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.labels import Kind
    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.acp_options import Sent
    from agentpod_bot.harness.adapter import Call, End, Json, Manner
    from agentpod_bot.harness.strict_json import Loc

NAME = "open-science"
HOOK = False
PATIENCE_S: int | None = None
"""Its broker waits until it is answered."""

CANCEL_SESSION = "cancelForSession"
CANCEL_ALL = ("cancelAll", "cancelAllPending")
RANKS: Mapping[Kind | None, int] = {ALLOW_ALWAYS: 0, ALLOW_ONCE: 1, REJECT_ONCE: 2, REJECT_ALWAYS: 2, None: 3}
LABELS: Mapping[Kind, str] = {
    ALLOW_ALWAYS: "Always",
    ALLOW_ONCE: "Allow once",
    REJECT_ONCE: "Reject",
    # "Reject", as the windows say, would name another kind, and two options where both kinds are offered.
    REJECT_ALWAYS: REJECT_ALWAYS.standard,
}
SAYS_NOTHING_MORE: Mapping[Kind, frozenset[str]] = {
    ALLOW_ALWAYS: frozenset({"always", "always allow", "allow always"}),
    REJECT_ALWAYS: frozenset({"never", "never allow", "reject always", "always reject"}),
}
"""Names of lasting options that say no more than their kind does."""
SAID_BESIDE = ("providerToolName", "mcpIdentity", "isMcp", "commandPrefix", "delegated", "durable")
"""What the second generation adds to a tool call, in the order in which it is shown."""


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one request, or one cancellation. Raises `MalformedJson`, or `Invalid` with every field at fault."""
    content = strict_json.read(body)
    if "requestId" not in content and (closed := _closed(content)) is not None:
        return closed
    options = _options(content, ("options",))
    request_id = content["requestId"]
    if not options:
        return Settled(_cancelled(request_id), "a permission request without options")
    offered = acp_options.kept(options)
    title, shown = _described(content)
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(content.get("sessionId")),
            title=title,
            options=tuple(sent.option for sent in offered),
            request_id=naming.request_id(NAME, request_id),
            tool_kind=next((kind for call in _calls(content) if (kind := acp_content.kind_of(call))), None),
            preview=shown.parts + _names(offered) + acp_options.what_is_missing(options, offered),
            preview_complete=shown.complete,
            hold=Hold(),
            raw=body,
        )
    )


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """Return what `respond` takes: the option that a person selected of those in `asked`, else cancelled."""
    request_id = _named(call)
    try:
        offered = acp_options.kept(_options(strict_json.read(asked), ("options",)))
    except (Invalid, MalformedJson):  # it was read before, by another version
        return _cancelled(request_id)
    option_id = acp_options.selected(offered, end)
    return _cancelled(request_id) if option_id is None else {"requestId": request_id, "optionId": option_id}


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """Return a cancellation, which has no place for the reason."""
    return _cancelled(None if call is None else _named(call))


def _closed(content: Json) -> Close | None:
    if CANCEL_SESSION in content:
        session = content[CANCEL_SESSION]
        if not isinstance(session, str) or not session:
            raise Invalid((CANCEL_SESSION,), "must be the session's id")
        return _close("its session was cancelled", session)
    for name in CANCEL_ALL:
        if name in content:
            if content[name] is not True:
                raise Invalid((name,), "must be true")
            return _close("the harness cancelled everything", None)
    return None


def _close(why: str, session: str | None) -> Close:
    return Close(
        event=Cancelled(why),
        session_id=None if session is None else naming.session_id(session),
        prefixes=("",),
        every=True,
        answer={},
    )


def _options(content: Json, at: Loc) -> tuple[Sent, ...]:
    """Return the options as the windows of Open Science order and call them. Raises `Invalid`."""
    faults: list[tuple[Loc, str]] = []
    if not naming.text_of(content.get("requestId")):
        faults.append((("requestId",), "is required, and must be a text"))
    options = acp_options.read(content.get("options"), at, faults, any_case=True)
    if faults:
        raise strict_json.invalid(faults)
    kinds = Counter(kind_of(sent.option) for sent in options)
    called = [replace(sent, option=replace(sent.option, label=_label(sent, kinds))) for sent in options]
    return tuple(sorted(called, key=lambda sent: RANKS[kind_of(sent.option)]))


def _label(sent: Sent, kinds: Counter[Kind | None]) -> str:
    """The label of the option's kind, with the provider's own name beside it where the kind is offered twice."""
    kind = kind_of(sent.option)
    if kind is None:
        return sent.option.label
    if kinds[kind] > 1 and sent.name.strip():
        return f"{LABELS[kind]} · {sent.name}"
    return LABELS[kind]


def _names(offered: Sequence[Sent]) -> tuple[Preview, ...]:
    """What the provider calls each lasting option: it may be the only place that says what will be allowed."""
    parts: list[Preview] = []
    for sent in offered:
        kind = kind_of(sent.option)
        if kind is None or kind not in SAYS_NOTHING_MORE or sent.option.label != LABELS[kind]:
            continue  # it reaches no further than this once, or its label holds the name already
        if sent.name.strip() and folded(sent.name) not in SAYS_NOTHING_MORE[kind]:
            parts.append(FieldPreview(f"Name of {sent.option.label}", sent.name))
    return tuple(parts)


def _described(content: Json) -> tuple[str, Shown]:
    """What the request says of its tool call in either generation, and a title for it."""
    calls = _calls(content)
    shown = Shown()
    for call in calls:
        shown += acp_content.tool_call(call)
    beside = {name: content[name] for name in SAID_BESIDE if content.get(name) not in (None, False)}
    shown += Shown(preview_of(beside))
    name = naming.text_of(content.get("toolCallId"))
    title = naming.text_of(content.get("title"))
    if title in ("", name):  # it stands for a title that the agent did not give
        title = ""
        shown += Shown() if shown.parts else LOST
    return acp_content.titled(title or acp_content.title_of(_plainest(calls) | {"toolCallId": name}), shown)


def _calls(content: Json) -> list[Json]:
    """Return the tool call as ACP has it: the one in `raw`, and the one that the later fields make."""
    calls: list[Json] = []
    match content.get("raw"):
        case {"toolCall": dict() as call}:
            calls.append(call)
        case _:
            pass
    later = {"rawInput": content.get("rawInput"), "kind": content.get("toolKind")}
    later["locations"] = _locations(content.get("toolLocations"))
    if any(value is not None for value in later.values()):
        calls.append(later)
    return calls


def _locations(value: object) -> object:
    """Return locations as ACP has them, where some are paths alone."""
    return [{"path": each} if isinstance(each, str) else each for each in value] if isinstance(value, list) else value


def _plainest(calls: Sequence[Json]) -> Json:
    """The call of which most can be said in a title: one with a title, else one with an input."""
    for name in ("title", "rawInput", "kind"):
        for call in calls:
            if call.get(name):
                return call
    return {}


def _named(call: bytes) -> object:
    """Return the id by which a call names itself; None where it cannot be read."""
    try:
        return strict_json.read(call).get("requestId")
    except (Invalid, MalformedJson):
        return None


def _cancelled(request_id: object) -> Json:
    return {"requestId": request_id, "cancelled": True}
