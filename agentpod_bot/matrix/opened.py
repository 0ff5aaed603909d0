"""What became of an `m.room.encrypted` event: opened, or why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.room import Undecryptable, Unheeded
from agentpod_bot.matrix.events import MESSAGE, REACTION, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import UserId
    from agentpod_bot.core.room import Device, Origin, RoomEvent

SAID_ENCRYPTED = frozenset({MESSAGE, REACTION})
"""What means something inside a ciphertext. State and redactions are the servers' business, who cannot look there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The event as it would have come in clear, how it came, and what tells its ciphertext from every other one."""

    event: Mapping[str, Any]
    origin: Origin
    device: Device | None = None
    """The sender's device that encrypted it; None where none did."""
    ciphertext: str


@dataclass(frozen=True, slots=True)
class NoKey:
    """The key of its session is not here, or only from a later message on."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """No key will ever make it readable."""


Opening = Opened | NoKey | Unreadable


def parse_opened(event: Mapping[str, Any], opening: Opening, *, own: UserId) -> RoomEvent | None:
    """What an encrypted event is, as `matrix.events.parse` says it of one in clear."""
    match opening:
        case Opened(event=clear, origin=origin, device=device, ciphertext=ciphertext):
            found = parse(clear, own=own)
            if found is None:
                return None
            if clear.get("type") not in SAID_ENCRYPTED or _is_bared_edit(clear):
                found = Unheeded(event_id=found.event_id, sender=found.sender, ts=found.ts)
            return replace(found, origin=origin, device=device, ciphertext=ciphertext)
        case NoKey(session_id=session_id):
            found = parse(event, own=own)
            if isinstance(found, Undecryptable):
                return replace(found, session_id=session_id, event=event)
            return found
        case Unreadable():
            return parse(event, own=own)


def _is_bared_edit(clear: Mapping[str, Any]) -> bool:
    """Whether an edit lost the relation that says so, which stands outside its ciphertext: it is no new message."""
    content = clear.get("content")
    if not isinstance(content, dict) or "m.new_content" not in content:
        return False
    relation = content.get("m.relates_to")
    return not isinstance(relation, dict) or relation.get("rel_type") != "m.replace"
