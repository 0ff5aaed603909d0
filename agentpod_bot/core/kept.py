"""What the store keeps beside the questions: what is to be said, and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import ClientName, EventId, OptionId, RequestId, RoomId, Row, TxnId, UserId, WebhookId
    from agentpod_bot.core.journal import Link
    from agentpod_bot.core.model import Listed, Meaning, Scope, Status


class Priority(IntEnum):
    """Order inside a room's outbox: questions and files, edits, those of an end first, and what is said beside them."""

    UPLOAD = 0
    QUESTION = 1
    FILE = 2
    EDIT = 3
    PROGRESS = 4
    REMINDER = 5
    HINT = 6
    SEED = 7


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


class OpenCounts(NamedTuple):
    """How many questions are open, as far as somebody who asks one more is concerned."""

    of_session: int
    of_token: int
    of_route: int
    of_all: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """What is under way: open questions, and what the bot still has to say. Times in UTC milliseconds."""

    queued: int
    pending: int
    oldest_open_ms: int | None
    """When the question that is open longest was asked."""
    unsent: int
    oldest_unsent_ms: int | None
    """When the first of the unsent effects was to be sent at the earliest, at first."""
