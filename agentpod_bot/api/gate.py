"""What a call passes before its handler, and how every failure of it is said."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING

import structlog
from aiohttp import web
from structlog.contextvars import bound_contextvars

from agentpod_bot.api.calls import (
    BROKER,
    CALLER,
    CORRELATION_ID,
    HOSTS,
    SENT,
    STOPPING,
    begin,
    caller_of,
    send,
)
from agentpod_bot.api.connection import CORRELATION_HEADER, new_correlation_id
from agentpod_bot.api.problem import INTERNAL, PROBLEMS, code_of_http, of_error, of_http, problem
from agentpod_bot.api.refusals import refusal
from agentpod_bot.api.view import View, view
from agentpod_bot.core.ids import Row
from agentpod_bot.errors import (
    AgentpodError,
    Conflict,
    HostNotAllowed,
    OriginNotAllowed,
    ShuttingDown,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

TOKENLESS = frozenset({"/healthz", "/readyz"})
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:@/\s]+)(:[0-9]{0,5})?")

log = structlog.get_logger(__name__)


@web.middleware
async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a call, whatever happens in it; a connection that is gone is left alone."""
    begin(request)
    correlation_id = request[CORRELATION_ID] = new_correlation_id()
    with bound_contextvars(correlation_id=correlation_id):
        try:
            response = await handler(request)
        except AgentpodError as failure:
            response = await refusal(request, failure.code, str(failure)) or await _said(request, failure)
        except web.HTTPException as failure:
            of_library = of_http(failure, correlation_id=correlation_id)
            response = await refusal(request, code_of_http(failure), "") or of_library
        except ConnectionError:
            raise
        except Exception:
            # The only place where anything may be caught: what nobody expected is told in the log alone.
            log.exception("http_request_failed", method=request.method, route=_route_of(request))
            response = await refusal(request, INTERNAL, "") or problem(INTERNAL, "", correlation_id=correlation_id)
        if SENT in request and response is not request[SENT]:
            log.warning("http_call_failed_after_its_answer", route=_route_of(request), status=response.status)
            response = request[SENT]
        await send(request, response)
        level = log.debug if response.status < 400 else log.info  # noqa: PLR2004 - 4xx and 5xx
        level("http_request_answered", method=request.method, route=_route_of(request), status=response.status)
        return response


@web.middleware
async def admit(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Let a call pass that comes to one of our names, from no web page, with a token.

    Raises `HostNotAllowed`, `OriginNotAllowed`, `Unauthorized`. Host and origin come first:
    to a page that rebinds a name to this address, not even a token's worth is told.
    """
    if not _is_local(request) and not is_ours(request):
        raise HostNotAllowed("the Host header must name this daemon; see http.allowed_hosts")
    if "Origin" in request.headers:
        raise OriginNotAllowed("a call with an Origin header comes from a page in a browser")
    if request.path not in TOKENLESS:
        request[CALLER] = caller_of(request)
    return await handler(request)


async def label(request: web.Request, response: web.StreamResponse) -> None:
    """Give every answer its call's name, and keep it out of caches and sniffers."""
    if CORRELATION_ID in request:
        response.headers[CORRELATION_HEADER] = request[CORRELATION_ID]
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Content-Type-Options"] = "nosniff"
    if request.app[STOPPING].is_set():
        response.force_close()
        response.headers["Connection"] = "close"


def is_ours(request: web.Request) -> bool:
    """Whether a call names a loopback host or a configured one, and exactly one."""
    hosts = request.headers.getall("Host", [])
    if len(hosts) != 1:
        return False
    # A target in absolute form names a host too, and would go before the header.
    named = {hosts[0], request.url.raw_authority} if "://" in request.raw_path else {hosts[0]}
    return all(_is_allowed(host, request.app[HOSTS]) for host in named)


def _is_allowed(host: str, configured: frozenset[str]) -> bool:
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found["name"].lower()
    if name == "localhost" or name in configured:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _is_local(request: web.Request) -> bool:
    """Whether a call came over a Unix socket, where no name is looked up and no page can call."""
    transport = request.transport
    sock = None if transport is None else transport.get_extra_info("socket")
    return sock is not None and sock.family == socket.AF_UNIX


async def _said(request: web.Request, failure: AgentpodError) -> web.Response:
    correlation_id = request[CORRELATION_ID]
    if failure.code not in PROBLEMS or PROBLEMS[failure.code][0] == PROBLEMS[INTERNAL][0]:
        log.error("http_request_failed", exc_info=failure, method=request.method, route=_route_of(request))
        return problem(INTERNAL, "", correlation_id=correlation_id)
    return of_error(failure, correlation_id=correlation_id, shown=await _shown(request, failure))


async def _shown(request: web.Request, failure: AgentpodError) -> View | None:
    """The question that a failure is about, if it is the caller's own and can be read."""
    if not isinstance(failure, Conflict | ShuttingDown) or failure.row is None:
        return None
    try:
        question = await request.app[BROKER].question(Row(failure.row))
    except AgentpodError as fault:
        log.warning("question_of_problem_unreadable", error=fault.code)
        return None
    return view(question) if question.key.client == request[CALLER].client else None


def _route_of(request: web.Request) -> str:
    """The route's pattern: ids in the path are the harness's own and stay out of the log."""
    resource = request.match_info.route.resource
    return "unknown" if resource is None else resource.canonical
