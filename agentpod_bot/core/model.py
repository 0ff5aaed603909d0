"""What a harness asks, what a room is shown, and how a question ends. Values only.

Times are UTC milliseconds since 1970. Words are those of the Agent Client Protocol and
of the Matrix specification.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from agentpod_bot.core.ids import (
    ClientName,
    Code,
    EventId,
    OptionId,
    RequestId,
    RoomId,
    RouteName,
    Row,
    SessionId,
    UserId,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.rate import Rate
    from agentpod_bot.core.room import Device

BOTS_OWN_REJECT = OptionId("agentpod.reject")
"""Id of the rejecting option that the bot adds where a harness offered none."""


class Meaning(StrEnum):
    """What choosing an option says. It comes from the option's kind, never from a label."""

    APPROVE = "approve"
    REJECT = "reject"
    CHOOSE = "choose"


class Scope(StrEnum):
    """How far an approval or a rejection reaches."""

    ONCE = "once"
    ALWAYS = "always"


class Status(StrEnum):
    """Where a question is in its life; the last six never change again."""

    QUEUED = "queued"
    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    ANSWERED_ELSEWHERE = "answered_elsewhere"
    UNDELIVERABLE = "undeliverable"


OPEN = frozenset({Status.QUEUED, Status.PENDING})


class Outcome(StrEnum):
    """How a closed question ended, as the receipt and the HTTP view say it."""

    SELECTED = "selected"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"
    ANSWERED_ELSEWHERE = "answered_elsewhere"
    UNDELIVERABLE = "undeliverable"

    @property
    def status(self) -> Status:
        """The status of a question that ended so."""
        return Status.DECIDED if self is Outcome.SELECTED else Status(self.value)


class Via(StrEnum):
    """The form in which an answer came."""

    NUMBER = "number"
    NAME = "name"
    ID = "id"
    STRUCTURED = "structured"
    REACTION = "reaction"


@dataclass(frozen=True, slots=True)
class Option:
    """One way to answer, as the harness asked for it: its own words, uncut and unmasked."""

    option_id: OptionId
    label: str
    meaning: Meaning
    scope: Scope | None


@dataclass(frozen=True, slots=True)
class Offered:
    """One option as the room shows it. Positions are 1..n in the printed order."""

    position: int
    option: Option
    printed: str
    """The one string of the list, the envelope's `label` and the card's `name`."""
    names: frozenset[str]
    """Folded texts that select this option by name: never one that could mean another."""
    id_matches: bool
    """Whether the option's id, typed as text, may select it."""


@dataclass(frozen=True, slots=True)
class FieldPreview:
    """A labelled one-line value of what the agent will do."""

    label: str
    value: str


@dataclass(frozen=True, slots=True)
class TextPreview:
    """A labelled text (a command, code) of what the agent will do."""

    label: str
    text: str
    language: str | None = None
    """What it is written in, as highlighters call it, where that is certain."""


@dataclass(frozen=True, slots=True)
class DiffPreview:
    """What happens to one file: ACP's diff. One side is None where there is no file; never both."""

    path: str
    old: str | None
    new: str | None


Readable = FieldPreview | TextPreview
Preview = Readable | DiffPreview


@dataclass(frozen=True, slots=True)
class Hold:
    """The call that asks stays open until its question ends: where it drops, nobody needs the answer any more."""

    twin: str | None = None
    """Equal for calls that ask the same, where the harness gives its calls no name of their own: such a call joins
    a question whose own call has dropped, and no other. None where the request's id says which call is which."""


@dataclass(frozen=True, slots=True)
class PermissionRequest:
    """What a harness asks, read from its own wire shape; None where it left something out."""

    session_id: SessionId
    title: str
    options: tuple[Option, ...]
    request_id: RequestId | None = None
    request_seq: int | None = None
    tool_kind: str | None = None
    agent: str | None = None
    route: RouteName | None = None
    preview: tuple[Preview, ...] = ()
    preview_complete: bool = True
    expires_at_ms: int | None = None
    ttl_ms: int | None = None
    supersede: bool = False
    hold: Hold | None = None
    """None where a call may come back for its answer at any time."""
    raw: bytes = b""
    """The body as it came, for what must be echoed; never shown, never logged."""


class Key(NamedTuple):
    """What names one question for good: two clients never share a request."""

    client: ClientName
    request_id: RequestId
    revision: int


@dataclass(frozen=True, slots=True)
class Claim:
    """What a client says was answered somewhere else. It is never a decision."""

    option_id: str | None
    by: str | None


@dataclass(frozen=True, slots=True)
class Closing:
    """How and when a question ended. Only `SELECTED` carries an option and a person."""

    outcome: Outcome
    at_ms: int
    option: Offered | None = None
    answered_by: UserId | None = None
    via: Via | None = None
    comment: str | None = None
    event_id: EventId | None = None
    answer_ts: int | None = None
    """`origin_server_ts` of the answer."""
    claim: Claim | None = None
    reason: str | None = None
    voters: tuple[UserId, ...] = ()
    """Everybody whose vote made the decision, `answered_by` last; empty where one answer was enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One person's latest answer for an option of one revision that needs several people."""

    sender: UserId
    option_id: OptionId
    room_id: RoomId
    """Where it was given."""
    event_id: EventId
    ts: int
    """`origin_server_ts` of the answer."""
    at_ms: int
    """When it was counted."""
    device: Device | None = None
    """The verified device that it came from, where it names the question itself; None: nothing vouches for it.

    Where only verified devices count, it does so while this one is verified.
    """


