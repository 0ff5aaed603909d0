"""What syncs have shown, and forgetting what is old."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from sqlalchemy import BindParameter, and_, bindparam, delete, exists, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.core.ids import EventId
from agentpod_bot.store.kept import FOREIGN_COLUMNS, foreign_of
from agentpod_bot.store.tables import (
    EffectState,
    callbacks,
    ciphertexts,
    encrypted_rooms,
    foreign_questions,
    outbox,
    processed_events,
    questions,
    sync_positions,
)
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.core.room import Foreign

_f = foreign_questions.c
_p = processed_events.c
_BOUND: BindParameter[int] = bindparam("bound_ms")

_FOREIGN = (
    select(*FOREIGN_COLUMNS)
    .where(_f.room_id == bindparam("room_id"), or_(_f.closed_ts.is_(None), _f.closed_ts >= bindparam("since_ms")))
    .order_by(_f.shown_ts, _f.event_id)
)
_FOREIGN_OF = select(*FOREIGN_COLUMNS).where(_f.event_id == bindparam("event_id"))
_KEEP_FOREIGN = insert(foreign_questions).on_conflict_do_nothing(index_elements=[_f.event_id])
_CLOSE_FOREIGN = (
    update(foreign_questions)
    .where(_f.event_id == bindparam("edited"), _f.sender == bindparam("by"), _f.closed_ts.is_(None))
    .values(closed_ts=bindparam("at_ts"))
)
_SEEN = select(_p.seq).where(_p.event_id == bindparam("event_id"))
_MARK_SEEN = insert(processed_events).on_conflict_do_nothing(index_elements=[_p.event_id])
_NEWEST_SEEN = select(_p.event_id, _p.at_ms).where(_p.room_id == bindparam("room_id")).order_by(_p.seq.desc()).limit(1)
_POSITION = select(sync_positions.c.next_batch).where(sync_positions.c.user_id == bindparam("user_id"))
_new_position = insert(sync_positions)
_MOVE = _new_position.on_conflict_do_update(
    index_elements=[sync_positions.c.user_id], set_={"next_batch": _new_position.excluded.next_batch}
)
_IS_ENCRYPTED = select(encrypted_rooms.c.judged).where(encrypted_rooms.c.room_id == bindparam("room_id"))
_encrypted = insert(encrypted_rooms)
_MARK_ENCRYPTED = _encrypted.on_conflict_do_update(
    index_elements=[encrypted_rooms.c.room_id],
    set_={"judged": or_(encrypted_rooms.c.judged, _encrypted.excluded.judged)},
)

_TAKE_CIPHERTEXT = insert(ciphertexts).on_conflict_do_nothing(index_elements=[ciphertexts.c.digest])

_FORGET_QUESTIONS = delete(questions).where(
    questions.c.closed_at_ms < _BOUND,
    ~exists().where(outbox.c.question_row == questions.c.row, outbox.c.state == EffectState.UNSENT.value),
    ~exists().where(callbacks.c.question_row == questions.c.row),
)
_FORGET_EFFECTS = delete(outbox).where(
    outbox.c.question_row.is_(None),
    or_(
        outbox.c.sent_at_ms < _BOUND,
        and_(outbox.c.state == EffectState.ABANDONED.value, outbox.c.not_before_ms < _BOUND),
    ),
)
_FORGET_FOREIGN = delete(foreign_questions).where(
    or_(_f.closed_ts < _BOUND, and_(_f.closed_ts.is_(None), _f.expires_at_ms < _BOUND))
)
_FORGET_EVENTS = delete(processed_events).where(
    _p.at_ms < _BOUND, _p.seq.not_in(select(func.max(_p.seq)).group_by(_p.room_id))
)


class Timeline(Transaction):
    """The part of a transaction that is about events seen; promises stand in `ports.Tx`."""

    def foreign(self, room_id: RoomId, *, since_ms: int) -> tuple[Foreign, ...]:
        """Questions of other accounts whose end is not shown, or was not before `since_ms`; oldest first.

        One that only ran out (`expires_at_ms`) is among them: no edit has shown its end.
        """
        records = self._rows(_FOREIGN, {"room_id": room_id, "since_ms": since_ms})
        return tuple(foreign_of(record) for record in records)

    def foreign_of(self, event_id: EventId) -> Foreign | None:
        """The question that is this event and is not in this store, also where it has ended."""
        record = self._first(_FOREIGN_OF, {"event_id": event_id})
        return None if record is None else foreign_of(record)

    def keep_foreign(self, question: Foreign) -> None:
        """Remember another account's question; seen again, it changes nothing."""
        self._change(
            _KEEP_FOREIGN,
            {
                "event_id": question.event_id,
                "room_id": question.room_id,
                "sender": question.sender,
                "code": question.code,
                "shown_ts": question.shown_ts,
                "expires_at_ms": question.expires_at_ms,
                "closed_ts": question.closed_ts,
            },
        )

    def close_foreign(self, event_id: EventId, sender: UserId, closed_ts: int) -> None:
        """That account edited its question (the first edit counts); anyone else's edit changes nothing."""
        self._change(_CLOSE_FOREIGN, {"edited": event_id, "by": sender, "at_ts": closed_ts})

    def seen(self, event_id: EventId) -> bool:
        """Whether this event was processed before."""
        return self._first(_SEEN, {"event_id": event_id}) is not None

    def mark_seen(self, room_id: RoomId, event_id: EventId, at_ms: int) -> None:
        """Remember a processed event; marked again, it stays where it was in the order."""
        self._change(_MARK_SEEN, {"room_id": room_id, "event_id": event_id, "at_ms": at_ms})

    def newest_seen(self, room_id: RoomId) -> EventId | None:
        """The event of the room that was processed last."""
        newest = self._first(_NEWEST_SEEN, {"room_id": room_id})
        return None if newest is None else EventId(newest.event_id)

    def last_seen_ms(self, room_id: RoomId) -> int | None:
        """When that event was processed, by our own clock."""
        newest = self._first(_NEWEST_SEEN, {"room_id": room_id})
        return None if newest is None else int(newest.at_ms)

    def position(self, user_id: UserId) -> str | None:
        """Where the next sync begins; None for a new store or another account."""
        next_batch: str | None = self._value(_POSITION, {"user_id": user_id})
        return next_batch

    def move(self, user_id: UserId, next_batch: str) -> None:
        """Move the position."""
        self._change(_MOVE, {"user_id": user_id, "next_batch": next_batch})

    def is_encrypted(self, room_id: RoomId, *, judged: bool = False) -> bool:
        """Whether the room was ever seen encrypted; with `judged`, whether events of it were judged so."""
        found: bool | None = self._value(_IS_ENCRYPTED, {"room_id": room_id})
        return found is not None and (found or not judged)

    def mark_encrypted(self, room_id: RoomId, *, judged: bool) -> None:
        """Remember that the room is encrypted, and whether events of it are judged by that."""
        self._change(_MARK_ENCRYPTED, {"room_id": room_id, "judged": judged})

    def take_ciphertext(self, room_id: RoomId, ciphertext: str) -> bool:
        """Remember for ever that a ciphertext was read in a room; False where it was before."""
        digest = hashlib.sha256(f"{room_id} {ciphertext}".encode("utf-8", "surrogatepass")).digest()
        return self._change(_TAKE_CIPHERTEXT, {"digest": digest}) == 1

    def prune(self, closed_before_ms: int) -> int:
        """Forget what closed, ended, was sent or was processed before then; returns how many questions went.

        A closed question stays while one of its effects, or its callback, is unsent. With a
        question go its decision, votes and effects, but no line of the audit. The newest
        processed event of each room stays: it is where a gap in the timeline ends.
        """
        bound = {"bound_ms": closed_before_ms}
        forgotten = self._change(_FORGET_QUESTIONS, bound)
        for statement in (_FORGET_EFFECTS, _FORGET_FOREIGN, _FORGET_EVENTS):
            self._change(statement, bound)
        return forgotten
