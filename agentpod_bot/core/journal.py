"""The chain of the audit: each line's hash covers the line before it, so that none changes unseen.

A line's hash is the SHA-256 of the hash before it (as 32 bytes) and the line's canonical
JSON (RFC 8785), which holds every column but the hash. Before the first line stand 32
zero bytes. Lines are numbered 1, 2, 3, … without a gap.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import rfc8785

from agentpod_bot.core.model import Outcome, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentpod_bot.core.kept import AuditRow


@dataclass(frozen=True, slots=True)
class Link:
    """Where a chain ends: the number of its last line, and that line's hash in lower-case hex."""

    seq: int
    hash: str

    def __str__(self) -> str:
        """`seq:hash`, as a person keeps it."""
        return f"{self.seq}:{self.hash}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where somebody stopped reading: a line's number, and the beginning of its hash if that is known."""

    seq: int
    hash: str = ""

    def is_of(self, link: Link) -> bool:
        """Whether it is this line, and not one that has its number in another store."""
        return self.seq == link.seq and link.hash.startswith(self.hash)


UNKNOWN = Place(0, "unknown")
"""No line's place."""
START = Link(0, "0" * 64)
"""What the first line of all follows."""
STATUS_AFTER: Mapping[str, Status] = {
    "asked": Status.QUEUED,
    "shown": Status.PENDING,
    "asked_again": Status.QUEUED,
    **{outcome.value: outcome.status for outcome in Outcome},
}
"""Lines that tell of a change of status, and the status that a question has after each."""
_MAX_SAFE_INTEGER = 2**53 - 1
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
COLUMNS = (
    "seq",
    "at_ms",
    "what",
    "question_row",
    "client",
    "request_id",
    "revision",
    "digest",
    "room_id",
    "sender",
    "event_id",
    "option_id",
    "meaning",
    "scope",
    "detail",
)
"""Every column of a line but its hash."""


def fields_of(seq: int, row: AuditRow) -> dict[str, Any]:
    """A line as it is stored, exported and hashed: exactly `COLUMNS`."""
    return {
        "seq": seq,
        "at_ms": row.at_ms,
        "what": row.what,
        "question_row": row.row,
        "client": row.client,
        "request_id": row.request_id,
        "revision": row.revision,
        "digest": row.digest,
        "room_id": row.room_id,
        "sender": row.sender,
        "event_id": row.event_id,
        "option_id": row.option_id,
        "meaning": None if row.meaning is None else row.meaning.value,
        "scope": None if row.scope is None else row.scope.value,
        "detail": row.detail,
    }


def following(before: Link, fields: Mapping[str, Any]) -> Link:
    """The link that a line makes after another. Raises ValueError for what canonical JSON cannot carry."""
    try:
        canonical = canonical_json(fields)
    except (rfc8785.CanonicalizationError, TypeError, ValueError) as fault:
        raise ValueError("a line of the audit holds what JSON cannot carry") from fault
    return Link(fields["seq"], hashlib.sha256(bytes.fromhex(before.hash) + canonical).hexdigest())


def canonical_json(fields: Mapping[str, Any]) -> bytes:
    """Return RFC 8785's form of one flat object whose names are ASCII. Raises ValueError or what `rfc8785` raises.

    For texts, safe integers and nulls, Python's own encoder writes the same bytes, twenty
    times as fast; lines are written while somebody waits for an answer.
    """
    if all(_is_plain(value) for value in fields.values()):
        return _ENCODER.encode(dict(fields)).encode()
    return rfc8785.dumps(dict(fields))


def _is_plain(value: object) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool) and abs(value) <= _MAX_SAFE_INTEGER
    return value is None or isinstance(value, str)


@dataclass(frozen=True, slots=True)
class Whole:
    """Every line follows from the one before it. `remembered` says whether the wanted hash was among them."""

    head: Link
    lines: int
    remembered: bool


@dataclass(frozen=True, slots=True)
class Broken:
    """The first line that is not as it was written, is missing, or stands where none was written."""

    seq: int
    why: str


def examine(before: Link, lines: Iterable[tuple[Mapping[str, Any], object]], *, wanted: str | None) -> Whole | Broken:
    """Follow a chain from what stood before it; each line is its fields and the hash that is stored with them.

    `wanted` is a hash that somebody kept outside: where it is one of the chain's, the lines
    up to it are what they were then. That lines are gone at the end, or that all of the
    chain was made anew, only such a hash can show.
    """
    link, count, remembered = before, 0, wanted in {None, before.hash}
    for fields, stored in lines:
        expected = link.seq + 1
        found = fields.get("seq")
        if type(found) is not int or found != expected:
            return Broken(expected, f"is missing: {found!r} stands in its place")
        if set(fields) != set(COLUMNS):
            return Broken(expected, "has other columns than a line of the audit")
        try:
            link = following(link, fields)
        except ValueError as fault:
            return Broken(expected, str(fault))
        if link.hash != stored:
            return Broken(expected, "is not what was written after the line before it")
        count += 1
        remembered = remembered or link.hash == wanted
    return Whole(link, count, remembered)
