"""Codex: what its app-server and `codex mcp-server` ask their client, dispatched by method.

Wire format: https://github.com/openai/codex/blob/main/codex-rs/app-server/README.md. The body is
the message itself (`codex_message` says which members a bridge may add, `codex_items` how it
adds the changes to files). A message with an id is answered with one, any other with the bare
result. What Codex asks its client without meaning its user is `Invalid` here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.model import Outcome
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import (
    codex_elicitation,
    codex_items,
    codex_legacy,
    codex_message,
    codex_permissions,
    codex_review,
    codex_user_input,
)
from agentpod_bot.harness.adapter import Ask

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.harness.adapter import Call, End, Json, Manner
    from agentpod_bot.harness.codex_message import Message

NAME = codex_message.NAME
HOOK = False
PATIENCE_S: int | None = None

_LEGACY = frozenset({codex_legacy.EXEC, codex_legacy.PATCH, codex_legacy.ELICITATION})
_ASKED = _LEGACY | {
    codex_items.COMMAND,
    codex_items.FILES,
    codex_permissions.PERMISSIONS,
    codex_elicitation.ELICITATION,
}


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - the contract of every adapter
    """Read one message. Raises `MalformedJson`, or `Invalid` for one that is not meant for a person."""
    return _question(codex_message.read_message(body))


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:
    """Return the message that answers `call`; structured decisions are those of `asked`, unchanged."""
    caller, message = codex_message.read_message(call), codex_message.read_message(asked)
    return _told(caller, _result(message, caller, end, manner), end)


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """Return the method's own answer that allows nothing.

    An error where nobody can tell which that is, or where it would say that a person refused.
    """
    try:
        message = codex_message.read_message(call or b"")
        return _told(message, _no(message, end, manner), end)
    except (Invalid, MalformedJson):
        return codex_message.failed(call, end.reason)


def is_human(method: str) -> bool:
    """Whether Codex means its user by such a request, not its client program."""
    return method in _ASKED or _asks_user(method)


def request_id_of(message: Json) -> RequestId | None:
    """Return the id under which `parse` would ask; None where it would ask nothing, or under no name of Codex's."""
    try:
        call = _question(codex_message.message_of(message))
    except Invalid:
        return None
    return call.request.request_id if isinstance(call, Ask) else None


def _question(message: Message) -> Call:
    match message.method:
        case codex_legacy.EXEC | codex_legacy.PATCH | codex_legacy.ELICITATION:
            return codex_legacy.question(message)
        case codex_items.COMMAND:
            return codex_items.about_command(message)
        case codex_items.FILES:
            return codex_items.about_files(message)
        case codex_permissions.PERMISSIONS:
            return codex_permissions.question(message)
        case codex_elicitation.ELICITATION:
            return codex_elicitation.question(message)
        case method if _asks_user(method):
            return codex_user_input.question(message)
        case _:
            raise _not_for_people()


def _told(caller: Message, result: Json | None, end: End) -> Json:
    """Return the message that answers `caller`; no result where nobody decided about a command or files."""
    if result is not None:
        return codex_message.framed(caller, result)
    reason = codex_review.NOT_OFFERED if end.outcome is Outcome.SELECTED else end.reason
    return codex_message.undecided(caller, reason, otherwise=codex_items.no())


def _result(asked: Message, caller: Message, end: End, manner: Manner) -> Json | None:
    match asked.method:
        case codex_legacy.EXEC | codex_legacy.PATCH | codex_legacy.ELICITATION:
            return codex_legacy.result(asked, end, codex_review.dialect_of(caller, manner))
        case codex_items.COMMAND | codex_items.FILES:
            return codex_items.result(asked, end)
        case codex_permissions.PERMISSIONS:
            return codex_permissions.result(asked, end)
        case codex_elicitation.ELICITATION:
            return codex_elicitation.result(asked, end)
        case method if _asks_user(method):
            return codex_user_input.result(asked, end)
        case _:
            raise _not_for_people()


def _no(message: Message, end: End, manner: Manner) -> Json | None:
    match message.method:
        case codex_legacy.EXEC | codex_legacy.PATCH:
            return codex_review.no(end, codex_review.dialect_of(message, manner))
        case codex_legacy.ELICITATION if codex_legacy.is_codex(message):
            return codex_review.no(end, codex_review.dialect_of(message, manner))
        case codex_items.COMMAND | codex_items.FILES:
            return None
        case codex_permissions.PERMISSIONS:
            return codex_permissions.no()
        case codex_elicitation.ELICITATION:
            return codex_elicitation.no()
        case method if _asks_user(method):
            return codex_user_input.no()
        case _:
            raise _not_for_people()


def _asks_user(method: str) -> bool:
    return method == codex_user_input.SUFFIX or method.endswith(f"/{codex_user_input.SUFFIX}")


def _not_for_people() -> Invalid:
    return Invalid(("method",), "is none that asks a person")
