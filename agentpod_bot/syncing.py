"""What a transaction does for what syncs have shown: a part of `ports.Tx`, with the same promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from agentpod_bot.core.ids import EventId, RoomId, TxnId, UserId
    from agentpod_bot.core.room import Foreign, Undecrypted


class SyncTx(Protocol):
    """Events of the timeline, and how far it was read."""

    def foreign(self, room_id: RoomId, *, since_ms: int) -> tuple[Foreign, ...]:
        """Questions of other accounts whose end is not shown, or not before `since_ms`."""
        ...

    def foreign_of(self, event_id: EventId) -> Foreign | None:
        """The question that is this event and is not in this store, also where it has ended."""
        ...

    def keep_foreign(self, question: Foreign) -> None:
        """Remember another account's question; seen again, it changes nothing."""
        ...

    def close_foreign(self, event_id: EventId, sender: UserId, closed_ts: int) -> None:
        """That account edited its question; an edit by anyone else changes nothing."""
        ...

    def seen(self, event_id: EventId) -> bool:
        """Whether this event was processed before."""
        ...

    def mark_seen(self, room_id: RoomId, event_id: EventId, at_ms: int) -> None:
        """Remember a processed event."""
        ...

    def newest_seen(self, room_id: RoomId) -> EventId | None:
        """The event of the room that was processed last."""
        ...

    def last_seen_ms(self, room_id: RoomId) -> int | None:
        """When that event was processed, by our own clock."""
        ...

    def position(self, user_id: UserId) -> str | None:
        """Where the next sync begins; None for a new store or another account."""
        ...

    def move(self, user_id: UserId, next_batch: str) -> None:
        """Move the position: the last thing that a sync's transaction does."""
        ...

    def is_encrypted(self, room_id: RoomId, *, judged: bool = False) -> bool:
        """Whether the room was ever seen encrypted; that is never undone.

        With `judged`: whether events of it were judged as those of an encrypted room.
        """
        ...

    def mark_encrypted(self, room_id: RoomId, *, judged: bool) -> None:
        """Remember that the room is encrypted, and that events of it are judged by that; never less than before."""
        ...

    def take_ciphertext(self, room_id: RoomId, ciphertext: str) -> bool:
        """Remember for ever that a ciphertext was read in a room; False where it was before: it is a replay."""
        ...

    def keep_undecrypted(self, kept: Undecrypted, *, at_most: int) -> None:
        """Keep an event for when its key comes, and no more than `at_most` of its room: the oldest go."""
        ...

    def undecrypted(self, sessions: frozenset[tuple[RoomId, str]] | None, *, since_ms: int) -> tuple[Undecrypted, ...]:
        """Kept events that were first seen since then, of these sessions or (None) all, in the order they came."""
        ...

    def take_undecrypted(self, room_id: RoomId, event_id: EventId) -> Undecrypted | None:
        """Forget a kept event, and return what it was; None where it is not kept."""
        ...

    def undecrypted_of(self, txn_id: TxnId) -> Undecrypted | None:
        """The oldest kept event for which the notice with this transaction id waits."""
        ...

    def prune_undecrypted(self, before_ms: int) -> None:
        """Forget kept events that were first seen before then."""
        ...
