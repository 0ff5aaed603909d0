r"""Secrets in outside texts: found, and hidden behind masks that say their kind and length.

A mask must never hide anything that could run. So a value is hidden only where it is
made of its kind's alphabet alone (no white space, quotes, `$`, backtick, `;|&()<>`), and
one that no well-known form or place proves a secret must also not look like an option,
a path, a host, or a plain word where a command could stand. When in doubt it stays visible.

Every pattern takes time linear in the text: runs are possessive, and no run can hold the
start of another try. detect-secrets' detectors are not used: they return values without
their places, take values with white space and quotes in them, and their pattern for JSON
web tokens needs seconds for 50 kB.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from agentpod_bot.core.secret_kinds import BASE64, Kind, Secret, is_opaque
from agentpod_bot.core.secret_places import by_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


SHORT = 256
"""Characters of a text whose masked form is worth keeping."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """What stands behind one mask; the length is in characters."""

    kind: Kind
    length: int


@dataclass(frozen=True, slots=True)
class Masked:
    """A text without its secrets, and what was hidden, in the order of the text."""

    text: str
    hidden: tuple[Hidden, ...]


def mask(text: str) -> Masked:
    """Return `text` with every secret replaced by `[hidden token, 40 characters]` and the like.

    What the text itself writes like a mask becomes `[as written: hidden …`, so that only a
    real one looks like one. Only real ones are counted.
    """
    return _mask_again(text) if len(text) <= SHORT else _masked(text)


def _masked(text: str) -> Masked:
    return hide(text, find(text))


# A question's texts are masked for the question, its outcome and every notice about it.
_mask_again = lru_cache(maxsize=1_024)(_masked)


def hide(text: str, secrets: Sequence[Secret]) -> Masked:
    """Return `text` as `mask` does, with these places of it for secrets: in order, none over another."""
    pieces: list[str] = []
    at = 0
    for secret in secrets:
        length = secret.end - secret.start
        pieces += (_as_written(text[at : secret.start]), _mask(Hidden(secret.kind, length)))
        at = secret.end
    pieces.append(_as_written(text[at:]))
    return Masked("".join(pieces), tuple(Hidden(secret.kind, secret.end - secret.start) for secret in secrets))


def find(text: str) -> tuple[Secret, ...]:
    """Return the places of all secrets in `text`, in order; none overlaps another.

    A text that decodes something and runs something has none: any value could be a script.
    """
    if _DECODES.search(text) and _RUNS.search(text):
        return ()
    found: list[Secret] = []
    lower = text.lower()
    for secret in sorted(_all(text, lower), key=lambda one: (one.start, -one.end)):
        if not found or secret.start >= found[-1].end:
            found.append(secret)
        elif secret.end > found[-1].end:
            found[-1] = Secret(found[-1].start, secret.end, found[-1].kind)
    return tuple(found)


def by_line(text: str) -> Mapping[int, Sequence[Secret]]:
    """Return the places of all secrets by line (from 0, ended by line feeds), counted from the line's start.

    One that reaches over lines is a secret in each of them, without the white space at its ends.
    """
    places: dict[int, list[Secret]] = {}
    number = start = counted = 0
    for secret in find(text):
        at = secret.start
        while at < secret.end:
            number += text.count("\n", counted, at)
            start = max(start, text.rfind("\n", counted, at) + 1)
            counted = at
            end = text.find("\n", at, secret.end)
            end = secret.end if end < 0 else end
            part = text[at:end]
            if part.strip():
                first = at + len(part) - len(part.lstrip())
                found = Secret(first - start, at + len(part.rstrip()) - start, secret.kind)
                places.setdefault(number, []).append(found)
            at = end + 1
    return places


_DECODES = re.compile(
    r"(?i:\b(?:base64|base32|basenc|b64decode|atob|xxd|uudecode|unhexlify|fromhex|frombase64string|rot13|rev)\b"
    r"|\bopenssl[ \t]{1,4}enc\b)"
)
_RUNS = re.compile(
    r"(?i:\b(?:(?:ba|z|da|k|fi)?sh|eval|exec|source|python[0-9.]*|perl|ruby|node|php|pwsh|powershell|iex|xargs|system)\b)"
)
_LIKE_A_MASK = re.compile(r"\[(?=(?:as written: ){0,99}hidden )", re.IGNORECASE)


def _as_written(text: str) -> str:
    return _LIKE_A_MASK.sub("[as written: ", text) if "[" in text else text


def _mask(hidden: Hidden) -> str:
    return f"[hidden {hidden.kind.value}, {hidden.length} character{'' if hidden.length == 1 else 's'}]"


def _all(text: str, lower: str) -> Iterator[Secret]:
    for kind, anchors, form in _FORMS:
        if any(anchor in lower for anchor in anchors):
            yield from (Secret(*match.span(), kind) for match in form.finditer(text))
    if "://" in text:
        yield from (Secret(*match.span(1), Kind.PASSWORD) for match in _IN_URL.finditer(text))
    if "-----begin" in lower:
        yield from _private_keys(text)
    yield from by_place(text, lower)


# --- Values whose form says what they are: kind, what must be in the lower-cased text, pattern.


def _form(pattern: str, *anchors: str, kind: Kind = Kind.TOKEN) -> tuple[Kind, tuple[str, ...], re.Pattern[str]]:
    return kind, anchors, re.compile(pattern)


_FORMS = (
    _form(r"gh[pousr]_[A-Za-z0-9]{20,}+", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _form(r"github_pat_[A-Za-z0-9_]{20,}+", "github_pat_"),
    _form(
        r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{20,}+(?:\.[0-9]{2}\.(?=[a-z]*+[0-9])[a-z0-9]{7,}+)?+",
        *("glpat-", "gldt-", "glrt-", "glcbt-", "glptt-"),
    ),
    _form(r"xox[a-z]-[A-Za-z0-9-]{10,}+", "xox"),
    _form(r"xapp-[0-9]-[A-Za-z0-9-]{10,}+", "xapp-"),
    # OpenAI's and Anthropic's; a branch named sk-fix-the-build is neither.
    _form(r"sk-(?<![A-Za-z0-9_-]sk-)(?=[a-z_-]*+[A-Z0-9])[A-Za-z0-9_-]{20,}+", "sk-"),
    _form(r"npm_[A-Za-z0-9]{30,}+", "npm_"),
    _form(r"pypi-(?:AgE[A-Za-z0-9_-]{8,}+|[A-Za-z0-9_-]{60,}+)", "pypi-"),
    _form(r"AIza[A-Za-z0-9_-]{30,}+", "aiza", kind=Kind.KEY),
    _form(r"ya29\.[A-Za-z0-9_-]{20,}+", "ya29."),
    _form(r"GOCSPX-[A-Za-z0-9_-]{20,}+", "gocspx-"),
    _form(r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}+", "k_live_", "k_test_", kind=Kind.KEY),
    _form(r"whsec_[A-Za-z0-9+/]{16,}+={0,2}", "whsec_"),
    # JSON web tokens: three parts signed, five encrypted. The last one could be no top-level domain.
    _form(
        r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{2,}+(?:\.[A-Za-z0-9_-]*+){0,2}"
        r"\.(?:(?!xn--)(?=[A-Za-z-]*+[0-9_])[A-Za-z0-9_-]{8,}+|[A-Za-z0-9_-]{25,}+)(?![.A-Za-z0-9_-])",
        "eyj",
    ),
    # Matrix: Synapse's access and refresh tokens, and those of its authentication service.
    _form(r"sy[tr]_(?:[A-Za-z0-9+/]++_[A-Za-z]{20}_[A-Za-z0-9]{6}|[A-Za-z0-9_=]{16,}+)", "syt_", "syr_"),
    _form(r"m[ac][tr]_(?<![A-Za-z0-9_]m[ac][tr]_)[A-Za-z0-9]{20,}+_[A-Za-z0-9]{6}", "mat_", "mar_", "mct_", "mcr_"),
    _form(
        r"A(?:KIA|SIA|BIA|CCA)(?<![A-Za-z0-9]....)[A-Z0-9]{16}(?![A-Za-z0-9])",
        "akia",
        "asia",
        "abia",
        "acca",
        kind=Kind.KEY,
    ),
    _form(r"dop_v1_[a-f0-9]{40,}+", "dop_v1_"),
    _form(r"hf_[A-Za-z0-9]{30,}+", "hf_"),
    _form(r"hvs\.[A-Za-z0-9_-]{20,}+", "hvs."),
    _form(r"dckr_pat_[A-Za-z0-9_-]{20,}+", "dckr_pat_"),
    _form(r"SG\.[A-Za-z0-9_-]{20,}+\.[A-Za-z0-9_-]{25,}+", "sg."),
    _form(r"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}+", ":aa"),
    _form(r"AGE-SECRET-KEY-1[A-Z0-9]{50,}+", "age-secret-key-1", kind=Kind.PRIVATE_KEY),
)
# The user's part ends at what ends a user's part; a run of either never reaches into the next URL.
_IN_URL = re.compile(r"""(?<=://)[^\s/?#:@"'`<>|;&$()\\]*+:([A-Za-z0-9._~%!+=:^-]++)@""")


# --- Blocks between the lines of a PEM file.

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,40}KEY(?: BLOCK)?)-----")
_BODY = re.compile(rf"(?:[{BASE64}]++|\\{{1,4}}[rn]|[\r\n][ \t]*+)*+")
_BREAK = re.compile(r"\\{1,4}[rn]|[\r\n][ \t]*")
_BODY_LINE = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_CHECKSUM = re.compile(r"=[A-Za-z0-9+/]{4}")
_SHORT_LINE = 32
_MOST_BREAKS = 12


