"""Between stored records and the values of `core.kept` and `core.room`; nothing is judged here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.kept import Effect, Priority
from agentpod_bot.core.room import Foreign
from agentpod_bot.store.tables import foreign_questions, outbox

if TYPE_CHECKING:
    from sqlalchemy import Row as Record

EFFECT_COLUMNS = (
    outbox.c.effect_id,
    outbox.c.question_row,
    outbox.c.room_id,
    outbox.c.effect,
    outbox.c.priority,
    outbox.c.event_type,
    outbox.c.content,
    outbox.c.txn_id,
    outbox.c.not_before_ms,
    outbox.c.attempts,
)
FOREIGN_COLUMNS = (
    foreign_questions.c.event_id,
    foreign_questions.c.room_id,
    foreign_questions.c.sender,
    foreign_questions.c.code,
    foreign_questions.c.shown_ts,
    foreign_questions.c.expires_at_ms,
    foreign_questions.c.closed_ts,
)


def effect_of(record: Record[*tuple[Any, ...]]) -> Effect:
    """The effect in a record of `EFFECT_COLUMNS`."""
    effect_id, row, room_id, effect, priority, event_type, content, txn_id, not_before_ms, attempts = record
    return Effect(
        effect_id=effect_id,
        row=row,
        room_id=room_id,
        effect=effect,
        priority=Priority(priority),
        event_type=event_type,
        content=content,
        txn_id=txn_id,
        not_before_ms=not_before_ms,
        attempts=attempts,
    )


def foreign_of(record: Record[*tuple[Any, ...]]) -> Foreign:
    """The other account's question in a record of `FOREIGN_COLUMNS`."""
    event_id, room_id, sender, code, shown_ts, expires_at_ms, closed_ts = record
    return Foreign(
        event_id=event_id,
        room_id=room_id,
        sender=sender,
        code=code,
        shown_ts=shown_ts,
        expires_at_ms=expires_at_ms,
        closed_ts=closed_ts,
    )
