"""One fault of a configuration, and the words for it. A secret never gets into one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from agentpod_bot.config.source import said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.config.source import Source

Path = tuple[str | int, ...]
"""Where a value stands: section, perhaps a name, key, perhaps an index counted from 0."""

SHOWN_CHARACTERS = 100
"""How much of a faulty value is shown; more would hide the reason behind it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A reason why the configuration cannot be used; `str()` of it is one line."""

    at: Path
    reason: str
    source: Source | None = None

    def __str__(self) -> str:
        """The key's dotted path, the reason, and where the value was given."""
        where = "" if self.source is None else f" ({said(self.source)})"
        return f"{dotted(self.at)}: {self.reason}{where}"


def dotted(path: Path) -> str:
    """A path as people write it: `routes.ops.approvers[0]`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{printable(part)}" if text else printable(part)
    return text or "the file"


def printable(text: str) -> str:
    """A text that cannot break a line or move the cursor."""
    return text if text.isprintable() and text else json.dumps(text)


def shown(value: Any) -> str:
    """A value as a fault repeats it: on one line, and not at any length."""
    match value:
        case dict():
            return "a mapping"
        case [_, *_]:
            return "a list"
        case _:
            text = json.dumps(value, ensure_ascii=False, default=str)
            text = text if text.isprintable() else json.dumps(value, default=str)
            return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


def nearest(unknown: str, known: Iterable[str]) -> str:
    """`; did you mean …?` with the most alike of the known words, or nothing where none is alike."""
    by_fold = {word.casefold(): word for word in known}
    found = get_close_matches(unknown.casefold(), by_fold, n=1, cutoff=0.6)
    return f"; did you mean `{by_fold[found[0]]}`?" if found else ""
