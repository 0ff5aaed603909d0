"""What a transaction does for copies of questions: a part of `ports.Tx`, with the same promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import EventId, Row
    from agentpod_bot.core.model import Attachment, Copy


class CopyTx(Protocol):
    """A question has one copy at most. Every question that is read comes with it."""

    def add_copy(self, row: Row, copy: Copy) -> bool:
        """Keep a question's copy; False, and nothing changes, where it has one."""
        ...

    def drop_copy(self, row: Row) -> None:
        """Forget a copy of which the room never heard, with all that was to be said there about it."""
        ...

    def post_copy(self, row: Row, event_id: EventId) -> bool:
        """Keep the copy's event id, the first one; True where this call did."""
        ...

    def show_copy(self, row: Row, event_id: EventId, shown_ts: int) -> None:
        """Note that the timeline showed the copy: sets event id and `shown_ts`, once."""
        ...

    def show_copy_closed(self, row: Row, shown_ts: int) -> None:
        """Note that the timeline showed the end of the copy; the first one counts."""
        ...

    def withdraw_copy(self, row: Row, at_ms: int) -> bool:
        """Note that the copy cannot be answered any more; False where that was noted before."""
        ...

    def attach_copy(self, row: Row, attachment: Attachment, *, file: Mapping[str, Any] | None = None) -> None:
        """Note where the copy's file is; `file` as for a question's."""
        ...
