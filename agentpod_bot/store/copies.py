"""Copies of questions in a second room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import bindparam, delete, func, update
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.store.records import values_of_copy
from agentpod_bot.store.tables import copies, outbox
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from agentpod_bot.core.ids import EventId, Row
    from agentpod_bot.core.model import Attachment, Copy

_c = copies.c
_THIS = _c.question_row == bindparam("row")

_ADD = insert(copies).on_conflict_do_nothing(index_elements=[_c.question_row])
_DROP = delete(copies).where(_THIS, _c.event_id.is_(None)).returning(_c.room_id)
_DROP_EFFECTS = delete(outbox).where(outbox.c.question_row == bindparam("row"), outbox.c.room_id == bindparam("room"))
_POST = update(copies).where(_THIS, _c.event_id.is_(None)).values(event_id=bindparam("posted"))
_SHOW = (
    update(copies)
    .where(_THIS, _c.shown_ts.is_(None))
    .values(event_id=func.coalesce(_c.event_id, bindparam("seen")), shown_ts=bindparam("at_ts"))
)
_SHOW_CLOSED = update(copies).where(_THIS, _c.shown_closed_ts.is_(None)).values(shown_closed_ts=bindparam("at_ts"))
_WITHDRAW = update(copies).where(_THIS, _c.withdrawn_at_ms.is_(None)).values(withdrawn_at_ms=bindparam("at_ms"))
_ATTACH = update(copies).where(_THIS).values(attachment=bindparam("to_attachment"))
_KEEP_FILE = update(copies).where(_THIS).values(file=bindparam("to_file"))


class Copies(Transaction):
    """The part of a transaction that is about copies; promises stand in `copying.CopyTx`."""

    def add_copy(self, row: Row, copy: Copy) -> bool:
        """Keep a question's copy; False where it has one. Raises ValueError where the row is none."""
        return self._change(_ADD, {"question_row": row, **values_of_copy(copy)}) == 1

    def drop_copy(self, row: Row) -> None:
        """Forget a copy that has no event, with its effects."""
        record = self._first(_DROP, {"row": row})
        if record is not None:
            self._change(_DROP_EFFECTS, {"row": row, "room": record[0]})

    def post_copy(self, row: Row, event_id: EventId) -> bool:
        """Keep the copy's event id, the first one."""
        return self._change(_POST, {"row": row, "posted": event_id}) == 1

    def show_copy(self, row: Row, event_id: EventId, shown_ts: int) -> None:
        """Note that the timeline showed the copy, once."""
        self._change(_SHOW, {"row": row, "seen": event_id, "at_ts": shown_ts})

    def show_copy_closed(self, row: Row, shown_ts: int) -> None:
        """Note that the timeline showed the end of the copy; the first one counts."""
        self._change(_SHOW_CLOSED, {"row": row, "at_ts": shown_ts})

    def withdraw_copy(self, row: Row, at_ms: int) -> bool:
        """Note that the copy cannot be answered any more, once."""
        return self._change(_WITHDRAW, {"row": row, "at_ms": at_ms}) == 1

    def attach_copy(self, row: Row, attachment: Attachment, *, file: Mapping[str, Any] | None = None) -> None:
        """Note where the copy's file is."""
        self._change(_ATTACH, {"row": row, "to_attachment": attachment.value})
        if file is not None:
            self._change(_KEEP_FILE, {"row": row, "to_file": dict(file)})
