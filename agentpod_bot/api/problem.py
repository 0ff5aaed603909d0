"""Failures as RFC 9457 problem documents, and the one table from a code to its HTTP status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from agentpod_bot.api.view import View  # noqa: TC001 - pydantic reads annotations
from agentpod_bot.errors import (
    AgentpodError,
    Invalid,
    TooLarge,
    TooManyPending,
    TooManyRequests,
    TooManyWaits,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.strict_json import Loc

MEDIA_TYPE = "application/problem+json"
URN = "urn:agentpod:problem:"
TOO_MANY_RETRY_S = 10
"""A hint: how soon one of the open requests, or one of the waiting calls, may have ended."""
INTERNAL = "internal_error"

PROBLEMS: Mapping[str, tuple[int, str]] = {
    "malformed_http": (400, "The request cannot be read"),
    "malformed_json": (400, "The body cannot be read as JSON"),
    "unauthorized": (401, "A configured token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "host_not_allowed": (403, "The Host header names no host of this daemon"),
    "origin_not_allowed": (403, "Pages in a browser may not call this daemon"),
    "not_found": (404, "There is no such thing here"),
    "method_not_allowed": (405, "The path does not know this method"),
    "body_too_slow": (408, "The body did not come to its end in time"),
    "conflict": (409, "The state of the request rules this out"),
    "not_decided": (409, "The request is not decided"),
    "request_id_reused": (409, "An open request has this id and other content"),
    "request_closed": (409, "The request is closed"),
    "body_too_large": (413, "The body is too large"),
    "too_large": (413, "The question does not fit into a room"),
    "unsupported_media_type": (415, "The body must be UTF-8 application/json"),
    "expectation_failed": (417, "The Expect header asks for something unknown"),
    "invalid": (422, "A field cannot be accepted"),
    "too_many_pending": (429, "Too many requests are open"),
    "too_many_requests": (429, "The token asks too often"),
    INTERNAL: (500, "Something went wrong inside the daemon"),
    "too_many_waits": (503, "The token holds too many waiting calls"),
    "matrix_unavailable": (503, "Nobody can be asked now"),
    "no_approver": (503, "The route has no approver"),
    "approver_not_in_room": (503, "Too few approvers are in the room"),
    "not_in_room": (503, "The bot is not in the room"),
    "room_encrypted_without_crypto": (503, "The room is encrypted, and the bot cannot encrypt"),
    "room_replaced": (503, "The room was replaced by another"),
    "store_unavailable": (503, "The store cannot be written now"),
    "shutting_down": (503, "The daemon is stopping"),
}
"""What each code answers: its HTTP status and its title. A code that stands not here is `internal_error`."""

_OF_STATUS: Mapping[int, str] = {
    404: "not_found",
    405: "method_not_allowed",
    413: "body_too_large",
    417: "expectation_failed",
}


class Fault(BaseModel):
    """One field that cannot be accepted."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)

    loc: list[str | int] = Field(description="The field's path; empty for the whole body.")
    msg: str


class Problem(BaseModel):
    """A failure (RFC 9457). Members that say nothing are left out."""

    model_config = ConfigDict(strict=True, frozen=True, hide_input_in_errors=True)

    type: str = Field(description=f"`{URN}` and the code.")
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable; made for programs.", json_schema_extra={"enum": [*sorted(PROBLEMS)]})
    correlation_id: str = Field(description="Names this call in the daemon's log.")
    errors: list[Fault] | None = Field(default=None, description="The fields at fault.")
    request: View | None = Field(default=None, description="The request that the failure is about, as it is now.")


def problem(
    code: str,
    detail: str,
    *,
    correlation_id: str,
    faults: tuple[tuple[Loc, str], ...] = (),
    shown: View | None = None,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Make one problem document."""
    status, title = PROBLEMS[code]
    optional: dict[str, object] = {}
    if faults:
        optional["errors"] = [Fault(loc=list(loc), msg=msg) for loc, msg in faults]
    if shown is not None:
        optional["request"] = shown
    document = Problem.model_validate(
        {
            "type": f"{URN}{code}",
            "title": title,
            "status": status,
            "detail": detail or title,
            "code": code,
            "correlation_id": correlation_id,
            **optional,
        }
    )
    body = document.model_dump_json(exclude_unset=True).encode()
    return web.Response(status=status, body=body, content_type=MEDIA_TYPE, headers=headers)


def of_error(error: AgentpodError, *, correlation_id: str, shown: View | None = None) -> web.Response:
    """Say an expected failure. `error.code` must be one of `PROBLEMS`."""
    faults: tuple[tuple[Loc, str], ...] = ()
    headers: dict[str, str] = {}
    match error:
        case Invalid():
            faults = ((error.loc, error.msg), *error.more)
        case TooLarge():
            faults = (((error.field,), str(error)),)
        case Unavailable():
            headers["Retry-After"] = str(error.retry_after_s)
        case TooManyRequests():
            headers["Retry-After"] = str(error.retry_after_s)
        case TooManyPending() | TooManyWaits():
            headers["Retry-After"] = str(TOO_MANY_RETRY_S)
        case _:
            pass
    if error.code == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return problem(error.code, str(error), correlation_id=correlation_id, faults=faults, shown=shown, headers=headers)


def code_of_http(failure: web.HTTPException) -> str:
    """The code of a failure that the HTTP library found."""
    return _OF_STATUS.get(failure.status, "malformed_http" if failure.status < 500 else INTERNAL)  # noqa: PLR2004 - 5xx


def of_http(failure: web.HTTPException, *, correlation_id: str) -> web.Response:
    """Say a failure that the HTTP library found (no such path, another method)."""
    code = code_of_http(failure)
    headers = {"Allow": failure.headers["Allow"]} if "Allow" in failure.headers else None
    return problem(code, "", correlation_id=correlation_id, headers=headers)
