"""What the bot is to say, in the order in which it says it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, case, delete, exists, func, or_, select, update
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.core.ids import Row
from agentpod_bot.core.kept import Priority
from agentpod_bot.store.kept import EFFECT_COLUMNS, effect_of
from agentpod_bot.store.tables import EffectState, is_hint, is_unsent, outbox, questions
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.ids import EventId, RoomId, TxnId
    from agentpod_bot.core.kept import Effect, NewEffect

QUESTION_EFFECT = "question"
"""Name of the effect that posts a question: nothing else of that question goes before it but its upload."""
UPLOAD_EFFECT = "upload"
"""Name of the effect that uploads a question's file: the question waits for it."""

FILE_EFFECT = "file"
"""Name of the effect that shows the file."""

_LAST_CHARACTER = "\U0010ffff"

_o = outbox.c
_THIS = _o.effect_id == bindparam("this")

_ENQUEUE = insert(outbox).on_conflict_do_nothing(
    index_elements=[_o.question_row, _o.room_id, _o.effect], index_where=_o.question_row.is_not(None)
)
_ENQUEUE_IN_ROOM = insert(outbox).on_conflict_do_nothing(
    index_elements=[_o.room_id, _o.effect], index_where=_o.question_row.is_(None)
)
_IN_ROOM = (_o.question_row == bindparam("row"), _o.room_id == bindparam("room"))
_DROP = delete(outbox).where(*_IN_ROOM, _o.effect == bindparam("name"), is_unsent, _o.attempts == 0)
_DROP_ALL = (
    delete(outbox)
    .where(
        *_IN_ROOM,
        _o.effect.in_(bindparam("names", expanding=True)),
        is_unsent,
        _o.attempts == 0,
    )
    .returning(_o.effect)
)

_DROP_THIS = delete(outbox).where(_THIS, is_unsent, _o.attempts == 0)

_UNSENT = select(*EFFECT_COLUMNS).where(*_IN_ROOM, _o.effect == bindparam("name"), is_unsent)
_TO_RENDER = select(_o.effect_id).where(
    *_IN_ROOM, _o.priority == bindparam("of_priority"), is_unsent, _o.content.is_(None)
)
_CONTENT = select(_o.content).where(*_IN_ROOM, _o.effect == bindparam("name"))
_before = outbox.alias("before")
_NOT_HELD = or_(
    _o.question_row.is_(None),
    _o.effect == UPLOAD_EFFECT,
    ~exists().where(
        _before.c.question_row == _o.question_row,
        _before.c.room_id == _o.room_id,
        _before.c.effect == case((_o.effect == QUESTION_EFFECT, UPLOAD_EFFECT), else_=QUESTION_EFFECT),
        _before.c.state == EffectState.UNSENT.value,
    ),
)
_NEXT = (
    select(_o.effect_id)
    .where(is_unsent, _o.room_id == bindparam("room"), _o.not_before_ms <= bindparam("now_ms"), _NOT_HELD)
    .order_by(_o.priority, _o.effect_id)
    .limit(1)
)
_BEGIN = (
    update(outbox)
    .where(_o.effect_id == _NEXT.correlate(None).scalar_subquery())
    .values(attempts=_o.attempts + 1)
    .returning(*EFFECT_COLUMNS)
)
_FILL = update(outbox).where(_THIS, is_unsent).values(content=bindparam("filling"))
_SENT = (
    update(outbox)
    .where(_THIS, _o.state != EffectState.SENT.value)
    .values(state=EffectState.SENT.value, event_id=bindparam("as_event"), sent_at_ms=bindparam("at_ms"))
)
_POSTPONE = update(outbox).where(_THIS, is_unsent).values(not_before_ms=bindparam("until_ms"))
_POSTPONE_UNCOUNTED = (
    update(outbox).where(_THIS, is_unsent).values(not_before_ms=bindparam("until_ms"), attempts=_o.attempts - 1)
)
_ABANDON = update(outbox).where(_THIS, is_unsent).values(state=EffectState.ABANDONED.value, reason=bindparam("because"))
_ROOMS_DUE = (
    select(_o.room_id, func.min(_o.not_before_ms).label("first_at_ms")).where(is_unsent, _NOT_HELD).group_by(_o.room_id)
)
_OF_TXN = select(*EFFECT_COLUMNS).where(_o.txn_id == bindparam("txn_id"), is_unsent)
_IS_QUESTION = (
    select(questions.c.row)
    .where(questions.c.event_id == bindparam("event_id"), questions.c.room_id == bindparam("room"))
    .limit(1)
)
_IS_ABOUT = (
    select(_o.question_row).where(_o.event_id == bindparam("event_id"), _o.room_id == bindparam("room")).limit(1)
)
_FILE_OF = (
    select(_o.question_row)
    .where(_o.event_id == bindparam("event_id"), _o.room_id == bindparam("room"), _o.effect == FILE_EFFECT)
    .limit(1)
)
_LAST_AT = (
    select(_o.not_before_ms)
    .where(
        _o.room_id == bindparam("room"),
        _o.effect >= bindparam("prefix"),
        _o.effect <= bindparam("prefix_end"),
    )
    .order_by(_o.effect_id.desc())
    .limit(1)
)
_NEWEST_UNSENT = (
    select(*EFFECT_COLUMNS)
    .where(
        is_unsent,
        _o.room_id == bindparam("room"),
        _o.effect >= bindparam("prefix"),
        _o.effect <= bindparam("prefix_end"),
    )
    .order_by(_o.effect_id.desc())
    .limit(1)
)
_HINTS = select(func.count()).where(
    is_hint,
    _o.room_id == bindparam("room"),
    _o.not_before_ms > bindparam("after_ms"),
    _o.not_before_ms <= bindparam("up_to_ms"),
)


