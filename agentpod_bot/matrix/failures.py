"""What the homeserver answers instead of what was asked, as one of our errors: the only such table.

nio's own error objects are not read: they lose the status and the headers, say
`status_code=None` for a proxy's page, and call a refused state event a state event.
"""

from __future__ import annotations

import json
import math
import os
from typing import TYPE_CHECKING, Any

import aiohttp

from agentpod_bot.errors import HomeserverUnavailable, MatrixError, RateLimited, Refused, TokenRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_RETRY_MS = 5_000
LONGEST_RETRY_MS = 60 * 60 * 1000
"""No homeserver can silence the bot for longer than an hour at a time."""

TOO_MANY_REQUESTS = 429
PERMANENT = frozenset({400, 403, 404, 413})
TOKEN_ERRCODES = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
TOKEN_STATUSES = frozenset({401, 403})


def failure_of(status: int, headers: Mapping[str, str], raw: bytes) -> MatrixError:
    """The error that an answer is; call it for every answer that is not the one asked for.

    Only an errcode of Matrix makes a failure permanent or names the token: a proxy's
    404 page says nothing about a room, and its 401 nothing about the token.
    """
    body = decode(raw) or {}
    errcode, said = body.get("errcode"), body.get("error")
    if not isinstance(errcode, str):
        errcode = ""
    if status == TOO_MANY_REQUESTS or errcode == "M_LIMIT_EXCEEDED":
        return RateLimited(_retry_after_ms(body, headers))
    if errcode in TOKEN_ERRCODES and status in TOKEN_STATUSES:
        return TokenRefused(soft_logout=body.get("soft_logout") is True)
    if errcode and status in PERMANENT:
        return Refused(errcode, said[:200] if isinstance(said, str) else "", status=status)
    return HomeserverUnavailable(f"the homeserver answered {status} {errcode or 'without an errcode'}", status=status)


def unanswered(error: Exception) -> HomeserverUnavailable:
    """The error for a call that was not answered, by what nio or aiohttp raised; it says what a person can look at."""
    return HomeserverUnavailable(f"no answer: {_why(error)}")


def _why(error: Exception) -> str:
    match error:
        case aiohttp.ClientConnectorCertificateError():
            why = getattr(error.certificate_error, "verify_message", "it is another name's")
            return f"its certificate is not trusted: {why}"
        case aiohttp.ClientSSLError():
            return "what listens there does not speak TLS; the address may begin with http:// instead of https://"
        case aiohttp.ClientConnectorDNSError():
            return "its name is not known"
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError():
            return "the connection was cut"
        case TimeoutError():
            return "none came in time"
        case OSError(errno=int(errno)) if errno > 0:
            return os.strerror(errno).lower()
        case _:
            return f"none that can be read ({type(error).__name__})"


def decode(raw: bytes) -> dict[str, Any] | None:
    """The JSON object that a body is, or None where it is none.

    Lone surrogates, which JSON can escape and UTF-8 cannot hold, become U+FFFD: one
    such event must not make a whole sync response impossible to store.
    """
    try:
        body = json.loads(raw)
        if b"\\u" in raw:
            body = json.loads(
                json.dumps(body, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            )
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _retry_after_ms(body: Mapping[str, Any], headers: Mapping[str, str]) -> int:
    """Milliseconds to wait: the body's, else the header's, else the default; never 0."""
    wanted = body.get("retry_after_ms")
    if isinstance(wanted, int) and not isinstance(wanted, bool) and wanted >= 0:
        return min(max(wanted, 1), LONGEST_RETRY_MS)
    try:
        seconds = float(headers.get("Retry-After", ""))
    except ValueError:  # absent, or the form with a date
        return DEFAULT_RETRY_MS
    if not math.isfinite(seconds) or seconds < 0:
        return DEFAULT_RETRY_MS
    return min(max(math.ceil(seconds * 1000), 1), LONGEST_RETRY_MS)
