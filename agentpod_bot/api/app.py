"""The HTTP application: every route and middleware, wired to what it needs."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from aiohttp import web

from agentpod_bot.api import openapi
from agentpod_bot.api.calls import (
    ADAPTERS,
    BROKER,
    CLOSED_ROUTES,
    HOSTS,
    LIMITS,
    METRICS,
    READINESS,
    SCHEMA,
    STOPPING,
    TOKENS,
)
from agentpod_bot.api.gate import admit, answer, label
from agentpod_bot.api.routes import ROUTES
from agentpod_bot.harness import registry

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentpod_bot.api.connection import Limits
    from agentpod_bot.api.ports import Broker, ClosedRoutes, Metrics, Readiness
    from agentpod_bot.api.tokens import Tokens
    from agentpod_bot.harness.adapter import Harness

_NAME = re.compile(r"\{([a-z_]+)\}")


def application(
    *,
    broker: Broker,
    tokens: Tokens,
    readiness: Readiness,
    metrics: Metrics,
    closed_routes: ClosedRoutes = dict,
    limits: Limits,
    allowed_hosts: Iterable[str] = (),
    adapters: Mapping[str, Harness] = registry.ADAPTERS,
) -> web.Application:
    """Make the application. `allowed_hosts` are names (without port) beside those of the loopback."""
    app = web.Application(middlewares=[answer, admit], client_max_size=limits.body_bytes)
    app[BROKER] = broker
    app[TOKENS] = tokens
    app[READINESS] = readiness
    app[METRICS] = metrics
    app[CLOSED_ROUTES] = closed_routes
    app[LIMITS] = limits
    app[HOSTS] = frozenset(host.lower() for host in allowed_hosts)
    app[SCHEMA] = openapi.encoded()
    app[ADAPTERS] = adapters
    app[STOPPING] = asyncio.Event()
    app.on_response_prepare.append(label)
    for route in ROUTES:
        # The library's own pattern for a name would refuse ids that hold a brace.
        path = _NAME.sub(r"{\1:[^/]+}", route.path)
        app.router.add_route(route.method, path, route.handler)
        if not route.needs_token:
            app.router.add_route("HEAD", path, route.handler)
    return app
