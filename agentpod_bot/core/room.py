"""What a sync response says, in our own words: one value for each kind of event that matters.

`matrix.events` makes these from the wire; everything that judges them is pure. A value
says what an event *is*; whether it counts is decided elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.ids import Code, EventId, RequestId, RoomId, TxnId, UserId


class Origin(StrEnum):
    """How an event came: what vouches for it beside the homeserver's word for its `sender`."""

    CLEAR = "clear"
    """As clear text: nothing does."""
    STRANGER = "stranger"
    """Encrypted, but by no device that the sender is known to have now: worth less than clear text."""
    DEVICE = "device"
    """Encrypted by a device of the sender that nobody verified."""
    VERIFIED = "verified"
    """Encrypted by a device of the sender that was verified, itself or by its owner's verified identity."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of an account, by its id and the key with which it signs (ed25519, unpadded base64)."""

    user_id: UserId
    device_id: str
    ed25519: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What every timeline event has. `ts` is its `origin_server_ts` in milliseconds."""

    event_id: EventId
    sender: UserId
    ts: int
    origin: Origin = Origin.CLEAR
    device: Device | None = None
    """The sender's device that encrypted it; None where none did."""
    ciphertext: str | None = None
    """Of an event that was decrypted: what tells its ciphertext from every other one of the room.

    A second event with the same is a replay, whoever seems to have sent it.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The events that a message names by relation; all None for a bare message.

    `reply_to` is a real reply: an `m.in_reply_to` with `is_falling_back: true` is none.
    """

    reply_to: EventId | None = None
    thread: EventId | None = None
    reference: EventId | None = None

    @property
    def named(self) -> EventId | None:
        """The one event that counts: a real reply goes before its thread or reference."""
        return self.reply_to or self.reference or self.thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Seen):
    """An `m.room.message` of type `m.text` that is no edit and no structured answer."""

    body: str
    names: Names = Names()


@dataclass(frozen=True, slots=True, kw_only=True)
class Structured(Seen):
    """A message whose `suite_event_type` is one of the answer or decision types.

    `fields` is the event's content as it came, unchecked: a malformed one is refused by
    the judge with a reason, and never falls back to its body.
    """

    fields: Mapping[str, Any]
    names: Names = Names()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reacted(Seen):
    """An `m.reaction`: a key on one event."""

    target: EventId
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnQuestion(Seen):
    """A v2 question that this bot's account sent, seen in the timeline."""

    request_id: RequestId
    digest: str
    revision: int
    code: Code | None
    txn_id: str | None
    """`unsigned.transaction_id`, which the homeserver gives the sending device only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnEdit(Seen):
    """An edit by this bot's account; `closes` where its content carries an outcome receipt."""

    target: EventId
    closes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnOther(Seen):
    """Anything else that this bot's account sent: never an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignQuestion(Seen):
    """A v2 question or v1 card of another account: it counts as open in the room until it ends."""

    code: Code | None
    expires_at_ms: int
    """From the envelope; for a card alone, 30 minutes after `ts`."""
    stands_as: EventId | None = None
    """The event that this edit made a question, or that was one; None where it is its own event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEdit(Seen):
    """An edit by another account: it ends that account's own question, and is never an answer."""

    target: EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Redacted(Seen):
    """A redaction of `target`."""

    target: EventId


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreign:
    """A question of another account, as the room has shown it so far."""

    event_id: EventId
    room_id: RoomId
    sender: UserId
    code: Code | None
    shown_ts: int
    expires_at_ms: int
    closed_ts: int | None
    """`origin_server_ts` of that account's edit of it."""


@dataclass(frozen=True, slots=True)
class UnreadNotice:
    """What the sender of an event is to be told because it could not be read, unless it can be before."""

    txn_id: TxnId
    """Of the one notice that waits, for this event and for others like it."""
    content: Mapping[str, Any]
    """That notice, as a reply to this event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecrypted:
    """An event of an approver that could not be read when it came, kept for when its key does."""

    event_id: EventId
    room_id: RoomId
    session_id: str
    first_seen_ms: int
    """By our own clock. What was asked later it cannot be meant for."""
    event: Mapping[str, Any]
    """As it came."""
    sender_level: int | None = None
    """The sender's power level then; None where it is not known."""
    notice: UnreadNotice | None = None
    """None: its sender is told nothing, or was told before."""


class Membership(StrEnum):
    """`m.room.member` membership."""

    JOIN = "join"
    INVITE = "invite"
    LEAVE = "leave"
    BAN = "ban"
    KNOCK = "knock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Membered(Seen):
    """A membership event, in the timeline or in the state of a response."""

    user_id: UserId
    membership: Membership


