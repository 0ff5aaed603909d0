"""Every route: what serves it, and what its caller has to know. There is none that decides a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.api import events, handlers, held
from agentpod_bot.api.bodies import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    MAX_TIMEOUT_S,
    MAX_WAIT_S,
    AnsweredElsewhereBody,
    ProgressBody,
)
from agentpod_bot.api.view import Alive, Cancelled, NotReady, Ready, View, Views
from agentpod_bot.core.model import Status
from agentpod_bot.harness.native import NativeRequest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web
    from pydantic import BaseModel

    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

PROMETHEUS = "text/plain"
"""Marks an answer that is Prometheus's text format."""
EVENT_STREAM = "text/event-stream"
"""Marks an answer that is a stream of events."""
ANY_JSON = "application/json"
"""Marks an answer that is JSON of no model here."""

EVERY = ("malformed_http", "host_not_allowed", "origin_not_allowed", "expectation_failed", "internal_error")
"""What any call may be answered."""
GUARDED = ("unauthorized",)
"""And what any call that needs a token may be."""
BODIED = ("malformed_json", "body_too_slow", "body_too_large", "unsupported_media_type", "invalid")
"""And any that reads a body."""
STORED = ("store_unavailable", "shutting_down")
"""And any that reads or writes the store."""
NOBODY_TO_ASK = (
    "matrix_unavailable",
    "no_approver",
    "approver_not_in_room",
    "not_in_room",
    "room_encrypted_without_crypto",
    "room_replaced",
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a route's query, or one of its header fields."""

    name: str
    description: str
    schema: Mapping[str, Any]


WAIT = Parameter(
    "wait",
    "Seconds to hold the call until the request is closed; answers with what there is then. A POST whose token "
    "holds too many waiting calls already is answered at once.",
    {"type": "number", "minimum": 0, "maximum": MAX_WAIT_S, "default": 0},
)
ROUTE = Parameter(
    "route",
    "The route to ask on; the token's only one where it is left out.",
    {"type": "string", "minLength": 1, "maxLength": 255},
)
TIMEOUT = Parameter(
    "timeout",
    "Seconds after which the harness stops waiting, as it is configured; the question expires before. Where it is "
    "left out, that harness's usual time-out counts.",
    {"type": "integer", "minimum": 1, "maximum": MAX_TIMEOUT_S},
)
SINCE = Parameter(
    "since",
    "The id of an event: the stream begins after it. Where it is left out, and Last-Event-ID too, it begins now.",
    {"type": "string", "pattern": "^[0-9]{1,19}(-[0-9a-f]{16})?$"},
)
LAST_EVENT_ID = Parameter(
    "Last-Event-ID",
    "The id of the last event that was read, as browsers send it; goes before `since`.",
    {"type": "string"},
)
PAGING = (
    Parameter(
        "status", "Only requests of this status.", {"type": "string", "enum": [str(status) for status in Status]}
    ),
    Parameter("session_id", "Only requests of this session.", {"type": "string", "minLength": 1, "maxLength": 255}),
    Parameter(
        "limit",
        "How many requests at most.",
        {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": DEFAULT_LIMIT},
    ),
    Parameter("cursor", "The `next_cursor` of the page before.", {"type": "string", "pattern": "^[0-9]{1,19}$"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One route. `answers` are its good answers (and `/readyz`'s 503); `problems` the codes that are its own."""

    method: str
    path: str
    handler: Handler
    answers: Mapping[int, type[BaseModel] | str]
    body: type[BaseModel] | None = None
    body_required: bool = False
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    problems: tuple[str, ...] = ()
    needs_token: bool = True

    @property
    def codes(self) -> frozenset[str]:
        """Every code that this route may answer."""
        guarded = GUARDED if self.needs_token else ()
        bodied = BODIED if self.method == "POST" else ()
        return frozenset((*EVERY, *guarded, *bodied, *self.problems))


ROUTES = (
    Route(
        method="POST",
        path="/v1/requests",
        handler=handlers.create,
        body=NativeRequest,
        body_required=True,
        query=(WAIT,),
        answers={201: View, 200: View},
        problems=(
            "forbidden",
            "request_id_reused",
            "request_closed",
            "conflict",
            "too_large",
            "too_many_pending",
            "too_many_requests",
            *NOBODY_TO_ASK,
            *STORED,
        ),
    ),
    Route(
        method="GET",
        path="/v1/requests",
        handler=handlers.page,
        query=PAGING,
        answers={200: Views},
        problems=("invalid", *STORED),
    ),
    Route(
        method="GET",
        path="/v1/requests/{request_id}",
        handler=handlers.read,
        query=(WAIT,),
        answers={200: View},
        problems=("invalid", "not_found", *STORED, "too_many_waits"),
    ),
    Route(
        method="POST",
        path="/v1/requests/{request_id}/cancel",
        handler=handlers.cancel,
        answers={200: View},
        problems=("not_found", "request_closed", *STORED),
    ),
    Route(
        method="POST",
        path="/v1/requests/{request_id}/answered-elsewhere",
        handler=handlers.answered_elsewhere,
        body=AnsweredElsewhereBody,
        answers={200: View},
        problems=("not_found", "request_closed", *STORED),
    ),
    Route(
        method="POST",
        path="/v1/requests/{request_id}/progress",
        handler=handlers.progress,
        body=ProgressBody,
        body_required=True,
        answers={200: View},
        problems=("not_found", "conflict", "not_decided", *STORED),
    ),
    Route(
        method="POST",
        path="/v1/sessions/{session_id}/cancel",
        handler=handlers.cancel_session,
        answers={200: Cancelled},
        problems=STORED,
    ),
    Route(
        method="POST",
        path="/v1/cancel-all",
        handler=handlers.cancel_all,
        answers={200: Cancelled},
        problems=STORED,
    ),
    Route(
        method="GET",
        path="/v1/events",
        handler=events.events,
        query=(SINCE,),
        headers=(LAST_EVENT_ID,),
        answers={200: EVENT_STREAM},
        problems=("invalid", *STORED, "too_many_waits"),
    ),
    Route(
        method="POST",
        path="/v1/harness/{harness}",
        handler=held.ask_in_its_words,
        query=(ROUTE, TIMEOUT),
        answers={200: ANY_JSON},
        problems=(
            "forbidden",
            "not_found",
            "request_id_reused",
            "request_closed",
            "too_large",
            "too_many_pending",
            "too_many_requests",
            "too_many_waits",
            *NOBODY_TO_ASK,
            *STORED,
        ),
    ),
    Route(method="GET", path="/healthz", handler=handlers.alive, answers={200: Alive}, needs_token=False),
    Route(
        method="GET",
        path="/readyz",
        handler=handlers.ready,
        answers={200: Ready, 503: NotReady},
        needs_token=False,
    ),
    Route(method="GET", path="/metrics", handler=handlers.metrics, answers={200: PROMETHEUS}),
    Route(method="GET", path="/openapi.json", handler=handlers.schema, answers={200: ANY_JSON}),
)
