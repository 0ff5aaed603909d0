"""The parts that every event of ours is made of, and how large an event may be."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.core.ids import EventId

HTML = "org.matrix.custom.html"

MAX_CARD_BYTES = 8_192
"""All content but the bodies, as compact JSON in UTF-8: readers do not draw a larger card."""
MAX_EVENT_BYTES = 65_536
"""A whole federated event."""
# What a homeserver puts around a content: ids and sender (255 bytes each), up to 20 previous
# and 10 authorising events (about 45 bytes each), hashes, signatures of two servers, depth, times.
EVENT_OVERHEAD_BYTES = 4_096
# An encrypted event: the content is wrapped with type and room id (at most 400 bytes), padded and
# authenticated (at most 128), written as base64 (4 bytes for each 3), and put beside algorithm,
# keys, device and session ids and a clear-text relation (at most 1,024).
ENCRYPTION_INNER_BYTES = 400 + 128
ENCRYPTION_OUTER_BYTES = 1_024


@dataclass(frozen=True, slots=True)
class Prose:
    """Body and HTML of a message, or of a part of one; both say the same."""

    body: str
    html: str

    @classmethod
    def of(cls, lines: list[str]) -> Prose:
        """One paragraph, each line on its own."""
        return cls("\n".join(lines), f"<p>{'<br>'.join(escape(line) for line in lines)}</p>" if lines else "")

    @classmethod
    def heading(cls, line: str) -> Prose:
        """One line that stands out."""
        return cls(line, f"<p><strong>{escape(line)}</strong></p>")

    def message(self) -> dict[str, Any]:
        """The fields of an `m.text` message."""
        return {"msgtype": "m.text", "body": self.body, "format": HTML, "formatted_body": self.html}


def stacked(parts: Iterable[Prose], *, gap: str) -> Prose:
    """Return parts below each other, with `gap` between those of the body that say anything."""
    said = [part for part in parts if part.body]
    return Prose(gap.join(part.body for part in said), "".join(part.html for part in said))


def instant(at_ms: int) -> str:
    """Return UTC milliseconds as RFC 3339 with milliseconds and `Z`."""
    at = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size(content: Any) -> int:
    """Return the bytes of `content` as compact JSON in UTF-8."""
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def card_size(content: dict[str, Any]) -> int:
    """Return the bytes of a content without its bodies."""
    return size({key: value for key, value in content.items() if key not in {"body", "formatted_body"}})


def event_size(content: dict[str, Any]) -> int:
    """Return the most bytes that a whole event with this content can have, encrypted or not."""
    inner = size(content) + ENCRYPTION_INNER_BYTES
    return (inner + 2) // 3 * 4 + ENCRYPTION_OUTER_BYTES + EVENT_OVERHEAD_BYTES


def escape(text: str) -> str:
    """Return text as HTML, escaped as a serialiser does: quotation marks mean nothing in a text."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\u00a0", "&nbsp;")


def in_thread(event_id: EventId) -> dict[str, Any]:
    """Return the relation of a message in the thread of an event; clients without threads show a reply."""
    return {
        "rel_type": "m.thread",
        "event_id": event_id,
        "is_falling_back": True,
        "m.in_reply_to": {"event_id": event_id},
    }


def notice(body: str, *, reply_to: EventId | None, thread: EventId | None) -> dict[str, Any]:
    """Return an `m.notice` that replies to an event, if to any, in its thread where it is in one; it pings nobody."""
    if reply_to is None:
        return {"msgtype": "m.notice", "body": body, "m.mentions": {}}
    relation: dict[str, Any] = {"m.in_reply_to": {"event_id": reply_to}}
    if thread is not None:
        relation |= {"rel_type": "m.thread", "event_id": thread, "is_falling_back": False}
    return {"msgtype": "m.notice", "body": body, "m.mentions": {}, "m.relates_to": relation}
