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
    """Read a question as a room has it; None where it is not asked there."""
    question = tx.question(row)
    return None if question is None else seen_in(question, room_id)


def post(tx: Tx, question: Question, event_id: EventId) -> bool:
    """Keep the event id. True where that puts the question, or its copy, into its room."""
    return tx.post(question.row, event_id) if question.original is None else tx.post_copy(question.row, event_id)


def show(tx: Tx, question: Question, event_id: EventId, shown_ts: int) -> None:
    """Note that the timeline showed it."""
    if question.original is None:
        tx.show(question.row, event_id, shown_ts)
    else:
        tx.show_copy(question.row, event_id, shown_ts)


def show_closed(tx: Tx, question: Question, shown_ts: int) -> None:
    """Note that the timeline showed its end there."""
    if question.original is None:
        tx.show_closed(question.row, shown_ts)
    else:
        tx.show_copy_closed(question.row, shown_ts)


def attach(tx: Tx, question: Question, attachment: Attachment, *, file: Mapping[str, Any] | None = None) -> None:
    """Note where its file is."""
    if question.original is None:
        tx.attach(question.row, attachment, file=file)
    else:
        tx.attach_copy(question.row, attachment, file=file)
