"""The commands of a Gaia approval, and the fingerprints that bind a consent to exactly them.

A fingerprint is the lower-case hex SHA-256 over the UTF-8 bytes of one command; the request's
is over the compact JSON list of all commands, in their order, other than ASCII unescaped.
Nothing is trimmed. Source: `gaia/approvals/command_set.py` of https://github.com/metraton/gaia.

Of Gaia's own rules only those are checked here that make a list of commands mean one thing:
it is not empty, and each command is one exact, atomic invocation. Whether a command may be
asked for at all stays Gaia's to say.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.harness.strict_json import Loc

COMMAND_SET = "COMMAND_SET"
MAX_COMMANDS = 1_000
"""As many steps as can be reported about later."""

_COMPOUND = re.compile(r"&&|\|\||[;|\n`]|\$\(")


@dataclass(frozen=True, slots=True)
class Commands:
    """What is asked for, in order; one command, or a set that is approved as a whole."""

    texts: tuple[str, ...]
    rationales: tuple[Any, ...]
    """JSON values, one a command; None where it has none."""
    is_set: bool

    @property
    def request_fingerprint(self) -> str:
        """The fingerprint over all of them in their order."""
        return request_fingerprint(self.texts)


def fingerprint(command: str) -> str:
    """The fingerprint of one command."""
    return hashlib.sha256(command.encode()).hexdigest()


def request_fingerprint(commands: Sequence[str]) -> str:
    """The fingerprint of a list of commands; it changes with their order."""
    text = json.dumps(list(commands), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def read(content: dict[str, Any]) -> Commands:
    """Return the commands of an approval request.

    Raises `Invalid` where they are missing or not exact, and wherever two places of the
    request, or a fingerprint and its command, do not agree: such a request is never shown.
    """
    kind = content.get("request_type")
    if kind not in (None, COMMAND_SET):
        raise Invalid(("request_type",), f"must be {COMMAND_SET}, or left out")
    is_set = kind == COMMAND_SET or content.get("command_set") is not None
    commands = _set(content) if is_set else _single(content)
    listed = content.get("commands")
    if listed is not None and listed != list(commands.texts):
        raise Invalid(("commands",), "must be the commands that are asked for, in their order")
    _agrees(content.get("request_fingerprint"), commands.request_fingerprint, ("request_fingerprint",))
    return commands


def _single(content: dict[str, Any]) -> Commands:
    return Commands((_exact_content(content),), (None,), is_set=False)


def _set(content: dict[str, Any]) -> Commands:
    items = content.get("command_set")
    if not isinstance(items, list) or not 1 <= len(items) <= MAX_COMMANDS:
        raise Invalid(("command_set",), f"must be a list of 1 to {MAX_COMMANDS} commands")
    texts = tuple(_command(item, ("command_set", index)) for index, item in enumerate(items))
    if _exact_content(content) not in _exact_contents(content, items, texts):
        raise Invalid(("exact_content",), "must be the commands, one a line")
    return Commands(texts, tuple(item.get("rationale") for item in items), is_set=True)


def _exact_contents(content: dict[str, Any], items: list[dict[str, Any]], texts: Sequence[str]) -> tuple[str, ...]:
    """What `exact_content` of a set may be.

    A set that Gaia made of one chained call carries neither type nor fingerprints, and may
    have the first command there, standing for all of them.
    """
    sealed = any(content.get(name) is not None for name in ("request_type", "request_fingerprint"))
    if sealed or any(item.get("fingerprint") is not None for item in items):
        return ("\n".join(texts),)
    return "\n".join(texts), texts[0]


def _exact_content(content: dict[str, Any]) -> str:
    text = content.get("exact_content")
    if not isinstance(text, str) or not text.strip():
        raise Invalid(("exact_content",), "must be a text that is not blank")
    return text


def _command(item: Any, at: Loc) -> str:
    if not isinstance(item, dict):
        raise Invalid(at, "must be an object")
    text = item.get("command")
    if not isinstance(text, str) or not text or text != text.strip():
        raise Invalid((*at, "command"), "must be a text that is not empty, without white space around it")
    if _COMPOUND.search(text):
        raise Invalid((*at, "command"), "must be one invocation, not several chained ones")
    _agrees(item.get("fingerprint"), fingerprint(text), (*at, "fingerprint"))
    return text


def _agrees(given: Any, computed: str, at: Loc) -> None:
    if given is not None and given != computed:
        raise Invalid(at, "does not fit the commands")
