"""Events that could not be read when they came, kept as they came until their keys do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.core.room import Undecrypted, UnreadNotice
from agentpod_bot.store.tables import undecrypted_events
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Row as Record

    from agentpod_bot.core.ids import EventId, RoomId, TxnId

_u = undecrypted_events.c
_COLUMNS = (
    _u.event_id,
    _u.room_id,
    _u.session_id,
    _u.first_seen_ms,
    _u.event,
    _u.sender_level,
    _u.notice_txn_id,
    _u.notice,
)

_KEEP = insert(undecrypted_events).on_conflict_do_nothing(index_elements=[_u.event_id])
_KEPT = select(*_COLUMNS).where(_u.first_seen_ms >= bindparam("since_ms")).order_by(_u.seq)
_newest = (
    select(_u.seq).where(_u.room_id == bindparam("room")).order_by(_u.seq.desc()).limit(bindparam("at_most"))
).scalar_subquery()
_CUT = delete(undecrypted_events).where(_u.room_id == bindparam("room"), _u.seq.not_in(_newest))
_TAKE = (
    delete(undecrypted_events)
    .where(_u.room_id == bindparam("room"), _u.event_id == bindparam("of_event"))
    .returning(*_COLUMNS)
)
_OF_NOTICE = select(*_COLUMNS).where(_u.notice_txn_id == bindparam("txn_id")).order_by(_u.seq).limit(1)
_PRUNE = delete(undecrypted_events).where(_u.first_seen_ms < bindparam("before_ms"))


class UndecryptedEvents(Transaction):
    """The part of a transaction that is about events that nobody could read; promises stand in `syncing.SyncTx`."""

    def keep_undecrypted(self, kept: Undecrypted, *, at_most: int) -> None:
        """Keep an event; the oldest of its room go where that would be more than `at_most`."""
        self._change(
            _KEEP,
            {
                "event_id": kept.event_id,
                "room_id": kept.room_id,
                "session_id": kept.session_id,
                "first_seen_ms": kept.first_seen_ms,
                "event": dict(kept.event),
                "sender_level": kept.sender_level,
                "notice_txn_id": None if kept.notice is None else kept.notice.txn_id,
                "notice": None if kept.notice is None else dict(kept.notice.content),
            },
        )
        self._change(_CUT, {"room": kept.room_id, "at_most": at_most})

    def undecrypted(self, sessions: frozenset[tuple[RoomId, str]] | None, *, since_ms: int) -> tuple[Undecrypted, ...]:
        """Kept events first seen since then, of these sessions or all, in the order they came."""
        found = (_undecrypted_of(record) for record in self._rows(_KEPT, {"since_ms": since_ms}))
        return tuple(each for each in found if sessions is None or (each.room_id, each.session_id) in sessions)

    def take_undecrypted(self, room_id: RoomId, event_id: EventId) -> Undecrypted | None:
        """Forget a kept event, and return what it was."""
        record = self._first(_TAKE, {"room": room_id, "of_event": event_id})
        return None if record is None else _undecrypted_of(record)

    def undecrypted_of(self, txn_id: TxnId) -> Undecrypted | None:
        """The oldest kept event for which this notice waits."""
        record = self._first(_OF_NOTICE, {"txn_id": txn_id})
        return None if record is None else _undecrypted_of(record)

    def prune_undecrypted(self, before_ms: int) -> None:
        """Forget kept events that were first seen before then."""
        self._change(_PRUNE, {"before_ms": before_ms})


def _undecrypted_of(record: Record[*tuple[Any, ...]]) -> Undecrypted:
    event_id, room_id, session_id, first_seen_ms, event, sender_level, txn_id, content = record
    return Undecrypted(
        event_id=event_id,
        room_id=room_id,
        session_id=session_id,
        first_seen_ms=first_seen_ms,
        event=event,
        sender_level=sender_level,
        notice=None if txn_id is None else UnreadNotice(txn_id, content),
    )
