"""Our own sync loop: each response is handled whole, in order, before the next one is asked for.

Not nio's `sync_forever`, which keeps its position before anything is handled, leaves
gaps open and spins on errors.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import structlog

from agentpod_bot.core.room import Batch, RoomBatch, Unread
from agentpod_bot.errors import AgentpodError, MatrixError, RateLimited, Refused, TokenRefused, Unavailable
from agentpod_bot.matrix.events import event_id_of, ts_of
from agentpod_bot.matrix.gap import Gap, Past, missing
from agentpod_bot.matrix.opened import Opened, parse_opened
from agentpod_bot.matrix.response import (
    SYNC_FILTER,
    Part,
    events_of,
    invites_of,
    next_batch_of,
    parts_of,
    room_batch,
    switches_on,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from agentpod_bot.core.ids import EventId, RoomId, UserId
    from agentpod_bot.core.room import RoomEvent
    from agentpod_bot.matrix.opened import Opening
    from agentpod_bot.ports import Clock

POLL_MS: Final = 8_000
"""No longer, because a poll that waits does not hear that the token was revoked: readiness must, within 10 s."""
SHORTEST_CEILING_S: Final = 1.0
LONGEST_WAIT_S: Final = 60.0
TOKEN_WAIT_S: Final = 60.0

BAD_REQUEST: Final = 400
LOST_POSITION: Final = frozenset({"M_UNKNOWN_POS", "M_INVALID_PARAM", "M_UNKNOWN"})
"""What homeservers answer to a `since` that they do not know (a restored or another database)."""

RoomKey = tuple["RoomId", str]
"""A room and the id of a session in it."""

Place = tuple["RoomId", str | None, "EventId | None"]
"""Where a part of a response stands: its room, where it begins, and its newest event."""

log = structlog.get_logger(__name__)


class SyncSource(Past, Protocol):
    """The homeserver's side of the loop; `MatrixClient` fits it."""

    @property
    def user_id(self) -> UserId:
        """The bot's own account."""
        ...

    async def sync(self, since: str | None, *, timeout_ms: int, sync_filter: Mapping[str, Any]) -> dict[str, Any]:
        """One sync response, as it came."""
        ...


class SyncHandler(Protocol):
    """Our side of the loop: the store's memory, and what is done with a response.

    `Unavailable` from any of these means later again; anything else ends the loop.
    """

    def rooms(self) -> frozenset[RoomId]:
        """The configured rooms, now; all others are ignored but for their invitations."""
        ...

    async def position(self) -> str | None:
        """Where the first sync of this process begins; None for a new store."""
        ...

    async def newest_seen(self, room_id: RoomId) -> EventId | None:
        """The event of the room that was processed last."""
        ...

    async def oldest_open_ts(self, room_id: RoomId) -> int | None:
        """When the room's oldest open question was created, in UTC milliseconds; None where none is open."""
        ...

    async def undecrypted(self, sessions: frozenset[RoomKey] | None) -> tuple[tuple[RoomId, Mapping[str, Any]], ...]:
        """Kept raw events that could not be read, of these sessions or (None) all, oldest first, with their rooms."""
        ...

    def switched_on(self, parts: Sequence[RoomBatch]) -> None:
        """Parts of the response that will be handled next switch encryption on."""
        ...

    async def handle(self, batch: Batch) -> None:
        """Process one response and move the position, in one transaction.

        Returning means that it is committed. Events that were processed before may come
        again and must be skipped.
        """
        ...


class Opener(Protocol):
    """What opens encrypted events; `Crypto` fits it."""

    async def take(self, response: Mapping[str, Any], *, anew: bool) -> frozenset[RoomKey]:
        """Take over what a response says of keys, before its rooms are read; returns the room keys that came.

        `anew` says that it goes on from no earlier one: what changed since then it does not tell.
        """
        ...

    async def expect(self, events: Collection[Mapping[str, Any]]) -> None:
        """Prepare for raw events that will be read next: whose devices have to be known is asked for at once."""
        ...

    async def read(self, room_id: RoomId, event: Mapping[str, Any]) -> Opening | None:
        """What became of a raw event; None for one that came in clear."""
        ...


