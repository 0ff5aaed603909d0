"""What became of one try, and what follows from what a target answered."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from enum import StrEnum
from http import HTTPStatus

LONGEST_RETRY_AFTER_MS = 86_400_000
"""A target that asks for more is asked again after a day all the same."""
MAX_DIGITS = 9


class Why(StrEnum):
    """Why a try failed."""

    ADDRESS_REFUSED = "address_refused"
    UNREACHABLE = "unreachable"
    TLS = "tls"
    TIMED_OUT = "timed_out"
    REDIRECTED = "redirected"
    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    REFUSED = "refused"
    NOT_SHOWN = "not_shown"
    """There was nothing to post: the fault is ours."""


@dataclass(frozen=True, slots=True)
class Taken:
    """The target took it (2xx)."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The target never wants this one (410)."""


@dataclass(frozen=True, slots=True)
class Failed:
    """It may be taken later. `retry_after_ms` is what the target asked to wait."""

    why: Why
    status: int | None = None
    retry_after_ms: int | None = None


Reply = Taken | Gone | Failed


def judged(status: int, retry_after: str | None, now_ms: int) -> Reply:
    """What a status means. `retry_after` is that header; it counts with 429 and 503 only."""
    match status:
        case _ if status // 100 == 2:  # noqa: PLR2004 - the class of the status
            return Taken()
        case HTTPStatus.GONE:
            return Gone()
        case HTTPStatus.TOO_MANY_REQUESTS:
            return Failed(Why.RATE_LIMITED, status, wait_ms(retry_after, now_ms))
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return Failed(Why.SERVER_ERROR, status, wait_ms(retry_after, now_ms))
    match status // 100:
        case 3:
            return Failed(Why.REDIRECTED, status)
        case 5:
            return Failed(Why.SERVER_ERROR, status)
        case _:
            return Failed(Why.REFUSED, status)


def wait_ms(retry_after: str | None, now_ms: int) -> int | None:
    """How long `Retry-After` asks to wait (RFC 9110, 10.2.3: seconds, or a date); None where it asks for nothing."""
    text = "" if retry_after is None else retry_after.strip()
    if text.isascii() and text.isdigit():
        return min(LONGEST_RETRY_AFTER_MS, int(text[:MAX_DIGITS]) * 1000)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # no date, or one that no calendar has: a target may send anything
        return None
    at_ms = int(at.replace(tzinfo=at.tzinfo or UTC).timestamp() * 1000)
    return min(LONGEST_RETRY_AFTER_MS, max(0, at_ms - now_ms))
