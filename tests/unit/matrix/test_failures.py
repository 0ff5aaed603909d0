from __future__ import annotations

import json
import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused, TokenRefused
from agentpod_bot.matrix.failures import decode, failure_of, unanswered


def failure(status: int, body: Any = b"", **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return failure_of(status, {name.replace("_", "-"): value for name, value in headers.items()}, raw)


@pytest.mark.parametrize(
    ("body", "headers", "wait_ms"),
    [
        ({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 4_300}, {}, 4_300),
        ({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 4_300}, {"Retry_After": "9"}, 4_300),
        ({"errcode": "M_LIMIT_EXCEEDED"}, {"Retry_After": "9"}, 9_000),
        ({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": "soon"}, {"Retry_After": "0.5"}, 500),
        ({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": -1}, {}, 5_000),
        ({"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": True}, {}, 5_000),
        (b"<html>slow down</html>", {"Retry_After": "3"}, 3_000),
        (b"", {}, 5_000),
        (b"", {"Retry_After": "Wed, 21 Oct 2026 07:28:00 GMT"}, 5_000),
        (b"", {"Retry_After": "nan"}, 5_000),
        (b"", {"Retry_After": "inf"}, 5_000),
        ({"retry_after_ms": 0}, {}, 1),
        ({"retry_after_ms": 10**12}, {}, 3_600_000),
    ],
)
def test_a_429_says_how_long_to_wait(body: Any, headers: dict[str, str], wait_ms: int) -> None:
    error = failure(429, body, **headers)
    assert isinstance(error, RateLimited)
    assert error.retry_after_ms == wait_ms


@pytest.mark.parametrize("errcode", ["M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"])
@pytest.mark.parametrize("soft", [True, False])
def test_only_the_errcodes_of_a_token_refuse_the_token(errcode: str, *, soft: bool) -> None:
    error = failure(401, {"errcode": errcode, "error": "", "soft_logout": soft})
    assert isinstance(error, TokenRefused)
    assert error.soft_logout is soft


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, b"<html>proxy login</html>"),
        (401, {"errcode": "M_USER_LOCKED", "soft_logout": True}),
        (500, {"errcode": "M_UNKNOWN_TOKEN"}),
        (401, b""),
    ],
)
def test_any_other_401_says_nothing_about_the_token(status: int, body: Any) -> None:
    error = failure(status, body)
    assert isinstance(error, HomeserverUnavailable)
    assert error.status == status


@pytest.mark.parametrize("status", [400, 403, 404, 413])
def test_a_refusal_with_an_errcode_is_for_good(status: int) -> None:
    error = failure(status, {"errcode": "M_FORBIDDEN", "error": "not in room"})
    assert isinstance(error, Refused)
    assert (error.errcode, error.status, str(error)) == ("M_FORBIDDEN", status, "M_FORBIDDEN: not in room")


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"{}", b'{"errcode": 7}', b"\xff\xfe", b"[" * 100_000])
@pytest.mark.parametrize("status", [200, 400, 403, 404, 413, 500, 502, 503, 504, 302])
def test_an_answer_without_an_errcode_may_be_repeated(status: int, body: bytes) -> None:
    error = failure(status, body)
    assert isinstance(error, HomeserverUnavailable)
    assert error.status == status


@pytest.mark.parametrize("status", [500, 502, 503])
def test_a_fault_of_the_homeserver_is_never_for_good(status: int) -> None:
    assert isinstance(failure(status, {"errcode": "M_FORBIDDEN", "error": ""}), HomeserverUnavailable)


def test_text_that_no_store_can_hold_becomes_a_replacement_character() -> None:
    assert decode(rb'{"a\ud800": ["\udfff 1", "\ud83d\ude00", "\u00e9"]}') == {"a�": ["� 1", "😀", "é"]}


NOWHERE = ConnectionKey("hs.example", 443, True, None, None, None, None)  # noqa: FBT003 - aiohttp's own tuple


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (aiohttp.ClientConnectorError(NOWHERE, ConnectionRefusedError(111, "x")), "connection refused"),
        (aiohttp.ClientConnectorDNSError(NOWHERE, OSError(-2, "x")), "its name is not known"),
        (aiohttp.ClientConnectorSSLError(NOWHERE, ssl.SSLError(1, "x")), "http:// instead of https://"),
        (aiohttp.ClientConnectorCertificateError(NOWHERE, ssl.SSLCertVerificationError()), "is not trusted"),
        (aiohttp.ServerDisconnectedError(), "the connection was cut"),
        (aiohttp.ClientPayloadError(), "the connection was cut"),
        (ConnectionResetError(104, "x"), "connection reset by peer"),
        (TimeoutError(), "in time"),
        (aiohttp.ServerTimeoutError(), "in time"),
        (ValueError("a person's text"), "(ValueError)"),
    ],
)
def test_a_call_without_an_answer_says_what_a_person_can_look_at(error: Exception, why: str) -> None:
    said = str(unanswered(error))
    assert why in said
    assert "a person's text" not in said