class SyncMeter(Protocol):
    """What is measured of the loop; times in seconds."""

    def synced(self, seconds: float) -> None:
        """The homeserver answered a sync; it may have waited for news."""
        ...

    def sync_handled(self, seconds: float) -> None:
        """A response was handled, and committed."""
        ...

    def sync_failed(self, why: str) -> None:
        """A sync or its handling failed; `why` is an error's code."""
        ...


class Unmeasured(SyncMeter):
    """Measures nothing."""

    def synced(self, seconds: float) -> None:
        """Nothing."""

    def sync_handled(self, seconds: float) -> None:
        """Nothing."""

    def sync_failed(self, why: str) -> None:
        """Nothing."""


class SyncLoop:
    """Runs until cancelled. The three attributes are what readiness is judged by."""

    def __init__(
        self,
        source: SyncSource,
        handler: SyncHandler,
        clock: Clock,
        *,
        jitter: Callable[[], float],
        meter: SyncMeter | None = None,
        renew: Callable[[], Awaitable[bool]] | None = None,
        opener: Opener | None = None,
    ) -> None:
        """`jitter` gives a random number from 0 up to 1, anew at each call.

        `renew` is called when the token is refused; True means that another one is in use now.
        """
        self._source = source
        self._handler = handler
        self._clock = clock
        self._jitter = jitter
        self._meter = Unmeasured() if meter is None else meter
        self._since: str | None = None
        self._began = False
        self._lost_position = False
        self._failures = 0
        self._renew = renew
        self._opener = opener
        self._new_keys: frozenset[RoomKey] = frozenset()
        self._gaps: dict[Place, Gap] = {}
        """Those of a response that is asked for again: one fault has no other room paged anew."""
        self._read: frozenset[RoomId] = frozenset()
        """Rooms of which this process has read everything since some event."""
        self._will_have_read = self._read
        """The same once the last response is handled."""
        self._renewed = False
        self._again = asyncio.Event()
        self._begun = 0
        self._asked = 0
        self.last_good_sync: float | None = None
        """`clock.monotonic()` when a response was last handled."""
        self.token_refused = False
        self.first_sync_done = asyncio.Event()

    async def run(self) -> NoReturn:
        """Sync for ever. Raises only what `handle` raised and cannot be repeated."""
        while True:
            try:
                if not self._began:
                    self._since = await self._handler.position()
                    self._began = True
                batch = await self._next()
            except (MatrixError, Unavailable) as error:
                await self._wait(error)
                continue
            began = self._clock.monotonic()
            try:
                await self._handler.handle(batch)
            except Unavailable as error:
                await self._wait(error)
                continue
            self._meter.sync_handled(self._clock.monotonic() - began)
            self._went_well(batch)
            await asyncio.sleep(0)  # what the decisions released goes before the next request is built

    def begin_anew(self) -> None:
        """Another token is in use: sync at once.

        `first_sync_done` is set again once a sync asked for from now on was handled.
        """
        self._begun += 1
        self.first_sync_done.clear()
        self._again.set()

    async def _next(self) -> Batch:
        """The next response with its gaps filled; a `MatrixError` leaves the position where it is."""
        response = await self._response()
        own = self._source.user_id
        heard = self._handler.rooms()
        if self._opener is not None:
            # The same response again brings no keys again: they are kept until what they open is handled.
            self._new_keys |= await self._opener.take(response, anew=self._since is None)
        parts = parts_of(response, heard)
        self._will_have_read = heard & (self._read | {part.room_id for part in parts})
        # What pages and decrypts takes its time, in which nothing may go out in clear any more.
        if switching := [room_batch(part, (), own) for part in parts if switches_on(part)]:
            self._handler.switched_on(switching)
        rooms = [await self._filled(part, own) for part in parts]
        if self._opener is not None:
            rooms = await self._recovered(self._opener, rooms, self._new_keys)
        return Batch(next_batch=next_batch_of(response), rooms=tuple(rooms), invites=invites_of(response, own))

    async def _response(self) -> dict[str, Any]:
        # At the start and after a fault, what matters is to know soon whether all is well.
        quick = self._failures > 0 or not self.first_sync_done.is_set()
        began = self._clock.monotonic()
        self._asked = self._begun
        try:
            response = await self._source.sync(self._since, timeout_ms=0 if quick else POLL_MS, sync_filter=SYNC_FILTER)
        except Refused as refused:
            if self._since is not None and refused.status == BAD_REQUEST and refused.errcode in LOST_POSITION:
                log.warning("sync_position_refused", errcode=refused.errcode)
                self._since = None
                self._lost_position = True
            raise
        self._meter.synced(self._clock.monotonic() - began)
        self.token_refused = self._renewed = False
        return response

    async def _filled(self, part: Part, own: UserId) -> RoomBatch:
        gap = Gap()
        # What was said in a room while it was not in the configuration no response ever brings.
        if part.limited or part.room_id not in self._read:
            gap = await self._gap(part)
        events = events_of(part, gap.events)
        openings: dict[EventId, Opening] = {}
        if self._opener is not None:
            await self._opener.expect(events.values())
            for event_id, event in events.items():
                opening = await self._opener.read(part.room_id, event)
                if opening is not None:
                    openings[event_id] = opening
        batch = room_batch(part, gap.events, own, openings)
        if gap.is_cut:
            return replace(batch, unread=Unread(next(map(ts_of, events.values()), None)))
        return batch

    async def _gap(self, part: Part) -> Gap:
        """What is missing before a part; the same again where that has not changed.

        Whatever happens in the room makes it another part: also a redaction, by which what
        was read of the past may be an answer no more.
        """
        place = part.room_id, part.prev_batch, next(map(event_id_of, reversed(part.timeline)), None)
        gap = None if part.prev_batch is None else self._gaps.get(place)
        if gap is None:
            gap = self._gaps[place] = await missing(
                self._source,
                part,
                newest_seen=await self._handler.newest_seen(part.room_id),
                oldest_open_ts=await self._handler.oldest_open_ts(part.room_id),
            )
        return gap

    async def _recovered(self, opener: Opener, rooms: list[RoomBatch], keys: frozenset[RoomKey]) -> list[RoomBatch]:
        """The rooms with what can be read now of earlier responses. After a start everything is tried again."""
        wanted = keys if self.first_sync_done.is_set() else None
        if wanted is not None and not wanted:
            return rooms
        found: defaultdict[RoomId, list[RoomEvent]] = defaultdict(list)
        for room_id, event in await self._handler.undecrypted(wanted):
            opening = await opener.read(room_id, event)
            if isinstance(opening, Opened):
                read = parse_opened(event, opening, own=self._source.user_id)
                found[room_id] += [] if read is None else [read]
        known = {part.room_id: part for part in rooms}
        for room_id, events in found.items():
            part = known.get(room_id, RoomBatch(room_id=room_id))
            known[room_id] = replace(part, recovered=tuple(events))
        return list(known.values())

    def _went_well(self, batch: Batch) -> None:
        # A homeserver that refuses each position it gave must not be asked in a circle
        # without waiting: only a sync that went on from a position ends the backoff.
        if self._since is not None or not self._lost_position:
            self._failures = 0
            self._lost_position = False
        self._since = batch.next_batch
        self._read = self._will_have_read
        self._new_keys = frozenset()
        self._gaps.clear()
        self.last_good_sync = self._clock.monotonic()
        if self._asked == self._begun:
            self.first_sync_done.set()

    async def _wait(self, error: AgentpodError) -> None:
        """Exponential backoff with full jitter; never shorter than the homeserver asks for."""
        ceiling = min(LONGEST_WAIT_S, SHORTEST_CEILING_S * 2 ** min(self._failures, 16))
        self._failures += 1
        self._meter.sync_failed(error.code)
        wait_s = ceiling * self._jitter()
        match error:
            case TokenRefused(soft_logout=soft_logout):
                self.token_refused = True
                log.error("sync_token_refused", soft_logout=soft_logout)
                if self._renew is not None and await self._renew() and not self._renewed:
                    self._renewed = True  # one that is refused again, unused, is no reason to ask without waiting
                    return
                await self._wait_for_token()
                return
            case RateLimited(retry_after_ms=retry_after_ms):
                wait_s = max(wait_s, retry_after_ms / 1000)
                log.warning("sync_rate_limited", wait_s=round(wait_s, 1))
            case _:
                log.warning("sync_failed", error=error.code, reason=str(error), wait_s=round(wait_s, 1))
        await self._clock.sleep(wait_s)

    async def _wait_for_token(self) -> None:
        waits = {asyncio.ensure_future(self._clock.sleep(TOKEN_WAIT_S)), asyncio.ensure_future(self._again.wait())}
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        self._again.clear()
