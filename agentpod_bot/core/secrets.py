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
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Kind(StrEnum):
    """What a hidden value is; the value is the word that people read."""

    TOKEN = "token"  # noqa: S105 -- the word for one
    PASSWORD = "password"  # noqa: S105 -- the word for one
    KEY = "key"
    PRIVATE_KEY = "private key"


_VALUE = r"A-Za-z0-9._~+/@%^!#:=\-"
_BASE64 = "A-Za-z0-9+/="
ALPHABETS = {
    Kind.TOKEN: re.compile(f"[{_VALUE}]+"),
    Kind.PASSWORD: re.compile(f"[{_VALUE}]+"),
    Kind.KEY: re.compile(f"[{_VALUE}]+"),
    # Line breaks too, as they are or as JSON writes them, and the indentation behind one.
    Kind.PRIVATE_KEY: re.compile(rf"(?:[{_BASE64}]|\\{{1,4}}[rn]|[\r\n][ \t]*)+"),
}
"""All that a mask of each kind can hide."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A place in a text: the characters from `start` up to `end`."""

    start: int
    end: int
    kind: Kind


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
    secrets = find(text)
    pieces: list[str] = []
    at = 0
    for secret in secrets:
        length = secret.end - secret.start
        pieces += (_as_written(text[at : secret.start]), _mask(Hidden(secret.kind, length)))
        at = secret.end
    pieces.append(_as_written(text[at:]))
    return Masked("".join(pieces), tuple(Hidden(secret.kind, secret.end - secret.start) for secret in secrets))


def find(text: str) -> tuple[Secret, ...]:
    """Return the places of all secrets in `text`, in order; none overlaps another."""
    found: list[Secret] = []
    lower = text.lower()
    for secret in sorted(_all(text, lower), key=lambda one: (one.start, -one.end)):
        if not found or secret.start >= found[-1].end:
            found.append(secret)
        elif secret.end > found[-1].end:
            found[-1] = Secret(found[-1].start, secret.end, found[-1].kind)
    return tuple(found)


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
    if any(word in lower for word in _WORDS):
        yield from _named(text)
    if "bearer" in lower:
        yield from _bearers(text)
    if any(command in lower for command in _PROGRAMS):
        yield from _of_commands(text)


# --- Values whose form says what they are: kind, what must be in the lower-cased text, pattern.


def _form(pattern: str, *anchors: str, kind: Kind = Kind.TOKEN) -> tuple[Kind, tuple[str, ...], re.Pattern[str]]:
    return kind, anchors, re.compile(pattern)