@dataclass(frozen=True, slots=True)
class Progress:
    """What became of a decided request, as the harness reports it; indexes count from 0."""

    next_index: int | None = None
    completed: tuple[int, ...] = ()
    failed_index: int | None = None
    failure_reason: str | None = None
    status: str | None = None


class Attachment(StrEnum):
    """Where the file is that holds the full text of a question which shows only part of it."""

    NONE = "none"
    """Nothing was cut."""
    WANTED = "wanted"
    """It has to be uploaded before the question goes out."""
    UPLOADED = "uploaded"
    """The question may go out; the file's event is not in the room yet."""
    SHOWN = "shown"
    """The file's event is in the room."""
    FAILED = "failed"
    """It could not be uploaded: nothing that approves is offered."""


WHOLE_TEXT_SHOWN = frozenset({Attachment.NONE, Attachment.SHOWN})
"""Only so can somebody have read all of what they approve."""


@dataclass(frozen=True, slots=True)
class NewQuestion:
    """A question before it is stored: one revision, bound to its room, code and digest."""

    key: Key
    session_id: SessionId
    request_seq: int
    title: str
    tool_kind: str | None
    agent: str | None
    options: tuple[Option, ...]
    preview: tuple[Preview, ...]
    preview_complete: bool
    route: RouteName
    room_id: RoomId
    code: Code
    salt: str
    digest: str
    content_key: str
    """Hash over the digest's fields but salt and revision, and the route: *same content*."""
    offered: tuple[Offered, ...]
    created_at_ms: int
    expires_at_ms: int
    raw: bytes
    masked: bool = True
    """Whether secrets in its texts are hidden from the room."""
    attachment: Attachment = Attachment.NONE
    file: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    """What an event needs to show the uploaded file (`ports.Homeserver.upload`): it may hold the key to read it."""
    requester: UserId | None = None
    """The person for whom the client asks, as the configuration said then; no request can name one."""
    harness: str = "native"
    """In whose shape it was asked, and has to be answered."""
    hold: Hold | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A question that nobody answered, asked once more in the room of a second route: by an event of its own."""

    route: RouteName
    room_id: RoomId
    asked_at_ms: int
    offered: tuple[Offered, ...]
    """The options of the question, at their positions; printed as they are shown there."""
    masked: bool = True
    attachment: Attachment = Attachment.NONE
    file: Mapping[str, Any] | None = field(default=None, repr=False, hash=False)
    event_id: EventId | None = None
    shown_ts: int | None = None
    shown_closed_ts: int | None = None
    withdrawn_at_ms: int | None = None
    """When it was redacted, or refused for good: since then it cannot be answered there."""


@dataclass(frozen=True, slots=True)
class Question:
    """One stored question, and the only truth about it."""

    row: Row
    asked: NewQuestion
    status: Status
    event_id: EventId | None = None
    shown_ts: int | None = None
    """`origin_server_ts` of the question, set when a sync showed it in the room's timeline."""
    shown_closed_ts: int | None = None
    """`origin_server_ts` of the first edit that showed it closed."""
    closing: Closing | None = None
    delivered_at_ms: int | None = None
    gave_up: bool = False
    """The harness had stopped waiting when the decision was there."""
    progress: Progress | None = None
    copy: Copy | None = None
    original: Question | None = None
    """Where this is a question as its copy's room has it (`core.copies`), or one that it left: the question itself."""
    left_at_ms: int | None = None
    """Where this is a question as a room has it that it left: when that was. Nothing that is said there decides."""

    @property
    def key(self) -> Key:
        """Client, request id and revision."""
        return self.asked.key

    @property
    def whole(self) -> Question:
        """The question itself, where this is the view of its copy."""
        return self if self.original is None else self.original

    @property
    def is_open(self) -> bool:
        """Whether it can still be answered or closed."""
        return self.status in OPEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What a list says of a stored question: whose it is, where it stands, how it ended. What was asked is left out."""

    row: Row
    key: Key
    session_id: SessionId
    request_seq: int
    route: RouteName
    room_id: RoomId
    code: Code
    salt: str
    digest: str
    created_at_ms: int
    expires_at_ms: int
    status: Status
    event_id: EventId | None
    delivered_at_ms: int | None
    closing: Closing | None

    @classmethod
    def of(cls, question: Question) -> Self:
        """What a list would say of this question."""
        asked = question.asked
        return cls(
            row=question.row,
            key=asked.key,
            session_id=asked.session_id,
            request_seq=asked.request_seq,
            route=asked.route,
            room_id=asked.room_id,
            code=asked.code,
            salt=asked.salt,
            digest=asked.digest,
            created_at_ms=asked.created_at_ms,
            expires_at_ms=asked.expires_at_ms,
            status=question.status,
            event_id=question.event_id,
            delivered_at_ms=question.delivered_at_ms,
            closing=question.closing,
        )

    @property
    def is_open(self) -> bool:
        """Whether it can still be answered or closed."""
        return self.status in OPEN


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls over HTTP, as the configuration knows the token; nothing of it is claimed."""

    client: ClientName
    routes: frozenset[RouteName]
    harnesses: frozenset[str]
    requester: UserId | None = None
    """The person for whom this client asks."""
    codex_version: str | None = None
    """Version of this client's Codex, where its calls do not say it."""
    rate: Rate | None = None
    """How often it may ask something new; None: as often as it likes."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of a request that was handed in: a new question, or the one that it repeats."""

    question: Question
    created: bool
