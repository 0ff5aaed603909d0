"""`POST /v1/harness/{harness}`: a call in a harness's own shape, held until its question ends, answered in kind."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

import structlog
from aiohttp import web

from agentpod_bot.api.bodies import Query
from agentpod_bot.api.calls import ADAPTERS, BROKER, CALLER, JSON, MANNER, SENT, body_of, parsed, send
from agentpod_bot.api.whole import left_whole, whole
from agentpod_bot.errors import NotFound
from agentpod_bot.harness.adapter import Ask, Close, Manner, Settled, WhenUnanswered
from agentpod_bot.harness.reasons import end_of

if TYPE_CHECKING:
    from agentpod_bot.core.model import Caller
    from agentpod_bot.core.policy import Route
    from agentpod_bot.harness.adapter import Harness

MARGIN_S = 5
"""So long before its harness would stop waiting a call is answered, or after half of that time where it is short."""

log = structlog.get_logger(__name__)


async def ask_in_its_words(request: web.Request) -> web.StreamResponse:
    """Ask in a harness's own shape; answered in that shape when the question ends.

    The call stays open as long as that takes. Where its connection drops and the call does
    not come back within ten seconds, the question is cancelled.
    """
    name = request.match_info["harness"]
    adapters = request.app[ADAPTERS]
    adapter = adapters.get(name)
    if adapter is None:
        raise NotFound(f"no such harness; known are {', '.join(sorted(adapters))}")
    caller, broker = request[CALLER], request.app[BROKER]
    query = Query(request.query.items())
    route = broker.route(caller, query.route(), name)
    manner = request[MANNER] = _manner(route, caller)
    body = await body_of(request)
    match await parsed(partial(adapter.parse, manner=manner), body):
        case Settled(answer=answer, why=why):
            log.info("harness_call_settled", harness=name, why=why)
            return spoken(answer)
        case Close() as close:
            closed = await whole(
                broker.close_held(
                    caller,
                    harness=name,
                    session_id=close.session_id,
                    prefixes=close.prefixes,
                    every=close.every,
                    event=close.event,
                )
            )
            log.debug("harness_call_closed", harness=name, count=len(closed))
            return spoken(close.answer)
        case Ask(request=asked):
            held = broker.held(
                replace(asked, route=route.name), caller, harness=name, patience_ms=_patience_ms(adapter, query)
            )
            async with left_whole(held) as question:
                answer = adapter.answer(question.asked.raw, body, end_of(question), manner)
                await send(request, spoken(answer))
            return request[SENT]
        case never:
            assert_never(never)


def spoken(answer: Any) -> web.Response:
    """An answer in a harness's own shape."""
    body = json.dumps(answer, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    return web.Response(body=body, content_type=JSON)


def _manner(route: Route, caller: Caller) -> Manner:
    when = WhenUnanswered.TERMINAL if route.hands_back else WhenUnanswered.DENY
    return Manner(when_unanswered=when, codex_version=caller.codex_version)


def _patience_ms(adapter: Harness, query: Query) -> int | None:
    waits_s = query.timeout_s() or adapter.PATIENCE_S
    return None if waits_s is None else int(max(waits_s - MARGIN_S, waits_s / 2) * 1_000)
