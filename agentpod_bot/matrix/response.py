"""A sync response as it came, taken apart and put into the values of `core.room`. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from agentpod_bot.core.ids import EventId, RoomId, UserId
from agentpod_bot.core.room import Invite, RoomBatch
from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.events import (
    ENCRYPTION,
    STATE_TYPES,
    TIMELINE_TYPES,
    VERIFICATION,
    event_id_of,
    inviter,
    parse,
    parse_state,
)
from agentpod_bot.matrix.opened import parse_opened

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentpod_bot.core.room import RoomEvent
    from agentpod_bot.matrix.opened import Opening

TIMELINE_LIMIT: Final = 50

NOTHING_OPENED: Final[Mapping[EventId, Opening]] = MappingProxyType({})

_NOTHING: Final = {"not_types": ["*"]}
# Our own events stay in: they say when a question is in the room. There is no list of
# rooms: invitations to a room that is not joined yet would not be shown with one.
SYNC_FILTER: Final[Mapping[str, Any]] = {
    "presence": _NOTHING,
    "account_data": _NOTHING,
    "room": {
        "account_data": _NOTHING,
        "ephemeral": _NOTHING,
        "state": {"types": list(STATE_TYPES)},
        "timeline": {"types": [*TIMELINE_TYPES, VERIFICATION], "limit": TIMELINE_LIMIT},
    },
}
PAST_FILTER: Final[Mapping[str, Any]] = {"types": list(TIMELINE_TYPES)}
"""The same events as in a timeline, for paging back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One configured room's part of a response: raw events, oldest first."""

    room_id: RoomId
    state: Sequence[object]
    timeline: Sequence[object]
    limited: bool
    """Whether events are missing between the position and the timeline."""
    prev_batch: str | None
    """Where the missing ones are paged back from."""
    left: bool


def next_batch_of(response: Mapping[str, Any]) -> str:
    """The position after this response; without one the response is unusable."""
    match response.get("next_batch"):
        case str(position) if position:
            return position
        case _:
            raise HomeserverUnavailable("a sync response without next_batch", status=200)


def parts_of(response: Mapping[str, Any], rooms: frozenset[RoomId]) -> tuple[Part, ...]:
    """What the response says of those `rooms`, joined ones first, then left ones."""
    everything = _object(response.get("rooms"))
    return tuple(
        _part(room_id, _object(content), left=left)
        for kind, left in (("join", False), ("leave", True))
        for room_id, content in _object(everything.get(kind)).items()
        if room_id in rooms
    )


def invites_of(response: Mapping[str, Any], own: UserId) -> tuple[Invite, ...]:
    """Every invitation of `own` that says who invited, whichever room it is to."""
    invited = _object(_object(response.get("rooms")).get("invite"))
    return tuple(
        Invite(room_id=RoomId(room_id), sender=sender)
        for room_id, content in invited.items()
        if (sender := inviter(_object(_object(content).get("invite_state")).get("events"), own=own)) is not None
    )


def switches_on(part: Part) -> bool:
    """Whether an event of the part switches encryption on, or says that it is."""
    events = (*part.state, *part.timeline)
    return any(isinstance(event, dict) and event.get("type") == ENCRYPTION and "state_key" in event for event in events)


def events_of(part: Part, past: Iterable[object]) -> dict[EventId, dict[str, Any]]:
    """The room's raw events, `past` (oldest first) before the timeline, by their ids."""
    return {event_id: event for event_id, event in _once(part, past).items() if isinstance(event, dict)}


def room_batch(
    part: Part, past: Iterable[object], own: UserId, openings: Mapping[EventId, Opening] = NOTHING_OPENED
) -> RoomBatch:
    """The room's events, `past` (oldest first) before the timeline and each of them once.

    `openings` says what became of encrypted ones.
    """
    read = (_read(event_id, event, own, openings) for event_id, event in _once(part, past).items())
    return RoomBatch(
        room_id=part.room_id,
        state=tuple(stands for event in part.state if (stands := parse_state(event)) is not None),
        timeline=tuple(said for said in read if said is not None),
        left=part.left,
    )


def _once(part: Part, past: Iterable[object]) -> dict[EventId, object]:
    timeline: dict[EventId, object] = {}
    for event in (*past, *part.timeline):
        event_id = event_id_of(event)
        if event_id is not None:
            timeline.setdefault(event_id, event)
    return timeline


def _read(event_id: EventId, event: object, own: UserId, openings: Mapping[EventId, Opening]) -> RoomEvent | None:
    # What pages of the past do not show must not be the newest processed event, at which they end.
    if not isinstance(event, dict) or event.get("type") not in TIMELINE_TYPES:
        return None
    opening = openings.get(event_id)
    if opening is None:
        return parse(event, own=own)
    return parse_opened(event, opening, own=own)


def _part(room_id: str, content: Mapping[str, Any], *, left: bool) -> Part:
    timeline = _object(content.get("timeline"))
    prev_batch = timeline.get("prev_batch")
    return Part(
        room_id=RoomId(room_id),
        state=_list(_object(content.get("state")).get("events")),
        timeline=_list(timeline.get("events")),
        limited=timeline.get("limited") is True,
        prev_batch=prev_batch if isinstance(prev_batch, str) else None,
        left=left,
    )


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
