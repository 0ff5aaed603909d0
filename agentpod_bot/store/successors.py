"""Rooms that were replaced, routes that went into the next room, and what they left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import and_, bindparam, func, null, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.core.copies import as_left
from agentpod_bot.core.ids import EventId, RoomId, RouteName, Row, UserId
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import Status
from agentpod_bot.core.upgrades import Successor, Tombstone
from agentpod_bot.store.questions import Questions
from agentpod_bot.store.tables import (
    EffectState,
    copies,
    is_unsent,
    left_places,
    outbox,
    questions,
    replaced_rooms,
    route_moves,
)

if TYPE_CHECKING:
    from sqlalchemy import Row as Record

    from agentpod_bot.core.model import Attachment, Question
    from agentpod_bot.core.upgrades import Moves

_q, _c, _l, _m = questions.c, copies.c, left_places.c, route_moves.c
LEFT = "its room was replaced"

_IS_REPLACED = select(replaced_rooms.c.room_id).where(replaced_rooms.c.room_id == bindparam("room_id"))
_TOMBSTONE = select(replaced_rooms.c.successor, replaced_rooms.c.sender, replaced_rooms.c.encrypted).where(
    replaced_rooms.c.room_id == bindparam("room_id")
)
_replaced = insert(replaced_rooms)
_MARK_REPLACED = _replaced.on_conflict_do_update(
    index_elements=[replaced_rooms.c.room_id],
    set_={
        "successor": _replaced.excluded.successor,
        "sender": _replaced.excluded.sender,
        "encrypted": func.coalesce(_replaced.excluded.encrypted, replaced_rooms.c.encrypted),
    },
)
_MOVES = select(_m.route, _m.room_id, _m.successor)
_KEEP_MOVE = insert(route_moves).on_conflict_do_nothing(index_elements=[_m.route, _m.room_id])
_IN_TIME = and_(_q.closed_at_ms.is_(None), _q.expires_at_ms > bindparam("now_ms"))
_STRAY_ROOMS = (
    select(_q.room_id)
    .where(_q.route == bindparam("of_route"), _q.room_id != bindparam("lives_in"), _IN_TIME)
    .union(
        select(_c.room_id)
        .select_from(copies.join(questions))
        .where(
            _c.route == bindparam("of_route"),
            _c.room_id != bindparam("lives_in"),
            _c.withdrawn_at_ms.is_(None),
            _IN_TIME,
        )
    )
)
_KEEP_LEFT = insert(left_places).on_conflict_do_nothing(index_elements=[_l.question_row, _l.room_id])
_ASK_ANEW: dict[Any, Any] = {
    "room_id": bindparam("into"),
    "event_id": None,
    "shown_ts": None,
    "shown_closed_ts": None,
    "attachment": bindparam("to_attachment"),
    "file": null(),
}
_MOVE_QUESTION = (
    update(questions)
    .where(_q.row == bindparam("this"), _q.closed_at_ms.is_(None))
    .values({**_ASK_ANEW, "status": Status.QUEUED.value})
)
_MOVE_COPY = update(copies).where(_c.question_row == bindparam("this")).values(_ASK_ANEW)
_SAY_NO_MORE = (
    update(outbox)
    .where(
        outbox.c.question_row == bindparam("this"),
        outbox.c.room_id == bindparam("left"),
        outbox.c.priority != Priority.HINT.value,
        is_unsent,
    )
    .values(state=EffectState.ABANDONED.value, reason=LEFT)
)
_LEFT = select(_l.question_row, _l.room_id, _l.route, _l.event_id, _l.shown_ts, _l.at_ms)
_LEFT_IN = (
    _LEFT.join(questions)
    .where(_l.room_id == bindparam("room_id"), or_(_q.closed_at_ms.is_(None), _q.closed_at_ms >= bindparam("since_ms")))
    .order_by(_l.question_row)
)
_LEFT_AT = _LEFT.where(_l.question_row == bindparam("row"), _l.room_id == bindparam("room_id"))
_HAS_LEFT = _LEFT.where(_l.question_row == bindparam("row")).limit(1)
_ENTERED = select(func.max(_l.at_ms)).where(_l.question_row == bindparam("row"), _l.route == bindparam("of_route"))
_LEFT_BY_EVENT = _LEFT.where(_l.event_id == bindparam("event_id")).limit(1)
_POST_LEFT = (
    update(left_places)
    .where(_l.question_row == bindparam("this"), _l.room_id == bindparam("left"))
    .values(
        event_id=func.coalesce(_l.event_id, bindparam("posted")),
        shown_ts=func.coalesce(_l.shown_ts, bindparam("seen_ts")),
    )
)


class Successors(Questions):
    """The part of a transaction that is about upgraded rooms; promises stand in `upgrading.UpgradeTx`."""

    def is_replaced(self, room_id: RoomId) -> bool:
        """Whether the room's tombstone was processed."""
        return self._first(_IS_REPLACED, {"room_id": room_id}) is not None

    def tombstone(self, room_id: RoomId) -> Tombstone | None:
        """What the room's tombstone said; None where none was processed."""
        record = self._first(_TOMBSTONE, {"room_id": room_id})
        if record is None:
            return None
        successor, sender, encrypted = record
        named = None if successor is None else Successor(RoomId(successor), None if sender is None else UserId(sender))
        return Tombstone(named, encrypted=encrypted)

    def mark_replaced(self, room_id: RoomId, tombstone: Tombstone) -> None:
        """Remember that the room's tombstone was processed, and what the latest one said."""
        named = tombstone.successor
        self._change(
            _MARK_REPLACED,
            {
                "room_id": room_id,
                "successor": None if named is None else named.room_id,
                "sender": None if named is None else named.sender,
                "encrypted": tombstone.encrypted,
            },
        )

    def moves(self) -> Moves:
        """Every step that a route made from one room into the next."""
        return {(RouteName(route), RoomId(room_id)): RoomId(to) for route, room_id, to in self._rows(_MOVES)}

    def keep_move(self, route: RouteName, room_id: RoomId, successor: RoomId, at_ms: int) -> None:
        """Remember that a route left a room for another; the first time counts."""
        self._change(_KEEP_MOVE, {"route": route, "room_id": room_id, "successor": successor, "at_ms": at_ms})

    def stray_rooms(self, route: RouteName, room_id: RoomId, now_ms: int) -> frozenset[RoomId]:
        """Rooms other than `room_id` in which questions of a route, or their copies there, are open and in time."""
        found = self._rows(_STRAY_ROOMS, {"of_route": route, "lives_in": room_id, "now_ms": now_ms})
        return frozenset(RoomId(record[0]) for record in found)

    def leave(self, place: Question, room_id: RoomId, attachment: Attachment, at_ms: int) -> None:
        """Have an open question, or its copy, stand in another room in place of its own."""
        left = place.asked.room_id
        kept = {"question_row": place.row, "room_id": left, "route": place.asked.route, "at_ms": at_ms}
        self._change(_KEEP_LEFT, {**kept, "event_id": place.event_id, "shown_ts": place.shown_ts})
        move = _MOVE_QUESTION if place.original is None else _MOVE_COPY
        self._change(move, {"this": place.row, "into": room_id, "to_attachment": attachment.value})
        self._change(_SAY_NO_MORE, {"this": place.row, "left": left})

    def left_in(self, room_id: RoomId, *, since_ms: int) -> tuple[Question, ...]:
        """What left a room and is open, or closed since then; oldest first."""
        records = self._rows(_LEFT_IN, {"room_id": room_id, "since_ms": since_ms})
        return tuple(place for record in records if (place := self._left(record)) is not None)

    def left_at(self, row: Row, room_id: RoomId) -> Question | None:
        """A question as a room has it that it left."""
        return self._left(self._first(_LEFT_AT, {"row": row, "room_id": room_id}))

    def left_by_event(self, event_id: EventId) -> Question | None:
        """The question that was this event in a room that it left."""
        return self._left(self._first(_LEFT_BY_EVENT, {"event_id": event_id}))

    def has_left(self, row: Row) -> bool:
        """Whether a question, or its copy, was asked in a room that it left."""
        return self._first(_HAS_LEFT, {"row": row}) is not None

    def entered_ms(self, row: Row, route: RouteName) -> int | None:
        """When a question, or its copy, came on a route from the room before; None where it left none."""
        record = self._first(_ENTERED, {"row": row, "of_route": route})
        return None if record is None or record[0] is None else int(record[0])

    def post_left(self, row: Row, room_id: RoomId, event_id: EventId, shown_ts: int | None) -> None:
        """Note that a question reached a room after all that it had left."""
        self._change(_POST_LEFT, {"this": row, "left": room_id, "posted": event_id, "seen_ts": shown_ts})

    def _left(self, record: Record[*tuple[Any, ...]] | None) -> Question | None:
        if record is None:
            return None
        row, room_id, route, event_id, shown_ts, at_ms = record
        question = self.question(Row(row))
        if question is None:
            return None
        return as_left(question, RoomId(room_id), RouteName(route), event_id=event_id, shown_ts=shown_ts, at_ms=at_ms)
