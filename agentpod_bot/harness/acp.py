"""The Agent Client Protocol: what an agent asks its client, as a bridge between the two hands it over.

A body is the whole JSON-RPC message of `session/request_permission` or `elicitation/create`
(https://agentclientprotocol.com/protocol/tool-calls, .../protocol/elicitation), and is answered with the whole
response; or it is the parameters alone, and is answered with the result. Versions 1 and 2 are told apart by
what they hold.

`session/cancel` closes what its session has open. `$/cancel_request` closes the question whose message had that
id; agents count their ids from 0, so a bridge that knows the session adds `sessionId` beside `requestId`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import RequestId
from agentpod_bot.core.lifecycle import Cancelled
from agentpod_bot.core.model import Hold, PermissionRequest
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import acp_elicitation, acp_permission, naming, strict_json
from agentpod_bot.harness.acp_elicitation import Unaskable
from agentpod_bot.harness.adapter import Ask, Close, Settled

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Call, End, Json, Manner
    from agentpod_bot.harness.strict_json import Loc

NAME = "acp"
HOOK = False
PATIENCE_S: int | None = None
"""The protocol knows no time-out."""

CANCEL_SESSION = "session/cancel"
CANCEL_REQUEST = "$/cancel_request"
METHODS = (acp_permission.METHOD, acp_elicitation.METHOD, CANCEL_SESSION, CANCEL_REQUEST)
MOST_INTEGER = 2**63
"""Whole numbers as ids have 64 bits: from its negative to below it."""


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one message, or its parameters. Raises `MalformedJson`, or `Invalid` with every field at fault."""
    content = strict_json.read(body)
    method, params, at = _opened(content)
    match method:
        case acp_permission.METHOD:
            return _permission(body, content, params, at)
        case acp_elicitation.METHOD:
            return _elicitation(body, content, params, at)
        case _:
            return _cancel(method, params, at)


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """Return the response to `call`: the option that a person selected of those in `asked`, else a cancellation."""
    content = _readable(call)
    try:
        method, params, at = _opened(strict_json.read(asked))
        read = acp_elicitation if method == acp_elicitation.METHOD else acp_permission
        return _framed(content, read.result(params, at, end))
    except (Invalid, MalformedJson):  # it was read before, by another version
        return _framed(content, _cancelled(content))


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:  # noqa: ARG001 - every adapter takes it
    """Return a cancellation: ACP has no place in it for the reason."""
    content = _readable(call)
    return _framed(content, _cancelled(content))


def _permission(body: bytes, content: Json, params: Json, at: Loc) -> Call:
    asked = acp_permission.read(params, at)
    if not asked.offered:
        return Settled(_framed(content, acp_permission.cancelled()), "a permission request without options")
    request_id = _request_id(content, acp_permission.METHOD, asked.session, asked.tool_call_id)
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(asked.session),
            title=asked.title,
            options=asked.options,
            request_id=request_id,
            tool_kind=asked.tool_kind,
            preview=asked.preview,
            preview_complete=asked.preview_complete,
            hold=_hold(request_id, params),
            raw=body,
        )
    )


def _elicitation(body: bytes, content: Json, params: Json, at: Loc) -> Call:
    form = acp_elicitation.read(params, at)
    if isinstance(form, Unaskable):
        return Settled(_framed(content, acp_elicitation.declined()), form.why)
    request_id = _request_id(content, acp_elicitation.METHOD, form.session, form.tool_call_id)
    return Ask(
        PermissionRequest(
            session_id=naming.session_id(form.session),
            title=form.title,
            options=form.options,
            request_id=request_id,
            preview=form.preview,
            hold=_hold(request_id, params),
            raw=body,
        )
    )


def _cancel(method: str, params: Json, at: Loc) -> Close:
    session = params.get("sessionId")
    if method == CANCEL_SESSION:
        if not isinstance(session, str):
            raise Invalid((*at, "sessionId"), "is required, and must be a text")
        return Close(
            event=Cancelled("the agent's turn was cancelled"),
            session_id=naming.session_id(session),
            prefixes=("",),
            every=True,
            answer={},
        )
    if not _is_id(params.get("requestId")) or params.get("requestId") is None:
        raise Invalid((*at, "requestId"), "is required, and must be a text or a whole number")
    return Close(
        event=Cancelled("the agent cancelled its request"),
        session_id=naming.session_id(session) if isinstance(session, str) else None,
        prefixes=(_prefix(params["requestId"]),),
        every=True,
        answer={},
    )


def _opened(content: Json) -> tuple[str, Json, Loc]:
    """Return the method, its parameters and where they stand. Raises `Invalid`."""
    if not _is_message(content):
        asks = "options" in content or not ("mode" in content or "requestedSchema" in content)
        return acp_permission.METHOD if asks else acp_elicitation.METHOD, content, ()
    method, params = content.get("method"), content.get("params")
    if not isinstance(method, str) or method not in METHODS:
        raise Invalid(("method",), f"must be one of {', '.join(METHODS)}")
    if method in (acp_permission.METHOD, acp_elicitation.METHOD) and not ("id" in content and _is_id(content["id"])):
        raise Invalid(("id",), "is required, and must be a text or a whole number")
    if not isinstance(params, dict):
        raise Invalid(("params",), "is required, and must be an object")
    return method, params, ("params",)


def _is_message(content: Json) -> bool:
    return "method" in content or "jsonrpc" in content


def _is_id(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return -MOST_INTEGER <= value < MOST_INTEGER
    return value is None or isinstance(value, str)


def _prefix(rpc_id: Any) -> str:
    """How the ids of all requests begin whose message had this id."""
    return f"{naming.request_id(NAME, rpc_id)}:"


def _request_id(content: Json, *names: str | None) -> RequestId | None:
    """Return an id for a message; None for parameters alone, and for the id null, which names nothing."""
    if not _is_message(content) or content["id"] is None:
        return None
    return RequestId(f"{_prefix(content['id'])}{naming.hashed(names)}")


def _hold(request_id: RequestId | None, params: Json) -> Hold:
    return Hold() if request_id is not None else Hold(twin=f"{NAME}:{naming.hashed(params)}")


def _readable(call: bytes | None) -> Json:
    """Return a body, or an empty object where it cannot be read."""
    try:
        return {} if call is None else strict_json.read(call)
    except (Invalid, MalformedJson):
        return {}


def _cancelled(content: Json) -> Json:
    try:
        method, _, _ = _opened(content)
    except Invalid:
        method = str(content.get("method"))
    return acp_elicitation.cancelled() if method == acp_elicitation.METHOD else acp_permission.cancelled()


def _framed(content: Json, result: Json) -> Json:
    """Return a result, as the response to the message that `content` is where it is one."""
    if not _is_message(content):
        return result
    rpc_id = content.get("id")
    return {"jsonrpc": "2.0", "id": rpc_id if _is_id(rpc_id) else None, "result": result}
