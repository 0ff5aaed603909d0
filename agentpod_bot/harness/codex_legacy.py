"""Codex's older questions: `execCommandApproval`, `applyPatchApproval`, and those of `codex mcp-server`.

The last come as `elicitation/create`, and are answered with a ReviewDecision all the same.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, assert_never

from pydantic import Field

from agentpod_bot.harness import codex_patch, codex_review, naming, tool_input
from agentpod_bot.harness.codex_choices import options_of, spelled_out
from agentpod_bot.harness.codex_message import NAME, Shape, Text, ask, read_params
from agentpod_bot.harness.codex_shown import READ_AS, actions, members, unknown

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.harness.adapter import Ask, End, Json
    from agentpod_bot.harness.codex_choices import Choice
    from agentpod_bot.harness.codex_message import Message
    from agentpod_bot.harness.codex_review import Dialect

EXEC = "execCommandApproval"
PATCH = "applyPatchApproval"
ELICITATION = "elicitation/create"


class _ExecParams(Shape):
    conversation_id: Text
    call_id: Text
    command: Annotated[list[str], Field(min_length=1)]
    cwd: str


class _PatchParams(Shape):
    conversation_id: Text
    call_id: Text
    file_changes: dict[str, Any]


class _McpParams(Shape):
    kind: Annotated[Literal["exec-approval", "patch-approval"], Field(alias="codex_elicitation")]
    call_id: Annotated[Text, Field(alias="codex_call_id")]


class _McpExecParams(Shape):
    command: Annotated[list[str], Field(alias="codex_command", min_length=1)]
    cwd: Annotated[str, Field(alias="codex_cwd")]


class _McpPatchParams(Shape):
    file_changes: Annotated[dict[str, Any], Field(alias="codex_changes")]


@dataclass(frozen=True, slots=True)
class _Command:
    argv: list[str]
    cwd: str
    proposed: Any


@dataclass(frozen=True, slots=True)
class _Patch:
    changes: dict[str, Any]
    root: Any


_NAMES = {
    EXEC: ("conversationId", "callId", "approvalId"),
    PATCH: ("conversationId", "callId"),
    ELICITATION: ("threadId", "codex_elicitation", "codex_mcp_tool_call_id", "codex_event_id", "codex_call_id"),
}
_KNOWN = {
    EXEC: {"command", "cwd", "reason", "parsedCmd", "proposedExecpolicyAmendment"},
    PATCH: {"fileChanges", "grantRoot", "reason"},
    ELICITATION: {"codex_command", "codex_cwd", "codex_parsed_cmd", "codex_changes", "codex_grant_root"}
    | {"codex_reason", "message", "requestedSchema"},
}


def question(message: Message) -> Ask:
    """Return the question of a message; raises `Invalid`."""
    params = message.params
    said = {
        "Message": params.get("message"),
        "Reason": params.get("reason", params.get("codex_reason")),
        READ_AS: actions(params.get("parsedCmd", params.get("codex_parsed_cmd"))),
    }
    rest = (*members(said), *unknown(params, _KNOWN[message.method] | {*_NAMES[message.method]}))
    wants = _wants(message)
    choices = _choices(wants)
    is_complete = True
    match wants:
        case _Command(argv=argv, cwd=cwd):
            title, kind = naming.title_of("Run", shlex.join(argv)), "execute"
            preview = (*members({tool_input.COMMAND: shlex.join(argv), "Working directory": cwd}), *rest)
        case _Patch(changes=changes, root=root):
            shown = codex_patch.of_patch(changes)
            title, kind = naming.title_of("Change files", shown.headline), "edit"
            preview = (*codex_patch.root_of(root), *shown.preview, *rest)
            is_complete = shown.is_complete
        case _:
            assert_never(wants)
    return ask(
        message,
        session_id=naming.session_id(params.get("threadId" if message.method == ELICITATION else "conversationId")),
        request_id=request_id(message),
        title=title,
        tool_kind=kind,
        options=options_of(choices),
        preview=(*preview, *spelled_out(choices)),
        preview_complete=is_complete,
    )


def result(message: Message, end: End, dialect: Dialect) -> Json:
    """Return the answer to a message of which a question was made."""
    return codex_review.decided(_choices(_wants(message)), end, dialect)


def is_codex(message: Message) -> bool:
    """Whether an `elicitation/create` is one of Codex's own."""
    return "codex_elicitation" in message.params


def request_id(message: Message) -> RequestId:
    """The id of a question, made of the names that Codex gives its call."""
    names = [message.params.get(name) for name in _NAMES[message.method]]
    # An MCP client numbers its requests; the other calls are sent again under new numbers.
    number = message.rpc_id if message.method == ELICITATION else None
    return naming.request_id(NAME, message.method, number, *names)


def _wants(message: Message) -> _Command | _Patch:
    params = message.params
    match message.method:
        case "execCommandApproval":
            command = read_params(_ExecParams, params)
            return _Command(command.command, command.cwd, params.get("proposedExecpolicyAmendment"))
        case "applyPatchApproval":
            return _Patch(read_params(_PatchParams, params).file_changes, params.get("grantRoot"))
        case _:
            if read_params(_McpParams, params).kind == "exec-approval":
                asked = read_params(_McpExecParams, params)
                return _Command(asked.command, asked.cwd, None)
            return _Patch(read_params(_McpPatchParams, params).file_changes, params.get("codex_grant_root"))


def _choices(wants: _Command | _Patch) -> tuple[Choice, ...]:
    match wants:
        case _Command(proposed=proposed):
            return codex_review.of_command(proposed)
        case _Patch(root=root):
            return codex_review.of_patch(root)
        case _:
            assert_never(wants)
