"""Codes: the short names by which a person can say which open question is meant.

A code has two to four characters, at least one letter and one digit, and none that
looks like another (no 0/O, 1/I/L, 2/Z, 5/S, 8/B, U/V).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.ids import Code
from agentpod_bot.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet

LETTERS = "ACDEFGHJKMNPQRTWXY"
DIGITS = "34679"
TRIES = {2: 60, 3: 60, 4: 600}
"""How often each length is tried; a room with few questions a day stays at two characters."""


LONGEST = max(TRIES)


def fresh_code(
    choose: Callable[[str], str], *, taken: AbstractSet[Code], names: AbstractSet[str], is_long: bool = False
) -> Code:
    """Return a code that is none of `taken` and, folded, none of `names` (labels and ids of open questions).

    `choose` picks one character of a string. With `is_long` it is one of the longest, of which
    there are 47,610 and not 90: hardly one was ever another question's. Raises `Unavailable` where none was found.
    """
    busy = {code.casefold() for code in taken} | names
    for length, tries in TRIES.items():
        if is_long and length < LONGEST:
            continue
        for _ in range(tries):
            tail = "".join(choose(LETTERS + DIGITS) for _ in range(length - 2))
            code = Code(choose(LETTERS) + choose(DIGITS) + tail)
            if code.casefold() not in busy:
                return code
    raise Unavailable("the room has no free code left; answer or cancel some of its questions")
