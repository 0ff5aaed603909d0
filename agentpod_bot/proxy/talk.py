"""What a bridge makes of one line between an agent and its client; how a protocol says it is a `Talk`."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import strict_json

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

Message = dict[str, Any]
DEEPEST = 64
"""Levels of a message that is nested more deeply than can be read, which are read all the same."""
TOO_DEEP = '"(nested too deeply to be read)"'

# Python reads no number of thousands of digits; others do.
_DECODER = json.JSONDecoder(parse_int=lambda digits: int(digits[: strict_json.MAX_DIGITS]))
_SPACE = re.compile(r"[ \t\r\n]*")
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passed:
    """Not for the room: the line goes on, byte for byte."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question for the room; the line goes no further."""

    key: str
    """The id of the agent's call, as `key_of` writes it."""
    session: str
    turn: str | None
    body: bytes
    """What the daemon is told: the message, with what the bridge remembers about it."""
    fault: str | None = None
    """Why the message cannot be trusted to mean one thing; then nobody is asked."""
    elsewhere: bool = False
    """Whether the client may have it where no room can take such a question."""


@dataclass(frozen=True, slots=True)
class Over:
    """Open questions are needed no longer: those that fit everything that is not None."""

    why: str
    """A few words of ours."""
    key: str | None = None
    session: str | None = None
    turn: str | None = None
    answered: bool = True
    """Whether the agent still waits for an answer to them, which then is that they were cancelled."""
    passed: bool = True
    """Whether the line goes on."""


@dataclass(frozen=True, slots=True)
class Replied:
    """The client answers a call of the agent. Where that is a question for the room, it had no say: the line stops."""

    key: str


FromAgent = Passed | Asked | Over
FromClient = Passed | Replied | Over


class Talk(Protocol):
    """How one protocol speaks. Pure: it only remembers what went by."""

    def from_agent(self, line: bytes) -> FromAgent:
        """What to do with a line of the agent."""
        ...

    def from_client(self, line: bytes) -> FromClient:
        """What to do with a line of the client."""
        ...


class Memory:
    """What was said about things by key: the newest of it, so that a long talk needs no more room than a short one."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        """How much is remembered."""
        return len(self._known)

    def keep(self, key: Hashable, value: Any, size: int) -> None:
        """Remember `value`, which takes about `size` bytes, and forget the oldest where that is too much."""
        self.forget(key)
        self._known[key] = (value, size)
        self._bytes += size
        while len(self._known) > self._most or self._bytes > self._most_bytes:
            self.forget(next(iter(self._known)))

    def get(self, key: Hashable) -> Any:
        """What is remembered; None where nothing is."""
        value, _ = self._known.get(key, (None, 0))
        return value

    def forget(self, key: Hashable) -> Any:
        """Forget one, and return it."""
        value, size = self._known.pop(key, (None, 0))
        self._bytes -= size
        return value

    def forget_where(self, fits: Callable[[Any], bool]) -> None:
        """Forget everything whose key fits."""
        for key in [key for key in self._known if fits(key)]:
            self.forget(key)


def message_of(line: bytes) -> Message:
    """The JSON object of a line; empty for anything else, which no bridge has to understand.

    What some reader could take for a message is one: else a question that is odd enough
    would go to the client instead of the room. Whether it means one thing says `fault_of`.
    """
    match texts_in(text_of(line)):
        case [dict() as only], "":
            return only
        case _:
            return {}


def text_of(line: bytes) -> str:
    """What stands on a line, whatever bytes it is made of."""
    return line.decode("utf-8-sig", errors="replace")


def texts_in(text: str) -> tuple[list[Any], str]:
    """The JSON texts with which a text begins, and what it holds after them."""
    try:
        return _read(text)
    except RecursionError:
        return _read(shallow(text))


def shallow(text: str) -> str:
    """A JSON text with `TOO_DEEP` in place of what is nested more deeply than `DEEPEST`."""
    kept: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            if depth == DEEPEST:
                kept += [text[start : token.start()], TOO_DEEP]
            depth += 1
        elif token[0] in ("]", "}"):
            depth -= 1
            if depth == DEEPEST:
                start = token.end()
    return "".join([*kept, text[start:]])


def fault_of(line: bytes) -> str | None:
    """Why a message cannot be trusted to mean one thing; None where it can."""
    try:
        strict_json.read(line)
    except (MalformedJson, Invalid) as wrong:
        return str(wrong)
    return None


def _read(text: str, spare: int = 20) -> tuple[list[Any], str]:
    if spare:  # so many calls deep, so that what is read here can also be written again anywhere
        return _read(text, spare - 1)
    found: list[Any] = []
    at = _after_space(text, 0)
    while at < len(text):
        try:
            value, end = _DECODER.raw_decode(text, at)
        except ValueError:
            break
        found.append(value)
        at = _after_space(text, end)
    return found, text[at:]


def _after_space(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


def key_of(value: Any) -> str:
    """An id of a call: one text for each id, so that 1, 1.0, "1" and true stay four."""
    return json.dumps(value, sort_keys=True)


def reply_key(value: Any) -> str:
    """The same of a reply of the client, where what some agents take for one number is one: 1, 1.0 and true."""
    return key_of(int(value) if isinstance(value, float | bool) and value == value // 1 else value)


def asked(
    line: bytes,
    message: Message,
    *,
    session: Any,
    turn: Any = None,
    added: Message | None = None,
    fault: str | None = None,
    elsewhere: bool = False,
) -> Asked:
    """The question of a message. `added` takes the place of the message where more is known than it says.

    `fault` is one of what was added.
    """
    fault = fault_of(line) or fault
    body = line.strip() if added is None and fault is None else json.dumps(added or message).encode()
    if fault is not None:  # nobody is asked, but the adapter that says no has to read which call it is
        body = shallow(body.decode()).encode()
    return Asked(
        key_of(message.get("id")), text(session), turn if isinstance(turn, str) else None, body, fault, elsewhere
    )


def member(value: Any, *names: str) -> Any:
    """What stands in objects under these names, one in the other; None where nothing does."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text(value: Any) -> str:
    """A text; empty where something else stands."""
    return value if isinstance(value, str) else ""
