"""The messages of Codex: JSON-RPC without its version member (app-server), or with it (`codex mcp-server`).

Wire format: https://github.com/openai/codex/blob/main/codex-rs/app-server/README.md. A bridge
may add two members beside `method`: `codex_version`, like `0.171.0`, and `userAgent`, as the
answer to `initialize` gave it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from agentpod_bot.core.model import Hold, PermissionRequest
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import naming, strict_json
from agentpod_bot.harness.adapter import Ask
from agentpod_bot.harness.strict_json import invalid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.core.ids import RequestId, SessionId
    from agentpod_bot.core.model import Option, Preview
    from agentpod_bot.harness.adapter import Json

NAME = "codex"
INVALID_REQUEST = -32_600
"""JSON-RPC's code for a message that is no request to answer; Codex takes every error for a no."""
NOT_DECIDED = -32_000
"""A code of our own; Codex reads none but logs the message."""

Version = tuple[int, int, int]
Text = Annotated[str, Field(min_length=1)]
Params = TypeVar("Params", bound="Shape")

_INT64 = 2**63
_NUMBERS = r"([0-9]{1,6})\.([0-9]{1,6})\.([0-9]{1,6})(?![0-9])"
_VERSION = re.compile(rf"(?:codex-cli |rust-v|v)?{_NUMBERS}")
_USER_AGENT = re.compile(rf"[^/]{{1,255}}/{_NUMBERS}")
# What Codex calls itself when somebody builds it from its sources, of whatever day.
_OF_NO_RELEASE = (0, 0, 0)


class Shape(BaseModel):
    """Strict types, unknown members ignored, camelCase on the wire, and no input in error messages."""

    model_config = ConfigDict(
        strict=True, extra="ignore", frozen=True, hide_input_in_errors=True, alias_generator=to_camel
    )


@dataclass(frozen=True, slots=True)
class Message:
    """One request of Codex."""

    method: str
    params: Json
    rpc_id: str | int | None
    """None where the caller left it out: then it is answered with the bare result."""
    has_jsonrpc: bool
    version: Version | None
    """What the message itself says of its Codex."""
    agent: str | None
    raw: bytes


def read_message(body: bytes) -> Message:
    """Return the request that `body` is; raises `MalformedJson` or `Invalid`."""
    return message_of(strict_json.read(body), body)


def message_of(content: Json, raw: bytes = b"") -> Message:
    """Return the request that a JSON object is; raises `Invalid`."""
    method, params = content.get("method"), content.get("params")
    if not isinstance(method, str) or not method:
        raise Invalid(("method",), "must be a text")
    if not isinstance(params, dict):
        raise Invalid(("params",), "must be an object")
    if content.get("id") is not None and _rpc_id(content) is None:
        raise Invalid(("id",), "must be a text or a whole number of 64 bits")
    return Message(
        method=method,
        params=params,
        rpc_id=_rpc_id(content),
        has_jsonrpc="jsonrpc" in content,
        version=version_of(content.get("codex_version")) or _version_in(content.get("userAgent"), _USER_AGENT),
        agent=naming.name_of(content.get("userAgent")),
        raw=raw,
    )


def version_of(text: Any) -> Version | None:
    """Return a version as numbers, its pre-release left out; None where it is none, or that of no release."""
    return _version_in(text, _VERSION)


def read_params(model: type[Params], params: Json) -> Params:
    """Return `params` as `model`; raises `Invalid` with every member at fault."""
    try:
        return model.model_validate(params)
    except ValidationError as fault:
        # Neither input nor context: what was sent may be secret, and its sender knows it.
        found = fault.errors(include_url=False, include_context=False, include_input=False)
        raise invalid([(("params", *each["loc"]), each["msg"]) for each in found]) from None


def framed(message: Message, result: Json) -> Json:
    """Return a result as the message that answers `message`."""
    return _frame(message.rpc_id, has_jsonrpc=message.has_jsonrpc) | {"result": result} if _has_id(message) else result


def failed(call: bytes | None, reason: str) -> Json:
    """Return the error that answers what is no request which people could be asked."""
    try:
        content = strict_json.read(call or b"")
    except (Invalid, MalformedJson):
        content = {}
    frame = _frame(_rpc_id(content), has_jsonrpc="jsonrpc" in content)
    return frame | {"error": {"code": INVALID_REQUEST, "message": reason}}


def undecided(message: Message, reason: str, *, otherwise: Json) -> Json:
    """Return the answer where nobody decided: an error, for Codex tells its model of a `decline` that the user refused.

    It takes an error for a no as well. A call without an id can have none: `otherwise` is its no.
    """
    if not _has_id(message):
        return framed(message, otherwise)
    frame = _frame(message.rpc_id, has_jsonrpc=message.has_jsonrpc)
    return frame | {"error": {"code": NOT_DECIDED, "message": reason}}


def is_exact(value: Any) -> bool:
    """Whether a JSON value was read as it was written, so that its echo is the same value."""
    match value:
        case dict():
            return all(is_exact(member) for member in value.values())
        case list():
            return all(is_exact(item) for item in value)
        case bool():
            return True
        case int():
            return -_INT64 <= value < _INT64
        case float():
            return math.isfinite(value)
        case _:
            return True


def ask(
    message: Message,
    *,
    session_id: SessionId,
    request_id: RequestId | None,
    title: str,
    tool_kind: str | None,
    options: tuple[Option, ...],
    preview: Iterable[Preview],
    preview_complete: bool = True,
) -> Ask:
    """Return the question of one message.

    Codex asks again under the same names when a client resumes a thread. A new question takes
    the place of the old one where its content differs, as that of a bridge does which was
    started meanwhile and does not remember the changes to a file.
    """
    # Without a name two calls that ask the same are two calls; only one whose connection dropped is joined.
    twin = None if request_id is not None else f"{NAME}:{naming.hashed([message.method, message.params])}"
    return Ask(
        PermissionRequest(
            session_id=session_id,
            title=title,
            options=options,
            request_id=request_id,
            tool_kind=tool_kind,
            agent=message.agent,
            preview=tuple(preview),
            preview_complete=preview_complete,
            supersede=request_id is not None,
            hold=Hold(twin),
            raw=message.raw,
        )
    )


def _has_id(message: Message) -> bool:
    return message.rpc_id is not None


def _frame(rpc_id: str | int | None, *, has_jsonrpc: bool) -> Json:
    version = {"jsonrpc": "2.0"} if has_jsonrpc else {}
    return version if rpc_id is None else version | {"id": rpc_id}


def _rpc_id(content: Json) -> str | int | None:
    match content.get("id"):
        case bool():
            return None
        case str() as text:
            return text
        case int() as number if -_INT64 <= number < _INT64:
            return number
        case _:
            return None


def _version_in(text: Any, pattern: re.Pattern[str]) -> Version | None:
    found = pattern.match(text) if isinstance(text, str) else None
    if found is None:
        return None
    version = (int(found[1]), int(found[2]), int(found[3]))
    return None if version == _OF_NO_RELEASE else version
