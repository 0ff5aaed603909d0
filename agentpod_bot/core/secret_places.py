"""Secrets that their place gives away: behind a name, in a header, behind an option of a known program."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from agentpod_bot.core.secret_kinds import Kind, Secret, is_opaque

if TYPE_CHECKING:
    from collections.abc import Iterator


def by_place(text: str, lower: str) -> Iterator[Secret]:
    """Find them in `text`, in no certain order; `lower` is the same in lower case."""
    if any(word in lower for word in _WORDS):
        yield from _named(text)
    if "bearer" in lower:
        yield from _bearers(text)
    if any(command in lower for command in _PROGRAMS):
        yield from _of_commands(text)


# --- Behind a name: assignments, fields, headers, flags.

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
_LOOK_BACK = 100
_NAME_PART = re.compile(r"[A-Za-z0-9_.-]*+")
_BEFORE_FLAG = re.compile(r"""\Z|[\s"'=(\[,]""")
# An identifier that is not itself being given a value.
_USED = re.compile(r"""(?<![A-Za-z0-9_-])[A-Za-z_][A-Za-z0-9_]*+(?!\\?["']?[ \t]{0,4}:?=(?!=))""")
_POSITIONAL = re.compile(r"\$\{?[0-9@*!#]")
_PLAIN_WORD = re.compile(r"[a-z_-]+|[A-Z_-]+|[A-Z][a-z]+")
# A host, an address, a file, or an attribute of something.
_LIKE_A_NAME = re.compile(r".*\.[A-Za-z_-]+|.*\.xn--.*|[0-9.]++|.*[/@].*")
_WEB_TOKEN = re.compile(r"eyJ[A-Za-z0-9_-]++\.eyJ[A-Za-z0-9_-]++\.[A-Za-z0-9_-]*")
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
    if not sign and (_PLAIN_WORD.fullmatch(value) and not is_opaque(value)):
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
    if not used and name.endswith("key") and _is_of_aws(value):
        return True
    if not used and (sign == "=" or _is_header(text, match, before)) and _WEB_TOKEN.fullmatch(value):
        return True  # one word with its name, or between quotes: it cannot be a host
    return _is_harmless(value) and (not used or is_opaque(value))


def _is_header(text: str, match: re.Match[str], before: str) -> bool:
    """Whether quotes hold the whole of a header, or its value, together."""
    return bool(match["open"]) or (before[-1:] in {'"', "'"} and text.startswith(before[-1:], match.end()))


def _is_of_aws(value: str) -> bool:
    """Whether it is what a secret access key looks like: 40 characters of base64, of all sorts."""
    return _OF_AWS.fullmatch(value) is not None and all(re.search(sort, value) for sort in ("[a-z]", "[A-Z]", "[0-9]"))


def _is_harmless(value: str) -> bool:
    """Whether nothing is lost by hiding it: it is no option, and if it is no noise, no path and no host either."""
    if value.startswith("-") or ("." in value and _LIKE_A_NAME.fullmatch(value)):
        return False
    is_plain = "/" not in value and (value[0].isalnum() or value[0] in "_+")
    return is_plain or is_opaque(value)


# --- Behind a short option of a program that takes a password there.

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