@dataclass(frozen=True, slots=True)
class Encryption:
    """How a room wants to be encrypted.

    https://spec.matrix.org/v1.14/client-server-api/#mroomencryption
    """

    is_megolm: bool = True
    """Whether it is `m.megolm.v1.aes-sha2`; anything else can neither be read nor written here."""
    rotation_ms: int = 604_800_000
    """A session is used no longer than this."""
    rotation_messages: int = 100
    """Nor for more messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionOn(Seen):
    """An `m.room.encryption` state event: from here on clear text is never sent or heeded."""

    encryption: Encryption = Encryption()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced(Seen):
    """An `m.room.tombstone`: the room was upgraded. `successor` is the room that it names, None where it names none."""

    successor: RoomId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """Power levels of a room. A level that is no whole number counts as 0."""

    users: Mapping[UserId, int]
    default: int = 0
    """The level of everybody else."""

    def of(self, user_id: UserId) -> int:
        """An account's level."""
        return self.users.get(user_id, self.default)

    def least(self, other: Powers) -> Powers:
        """For everybody the lower one of their levels here and there."""
        named = self.users.keys() | other.users.keys()
        users = {user_id: min(self.of(user_id), other.of(user_id)) for user_id in named}
        return Powers(users=users, default=min(self.default, other.default))

    def at_most(self, user_id: UserId, level: int) -> Powers:
        """The same where an account's level is not higher than this."""
        return replace(self, users={**self.users, user_id: min(self.of(user_id), level)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Powered(Seen):
    """An `m.room.power_levels` state event. `before` are the levels that it replaced, None where it does not say."""

    powers: Powers
    before: Powers | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Created(Seen):
    """The `m.room.create` state event. `creators` are those who outrank every level: none before room version 12."""

    creators: frozenset[UserId]


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecryptable(Seen):
    """An `m.room.encrypted` event that this bot cannot read now.

    `event` is the raw event, to be read once its key is there; `session_id` says which
    key that is. Both None where no key can ever help.
    """

    names: Names = Names()
    session_id: str | None = None
    event: Mapping[str, Any] | None = None

    @property
    def is_to_be_kept(self) -> bool:
        """Whether a key may make it readable."""
        return self.event is not None and self.session_id is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unheeded(Seen):
    """An event that never is an answer (notice, emote, media, unknown or malformed)."""


StateEvent = Membered | EncryptionOn | Replaced | Powered | Created
RoomEvent = (
    Said
    | Structured
    | Reacted
    | OwnQuestion
    | OwnEdit
    | OwnOther
    | ForeignQuestion
    | ForeignEdit
    | Redacted
    | StateEvent
    | Undecryptable
    | Unheeded
)


@dataclass(frozen=True, slots=True)
class Unread:
    """Events that stand before those of a response, up to the newest processed one, and are never read: too many."""

    until_ts: int | None
    """When the oldest event that was read again was sent, as its sender says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomBatch:
    """One room's part of a sync response, oldest first, with any gap already paged back.

    `state` are the state events that stand before the timeline, `timeline` the events.
    `left` is true where the response lists the room as left (kicked, banned, left).
    """

    room_id: RoomId
    unread: Unread | None = None
    """Where not all of a gap was paged back."""
    state: tuple[StateEvent, ...] = ()
    timeline: tuple[RoomEvent, ...] = ()
    left: bool = False
    recovered: tuple[RoomEvent, ...] = ()
    """Events of earlier responses that were `Undecryptable` then, and can be read now; oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Invite:
    """An invitation of the bot; `sender` is who invited."""

    room_id: RoomId
    sender: UserId


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One whole sync response. It is handled in one transaction that also moves the position."""

    next_batch: str
    rooms: tuple[RoomBatch, ...] = ()
    invites: tuple[Invite, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomState:
    """What the bot knows of a configured room now. `encrypted` None: unknown, so wait."""

    room_id: RoomId
    joined: frozenset[UserId]
    bot_joined: bool
    encrypted: bool | None
    encryption: Encryption = Encryption()
    """How, where it is encrypted."""
    replaced: bool = False
    powers: Powers | None = None
    """None: unknown, so nobody has any power."""
    creators: frozenset[UserId] = frozenset()
    """Those who outrank every level."""

    def has_power(self, user_id: UserId, level: int) -> bool:
        """Whether an account is known to have at least this power level."""
        if self.powers is None:
            return False
        return user_id in self.creators or self.powers.of(user_id) >= level


def powers_at(timeline: Sequence[RoomEvent], now: Powers | None) -> tuple[Powers | None, ...]:
    """What power people had at each event and have kept since; None where it is not known."""
    powers: list[Powers | None] = []
    for event in reversed(timeline):
        powers.append(now)
        if isinstance(event, Powered):
            now = None if now is None or event.before is None else now.least(event.before)
    return tuple(reversed(powers))
