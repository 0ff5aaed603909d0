"""Text from outside: made visible for people, and folded for comparing.

What is shown may never hide or fake anything; what is compared is folded the same way
on both sides. The strings that go back to a harness or into a digest never pass here.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_BLANKS = 8
"""Longest run of white space that is shown as it is."""
MAX_MARKS = 8
"""Most combining marks that one character may carry; a taller stack would cover other lines."""

_ELLIPSIS = "…"
_ESCAPE = "\\"
_COUNT = "␠\N{MULTIPLICATION SIGN}"
_FINAL_MARKS = (".", ")")
_ZWNJ = "\u200c"
_ZWJ = "\u200d"
_EMOJI_STYLE = "\ufe0f"
_KEYCAP = "\u20e3"
_MAX_DIGITS = 4
_SHORT = 64
"""Characters of a text whose folded form is worth keeping."""

# Unicode's Default_Ignorable_Code_Point, which the standard library does not know.
_IGNORABLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_IGNORED = re.compile(f"[{_IGNORABLE}]+")
# Category Zs, and two signs that are drawn as nothing.
_BLANK = " \u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u2800\U0001d159"
# ASCII but the backslash, and whole blocks of letters that need no look at each: it makes long texts fast.
_PLAIN = r"!-\[\]-~\u00c0-\u024f\u0400-\u0482\u048a-\u052f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
_LINE = re.compile(rf"(?P<plain>[{_PLAIN}]+)|(?P<slashes>\\+)|(?P<blank>[{_BLANK}]+)|(?P<other>.)", re.DOTALL)
_BLOCK = re.compile(
    rf"(?P<plain>[{_PLAIN}]+|\n)|(?P<slashes>\\+)|(?P<blank>[{_BLANK}\t]+)|(?P<other>\r\n|.)", re.DOTALL
)

# Arabic letters that do not join to the next one: a ZWNJ after them would be invisible.
_ARABIC_UNJOINED = re.compile(
    "[\u0621-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb\u06cd\u06cf\u06d2\u06d3"
    "\u06d5\u06ee\u06ef]"
)
_VIRAMA = 9
"""Canonical combining class of the signs that a joiner may follow in Indic scripts."""


def visible_line(text: str, *, limit: int | None = None) -> str:
    r"""Return `text` on one line, with nothing in it that hides, reorders or breaks.

    A line feed is shown as `\n`; any other control, separator, format or default-ignorable
    character, unassigned or private code point, lone surrogate, and any combining mark
    without a base as `\u{hex}`; more than 8 blanks in a row as their count. Joiners stay
    only where they are part of an emoji or change how an Arabic or Indic word is written.

    A backslash stays as it is, so that paths and patterns read well, but a run of them is
    doubled where it would make the next character look like one of these escapes (or
    stands before a real one): an odd number of backslashes is always an escape of ours.

    The result has at most `limit` characters, the last of them `…` where it was cut; an
    escape is never cut in two.
    """
    pieces = _pieces(text, _LINE)
    return "".join(pieces) if limit is None else _cut(pieces, limit)


def fits(text: str, limit: int) -> bool:
    """Whether `visible_line` shows all of `text` in `limit` characters."""
    length = 0
    for piece in _pieces(text, _LINE):
        length += len(piece)
        if length > limit:
            return False
    return True


def visible_block(text: str) -> str:
    r"""Return `text` as `visible_line` does, but with its line feeds and tabs kept.

    `\r\n` is one line break, as every terminal and editor shows it; a lone `\r`, which could
    overprint its line, is `\u{d}`.
    """
    return "".join(_pieces(text, _BLOCK))


def fold(text: str) -> str:
    """Return what two texts that mean the same share: NFKC, casefolded, without ignorable characters.

    Applied until nothing changes, so folding a folded text gives the same text.
    """
    return _fold_again(text) if len(text) <= _SHORT else _fold(text)


def _fold(text: str) -> str:
    while True:
        folded_once = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", _dropped(text)).casefold())
        if folded_once == text:
            return text
        text = folded_once


# The same few labels, ids and words are compared again and again.
_fold_again = lru_cache(maxsize=4_096)(_fold)


def trimmed(text: str) -> str:
    """Return `text` without ignorable characters, outer white space and one final `.` or `)`.

    Where more than one such mark ends the text, none is dropped: "1.." is not "1".
    """
    bare = _dropped(text).strip()
    if bare.endswith(_FINAL_MARKS):
        rest = bare[:-1].rstrip()
        return bare if rest.endswith(_FINAL_MARKS) else rest
    return bare


def folded(text: str) -> str:
    """Return the form in which labels, ids and answers are compared (`fold` of `trimmed`, until stable)."""
    while True:
        once = fold(trimmed(text))
        if once == text:
            return text
        text = once


def is_numeric(bare: str) -> bool:
    """Whether a trimmed text has only characters of category N: a position or nothing, never a name."""
    digits = bare.replace(_KEYCAP, "")
    return bool(digits) and all(unicodedata.category(char).startswith("N") for char in digits)


def position(bare: str) -> int | None:
    """Return the number that decimal digits of one script write, without sign or leading zero; else None.

    Mixed scripts are None, for such a number may read differently than it is; one digit
    may wear a keycap.
    """
    digits = bare[:1] if bare[1:] == _KEYCAP else bare
    values = [unicodedata.decimal(char, None) for char in digits]
    zeros = {ord(char) - value for char, value in zip(digits, values, strict=True) if value is not None}
    if None in values or len(zeros) != 1 or values[0] == 0 or len(digits) > _MAX_DIGITS:
        return None
    return int(digits)


def without_fallback(body: str) -> str:
    """Return the body of a message that is a reply, without the quotation that older clients put before it.

    Only for replies: in any other message a line that begins with `>` is the person's own.
    """
    lines = body.split("\n")
    quoted = 0
    while quoted < len(lines) and (lines[quoted].startswith("> ") or lines[quoted].rstrip() == ">"):
        quoted += 1
    if quoted and quoted < len(lines) and not lines[quoted].strip():
        quoted += 1
    return "\n".join(lines[quoted:])


def words(text: str) -> tuple[str, ...]:
    """Return the runs of letters and inner apostrophes of a text, folded; a typographic apostrophe is a plain one."""
    plain = fold(text).translate({0x2018: "'", 0x2019: "'", 0x02BC: "'"})
    runs = "".join(char if char == "'" or unicodedata.category(char)[0] in "LM" else " " for char in plain).split()
    return tuple(word for run in runs if (word := run.strip("'")))


def _dropped(text: str) -> str:
    return text if text.isascii() else _IGNORED.sub("", text)


def _cut(pieces: Iterator[str], limit: int) -> str:
    atoms: list[str] = []
    length = 0
    for piece in pieces:
        shown = (piece,) if piece.startswith((_ESCAPE, _COUNT)) else piece[: limit + 1]
        atoms.extend(shown)
        length += sum(map(len, shown))
        if length > limit:
            break
    else:
        return "".join(atoms)
    while atoms and length > limit - len(_ELLIPSIS):
        length -= len(atoms.pop())
    # A joiner or style sign that has lost what it joins would be invisible.
    return "".join(atoms).rstrip(_ZWJ + _ZWNJ + _EMOJI_STYLE) + _ELLIPSIS


def _escaped(char: str) -> str:
    return f"{_ESCAPE}u{{{ord(char):x}}}"


def _pieces(text: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield what is shown, escapes and counts each as one piece.

    `marks` is how many combining marks stand on the last character shown; None where
    there is none that could carry one.
    """
    one_line = pattern is _LINE
    slashes = ""
    marks: int | None = None
    for match in pattern.finditer(text):
        piece, start = match[0], match.start()
        match match.lastgroup:
            case "slashes":
                # Held back until what follows is known.
                slashes, marks = piece, 0
                continue
            case "plain":
                shown, marks = piece, None if piece == "\n" else 0
            case "blank":
                shown, marks = piece if len(piece) <= MAX_BLANKS else f"{_COUNT}{len(piece)}", None
            case _ if one_line and piece == "\n":
                shown, marks = f"{_ESCAPE}n", None
            case _ if piece == "\r\n":
                shown, marks = "\n", None
            case _ if _is_mark(piece):
                shown, marks = (_escaped(piece), None) if marks is None or marks >= MAX_MARKS else (piece, marks + 1)
            case _ if marks is not None and _joins(text, start, after_mark=marks > 0):
                shown = piece
            case _ if piece.isprintable() and not _IGNORED.match(piece) and not text.startswith(_COUNT, start):
                shown, marks = piece, 0
            case _:
                shown, marks = _escaped(piece), None
        if slashes:
            reads_as_escape = text.startswith(("n", "u{") if one_line else "u{", start) or shown.startswith(_ESCAPE)
            yield from (_ESCAPE for _ in range(len(slashes) * (2 if reads_as_escape else 1)))
            slashes = ""
        yield shown
    yield from slashes


