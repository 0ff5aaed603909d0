"""Messages of verifications as they come: to the device, or as events of a room."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agentpod_bot.core.ids import EventId, RoomId, UserId
from agentpod_bot.matrix.e2e.exchange import PREFIX, REQUEST
from agentpod_bot.matrix.e2e.signing import canonical

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys, SenderKeys

OLDEST_MS: Final = 10 * 60_000
NEWEST_MS: Final = 5 * 60_000
"""How far a request's own time may be off; others are to be ignored, as Matrix has it."""
MOST_REMEMBERED: Final = 2_000


@dataclass(frozen=True, slots=True)
class ToDevice:
    """A verification between two devices. Its id is the other side's choice, so its sender belongs to it."""

    sender: UserId
    transaction_id: str

    def content(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """A message's content, with which verification it is about."""
        return {**content, "transaction_id": self.transaction_id}


@dataclass(frozen=True, slots=True)
class InRoom:
    """A verification in a room, named by the event that asked for it."""

    room_id: RoomId
    event_id: EventId

    @property
    def transaction_id(self) -> str:
        """As it goes into what is compared."""
        return self.event_id

    def content(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """An event's content, with which verification it is about."""
        return {**content, "m.relates_to": {"rel_type": "m.reference", "event_id": self.event_id}}


Place = ToDevice | InRoom


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a verification, and which verification that is."""

    sender: UserId
    kind: str
    content: Mapping[str, Any]
    place: Place
    event_id: EventId | None = None
    """Of an event of a room."""
    ts: int | None = None
    """Of an event of a room: when it was sent, in UTC milliseconds, by its server."""
    keys: SenderKeys | None = None
    """Of a message to the device: which device encrypted it; None for one that came in clear."""

    @classmethod
    def in_room(cls, room_id: RoomId, event: Mapping[str, Any]) -> Message | None:
        """The message that a timeline event is; None for one that is none."""
        event_id, sender, content = event.get("event_id"), event.get("sender"), event.get("content")
        kind, ts = event.get("type"), event.get("origin_server_ts")
        if not (isinstance(event_id, str) and isinstance(sender, str) and isinstance(content, dict)):
            return None
        if not isinstance(kind, str) or not isinstance(ts, int):
            return None
        if kind == "m.room.message":
            if content.get("msgtype") != REQUEST:
                return None
            kind, about = REQUEST, event_id
        else:
            relation = content.get("m.relates_to")
            named = relation.get("event_id") if isinstance(relation, dict) else None
            is_reference = isinstance(relation, dict) and relation.get("rel_type") == "m.reference"
            if not kind.startswith(PREFIX) or kind == REQUEST or not is_reference or not isinstance(named, str):
                return None
            about = named
        return cls(UserId(sender), kind, content, InRoom(room_id, EventId(about)), EventId(event_id), ts)


def is_timely(message: Message, now_ms: int) -> bool:
    """Whether a request is from about now; a start without a request says no time."""
    ts = message.ts
    if ts is None:
        ts = message.content.get("timestamp") if message.kind == REQUEST else now_ms
    return isinstance(ts, int) and now_ms - OLDEST_MS <= ts <= now_ms + NEWEST_MS


def may_be_of(message: Message, device_id: str, devices: Iterable[DeviceKeys]) -> bool:
    """Whether a message is, as far as its encryption says, of this one of its sender's devices."""
    if message.keys is None:
        return True  # in clear, as Matrix allows: what is compared shows who it was
    return any(
        each.device_id == device_id
        and (each.curve25519, each.ed25519) == (message.keys.curve25519, message.keys.ed25519)
        for each in devices
    )


class Handled:
    """Which messages were handled before: a sync response may come again."""

    def __init__(self) -> None:
        self._digests: OrderedDict[bytes, None] = OrderedDict()

    def is_new(self, message: Message) -> bool:
        """Whether this very message is a new one, that can be answered; from here on it is none."""
        try:
            by = None if message.keys is None else [message.keys.curve25519, message.keys.ed25519]
            said = canonical([message.event_id, message.sender, message.kind, dict(message.content), by])
        except (ValueError, RecursionError):
            return False  # no message that can be answered
        digest = hashlib.sha256(said).digest()
        if digest in self._digests:
            return False
        self._digests[digest] = None
        if len(self._digests) > MOST_REMEMBERED:
            self._digests.popitem(last=False)
        return True
