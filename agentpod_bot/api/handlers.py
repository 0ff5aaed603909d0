"""One handler a route. A handler only translates: from HTTP to a use case, and its result to HTTP."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aiohttp import web

from agentpod_bot.api.bodies import AnsweredElsewhereBody, ProgressBody, Query
from agentpod_bot.api.calls import (
    BROKER,
    CALLER,
    CLOSED_ROUTES,
    JSON,
    METRICS,
    READINESS,
    SCHEMA,
    SENT,
    body_of,
    parsed,
    reply,
    send,
)
from agentpod_bot.api.view import Alive, Cancelled, NotReady, Ready, view, views
from agentpod_bot.api.whole import left_whole, whole
from agentpod_bot.core.ids import RequestId, SessionId
from agentpod_bot.errors import Forbidden, Invalid, NotFound, StoreUnavailable, TooManyWaits
from agentpod_bot.harness import native, strict_json
from agentpod_bot.harness.opaque import fault_of_id, is_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.core.model import Question


async def create(request: web.Request) -> web.StreamResponse:
    """Take one permission request; answer at once, or when it is closed or the wait is over.

    Once the question is stored, no failure to wait is answered as if nobody had been asked.
    """
    caller = request[CALLER]
    if native.NAME not in caller.harnesses:
        raise Forbidden("this token may not ask in the native form")
    wait_s = Query(request.query.items()).wait_s()
    asked = await parsed(native.parse, await body_of(request))
    submitted = await whole(request.app[BROKER].submit(asked, caller))
    status = 201 if submitted.created else 200
    try:
        return await _when_closed(request, submitted.question, wait_s, status=status)
    except (TooManyWaits, StoreUnavailable):
        if SENT in request:
            raise
        return reply(view(submitted.question), status=status)


async def read(request: web.Request) -> web.StreamResponse:
    """Show one request, at once, or when it is closed or the wait is over."""
    wait_s = Query(request.query.items()).wait_s()
    question = await request.app[BROKER].get(request[CALLER], _request_id(request))
    return await _when_closed(request, question, wait_s, status=200)


async def page(request: web.Request) -> web.StreamResponse:
    """List the caller's requests, newest first."""
    query = Query(request.query.items())
    found = await request.app[BROKER].page(
        request[CALLER],
        status=query.status(),
        session_id=query.session_id(),
        limit=query.limit(),
        cursor=query.cursor(),
    )
    return reply(views(found))


async def cancel(request: web.Request) -> web.StreamResponse:
    """Close a request that the harness no longer needs."""
    await _ignored_body(request)
    question = await whole(request.app[BROKER].cancel(request[CALLER], _request_id(request)))
    return reply(view(question))


async def answered_elsewhere(request: web.Request) -> web.StreamResponse:
    """Close a request on the client's word that it was answered somewhere else. It decides nothing."""
    request_id = _request_id(request)
    body = await parsed(partial(strict_json.validated, AnsweredElsewhereBody), await body_of(request) or b"{}")
    broker = request.app[BROKER]
    return reply(view(await whole(broker.answered_elsewhere(request[CALLER], request_id, body.claim()))))


async def progress(request: web.Request) -> web.StreamResponse:
    """Keep what became of a request after its decision."""
    request_id = _request_id(request)
    body = await parsed(partial(strict_json.validated, ProgressBody), await body_of(request))
    broker = request.app[BROKER]
    return reply(view(await whole(broker.progress(request[CALLER], request_id, body.progress()))))


async def cancel_session(request: web.Request) -> web.StreamResponse:
    """Cancel every open request of one session, and no other."""
    session_id = request.match_info["session_id"]
    if (why := fault_of_id(session_id)) is not None:
        raise Invalid(("path", "session_id"), why)
    await _ignored_body(request)
    return _cancelled(await whole(request.app[BROKER].cancel_session(request[CALLER], SessionId(session_id))))


async def cancel_all(request: web.Request) -> web.StreamResponse:
    """Cancel every open request of the caller."""
    await _ignored_body(request)
    return _cancelled(await whole(request.app[BROKER].cancel_all(request[CALLER])))


async def alive(_request: web.Request) -> web.StreamResponse:
    """Say that the process answers."""
    return reply(Alive())


async def ready(request: web.Request) -> web.StreamResponse:
    """Say whether questions can be asked and answers be read, or what is in the way."""
    problems = await request.app[READINESS]()
    routes = dict(request.app[CLOSED_ROUTES]())
    return (
        reply(NotReady(problems=list(problems), routes=routes), status=503) if problems else reply(Ready(routes=routes))
    )


async def metrics(request: web.Request) -> web.StreamResponse:
    """Every metric, for Prometheus."""
    body, content_type = await request.app[METRICS]()
    return web.Response(body=body, headers={"Content-Type": content_type})


async def schema(request: web.Request) -> web.StreamResponse:
    """This endpoint as an OpenAPI document."""
    return web.Response(body=request.app[SCHEMA], content_type=JSON)


async def _when_closed(request: web.Request, read: Question, wait_s: float, *, status: int) -> web.StreamResponse:
    """Answer with a question as it is when it is closed, or the wait is over.

    The answer is written while the broker still holds the call: only what was written
    without an error counts as delivered.
    """
    async with left_whole(request.app[BROKER].waiting(read, up_to_s=wait_s)) as question:
        await send(request, reply(view(question), status=status))
    return request[SENT]


def _request_id(request: web.Request) -> RequestId:
    """The id in the path. What no request can be called is not found, like any other that there is not."""
    request_id = request.match_info["request_id"]
    if not is_plain(request_id):
        raise NotFound("there is no such request")
    return RequestId(request_id)


async def _ignored_body(request: web.Request) -> None:
    """Read a body of which nothing is needed, if there is one; it must be JSON all the same."""
    if body := await body_of(request):
        await parsed(strict_json.read, body)


def _cancelled(request_ids: Sequence[RequestId]) -> web.Response:
    return reply(Cancelled(cancelled=list(request_ids)))
