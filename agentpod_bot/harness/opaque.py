"""Identifiers that come from outside: opaque, compared exactly, and never escaped where they are shown."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from agentpod_bot.core.text import trimmed

MAX_ID = 255
MAX_OPTION_ID = 200
FORBIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control, format, surrogates, and the two separators that would begin a line of their own."""
PATTERNLESS = "must not hold control, format, default-ignorable or line-separating characters"


def is_plain(text: str) -> bool:
    """Whether `text` holds no character that hides, reorders, breaks a line or cannot be encoded."""
    if any(unicodedata.category(char) in FORBIDDEN_CATEGORIES for char in text):
        return False
    # Between two letters `trimmed` drops default-ignorable characters and nothing else.
    return trimmed(f"x{text}x") == f"x{text}x"


def fault_of_id(text: str) -> str | None:
    """Why `text` cannot be the identifier of a request or session; None where it can."""
    if not 0 < len(text) <= MAX_ID:
        return f"must have 1 to {MAX_ID} characters"
    return None if is_plain(text) else PATTERNLESS


def _plain(text: str) -> str:
    if not is_plain(text):
        raise PydanticCustomError("opaque_id", PATTERNLESS)
    return text


OpaqueId = Annotated[str, Field(min_length=1, max_length=MAX_ID), AfterValidator(_plain)]
"""Field type of a request's or session's id."""
OpaqueOptionId = Annotated[str, Field(min_length=1, max_length=MAX_OPTION_ID), AfterValidator(_plain)]
"""Field type of an option's id."""