_FORMS = (
    _form(r"gh[pousr]_[A-Za-z0-9]{20,}+", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _form(r"github_pat_[A-Za-z0-9_]{20,}+", "github_pat_"),
    _form(
        r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_-]{20,}+(?:\.[A-Za-z0-9_-]++)*+",
        "glpat-",
        "gldt-",
        "glrt-",
        "glcbt-",
        "glptt-",
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
    # JSON web tokens: three parts signed, five encrypted.
    _form(r"eyJ(?<![A-Za-z0-9_-]eyJ)[A-Za-z0-9_-]{5,}+\.[A-Za-z0-9_-]{2,}+(?:\.[A-Za-z0-9_-]++){1,3}+", "eyj"),
    # Matrix: Synapse's access and refresh tokens, and those of its authentication service.
    _form(r"sy[tr]_[A-Za-z0-9_=+/]{16,}+", "syt_", "syr_"),
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
    _form(r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+", "sg."),
    _form(r"[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}+", ":aa"),
    _form(r"AGE-SECRET-KEY-1[A-Z0-9]{50,}+", "age-secret-key-1", kind=Kind.PRIVATE_KEY),
)
# The user's part ends at what ends a user's part; a run of either never reaches into the next URL.
_IN_URL = re.compile(r"""(?<=://)[^\s/?#:@"'`<>|;&$()\\]*+:([A-Za-z0-9._~%!+=:^-]++)@""")


# --- Blocks between the lines of a PEM file.

_BEGIN = re.compile(r"-----BEGIN ([A-Z0-9 ]{0,40}KEY(?: BLOCK)?)-----")
_BODY = re.compile(rf"(?:[{_BASE64}]++|\\{{1,4}}[rn]|[\r\n][ \t]*+)*+")
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
    return _is_opaque(line) or (len(line) < _SHORT_LINE and line[0] != "/" and not line.isalpha() and "/" not in line)


# --- Values that stand behind a name: assignments, fields, headers, flags.

_WORDS = ("pass", "pwd", "secret", "token", "key", "credential", "authorization")
_NAMED = re.compile(
    r"""
    (?P<name>(?i:pass(?:word|wd|phrase)?|pwd|secret|token|credential|authorization
        |(?:api|access|auth|account|secret|private|encryption|signing|master)[-_ ]?key))
    (?P<shut>\\?["'])?
    (?:(?P<sign>[ \t]{0,4}(?::=|=>|[=:])[ \t]{0,4})|(?P<comma>,[ \t]{0,4})|[ \t]{1,4})
    (?P<open>\\?["'])?
    (?:(?P<scheme>(?i:bearer|basic|token|digest|apikey|negotiate))[ \t]{1,4})?
    (?P<value>(?!-)[A-Za-z0-9._~+/@%^!#-]++={0,2})
    (?=\Z|[\s"',;&|)\]}<>]|\\["'nrt])
    """,
    re.VERBOSE,
)
_BEARER = re.compile(
    r"""(?i:bearer)[ \t]{1,4}(?P<value>[A-Za-z0-9._~+/-]{16,}+={0,2})(?=\Z|[\s"',;&|)\]}<>]|\\["'nrt])"""
)
# Words that stand where a secret would, and are none.
_NO_SECRETS = frozenset(
    """any auto bearer bool boolean bytes char default empty env false file hidden int integer invalid length missing
    nil none null number object optional prompt read redacted required stdin str string text token true type undefined
    unset value void write""".split()  # noqa: SIM905 -- 36 quoted words on lines of their own hide the list
)
_SHORTEST = 3
_OF_AWS = re.compile("[A-Za-z0-9/+]{40}")
_SHORT_OPAQUE, _LONG_OPAQUE = 16, 32
_LOOK_BACK = 100
_NAME_PART = re.compile(r"[A-Za-z0-9_.-]*+")
_BEFORE_FLAG = re.compile(r"""\Z|[\s"'=(\[,]""")
# An identifier that is not itself being given a value.
_USED = re.compile(r"""(?<![A-Za-z0-9_-])[A-Za-z_][A-Za-z0-9_]*+(?!\\?["']?[ \t]{0,4}:?=(?!=))""")
_POSITIONAL = re.compile(r"\$\{?[0-9@*!#]")
_PLAIN_WORD = re.compile(r"[a-z_-]+|[A-Z_-]+|[A-Z][a-z]+")
_LIKE_A_NAME = re.compile(r".*\.[A-Za-z_]+")
# With these, `--password` asks for one, and the next word is the name of a database.
_ASKING = re.compile(r"\b(?:psql|pg_\w+|\w+db|dropuser|createuser|mysql\w*|mariadb[\w-]*)\b[^\n;|&]*\Z")


class _Uses:
    """Whether a text uses a value that it names: such a value could be run by its name."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._words: Counter[str] | None = None
        self._positional: bool | None = None

    def by_name(self, name: str) -> bool:
        if self._words is None:
            self._words = Counter(_USED.findall(self._text))
        return self._words[name] > 0

    def by_position(self) -> bool:
        if self._positional is None:
            self._positional = _POSITIONAL.search(self._text) is not None
        return self._positional


def _named(text: str) -> Iterator[Secret]:
    uses = _Uses(text)
    at = 0
    while (match := _NAMED.search(text, at)) is not None:
        if _is_secret(text, match, uses):
            yield Secret(*match.span("value"), _kind(match))
            at = match.end()
        else:
            at = match.start("value")  # what is no secret may still name one


def _bearers(text: str) -> Iterator[Secret]:
    for match in _BEARER.finditer(text):
        value = match["value"]
        if not _PLAIN_WORD.fullmatch(value) and _is_harmless(value):
            yield Secret(*match.span("value"), Kind.TOKEN)


def _kind(match: re.Match[str]) -> Kind:
    name = match["name"].lower()
    if name.startswith("p") and not name.endswith("key"):
        return Kind.PASSWORD
    if name == "authorization":
        return Kind.PASSWORD if (match["scheme"] or "").lower() == "basic" else Kind.TOKEN
    return Kind.KEY if name.endswith("key") else Kind.TOKEN


def _is_secret(text: str, match: re.Match[str], uses: _Uses) -> bool:
    name, value, sign = match["name"].lower(), match["value"], (match["sign"] or "").strip()
    before = text[max(0, match.start() - _LOOK_BACK) : match.start()]
    backwards = before[::-1]
    prefix = _NAME_PART.match(backwards)[0]  # type: ignore[index]  # it matches nothing at all, too
    is_flag = prefix.endswith("-") and _BEFORE_FLAG.match(backwards, len(prefix)) is not None
    if match["open"] and not text.startswith(match["open"], match.end()):
        return False
    if name in {"pass", "pwd"} and (before[-1:].isalpha() or sign == ":"):
        return False
    if len(value) < _SHORTEST or value.lower() in _NO_SECRETS or value.lower() == name:
        return False
    if not sign and (not is_flag or bool(match["comma"]) != bool(match["shut"] and match["open"])):
        return False
    if not sign and (_PLAIN_WORD.fullmatch(value) and not _is_opaque(value)):
        return False  # perhaps a sub-command behind a flag that takes no value
    if not sign and name.startswith("pass") and _ASKING.search(before):
        return False
    if sign == ":" and not (match["sign"] != ":" or match["open"] or match["shut"] or before.endswith("-")):
        return False
    if name == "authorization" and not _is_header(text, match, before) and _PLAIN_WORD.fullmatch(value):
        return False
    if is_flag:
        used = uses.by_position()
    else:
        used = "=" in sign and uses.by_name(re.split("[.-]", prefix)[0][::-1] + match["name"])
    if name.endswith("key") and _is_of_aws(value) and not used:
        return True
    return _is_harmless(value) and (not used or _is_opaque(value))


def _is_header(text: str, match: re.Match[str], before: str) -> bool:
    """Whether quotes hold the whole of a header, or its value, together."""
    return bool(match["open"]) or (before[-1:] in {'"', "'"} and text.startswith(before[-1:], match.end()))


def _is_of_aws(value: str) -> bool:
    """Whether it is what a secret access key looks like: 40 characters of base64, of all sorts."""
    return _OF_AWS.fullmatch(value) is not None and all(re.search(sort, value) for sort in ("[a-z]", "[A-Z]", "[0-9]"))


def _is_harmless(value: str) -> bool:
    """Whether nothing is lost by hiding it: it is no option, and if it is no noise, no path and no host either."""
    if (value[0].isalnum() or value[0] in "_+") and "/" not in value and not _LIKE_A_NAME.fullmatch(value):
        return True
    return not value.startswith("-") and _is_opaque(value)


def _is_opaque(value: str) -> bool:
    """Whether a part of it is longer or more mixed than names of programs and files are."""
    return any(
        len(part) >= _LONG_OPAQUE or (len(part) >= _SHORT_OPAQUE and part != part.lower() and part != part.upper())
        for part in re.split(r"[/.@:-]", value)
    )


# --- Programs that take a password behind a short option.

_TYPED = r"(?P<value>[A-Za-z0-9_+][A-Za-z0-9._~+@%^!#=-]*+)(?=\Z|[\s\"')\]}<>])"
_DATABASE = re.compile(rf"""(?<=\s)-p["']?{_TYPED}""")
_LOGIN = re.compile(rf"""(?<=\s)-p[ \t]{{0,4}}["']?{_TYPED}""")
_CURL = re.compile(
    rf"""(?<=\s)(?:-[uU]|--user|--proxy-user)(?:[ \t]{{1,4}}|=)?["']?[^\s:"'`$;|&()<>]{{1,128}}:{_TYPED}"""
)
_REDIS = re.compile(rf"""(?<=\s)-a[ \t]{{1,4}}["']?{_TYPED}""")
_PROGRAMS = {
    "mysql": _DATABASE,
    "mariadb": _DATABASE,
    "sshpass": _LOGIN,
    "login": _LOGIN,
    "curl": _CURL,
    "redis-cli": _REDIS,
}
_PROGRAM = re.compile(
    r"(?<![\w-])(?:(mysql|mariadb)[\w-]*|(sshpass|curl|redis-cli)|(?:docker|podman)[ \t]{1,4}(login))\b"
)
_COMMAND_END = re.compile(r"[\n;|&]|\Z")


def _of_commands(text: str) -> Iterator[Secret]:
    at = 0
    while (program := _PROGRAM.search(text, at)) is not None:
        # Each command is looked through once, however many of the names it holds.
        at = max(program.end(), _COMMAND_END.search(text, program.end()).start())  # type: ignore[union-attr]  # \Z
        names = {match[match.lastindex or 0] for match in _PROGRAM.finditer(text, program.start(), at)}
        for rule in {_PROGRAMS[name] for name in names}:
            yield from (Secret(*match.span("value"), Kind.PASSWORD) for match in rule.finditer(text, program.end(), at))
