"""What a transaction does for rooms that were upgraded: a part of `ports.Tx`, with the same promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentpod_bot.core.ids import EventId, RoomId, RouteName, Row
    from agentpod_bot.core.model import Attachment, Question
    from agentpod_bot.core.upgrades import Moves, Tombstone


class UpgradeTx(Protocol):
    """Which rooms were replaced, which route lives where, and what was asked in a room that was left."""

    def is_replaced(self, room_id: RoomId) -> bool:
        """Whether the room's tombstone was processed: what is processed from then on came after it."""
        ...

    def tombstone(self, room_id: RoomId) -> Tombstone | None:
        """What the room's latest processed tombstone said; None where none was processed."""
        ...

    def mark_replaced(self, room_id: RoomId, tombstone: Tombstone) -> None:
        """Remember that the room's tombstone was processed; that is never undone.

        The room that the latest one names counts; what was once known of the room stays
        known where a later one does not say it.
        """
        ...

    def moves(self) -> Moves:
        """Every step that a route made from one room into the next."""
        ...

    def keep_move(self, route: RouteName, room_id: RoomId, successor: RoomId, at_ms: int) -> None:
        """Remember that a route left a room for another; the first time counts."""
        ...

    def stray_rooms(self, route: RouteName, room_id: RoomId, now_ms: int) -> frozenset[RoomId]:
        """Rooms other than `room_id` in which questions of a route, or their copies there, are open and in time."""
        ...

    def leave(self, place: Question, room_id: RoomId, attachment: Attachment, at_ms: int) -> None:
        """Have an open question, or its copy, stand in another room in place of its own.

        Nobody has seen it there: it is as it was before it was posted, and the question
        itself `queued` again. In the room that it leaves nothing more is said about it but
        hints, and what stood there is kept.
        """
        ...

    def left_in(self, room_id: RoomId, *, since_ms: int) -> tuple[Question, ...]:
        """What left a room and is open, or closed since then, as that room has it; oldest first."""
        ...

    def left_at(self, row: Row, room_id: RoomId) -> Question | None:
        """A question as a room has it that it left."""
        ...

    def left_by_event(self, event_id: EventId) -> Question | None:
        """The question that was this event in a room that it left, as that room has it."""
        ...

    def has_left(self, row: Row) -> bool:
        """Whether a question, or its copy, was asked in a room that it left."""
        ...

    def entered_ms(self, row: Row, route: RouteName) -> int | None:
        """When a question, or its copy, came on a route from the room before; None where it left none."""
        ...

    def post_left(self, row: Row, room_id: RoomId, event_id: EventId, shown_ts: int | None) -> None:
        """Note that a question reached a room after all that it had left; what is known already stays."""
        ...