def _private_keys(text: str) -> Iterator[Secret]:
    """Find the bodies of private keys: base64 to the end of the block, or of a text that was cut off in it.

    A line that stands alone could be a command where the block is one of several lines of
    a script. A last line that might stays visible; any other leaves the whole block so.
    """
    for begin in _BEGIN.finditer(text):
        end = _BODY.match(text, begin.end()).end()  # type: ignore[union-attr]  # it matches nothing at all, too
        if "PUBLIC" in begin[1] or not (end == len(text) or text.startswith("-----END ", end)):
            continue
        breaks = sum(text.count(char, begin.end(), end) for char in "\r\n\\")
        if breaks > _MOST_BREAKS + (end - begin.end()) // _SHORT_LINE:
            continue  # no key has such lines
        lines = [(begin.end(), 0)]
        for gap in _BREAK.finditer(text, begin.end(), end):
            lines[-1] = (lines[-1][0], gap.start())
            lines.append((gap.end(), 0))
        lines[-1] = (lines[-1][0], end)
        lines = [(start, stop) for start, stop in lines if start < stop]
        if lines and _CHECKSUM.fullmatch(text, *lines[-1]):
            lines.pop()
        if len(lines) > 1 and not _is_key_line(text, *lines[-1], begin.end(), end):
            lines.pop()
        if lines and all(_is_key_line(text, *line, begin.end(), end) for line in lines):
            yield Secret(lines[0][0], lines[-1][1], Kind.PRIVATE_KEY)


def _is_key_line(text: str, start: int, stop: int, first: int, last: int) -> bool:
    """Whether a line is base64 that no shell could find a program for."""
    line = text[start:stop]
    if not _BODY_LINE.fullmatch(line):
        return False
    if start == first or (stop == last and last < len(text)):  # grown together with the dashes
        return True
    return is_opaque(line) or (len(line) < _SHORT_LINE and line[0] != "/" and not line.isalpha() and "/" not in line)
