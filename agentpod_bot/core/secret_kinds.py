"""Kinds of secrets, the characters that each is made of, and what no program or file is called."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What a hidden value is; the value is the word that people read."""

    TOKEN = "token"  # noqa: S105 -- the word for one
    PASSWORD = "password"  # noqa: S105 -- the word for one
    KEY = "key"
    PRIVATE_KEY = "private key"


_VALUE = r"A-Za-z0-9._~+/@%^!#:=\-"
BASE64 = "A-Za-z0-9+/="
"""Characters of a class in a pattern."""
ALPHABETS = {
    Kind.TOKEN: re.compile(f"[{_VALUE}]+"),
    Kind.PASSWORD: re.compile(f"[{_VALUE}]+"),
    Kind.KEY: re.compile(f"[{_VALUE}]+"),
    # Line breaks too, as they are or as JSON writes them, and the indentation behind one.
    Kind.PRIVATE_KEY: re.compile(rf"(?:[{BASE64}]|\\{{1,4}}[rn]|[\r\n][ \t]*)+"),
}
"""All that a mask of each kind can hide."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A place in a text: the characters from `start` up to `end`."""

    start: int
    end: int
    kind: Kind


_SHORT_OPAQUE, _LONG_OPAQUE = 16, 32


def is_opaque(value: str) -> bool:
    """Whether a part of it is longer or more mixed than names of programs and files are."""
    return any(
        len(part) >= _LONG_OPAQUE or (len(part) >= _SHORT_OPAQUE and part != part.lower() and part != part.upper())
        for part in re.split(r"[/.@:-]", value)
    )
