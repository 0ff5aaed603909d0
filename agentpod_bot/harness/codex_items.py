"""Codex's questions about one command, or about changes to files: `item/*/requestApproval`.

A question about changes does not carry them. A bridge adds what `item/started` said of the
same item, as `params.changes`: the list `[{path, kind, diff}]`, unchanged but for diffs that are
too large to be sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import FieldPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import codex_patch, naming, tool_input
from agentpod_bot.harness.codex_choices import (
    REJECT_AND_STOP,
    Choice,
    chosen,
    command_rule,
    kept,
    network_rule,
    options_of,
    spelled_out,
)
from agentpod_bot.harness.codex_message import NAME, Shape, Text, ask, read_params
from agentpod_bot.harness.codex_profile import profile
from agentpod_bot.harness.codex_shown import READ_AS, actions, members, unknown
from agentpod_bot.harness.options import allow_always, allow_once, reject_once

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Ask, End, Json
    from agentpod_bot.harness.codex_message import Message

COMMAND = "item/commandExecution/requestApproval"
FILES = "item/fileChange/requestApproval"
ACCEPT = "accept"
FOR_SESSION = "acceptForSession"
DECLINE = "decline"
CANCEL = "cancel"
RULE = "acceptWithExecpolicyAmendment"
NETWORK = "applyNetworkPolicyAmendment"

_AVAILABLE = "availableDecisions"
_CONTEXT = "networkApprovalContext"
_PERMISSIONS = "additionalPermissions"
_RULE_PROPOSED = "proposedExecpolicyAmendment"
_NETWORK_PROPOSED = "proposedNetworkPolicyAmendments"
_NAMES = ("threadId", "turnId", "itemId", "approvalId")
_KNOWN = frozenset({*_NAMES, "startedAtMs", "environmentId", "reason", "cwd"})
_KNOWN_OF_COMMAND = _KNOWN | {
    "command",
    "commandActions",
    "kind",
    _AVAILABLE,
    _CONTEXT,
    _PERMISSIONS,
    _RULE_PROPOSED,
    _NETWORK_PROPOSED,
}
_KNOWN_OF_FILES = _KNOWN | {"changes", "grantRoot"}
_MOST_READ = 100
"""Decisions that are looked at, of any number that a message may hold; a room is offered far fewer."""
_DECLINING = Choice(reject_once(option_id=OptionId(DECLINE)), DECLINE)
_CANCELLING = Choice(reject_once(REJECT_AND_STOP, option_id=OptionId(CANCEL)), CANCEL)


class ItemParams(Shape):
    """What every question about an item must say."""

    thread_id: Text
    turn_id: Text
    item_id: Text


def about_command(message: Message) -> Ask:
    """Return the question about a command, or about a connection of one; raises `Invalid`."""
    params = message.params
    session_id = naming.session_id(read_params(ItemParams, params).thread_id)
    read, unread = _for_command(params)
    choices = kept(read)
    command, context = naming.text_of(params.get("command")), params.get(_CONTEXT)
    kind = None if params.get("kind") == "command" else params.get("kind")
    if command or context is None:
        title = naming.title_of("Type into a running command" if kind == "writeStdin" else "Run", command)
    else:
        title = _connection(context)
    return ask(
        message,
        session_id=session_id,
        request_id=request_id(message),
        title=title,
        tool_kind="execute" if command and kind is None else None,
        options=options_of(choices),
        preview=(
            *_what(params),
            *members(_around(params)),
            *members({"Kind": kind, READ_AS: actions(params.get("commandActions"))}),
            *unknown(params, _KNOWN_OF_COMMAND),
            *spelled_out(choices, left_out=unread + len(read) - len(choices)),
        ),
        preview_complete=bool(command) or context is not None,
    )


def about_files(message: Message) -> Ask:
    """Return the question about changes to files; raises `Invalid`."""
    params = message.params
    shown = codex_patch.of_item(params.get("changes"))
    return ask(
        message,
        session_id=naming.session_id(read_params(ItemParams, params).thread_id),
        request_id=request_id(message),
        title=naming.title_of("Change files", shown.headline),
        tool_kind="edit",
        options=options_of(_for_files(params)),
        preview=(
            *codex_patch.root_of(params.get("grantRoot")),
            *shown.preview,
            *members(_around(params)),
            *unknown(params, _KNOWN_OF_FILES),
        ),
        preview_complete=shown.is_complete,
    )


def request_id(message: Message) -> RequestId:
    """The id of a question, made of the names that Codex gives its item; its replay has a new JSON-RPC id."""
    return naming.request_id(NAME, message.method, *(message.params.get(name) for name in _NAMES))


def result(message: Message, end: End) -> Json | None:
    """Return the answer to a message of which a question was made; None where no person decided."""
    choices = _for_command(message.params)[0] if message.method == COMMAND else _for_files(message.params)
    choice = chosen(choices, end)
    if choice is not None:
        return {"decision": choice.says}
    return no() if end.rejects else None


def no() -> Json:
    """Return the answer that allows nothing and lets the turn go on: to stop it is a person's choice."""
    return {"decision": DECLINE}


