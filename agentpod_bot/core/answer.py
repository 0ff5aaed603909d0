"""The matcher: which one option a text plainly is. Nothing is guessed, nothing is nearest.

A body is first taken apart into readings (with or without a code, with or without a
reason), then each reading is compared with the options of one question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from agentpod_bot.core.model import Meaning, Offered, Via
from agentpod_bot.core.text import folded, is_numeric, position, trimmed, words

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from agentpod_bot.core.ids import Code

KEYCAPS = (*(f"{digit}\u20e3" for digit in range(1, 10)), "\U0001f51f")
"""Reaction keys of the positions 1 to 10, without variation selectors."""
LONGEST_TRY = 40
"""A longer text that matches nothing is taken for talk, not for a try to answer."""
LONGEST_TALK = 4_000
"""Characters of a message that are looked through for codes."""
LONGEST_TOKEN = 16
"""A code has four characters; what is dropped or folded beside them is little."""
LONGEST_COMMENT = 4_000
"""Characters of a reason that are kept."""
LONGEST_HEAD = 300
"""A printed label has at most 200 characters, and a code four: no answer is longer before its reason."""
_REASON = re.compile("[:\uff1a\n\r]")
_TOKEN = re.compile(r"\w+")
_SELECTORS = str.maketrans("", "", "\ufe0e\ufe0f")


class Why(StrEnum):
    """Why a text is no option."""

    EMPTY = "empty"
    OUT_OF_RANGE = "out_of_range"
    UNKNOWN = "unknown"
    AMBIGUOUS = "ambiguous"
    NOT_REJECTING = "not_rejecting"


@dataclass(frozen=True, slots=True)
class Selected:
    """The text is this option."""

    option: Offered
    via: Via
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class NoMatch:
    """The text is no option."""

    why: Why


Match = Selected | NoMatch


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to take a body apart: an open question's code, the answer, a reason behind it."""

    code: Code | None
    text: str
    comment: str | None


def match_text(text: str, options: tuple[Offered, ...]) -> Match:
    """Return the one option that `text` names, or why there is none."""
    if len(text) > LONGEST_HEAD:  # no name is so long, and comparing long texts costs more than their length
        return NoMatch(Why.UNKNOWN)
    bare = trimmed(text)
    if not bare:
        return NoMatch(Why.EMPTY)
    if is_numeric(bare):  # a position or nothing, never looked up as a name or an id
        number = position(bare)
        if number is None or not 1 <= number <= len(options):
            return NoMatch(Why.OUT_OF_RANGE)
        return Selected(options[number - 1], Via.NUMBER)
    name = folded(text)
    by_name = {option.position: option for option in options if name in option.names}
    by_id = {o.position: o for o in options if o.id_matches and name == folded(o.option.option_id)}
    hits = [*(by_id | by_name).values()]
    if not hits:
        return NoMatch(Why.UNKNOWN)
    if len(hits) > 1:
        return NoMatch(Why.AMBIGUOUS)
    return Selected(hits[0], Via.NAME if by_name else Via.ID)


def readings(body: str, codes: AbstractSet[Code]) -> tuple[Reading, ...]:
    """Every way to read `body`: whole, or cut at a colon or line break before a reason.

    `codes` are those that mean something in the room. A code counts only as the first or
    last token of the answer itself. A head that has one is read with it alone, never
    without; a head with one at both ends is read as neither.
    """
    by_token = _by_token(codes)
    found: list[Reading] = []
    for head, comment in _heads(body):
        tokens = trimmed(head).split()
        first, last = (_code(tokens[0], by_token), _code(tokens[-1], by_token)) if tokens else (None, None)
        match first, last:
            case None, None:
                found.append(Reading(None, head, comment))
            case code, None if code is not None:
                found.append(Reading(code, trimmed(head).split(maxsplit=1)[1], comment))
            case None, code if code is not None:
                found.append(Reading(code, trimmed(head).rsplit(maxsplit=1)[0], comment))
            case _:
                pass  # the code alone, or one at both ends: no answer
    return tuple(found)


