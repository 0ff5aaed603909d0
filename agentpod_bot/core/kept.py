"""What the store keeps beside the questions: what is to be said, and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import ClientName, EventId, OptionId, RequestId, RoomId, Row, TxnId, UserId
    from agentpod_bot.core.journal import Link
    from agentpod_bot.core.model import Listed, Meaning, Scope, Status


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


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One line of the audit: what happened, to which question, by whom. Codes and ids only, never texts."""

    what: str
    at_ms: int
    row: Row | None = None
    client: ClientName | None = None
    request_id: RequestId | None = None
    revision: int | None = None
    digest: str | None = None
    """The question's salted digest: what was asked, for whoever has it and its salt."""
    room_id: RoomId | None = None
    sender: UserId | None = None
    event_id: EventId | None = None
    option_id: OptionId | None = None
    meaning: Meaning | None = None
    scope: Scope | None = None
    detail: str | None = None
    """How or why, as a code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A question's change of status, told by a line of the audit."""

    link: Link
    row: AuditRow
    status: Status
    question: Listed | None
    """The question as it was right after the change, whatever became of it since; None where it was pruned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Questions newest first, and the cursor of the next page (None at the end).

    A hundred questions may have asked for 100 MiB, so a page holds nothing of what they asked.
    """

    questions: tuple[Listed, ...]
    cursor: int | None