def _for_files(params: Json) -> tuple[Choice, ...]:
    return (*codex_patch.approvals(params.get("grantRoot"), ACCEPT, FOR_SESSION), _DECLINING, _CANCELLING)


def _for_command(params: Json) -> tuple[list[Choice], int]:
    """Return the choices in Codex's order, and how many of its own nobody here can read.

    Codex takes `decline` whether or not it names it, so that a no need not stop the turn.
    """
    choices: list[Choice] = []
    # Positions are those of the message, so that a rule keeps its id whatever is left out before it.
    offered = _offered(params)
    unread = max(0, len(offered) - _MOST_READ)
    for position, decision in enumerate(offered[:_MOST_READ]):
        choice = _choice(position, decision, params)
        if choice is None:
            unread += 1
        elif choice not in choices:
            choices.append(choice)
    if _DECLINING not in choices:
        choices.insert(choices.index(_CANCELLING) if _CANCELLING in choices else len(choices), _DECLINING)
    return choices, unread


def _offered(params: Json) -> list[Any]:
    """Return the decisions that Codex offers; where it names none, those that its own client offers then."""
    available = params.get(_AVAILABLE)
    # Choices that nobody can read are no reason to offer others: the list may be there to leave one out.
    if available is not None:
        if not isinstance(available, list):
            raise Invalid(("params", _AVAILABLE), "must be a list")
        return available
    if params.get(_CONTEXT) is not None:
        proposed = params.get(_NETWORK_PROPOSED)
        allowing = [each for each in proposed if _is_allowing(each)] if isinstance(proposed, list) else []
        return [ACCEPT, FOR_SESSION, *({NETWORK: {"network_policy_amendment": each}} for each in allowing), CANCEL]
    words = params.get(_RULE_PROPOSED)
    if params.get(_PERMISSIONS) is not None or not words:
        return [ACCEPT, CANCEL]
    return [ACCEPT, {RULE: {"execpolicy_amendment": words}}, CANCEL]


def _is_allowing(amendment: Any) -> bool:
    return isinstance(amendment, dict) and amendment.get("action") == "allow"


def _choice(position: int, decision: Any, params: Json) -> Choice | None:
    match decision:
        case "accept":
            return Choice(allow_once(option_id=OptionId(ACCEPT)), ACCEPT)
        case "acceptForSession":
            return Choice(allow_always(_session_label(params), option_id=OptionId(FOR_SESSION)), FOR_SESSION)
        case "decline":
            return _DECLINING
        case "cancel":
            return _CANCELLING
        case {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": words, **inside}, **beside} if not (
            inside or beside
        ):
            return command_rule(position, words, decision)
        case {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment, **inside}, **beside} if not (
            inside or beside
        ):
            return network_rule(position, amendment, decision)
        case _:
            return None


def _session_label(params: Json) -> str:
    if params.get(_CONTEXT) is not None:
        return "Always allow this connection for this session"
    if params.get(_PERMISSIONS) is not None:
        return "Always allow this command with these permissions for this session"
    return "Always allow this command for this session"


def _connection(context: Any) -> str:
    host = context.get("host") if isinstance(context, dict) else None
    return naming.title_of("Connect", naming.text_of(host))


def _what(params: Json) -> tuple[Preview, ...]:
    """Show what would be done: the command, the connection, and what more it may do than the sandbox lets it."""
    command, context, more = params.get("command"), params.get(_CONTEXT), params.get(_PERMISSIONS)
    shown = members({tool_input.COMMAND: command})
    match context:
        case {"host": str() as host, "protocol": str() as protocol, **rest} if not rest:
            shown += (FieldPreview("Connection to", host), FieldPreview("Protocol", protocol))
        case _:
            shown += members({"Connection": context})
    if not shown:
        shown = (FieldPreview("Command", "Codex did not say which"),)
    return (*shown, *profile(more))


def _around(params: Json) -> Json:
    return {
        "Working directory": params.get("cwd"),
        "Environment": params.get("environmentId"),
        "Reason": params.get("reason"),
    }