def match_reading(reading: Reading, options: tuple[Offered, ...]) -> Match:
    """Match one reading. A reason may stand behind a rejecting option only."""
    match match_text(reading.text, options):
        case Selected(option=option, via=via):
            if reading.comment is None:
                return Selected(option, via)
            if option.option.meaning is not Meaning.REJECT:
                return NoMatch(Why.NOT_REJECTING)
            return Selected(option, via, cleaned(reading.comment))
        case no_match:
            return no_match


def match_readings(found: Iterable[Reading], options: tuple[Offered, ...]) -> Match:
    """The one option that the readings agree on.

    A whole text that is a rejecting option goes before every cut of it. One that is an
    approving option does not: a label may copy what one who refuses would write.
    """
    matches = [(reading, match_reading(reading, options)) for reading in found]
    selected = [(reading, match) for reading, match in matches if isinstance(match, Selected)]
    if not selected:
        reasoned = NoMatch(Why.NOT_REJECTING)
        if any(match == reasoned for _, match in matches):
            return reasoned
        return matches[0][1] if matches else NoMatch(Why.EMPTY)
    whole = [match for reading, match in selected if reading.comment is None]
    if whole and all(match.option.option.meaning is Meaning.REJECT for match in whole):
        selected = [(reading, match) for reading, match in selected if reading.comment is None]
    if len({match.option.position for _, match in selected}) > 1:
        return NoMatch(Why.AMBIGUOUS)
    return selected[0][1]


def match_reaction(key: str, options: tuple[Offered, ...]) -> Selected | None:
    """The option whose keycap `key` is, with or without variation selectors; any other key is none."""
    bare = key.translate(_SELECTORS)
    if bare in KEYCAPS[: len(options)]:
        return Selected(options[KEYCAPS.index(bare)], Via.REACTION)
    return None


def is_keycap(key: str) -> bool:
    """Whether a reaction may be an answer to a question whose options are not known."""
    return key.translate(_SELECTORS) in KEYCAPS


def begins_like_an_answer(body: str, options: Iterable[Offered]) -> bool:
    """Whether a text that matched nothing looks like a try: short, and begins as an answer would."""
    bare = trimmed(body)
    if not bare or len(bare) > LONGEST_TRY:
        return False
    if is_numeric(bare[0]):
        return True
    first = next(iter(words(bare)), None)
    if first is None or not folded(bare).startswith(first):
        return False
    names = (name for option in options for name in (option.printed, option.option.label))
    return any(first == next(iter(words(name)), None) for name in names)


def cleaned(comment: str) -> str | None:
    """A person's reason as it is kept and given to the harness: bounded, without what no store takes."""
    text = comment.replace("\0", "").encode("utf-8", "replace").decode().strip()
    return text[:LONGEST_COMMENT] or None


def codes_in(body: str, codes: AbstractSet[Code]) -> frozenset[Code]:
    """The codes that stand anywhere in a text as a word of their own, whatever signs are beside them."""
    by_token = _by_token(codes)
    found = (_code(token, by_token) for token in _TOKEN.findall(body[:LONGEST_TALK]))
    return frozenset(code for code in found if code is not None)


def _by_token(codes: AbstractSet[Code]) -> dict[str, Code]:
    return {folded(code): code for code in codes}


def _code(token: str, by_token: Mapping[str, Code]) -> Code | None:
    return by_token.get(folded(token)) if len(token) <= LONGEST_TOKEN else None


def _heads(body: str) -> Iterable[tuple[str, str | None]]:
    yield body, None
    text = body.strip()
    for cut in _REASON.finditer(text, 0, LONGEST_HEAD):
        yield text[: cut.start()], text[cut.end() :][:LONGEST_COMMENT]
