"""One connection: limits that the HTTP library does not have, and failures that it would tell in full."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import structlog
from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from agentpod_bot.api.crowd import room_for
from agentpod_bot.api.problem import INTERNAL, of_http, problem

if TYPE_CHECKING:
    import asyncio

    from agentpod_bot.api.crowd import Crowd

CORRELATION_HEADER = "X-Correlation-Id"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What connections may cost, each of them and all together. Sizes in bytes, times in seconds."""

    body_bytes: int = 1_048_576
    line_bytes: int = 8_190
    field_bytes: int = 8_190
    headers: int = 64
    """Header fields of one request."""
    head_s: float = 10.0
    """From a request's first byte (of the first request: from the connection) to the end of its headers."""
    body_s: float = 30.0
    write_s: float = 30.0
    heartbeat_s: float = 15.0
    """So often a stream on which nothing happens says that it lives."""
    keepalive_s: float = 75.0
    """Without any request."""
    lingering_s: float = 5.0
    """How long the rest of a body that was refused is still read, so that its sender sees the answer."""
    connections: int = field(default_factory=room_for)
    """Open at a time; one more is closed at once."""


class Silent(AbstractAccessLogger):
    """No access log of the library's: it would write query strings, and we log each call ourselves."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Nothing."""

    @property
    def enabled(self) -> bool:
        """Never."""
        return False


class Connection(web.RequestHandler):
    """The library's connection, with a deadline for a request's head and problem documents for what cannot be read.

    That a client has hung up is not seen while the library does not read: behind a call that
    waits, after 32 further calls or a large body. Its place then stays taken until the wait
    ends. It is a place of that client's own token, and reading on would cost memory instead.
    """

    __slots__ = ("_answering", "_crowd", "_head_deadline", "_head_s")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, limits: Limits, crowd: Crowd) -> None:
        super().__init__(
            manager,
            loop=loop,
            keepalive_timeout=limits.keepalive_s,
            access_log_class=Silent,
            max_line_size=limits.line_bytes,
            max_field_size=limits.field_bytes,
            max_headers=limits.headers,
            lingering_time=limits.lingering_s,
            auto_decompress=False,
        )
        self._crowd = crowd
        self._head_s = limits.head_s
        self._head_deadline: asyncio.TimerHandle | None = None
        self._answering = False

    def begin(self) -> None:
        """Say that a request's head is complete and its answer is being made."""
        self._answering = True
        self._disarm()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect the first request's head in time, for nobody connects in order to say nothing.

        Where there is no room for one more, it is closed before anything is made of it.
        """
        if not self._crowd.enter(self, self._loop.time()):
            cast("asyncio.Transport", transport).abort()
            return
        super().connection_made(transport)
        self._arm()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget the deadline, and make room for another."""
        if self not in self._crowd:
            return  # it was never let in
        self._crowd.leave(self)
        self._disarm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin the deadline of a head with its first byte."""
        if data and not self._answering and self._head_deadline is None:
            self._arm()
        super().data_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write an answer that is not written yet; from here on the connection is idle."""
        if isinstance(resp, web.HTTPException):  # found before any of our own code ran
            resp = labelled(of_http(resp, correlation_id=(correlation_id := new_correlation_id())), correlation_id)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answering = False
            self._disarm()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes what was sent, an over-long token for example
    ) -> web.StreamResponse:
        """Answer what is no HTTP, without a word of what was sent, in the answer or in the log."""
        if request.writer.output_size > 0 or isinstance(exc, ConnectionError):
            raise ConnectionResetError("the answer was cut off") from exc
        correlation_id = new_correlation_id()
        if status < 500:  # noqa: PLR2004 - 5xx is ours
            log.info("http_request_malformed", error=type(exc).__name__, correlation_id=correlation_id)
            response = problem("malformed_http", "", correlation_id=correlation_id)
        else:
            log.error("http_request_failed", exc_info=exc, correlation_id=correlation_id)
            response = problem(INTERNAL, "", correlation_id=correlation_id)
        response.force_close()
        return labelled(response, correlation_id)

    def _arm(self) -> None:
        self._head_deadline = self._loop.call_later(self._head_s, self._give_up)

    def _disarm(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _give_up(self) -> None:
        self._head_deadline = None
        if not self._answering:
            log.debug("http_head_timed_out")
            self.force_close()


def new_correlation_id() -> str:
    """A fresh name for one call, in its answer and in every log line of it."""
    return secrets.token_hex(8)


def labelled(response: web.Response, correlation_id: str) -> web.Response:
    """Put a call's name on its answer."""
    response.headers[CORRELATION_HEADER] = correlation_id
    return response
