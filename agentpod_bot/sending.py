"""What a transaction does for what is to be said in rooms: a part of `ports.Tx`, with the same promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agentpod_bot.core.kept import Priority

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.ids import EventId, RoomId, Row, TxnId
    from agentpod_bot.core.kept import Effect, NewEffect


class SendTx(Protocol):
    """The outbox: every effect a row of its own, from before its first try."""

    def enqueue(self, effect: NewEffect) -> bool:
        """Add an effect; False, and nothing changes, where that effect exists already."""
        ...

    def drop_unsent(self, row: Row, room_id: RoomId, effect: str) -> bool:
        """Drop an effect that no try was made for; True where it was there and is gone."""
        ...

    def drop(self, effect_id: int) -> None:
        """Drop an effect, unless a try was made for it."""
        ...

    def unsent(self, row: Row, room_id: RoomId, effect: str) -> Effect | None:
        """An effect of a question in a room that was not sent yet."""
        ...

    def has_edit_to_render(self, row: Row, room_id: RoomId, priority: Priority = Priority.EDIT) -> bool:
        """Whether an edit of the question in a room is unsent, without content: it will say what is true then."""
        ...

    def content_of(self, row: Row, room_id: RoomId, effect: str) -> Mapping[str, Any] | None:
        """What an effect of a question said or is to say; None where there is none, or it is not rendered yet."""
        ...

    def drop_all_unsent(self, row: Row, room_id: RoomId, effects: Sequence[str]) -> frozenset[str]:
        """Drop those of these effects that no try was made for; returns their names."""
        ...

    def begin(self, room_id: RoomId, now_ms: int) -> Effect | None:
        """The room's next effect to try, by priority and then age; its attempts are counted up.

        An effect whose `not_before_ms` is in the future is passed over, but nothing of
        the same question goes before its own `question` effect in that room, and that one
        not before its `upload`.
        """
        ...

    def fill(self, effect_id: int, content: Mapping[str, Any]) -> None:
        """Give an effect its content, before its first try."""
        ...

    def sent(self, effect_id: int, event_id: EventId, at_ms: int) -> None:
        """The homeserver took it."""
        ...

    def postpone(self, effect_id: int, not_before_ms: int, *, counted: bool = True) -> None:
        """Try again, not before then. Not `counted`: the last try said nothing, and its attempt is taken back."""
        ...

    def abandon(self, effect_id: int, reason: str) -> None:
        """It can never be sent, or is no longer wanted."""
        ...

    def rooms_due(self) -> Mapping[RoomId, int]:
        """Rooms with unsent effects, and the earliest `not_before_ms` of each.

        An effect that waits for its question does not count: `begin` would not give it.
        """
        ...

    def effect_of_txn(self, txn_id: TxnId) -> Effect | None:
        """The unsent effect with this transaction id (adoption after a crash)."""
        ...

    def about(self, event_id: EventId, room_id: RoomId) -> tuple[Row, ...] | None:
        """The question that a sent event of ours in a room is or is about.

        One row for a question, its edits and its notices; an empty tuple for an event of
        ours about several or none; None for an event that is not ours, or in another room.
        """
        ...

    def file_of(self, event_id: EventId, room_id: RoomId) -> Row | None:
        """The question of which a sent event of ours in a room shows the file; None for any other event."""
        ...

    def last_effect_at(self, room_id: RoomId, effect_prefix: str) -> int | None:
        """`not_before_ms` of the newest effect of the room whose name begins so, sent or not."""
        ...

    def newest_unsent(self, room_id: RoomId, effect_prefix: str) -> Effect | None:
        """The newest effect of the room whose name begins so and which was not sent yet."""
        ...

    def hints(self, room_id: RoomId, *, after_ms: int, up_to_ms: int) -> int:
        """How many hints of the room, sent or not, have a `not_before_ms` after `after_ms` and up to `up_to_ms`."""
        ...
