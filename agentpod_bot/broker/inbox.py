"""What a sync response does: every event of it judged in order, in one transaction.

Decisions, processed events, what is to be said, and last the sync position are committed
together; a response is handled whole or will be handled again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from agentpod_bot.broker.change import After, Means
from agentpod_bot.broker.others import DAY_MS, OTHERS_MS
from agentpod_bot.broker.room_events import RoomEvents
from agentpod_bot.broker.said_back import SaidBack
from agentpod_bot.broker.unread import passed_over
from agentpod_bot.broker.unreadable import KEPT_MS, became_readable
from agentpod_bot.broker.votes import voters_in
from agentpod_bot.core.policy import Trust
from agentpod_bot.core.room import EncryptionOn, Membered, Membership, Redacted, Replaced, RoomState, powers_at
from agentpod_bot.core.trust import as_vouched
from agentpod_bot.core.upgrades import Successor, Tombstone
from agentpod_bot.errors import MatrixError, StoreUnavailable, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.broker.rooms import Rooms
    from agentpod_bot.core.ids import EventId, RoomId, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import Batch, RoomBatch, RoomEvent
    from agentpod_bot.ports import Store, Tx

log = structlog.get_logger(__name__)

TRIES = 3
"""An event that breaks us so often is set aside, with a line in the audit; it decides nothing."""


class Inbox:
    """Handles sync responses for `matrix.sync`; the only door through which an answer comes."""

    def __init__(self, store: Store, means: Means, commit: Commit, rooms: Rooms) -> None:
        self._store = store
        self._means = means
        self._commit = commit
        self._joining = rooms
        self._events = RoomEvents(means)
        self._breaks: dict[EventId, int] = {}

    def rooms(self) -> frozenset[RoomId]:
        """The rooms whose events are judged."""
        return self._means.world.heard()

    async def position(self) -> str | None:
        """Where the next sync begins."""
        return await self._store.run(lambda tx: tx.position(self._means.world.own))

    async def newest_seen(self, room_id: RoomId) -> EventId | None:
        """The last processed event of a room: where paging back over a gap may end."""
        return await self._store.run(lambda tx: tx.newest_seen(room_id))

    async def oldest_open_ts(self, room_id: RoomId) -> int:
        """How far back events of a room matter: to its oldest open question, and to any that others just asked."""

        def look(tx: Tx) -> tuple[bool, tuple[Question, ...]]:
            return tx.newest_seen(room_id) is None, tx.open_questions(room_id=room_id)

        is_new, open_now = await self._store.run(look)
        others_ms = self._means.clock.now_ms() - (DAY_MS if is_new else OTHERS_MS)
        return min((others_ms, *(question.asked.created_at_ms for question in open_now)))

    async def undecrypted(
        self, sessions: frozenset[tuple[RoomId, str]] | None
    ) -> tuple[tuple[RoomId, Mapping[str, Any]], ...]:
        """Kept raw events that could not be read, of these sessions or (None) all, oldest first, with their rooms."""
        since_ms = self._means.clock.now_ms() - KEPT_MS
        kept = await self._store.run(lambda tx: tx.undecrypted(sessions, since_ms=since_ms))
        return tuple((each.room_id, each.event) for each in kept)

    def switched_on(self, parts: Sequence[RoomBatch]) -> None:
        """Nothing goes in clear into these rooms any more, though what they said is not handled yet."""
        self._means.world.switch_on(parts)

    async def handle(self, batch: Batch) -> None:
        """Handle one response. Raises `Unavailable` where it has to be handled again later."""
        world = self._means.world
        parts = [part for part in batch.rooms if part.room_id in world.heard()]
        world.switch_on(parts)
        for part in parts:
            if not world.known(part.room_id):
                try:
                    await world.refresh(part.room_id)
                except MatrixError as error:
                    raise Unavailable(f"the state of a room could not be read: {error}") from error
        try:
            await world.know_voters(lambda tx: voters_in(tx, (part.room_id for part in parts)))
        except MatrixError as error:
            raise Unavailable(f"the devices of those who voted are not known: {error}") from error
        if not all(world.known(part.room_id) for part in parts):
            # The position must not move past events that nobody could judge.
            raise Unavailable("the state of a room is not known now", retry_after_s=1)
        world.switch_on(parts)

        def work(tx: Tx, after: After) -> dict[RoomId, RoomState]:
            rooms = {part.room_id: self._process_part(tx, part, after) for part in parts}
            tx.move(world.own, batch.next_batch)
            return rooms

        joined = world.adopt(await self._commit(work))
        self._breaks.clear()
        for room_id in joined:
            world.forget(room_id)  # who else is there was not in this response
        entered = joined | _entered(parts, world.own)
        for room_id in entered:
            try:
                await world.refresh(room_id)
            except (MatrixError, StoreUnavailable) as error:  # read again soon, by whoever keeps rooms known
                log.warning("room_state_unknown", room_id=room_id, error=error.code)
        if parts:
            self._joining.heard_of((part.room_id for part in parts), entered=entered)
        self._joining.follow(batch.invites)

    def _process_part(self, tx: Tx, part: RoomBatch, after: After) -> RoomState:
        """Handle one room's events in order; returns the room's state after them.

        What was processed before changes nothing, whoever sends it again. Clear text counts
        up to the event that switched encryption on, where that is in this response, and the
        homeserver's word for that is taken. Power counts from the event that gave it, and not
        once it is taken. What can be read only now came before all of it.
        """
        new = replace(part, timeline=tuple(event for event in part.timeline if not tx.seen(event.event_id)))
        room = self._means.world.after(new)
        switched = any(isinstance(event, EncryptionOn) for event in new.timeline)
        is_believed = self._means.world.policy.trust is Trust.ALL
        was_clear = switched and is_believed and not tx.is_encrypted(part.room_id, judged=True)
        if room.encrypted:
            tx.mark_encrypted(part.room_id, judged=True)
        now = replace(room, encrypted=False) if was_clear else room
        before = next((event for event in part.state if isinstance(event, Replaced)), None)
        if before is not None and not any(isinstance(event, Replaced) for event in new.timeline):
            tx.mark_replaced(part.room_id, _tombstone(before, room))
        now = replace(now, replaced=tx.is_replaced(part.room_id))  # what came before the tombstone was in time
        redacted = {event.target for event in new.timeline if isinstance(event, Redacted)}
        for event in part.recovered:
            if event.event_id in redacted:
                continue  # it was taken back before anybody here could read it
            self._recover(tx, event, replace(room, replaced=now.replaced), after)
        if part.unread is not None:
            passed_over(tx, part.unread, room, after, self._means)
        for event, powers in zip(new.timeline, powers_at(new.timeline, room.powers), strict=True):
            if isinstance(event, EncryptionOn):
                now = replace(room, replaced=now.replaced)
            self._process(tx, event, replace(now, powers=powers), after)
            if isinstance(event, Replaced):
                tx.mark_replaced(part.room_id, _tombstone(event, room))
                now = replace(now, replaced=True)
        return room

    def _recover(self, tx: Tx, event: RoomEvent, room: RoomState, after: After) -> None:
        """Handle an event that could not be read when it came, by what it can have been meant for then.

        Its sender has the power now that they had then and have kept; where it is not known, nobody has any.
        """
        kept = tx.take_undecrypted(room.room_id, event.event_id)
        if kept is not None and kept.first_seen_ms >= self._means.clock.now_ms() - KEPT_MS:
            became_readable(tx, kept)
            level = kept.sender_level
            powers = None if room.powers is None or level is None else room.powers.at_most(event.sender, level)
            self._process(tx, event, replace(room, powers=powers), after, known_ms=kept.first_seen_ms)

    def _process(self, tx: Tx, event: RoomEvent, room: RoomState, after: After, *, known_ms: int | None = None) -> None:
        """Handle one event. One that keeps breaking us is set aside, and decides nothing; nor does a replay."""
        now_ms = self._means.clock.now_ms()
        event = as_vouched(event, self._means.world.vouches)
        if event.ciphertext is not None and not tx.take_ciphertext(room.room_id, event.ciphertext):
            SaidBack(tx, self._means, room, after).replayed(event)
            tx.mark_seen(room.room_id, event.event_id, now_ms)
            return
        if self._breaks.get(event.event_id, 0) < TRIES - 1:
            try:
                self._events.apply(tx, event, room, after, known_ms)
            except Unavailable:
                raise
            except Exception as error:  # the whole response is undone, and handled again
                self._breaks[event.event_id] = self._breaks.get(event.event_id, 0) + 1
                log.exception("event_failed", event_id=event.event_id, tries=self._breaks[event.event_id])
                raise Unavailable(f"an event could not be handled: {type(error).__name__}", retry_after_s=1) from error
            tx.mark_seen(room.room_id, event.event_id, now_ms)
            return
        mine = After()
        try:
            tx.savepoint(lambda: self._events.apply(tx, event, room, mine, known_ms))
        except Unavailable:
            raise
        except Exception:  # it decides nothing, and must not stand in the way of what follows it
            log.exception("event_set_aside", event_id=event.event_id)
            SaidBack(tx, self._means, room, after).set_aside(event)
        else:
            after.add(mine)
        tx.mark_seen(room.room_id, event.event_id, now_ms)


def _entered(parts: Iterable[RoomBatch], own: UserId) -> frozenset[RoomId]:
    """Rooms that the bot joined in this response; also where its state was read anew while that was handled."""
    return frozenset(
        part.room_id
        for part in parts
        if not part.left
        and any(
            isinstance(event, Membered) and event.user_id == own and event.membership is Membership.JOIN
            for event in part.timeline
        )
    )


def _tombstone(event: Replaced, room: RoomState) -> Tombstone:
    named = None if event.successor is None else Successor(event.successor, event.sender)
    return Tombstone(named, encrypted=room.encrypted)
