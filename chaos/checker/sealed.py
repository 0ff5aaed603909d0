"""Encrypted rooms: what the homeserver has of them, and what people's devices made of it.

What is trusted is the testimony of the clients of the people in the rooms (a second nio, with
stores of its own): that an event which one of them decrypted says what they say, and that
they tell which events they could not decrypt, and which keys they kept back. Everything else
stands in the homeserver's own history: who sent what and when, what an event is about (its
relation is outside the ciphertext), and what came in clear.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]

ENCRYPTED = "m.room.encrypted"
ENCRYPTION = "m.room.encryption"
MESSAGE = "m.room.message"
RELATION = "m.relates_to"


@dataclass(frozen=True)
class Sealed:
    """The testimony; all of it by event ids."""

    opened: dict[str, Event] = field(repr=False)
    """Type and content of what somebody could decrypt."""
    unread: dict[str, tuple[str, ...]]
    """By person: what their device could not decrypt."""
    keyless: tuple[str, ...]
    """What people said with keys that nobody was given."""
    late_keys: tuple[str, ...]
    """What people said with keys that were given some seconds later."""

    @classmethod
    def of(cls, told: Event) -> Sealed:
        """Read it from JSON."""
        unread = {person: tuple(events) for person, events in told["unread"].items()}
        return cls(told["opened"], unread, tuple(told["keyless"]), tuple(told["late_keys"]))

    def shown(self, event: Event) -> Event:
        """An event as a client shows it; as it came where nobody could decrypt it."""
        inner = self.opened.get(event["event_id"])
        if event["type"] != ENCRYPTED or inner is None:
            return event
        outside = {RELATION: event["content"][RELATION]} if RELATION in event["content"] else {}
        content = {name: value for name, value in inner["content"].items() if name != RELATION} | outside
        return event | {"type": inner["type"], "content": content}