def _is_mark(char: str) -> bool:
    return unicodedata.category(char).startswith("M") and not _IGNORED.match(char)


def _joins(text: str, at: int, *, after_mark: bool) -> bool:
    """Whether the ignorable character at `at` visibly belongs to its neighbours, and so may stay."""
    char, before, after = text[at], text[at - 1], text[at + 1 : at + 2]
    match char:
        case "\ufe0f":
            return _is_emoji(before) or (before in "0123456789#*" and after == _KEYCAP)
        case "\u200d" if _is_emoji(after):
            return _is_emoji(text[at - 2] if before == _EMOJI_STYLE and at > 1 else before)
        case "\u200c" | "\u200d" if after_mark and unicodedata.combining(before) == _VIRAMA:
            return _is_letter(after)
        case "\u200c":
            return _is_arabic(before) and _is_arabic(after) and not _ARABIC_UNJOINED.match(before)
        case _:
            return False


def _is_letter(char: str) -> bool:
    return bool(char) and unicodedata.category(char) == "Lo" and not _IGNORED.match(char)


def _is_arabic(char: str) -> bool:
    return _is_letter(char) and "\u0620" <= char <= "\u06ff"


def _is_emoji(char: str) -> bool:
    """Whether it is a picture or a skin tone: the blocks of pictographs, without Braille."""
    if not char or unicodedata.category(char) not in {"So", "Sk"}:
        return False
    return "\u2100" <= char <= "\u27ff" or "\u2900" <= char <= "\u3299" or "\U0001f000" <= char <= "\U0001faff"
