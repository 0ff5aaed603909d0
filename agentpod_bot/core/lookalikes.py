"""Hosts and paths that are not what they look like: mixed scripts, imitating letters and signs, punycode.

Names in one script of their own (пример.рф, 例え.jp) are nothing to warn of. Only the
Latin letters that other scripts' letters imitate are known here, in a table of our own.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_FOUND = 100
"""No text has more warnings than this; nobody reads so many."""
MAX_READ = 65_536
"""Characters of names that are looked at closely, in one text."""


class Look(Enum):
    """Why a name may not be what it looks like."""

    MIXED = "mixed"
    """One word has letters of several scripts, named in `scripts`."""
    IMITATES = "imitates"
    """It reads like `other`, but has other characters."""
    PUNYCODE = "punycode"
    """`other` is what its `xn--` labels stand for, and what some programs show."""
    NO_PUNYCODE = "no punycode"
    """It has an `xn--` label that stands for nothing."""
    UNREAD = "unread"
    """Behind `name` there are more names than are looked at."""


@dataclass(frozen=True, slots=True)
class LookAlike:
    """One name of a text, as written there."""

    look: Look
    name: str
    other: str = ""
    scripts: tuple[str, ...] = ()


# What cannot be part of a host or path that stands in a text: blanks, quotes, brackets, signs of commands.
_TOKEN = re.compile(
    "[^\\s\"'`<>|;&(){}\\[\\],*$^=?#!\u00ab\u00bb\u2018-\u201f\u2026\u2039\u203a\u3001\u3008-\u3011\u3014-\u301b"
    "\uff01\uff08\uff09\uff0c\uff1b\uff1f]+"
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
_SEPARATORS = re.compile(r"[/\\]")
_PORT = re.compile(r":[0-9]*\Z")
_ACE = "xn--"
_LONGEST_LABEL = 63
_LONGEST_NAME = 100
# Read as a separator of hosts or paths where ASCII letters or digits stand on both sides.
_SIGNS = {"\u2044": "/", "\u2215": "/", "\u29f8": "/", "\u2571": "/", "\u2024": ".", "\u2236": ":", "\ua789": ":"}
_SIGN = re.compile(f"(?<=[A-Za-z0-9])[{''.join(_SIGNS)}](?=[A-Za-z0-9])")
_IMITATIONS = str.maketrans(
    # Cyrillic, Greek, Armenian and rare Latin letters, each with the one that it is drawn like.
    "\u0430\u0441\u0501\u0435\u04bb\u0456\u0458\u04cf\u043e\u0440\u051b\u0455\u051d\u0445\u0443\u0475\u04af"
    "\u0410\u0412\u0421\u0415\u041d\u0406\u0408\u041a\u041c\u041e\u0420\u0405\u0422\u0425\u0423\u04ae\u051c\u04c0"
    "\u03b1\u03bd\u03bf\u03c1\u03c5\u03b9\u03f2\u03f3"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03f9\u037f"
    "\u0585\u0578\u057d\u0570\u0581\u0566\u0575\u0555\u054d"
    "\u0251\u0261\u0269\u01c0",
    "acdehijlopqswxyvyABCEHIJKMOPSTXYYWIavopuicjABEZHIKMNOPTYXCJonuhgqjOUagil",
)
_EAST_ASIAN = {"CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC"}
_LATIN = "Latin"
_OF_EAST_ASIA = "East Asian"
_SHORTEST_IN_PATH = 2


def warnings(text: str) -> tuple[LookAlike, ...]:
    """Return what is to be said of the hosts and paths in `text`, each once, in the order of the text.

    Where it has more of them than can be looked at, the last one says so.
    """
    has_ace = _ACE in text.lower()
    if text.isascii() and not has_ace:
        return ()
    found: dict[LookAlike, None] = {}
    left = MAX_READ
    tokens: set[str] = set()
    for match in _TOKEN.finditer(text):
        token = match[0]
        if (token.isascii() and not (has_ace and _ACE in token.lower())) or token in tokens:
            continue
        left -= len(token)
        if left < 0 or len(found) >= MAX_FOUND:
            return (*tuple(found)[: MAX_FOUND - 1], LookAlike(Look.UNREAD, token[:_LONGEST_NAME]))
        tokens.add(token)
        found.update(dict.fromkeys(_of_token(token)))
    return tuple(found)


def _of_token(token: str) -> Iterator[LookAlike]:
    url = _URL.match(token)
    rest = (token[url.end() :] if url else token).rstrip(".:")
    if _SIGN.search(rest):
        yield LookAlike(Look.IMITATES, rest, _SIGN.sub(lambda sign: _SIGNS[sign[0]], rest))
    first, slash, path = _split(rest)
    _user, at, after = first.rpartition("@")
    if url or at or (_DOTS.search(first) and not first.startswith((".", "~"))):
        host = _PORT.sub("", after).rstrip(":") if url else after.partition(":")[0]
        yield from _of_host(host, certain=bool(url or at))
        if at and not url:
            path = f"{after.partition(':')[2]}{slash}{path}"
    elif slash:
        path = rest
    yield from _of_path(path)


def _split(rest: str) -> tuple[str, str, str]:
    separator = _SEPARATORS.search(rest)
    if separator is None:
        return rest, "", ""
    return rest[: separator.start()], separator[0], rest[separator.end() :]


def _of_host(host: str, *, certain: bool) -> Iterator[LookAlike]:
    if _ACE in host.lower():
        decoded = _decoded(host)
        if decoded is None:
            yield LookAlike(Look.NO_PUNYCODE, host)
            return
        if decoded != host:
            yield LookAlike(Look.PUNYCODE, host, decoded)
        host = decoded
    if host.isascii():
        return
    labels = _DOTS.split(host)
    for label in labels:
        scripts = _scripts(label)
        if _is_mixed(scripts) and (certain or _plain(label) != label):
            yield LookAlike(Look.MIXED, host, scripts=scripts)
            return
    plain = ".".join(_plain(label) for label in labels)
    reads_as_ascii = plain.isascii() and (certain or labels[-1].isascii() or _has_odd_letter(host))
    partly = any(not label.isascii() and _plain(label).isascii() for label in labels)
    if reads_as_ascii or (partly and labels[-1].isascii()):
        yield LookAlike(Look.IMITATES, host, plain)


def _of_path(path: str) -> Iterator[LookAlike]:
    if path.isascii():
        return
    for part in _SEPARATORS.split(path):
        if part.isascii():
            continue
        for word in _words(part):
            scripts = _scripts(word)
            if _is_mixed(scripts) and _plain(word) != word:
                yield LookAlike(Look.MIXED, part, scripts=scripts)
                break
        else:
            # A word of imitations alone reads as Latin only where nothing else says its script.
            if (
                _plain(part).isascii()
                and len("".join(_words(part))) >= _SHORTEST_IN_PATH
                and all(_plain(other).isascii() for other in _SEPARATORS.split(path))
            ):
                yield LookAlike(Look.IMITATES, part, _plain(part))


def _decoded(host: str) -> str | None:
    """Return a host with its `xn--` labels decoded; None where one cannot be."""
    labels = host.split(".")
    for at, label in enumerate(labels):
        if label.lower().startswith(_ACE):
            if len(label) > _LONGEST_LABEL:
                return None
            try:
                labels[at] = label[len(_ACE) :].encode("ascii").decode("punycode")
            except (UnicodeError, OverflowError):
                return None
    return ".".join(labels)


def _plain(text: str) -> str:
    """Return what a text reads like."""
    return unicodedata.normalize("NFKC", text).translate(_IMITATIONS)


def _has_odd_letter(text: str) -> bool:
    """Whether there is a rare Latin letter, or a wide or styled one, that is drawn like an ASCII one."""
    return any(not char.isascii() and _script(char) == _LATIN and _plain(char).isascii() for char in text)


def _words(text: str) -> list[str]:
    """Return the runs of letters of a text."""
    return "".join(char if char.isalpha() else " " for char in text).split()


def _scripts(text: str) -> tuple[str, ...]:
    """Return the names of the scripts whose letters stand in a text, in alphabetical order."""
    return tuple(sorted({script for char in set(text) if (script := _script(char)) is not None}))


def _is_mixed(scripts: tuple[str, ...]) -> bool:
    """Whether no writing system uses these scripts in one word; East Asian ones have Latin letters among them."""
    return len(scripts) > 1 and set(scripts) != {_OF_EAST_ASIA, _LATIN}


@lru_cache(maxsize=1_024)
def _script(char: str) -> str | None:
    """Return the script of a letter, as people name it; None for what is none or is used by many."""
    letter = unicodedata.normalize("NFKC", char)[0]
    if not letter.isalpha():
        return None
    first = re.split("[ -]", unicodedata.name(letter, ""))[0]
    if first in {"", "MODIFIER", "MATHEMATICAL"}:
        return None
    return _OF_EAST_ASIA if first in _EAST_ASIAN else first.title()
