"""Where a question stands: what a room shows of it is kept with the question, or with its copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.copies import seen_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import EventId, RoomId, Row
    from agentpod_bot.core.model import Attachment, Question
    from agentpod_bot.ports import Tx


def read(tx: Tx, row: Row, room_id: RoomId) -> Question | None:
    """Read a question as a room has it, or had it when it left that room; None where it never was asked there."""
    question = tx.question(row)
    return None if question is None else seen_in(question, room_id) or tx.left_at(row, room_id)


def post(tx: Tx, question: Question, event_id: EventId) -> bool:
    """Keep the event id. True where that puts the question, or its copy, into its room."""
    if question.left_at_ms is not None:
        tx.post_left(question.row, question.asked.room_id, event_id, None)
        return False
    return tx.post(question.row, event_id) if question.original is None else tx.post_copy(question.row, event_id)


def show(tx: Tx, question: Question, event_id: EventId, shown_ts: int) -> None:
    """Note that the timeline showed it."""
    if question.left_at_ms is not None:
        tx.post_left(question.row, question.asked.room_id, event_id, shown_ts)
    elif question.original is None:
        tx.show(question.row, event_id, shown_ts)
    else:
        tx.show_copy(question.row, event_id, shown_ts)


def show_closed(tx: Tx, question: Question, shown_ts: int) -> None:
    """Note that the timeline showed its end there; one that left goes on being shown."""
    if question.left_at_ms is not None:
        return
    if question.original is None:
        tx.show_closed(question.row, shown_ts)
    else:
        tx.show_copy_closed(question.row, shown_ts)


def attach(tx: Tx, question: Question, attachment: Attachment, *, file: Mapping[str, Any] | None = None) -> None:
    """Note where its file is; where the question stood before, that matters no longer."""
    if question.left_at_ms is not None:
        return
    if question.original is None:
        tx.attach(question.row, attachment, file=file)
    else:
        tx.attach_copy(question.row, attachment, file=file)
