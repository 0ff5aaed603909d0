"""What the store keeps beside the questions: what is to be said, and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import ClientName, EventId, RequestId, RoomId, Row, TxnId, UserId, WebhookId
    from agentpod_bot.core.model import Listed


class Priority(IntEnum):
    """Order inside a room's outbox: questions and files, edits that show an end, other edits, hints, seeded keycaps."""

    UPLOAD = 0
    QUESTION = 1
    FILE = 2
    EDIT = 3
    PROGRESS = 4
    HINT = 5
    SEED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEffect:
    """One thing that the bot is to say, written in the transaction that decided it.

    `effect` is unique for its question (`question`, `outcome`, `hint:@u:late` …), or in
    the room where `row` is None. `content` None: rendered when its turn comes.
    """

    row: Row | None
    room_id: RoomId
    effect: str
    priority: Priority
    event_type: str
    content: Mapping[str, Any] | None
    txn_id: TxnId
    not_before_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A stored effect that was not sent yet. `attempts` counts the tries so far."""

    effect_id: int
    row: Row | None
    room_id: RoomId
    effect: str
    priority: Priority
    event_type: str
    content: Mapping[str, Any] | None
    txn_id: TxnId
    not_before_ms: int
    attempts: int


@dataclass(frozen=True, slots=True)
class Callback:
    """An outcome that its client's target has not taken yet. `attempts` counts the tries, one just begun included."""

    callback_id: int
    row: Row
    webhook_id: WebhookId
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One line of the audit: what happened, to which question, by whom. Never bodies."""

    what: str
    at_ms: int
    row: Row | None = None
    client: ClientName | None = None
    request_id: RequestId | None = None
    revision: int | None = None
    room_id: RoomId | None = None
    sender: UserId | None = None
    event_id: EventId | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Questions newest first, and the cursor of the next page (None at the end).

    A hundred questions may have asked for 100 MiB, so a page holds nothing of what they asked.
    """

    questions: tuple[Listed, ...]
    cursor: int | None
