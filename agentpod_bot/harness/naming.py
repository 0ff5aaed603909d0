"""Ids for requests and sessions, made of what a harness calls them; its own names may be any text."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from agentpod_bot.core.ids import OptionId, RequestId, SessionId
from agentpod_bot.core.text import fits
from agentpod_bot.harness.opaque import MAX_ID, MAX_OPTION_ID, fault_of_id, is_plain

HASHED = 32
"""Hexadecimal digits that are kept of a hash: 128 bits."""
NO_SESSION = SessionId("none")
"""Session of calls that name none."""
MOST_TITLE = 200
"""Characters of a title that is made of what an agent wants to do; a longer title is a cut preview."""
MOST_LABEL = 150
"""Characters of a label as it is shown: with what is printed beside it, it stays within what a label may have."""


def request_id(harness: str, *names: object) -> RequestId:
    """One id for one call, made of the names that the harness gives it (JSON values)."""
    return RequestId(f"{harness}:{hashed(names)}")


def hashed(value: object) -> str:
    """A hash over a JSON value: equal for equal values, whatever the order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HASHED]


def session_id(name: object) -> SessionId:
    """A session's own name where it can stand as an id, else a hash of it."""
    match name:
        case None | "":
            return NO_SESSION
        case str() if fault_of_id(name) is None:
            return SessionId(name)
        case _:
            return SessionId(f"session:{hashed(name)}")


def option_id(name: str, position: int) -> OptionId:
    """An option's own id where it can stand, else one of its position (from 0)."""
    if 0 < len(name) <= MAX_OPTION_ID and is_plain(name) and not name.startswith("agentpod."):
        return OptionId(name)
    return OptionId(f"option:{position}")


def text_of(value: Any, default: str = "") -> str:
    """A text, or `default` where something else or only white space stands."""
    return value if isinstance(value, str) and value.strip() else default


def name_of(value: Any) -> str | None:
    """A short name (of an agent, a tool's kind), cut where it is long; None where there is none."""
    text = text_of(value)
    return text[:MAX_ID] or None


def title_of(what: str, detail: str = "") -> str:
    """A title in one line, like `Bash: npm test`; only the first line of a long detail, shortened."""
    first = detail.strip().split("\n", 1)[0].strip()
    title = f"{what}: {first}" if first else what
    return title if len(title) <= MOST_TITLE else f"{title[: MOST_TITLE - 1]}…"


def label_of(text: str) -> str:
    """`text` as the label of an option; where it would be shown too long, its beginning and `…`.

    What was cut has to be shown in the preview.
    """
    if fits(text, MOST_LABEL):
        return text
    length = min(len(text), MOST_LABEL - 1)
    while not fits(text[:length], MOST_LABEL - 1):
        length -= 1
    return f"{text[:length]}…"
