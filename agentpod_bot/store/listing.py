"""Stored questions as a list shows them, read without the columns that may be large."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import Key, Listed, Status
from agentpod_bot.store.records import CLOSING_COLUMNS, closing_of
from agentpod_bot.store.tables import questions

if TYPE_CHECKING:
    from sqlalchemy import Row as Record

# In the table these come before the large ones, so that SQLite need not walk over those either.
LISTED_COLUMNS = (
    questions.c.row,
    questions.c.client,
    questions.c.request_id,
    questions.c.revision,
    questions.c.session_id,
    questions.c.request_seq,
    questions.c.status,
    questions.c.route,
    questions.c.room_id,
    questions.c.code,
    questions.c.event_id,
    questions.c.created_at_ms,
    questions.c.expires_at_ms,
    questions.c.delivered_at_ms,
    questions.c.salt,
    questions.c.digest,
    *CLOSING_COLUMNS,
)
"""What `listed_of` reads, in its order."""


def listed_of(record: Record[*tuple[Any, ...]]) -> Listed:
    """The question in a record of `LISTED_COLUMNS`."""
    (
        row,
        client,
        request_id,
        revision,
        session_id,
        request_seq,
        status,
        route,
        room_id,
        code,
        event_id,
        created_at_ms,
        expires_at_ms,
        delivered_at_ms,
        salt,
        digest,
        *ending,
    ) = record
    return Listed(
        row=row,
        key=Key(client, request_id, revision),
        session_id=session_id,
        request_seq=request_seq,
        route=route,
        room_id=room_id,
        code=code,
        salt=salt,
        digest=digest,
        created_at_ms=created_at_ms,
        expires_at_ms=expires_at_ms,
        status=Status(status),
        event_id=event_id,
        delivered_at_ms=delivered_at_ms,
        closing=closing_of(*ending),
    )
