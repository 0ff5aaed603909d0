"""Failures of calls from hooks. A harness that lets its tool run at an error status is told no in its own words."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import structlog
from aiohttp import web

from agentpod_bot.api.calls import ADAPTERS, LIMITS, MANNER
from agentpod_bot.api.held import spoken
from agentpod_bot.api.problem import INTERNAL, PROBLEMS
from agentpod_bot.api.routes import NOBODY_TO_ASK, STORED
from agentpod_bot.harness.adapter import Manner
from agentpod_bot.harness.reasons import NOT_READ, unasked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.adapter import Harness

ROOT = "/v1/harness"
UNAVAILABLE = frozenset((*NOBODY_TO_ASK, *STORED))
"""Codes that say that nobody could be asked."""
OF_CLAUDE_S_SHAPE = "claude-code"
OF_COPILOT_S_SHAPE = "copilot"

log = structlog.get_logger(__name__)


async def refusal(request: web.Request, code: str, detail: str) -> web.Response | None:
    """What a failed call of a hook is answered, HTTP 200; None for every other call, which gets a problem document."""
    path = request.path
    if path != ROOT and not path.startswith(f"{ROOT}/"):
        return None
    adapters = request.app[ADAPTERS]
    name = path.removeprefix(f"{ROOT}/").partition("/")[0]
    adapter = adapters.get(name)
    if adapter is not None and not adapter.HOOK:
        return None
    if PROBLEMS.get(code, (500,))[0] == PROBLEMS[INTERNAL][0]:
        code, detail = INTERNAL, ""  # what nobody expected is told in the log alone
    log.warning("hook_refused", harness=name if adapter is not None else "unknown", code=code)
    body = await _body(request)
    adapter = adapter or _likely(body, adapters)
    reason = (detail or PROBLEMS[code][1]).rstrip(".")
    end = unasked(reason, unavailable=code in UNAVAILABLE)
    if adapter is not None:
        try:
            return spoken(adapter.refuse(body, end, request.get(MANNER, Manner())))
        except Exception:  # a no must go out, whatever is wrong
            log.exception("hook_refusal_failed", harness=adapter.NAME)
    reason = f"{NOT_READ} {end.reason}"
    # In the shape that most hooks share; to stop the agent alone does not keep a tool from running.
    return spoken({"continue": False, "stopReason": reason, "decision": "block", "reason": reason})


async def _body(request: web.Request) -> bytes | None:
    """What was sent, whatever it is called, or the beginning of what is too large; None where it does not come."""
    limits = request.app[LIMITS]
    declared = request.content_length
    if not request.body_exists:
        return None
    try:
        async with asyncio.timeout(limits.body_s):
            if declared is not None and declared > limits.body_bytes:
                return await request.content.read(limits.body_bytes)
            return await request.read()
    except (TimeoutError, web.HTTPRequestEntityTooLarge, web.RequestPayloadError):
        return None


def _likely(body: bytes | None, adapters: Mapping[str, Harness]) -> Harness | None:
    """The adapter in whose shape a body is, where the path names none that there is."""
    try:
        shape: Any = json.loads(body or b"null")
    except (ValueError, RecursionError):
        return None
    match shape:
        case {"hook_event_name": str()}:
            return adapters.get(OF_CLAUDE_S_SHAPE)
        case {"toolName": str()}:
            return adapters.get(OF_COPILOT_S_SHAPE)
        case _:
            return None
