"""What every call has: its place in the application, its answer, and its body."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, TypeVar

from aiohttp import web

from agentpod_bot.api.connection import Connection, Limits
from agentpod_bot.api.tokens import Tokens
from agentpod_bot.core.model import Caller
from agentpod_bot.errors import BodyTooLarge, BodyTooSlow, MalformedHttp, Unauthorized, UnsupportedMediaType
from agentpod_bot.harness.adapter import Manner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pydantic import BaseModel

    from agentpod_bot.api.ports import Broker, ClosedRoutes, Metrics, Readiness
    from agentpod_bot.harness.adapter import Harness

BROKER: web.AppKey[Broker] = web.AppKey("broker")
TOKENS = web.AppKey("tokens", Tokens)
HOSTS: web.AppKey[frozenset[str]] = web.AppKey("hosts")
LIMITS = web.AppKey("limits", Limits)
CLOSED_ROUTES: web.AppKey[ClosedRoutes] = web.AppKey("closed_routes")
READINESS: web.AppKey[Readiness] = web.AppKey("readiness")
METRICS: web.AppKey[Metrics] = web.AppKey("metrics")
SCHEMA = web.AppKey("schema", bytes)
STOPPING = web.AppKey("stopping", asyncio.Event)
ADAPTERS: web.AppKey[Mapping[str, Harness]] = web.AppKey("adapters")

CALLER = web.RequestKey("caller", Caller)
CORRELATION_ID = web.RequestKey("correlation_id", str)
SENT = web.RequestKey("sent", web.StreamResponse)
MANNER = web.RequestKey("manner", Manner)

T = TypeVar("T")

JSON = "application/json"
_BEARER = re.compile(r"(?i:bearer) +(?P<token>[^\s]+)")
UTF_8 = frozenset({None, "utf-8", "utf8"})
PARSED_AT_ONCE = 64 * 1024
"""Bytes of a body that are read in a millisecond or two. A larger one must not hold up every other call."""


def caller_of(request: web.Request) -> Caller:
    """Who a call's token belongs to now. Raises `Unauthorized`."""
    match request.headers.getall("Authorization", []):
        case [value] if found := _BEARER.fullmatch(value):
            caller = request.app[TOKENS].caller(found["token"])
        case _:
            raise Unauthorized("send Authorization: Bearer and a configured token")
    if caller is None:
        raise Unauthorized("the token that was sent is none of those that are configured")
    return caller


def reply(content: BaseModel, *, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Answer with one model."""
    return web.Response(status=status, body=content.model_dump_json().encode(), content_type=JSON, headers=headers)


async def send(request: web.Request, response: web.StreamResponse) -> None:
    """Write an answer to its end, unless that is done already.

    Raises `ConnectionError` where the client is gone, or does not read.
    """
    if SENT in request:
        return
    try:
        async with asyncio.timeout(request.app[LIMITS].write_s):
            await response.prepare(request)
            await response.write_eof()
    except TimeoutError as fault:
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("the client does not read its answer") from fault
    request[SENT] = response


async def body_of(request: web.Request) -> bytes:
    """Read a call's body, empty where it has none.

    Raises `UnsupportedMediaType`, `BodyTooLarge`, `BodyTooSlow` or `MalformedHttp`.
    """
    if not request.body_exists:
        return b""
    limits = request.app[LIMITS]
    declared = request.content_length
    if declared == 0:
        return b""
    _check_type(request)
    if declared is not None and declared > limits.body_bytes:
        raise BodyTooLarge(f"a body may have {limits.body_bytes} bytes")
    try:
        async with asyncio.timeout(limits.body_s):
            return await request.read()
    except TimeoutError as fault:
        raise BodyTooSlow(f"a body must come within {limits.body_s:g} seconds") from fault
    except web.HTTPRequestEntityTooLarge as fault:
        raise BodyTooLarge(f"a body may have {limits.body_bytes} bytes") from fault
    except web.RequestPayloadError as fault:
        raise MalformedHttp("the body's framing is broken") from fault


async def parsed(parse: Callable[[bytes], T], body: bytes) -> T:
    """What `parse` makes of a body; it runs in a thread where the body is large, so it must touch nothing else."""
    return parse(body) if len(body) <= PARSED_AT_ONCE else await asyncio.to_thread(parse, body)


def begin(request: web.Request) -> None:
    """Tell the connection that a call's head is complete."""
    if isinstance(request.protocol, Connection):
        request.protocol.begin()


def _check_type(request: web.Request) -> None:
    types = request.headers.getall("Content-Type", [])
    if len(types) != 1 or request.content_type.lower() != JSON:
        raise UnsupportedMediaType("the Content-Type must be application/json")
    charset = request.charset
    if (charset if charset is None else charset.lower()) not in UTF_8:
        raise UnsupportedMediaType("JSON is always UTF-8")
    # A compressed body could be a thousand times as large as what its limit is measured on.
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        raise UnsupportedMediaType("a compressed body is not read")