class Outbox(Transaction):
    """The part of a transaction that is about effects; promises stand in `ports.Tx`."""

    def enqueue(self, effect: NewEffect) -> bool:
        """Add an effect; False, and nothing changes, where that effect exists, sent or not.

        Raises ValueError for a transaction id that was used before or a question that is not stored.
        """
        values = {
            "question_row": effect.row,
            "room_id": effect.room_id,
            "effect": effect.effect,
            "state": EffectState.UNSENT.value,
            "priority": effect.priority.value,
            "not_before_ms": effect.not_before_ms,
            "due_ms": effect.not_before_ms,
            "attempts": 0,
            "txn_id": effect.txn_id,
            "event_type": effect.event_type,
            "content": None if effect.content is None else dict(effect.content),
        }
        return self._change(_ENQUEUE_IN_ROOM if effect.row is None else _ENQUEUE, values) == 1

    def drop_unsent(self, row: Row, room_id: RoomId, effect: str) -> bool:
        """Drop an effect that no try was made for; True where it was there and is gone."""
        return self._change(_DROP, {"row": row, "room": room_id, "name": effect}) == 1

    def drop(self, effect_id: int) -> None:
        """Drop an effect, unless a try was made for it."""
        self._change(_DROP_THIS, {"this": effect_id})

    def unsent(self, row: Row, room_id: RoomId, effect: str) -> Effect | None:
        """An effect of a question in a room that was not sent yet."""
        record = self._first(_UNSENT, {"row": row, "room": room_id, "name": effect})
        return None if record is None else effect_of(record)

    def has_edit_to_render(self, row: Row, room_id: RoomId, priority: Priority = Priority.EDIT) -> bool:
        """Whether an edit of the question in a room is unsent and has no content yet."""
        values = {"row": row, "room": room_id, "of_priority": priority.value}
        return self._first(_TO_RENDER, values) is not None

    def content_of(self, row: Row, room_id: RoomId, effect: str) -> Mapping[str, Any] | None:
        """What an effect of a question said or is to say."""
        values = {"row": row, "room": room_id, "name": effect}
        content: Mapping[str, Any] | None = self._value(_CONTENT, values)
        return content

    def drop_all_unsent(self, row: Row, room_id: RoomId, effects: Sequence[str]) -> frozenset[str]:
        """Drop those of these effects that no try was made for; returns their names."""
        values = {"row": row, "room": room_id, "names": list(effects)}
        return frozenset(name for (name,) in self._rows(_DROP_ALL, values))

    def begin(self, room_id: RoomId, now_ms: int) -> Effect | None:
        """The room's next effect to try; its attempts are counted up, this one included."""
        record = self._first(_BEGIN, {"room": room_id, "now_ms": now_ms})
        return None if record is None else effect_of(record)

    def fill(self, effect_id: int, content: Mapping[str, Any]) -> None:
        """Give an unsent effect its content."""
        self._change(_FILL, {"this": effect_id, "filling": dict(content)})

    def sent(self, effect_id: int, event_id: EventId, at_ms: int) -> None:
        """The homeserver took it, also where it was abandoned meanwhile; the first event id counts."""
        self._change(_SENT, {"this": effect_id, "as_event": event_id, "at_ms": at_ms})

    def postpone(self, effect_id: int, not_before_ms: int, *, counted: bool = True) -> None:
        """Try again, not before then; uncounted, the last try is as if it had not been."""
        values = {"this": effect_id, "until_ms": not_before_ms}
        self._change(_POSTPONE if counted else _POSTPONE_UNCOUNTED, values)

    def abandon(self, effect_id: int, reason: str) -> None:
        """It can never be sent, or is no longer wanted; what was sent stays sent."""
        self._change(_ABANDON, {"this": effect_id, "because": reason})

    def rooms_due(self) -> Mapping[RoomId, int]:
        """Rooms with unsent effects, and when `begin` can first give one of each.

        An effect that waits for its own question does not count, its question does.
        """
        return {record.room_id: record.first_at_ms for record in self._rows(_ROOMS_DUE)}

    def effect_of_txn(self, txn_id: TxnId) -> Effect | None:
        """The unsent effect with this transaction id."""
        record = self._first(_OF_TXN, {"txn_id": txn_id})
        return None if record is None else effect_of(record)

    def about(self, event_id: EventId, room_id: RoomId) -> tuple[Row, ...] | None:
        """The question that an event of ours is or is about; () for several or none, None if not ours."""
        values = {"event_id": event_id, "room": room_id}
        record = self._first(_IS_QUESTION, values) or self._first(_IS_ABOUT, values)
        if record is None:
            return None
        row: int | None = record[0]
        return () if row is None else (Row(row),)

    def file_of(self, event_id: EventId, room_id: RoomId) -> Row | None:
        """The question whose file this event of ours shows."""
        record = self._first(_FILE_OF, {"event_id": event_id, "room": room_id})
        return None if record is None else Row(record[0])

    def last_effect_at(self, room_id: RoomId, effect_prefix: str) -> int | None:
        """`not_before_ms` of the newest effect of the room whose name begins so, sent or not."""
        values = {"room": room_id, "prefix": effect_prefix, "prefix_end": effect_prefix + _LAST_CHARACTER}
        newest: int | None = self._value(_LAST_AT, values)
        return newest

    def newest_unsent(self, room_id: RoomId, effect_prefix: str) -> Effect | None:
        """The newest effect of the room whose name begins so and which was not sent yet."""
        values = {"room": room_id, "prefix": effect_prefix, "prefix_end": effect_prefix + _LAST_CHARACTER}
        record = self._first(_NEWEST_UNSENT, values)
        return None if record is None else effect_of(record)

    def hints(self, room_id: RoomId, *, after_ms: int, up_to_ms: int) -> int:
        """How many hints of a room have their `not_before_ms` after the one and not after the other, sent or not."""
        count: int = self._value(_HINTS, {"room": room_id, "after_ms": after_ms, "up_to_ms": up_to_ms})
        return count
