"""The events before a timeline that were not read, paged back so that no answer in them is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from agentpod_bot.errors import HomeserverUnavailable, Refused
from agentpod_bot.matrix.events import event_id_of, ts_of
from agentpod_bot.matrix.response import PAST_FILTER

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.ids import EventId, RoomId
    from agentpod_bot.matrix.response import Part

PAGE: Final = 100
MOST_EVENTS: Final = 20_000
"""How far a gap is followed at most. Dates, which senders choose, never end it before the newest processed event."""
MOST_PAGES: Final = 400
"""A homeserver may answer pages that are short or, once filtered, empty."""
SLACK_MS: Final = 60_000
"""How much earlier than its question an answer may be dated: clocks of homeservers differ."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Gap:
    """What was read of a gap."""

    events: Sequence[object] = ()
    """Raw, oldest first."""
    is_cut: bool = False
    """Whether it is longer than gaps are followed: what stands before these events is never read."""


class Past(Protocol):
    """Pages of a room's past, newest first (`MatrixClient.messages`)."""

    async def messages(
        self,
        room_id: RoomId,
        from_token: str,
        *,
        limit: int,
        to_token: str | None = None,
        event_filter: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One page."""
        ...


async def missing(past: Past, part: Part, *, newest_seen: EventId | None, oldest_open_ts: int | None) -> Gap:
    """The events before a timeline, back to the newest processed one.

    Where none was processed yet: back to a minute before the oldest open question, and
    nothing where none is open. A `MatrixError` means that the gap is not filled: the
    response must not be handled then. Only a left room that the homeserver refuses to
    show (for good) counts as having no gap.
    """
    if newest_seen in {event_id_of(event) for event in part.timeline}:
        return Gap()
    if newest_seen is None and oldest_open_ts is None:
        return Gap()
    try:
        newest_first, is_cut = await _paged(past, part, newest_seen, oldest_open_ts)
    except Refused as refused:
        if not part.left:
            raise
        log.warning("timeline_gap_unreadable", room_id=part.room_id, errcode=refused.errcode)
        return Gap()
    return Gap(newest_first[::-1], is_cut)


async def _paged(
    past: Past, part: Part, newest_seen: EventId | None, oldest_open_ts: int | None
) -> tuple[list[object], bool]:
    """The events, newest first, and whether there are more."""
    token = part.prev_batch
    if token is None and not part.limited:
        return [], False
    if token is None:
        raise HomeserverUnavailable("a limited timeline without prev_batch", status=200)
    horizon = None if oldest_open_ts is None else oldest_open_ts - SLACK_MS
    found: list[object] = []
    for _ in range(MOST_PAGES):
        page = await past.messages(part.room_id, token, limit=PAGE, event_filter=PAST_FILTER)
        chunk, end = page.get("chunk"), page.get("end")
        if not isinstance(chunk, list):
            raise HomeserverUnavailable("a page of messages without chunk", status=200)
        ids = [event_id_of(event) for event in chunk]
        if newest_seen is not None and newest_seen in ids:
            cut = ids.index(newest_seen)
            # An event that came late over federation may stand before the newest processed one.
            return [*found, *chunk[:cut], *_since(chunk[cut + 1 :], horizon)], False
        found.extend(chunk)
        # The whole page must be old: one event with a false date must not hide what is before it.
        enough = horizon is None or (bool(chunk) and not _since(chunk, horizon))
        if enough and newest_seen is None:
            return found, False
        if len(found) >= MOST_EVENTS:
            break
        if not isinstance(end, str) or end == token:  # the room's beginning
            return found, False
        token = end
    log.warning("timeline_gap_cut", room_id=part.room_id, events=len(found))
    return found, True


def _since(events: Sequence[object], horizon: int | None) -> list[object]:
    return [] if horizon is None else [event for event in events if (ts_of(event) or 0) >= horizon]
