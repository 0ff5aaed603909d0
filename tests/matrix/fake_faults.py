"""Faults that a test puts between a client and the fake homeserver."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Fault:
    """What happens to the next `times` calls that fit; `hit` is set when the first one arrived."""

    method: str
    path: re.Pattern[str]
    times: int
    act: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]
    hit: asyncio.Event = field(default_factory=asyncio.Event)

    def fits(self, request: web.Request) -> bool:
        return self.times > 0 and request.method == self.method and self.path.search(request.path) is not None


class Faults:
    """A queue of faults; the first that fits a call and is not used up is taken."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    async def through_faults(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer by the fault that fits, else by the handler."""
        fault = next((fault for fault in self._faults if fault.fits(request)), None)
        if fault is None:
            return await handler(request)
        fault.times -= 1
        fault.hit.set()
        return await fault.act(request, handler)

    def clear_faults(self) -> None:
        """Forget every fault that is not used up."""
        self._faults.clear()

    def answer_with(
        self,
        method: str,
        path: str,
        *,
        status: int,
        body: Mapping[str, Any] | str | bytes = b"",
        headers: Mapping[str, str] | None = None,
        times: int = 1,
    ) -> Fault:
        """Answer so, and do nothing. A mapping is sent as JSON, anything else as it is (as HTML)."""
        raw = (
            json.dumps(body).encode() if isinstance(body, Mapping) else body.encode() if isinstance(body, str) else body
        )
        mime = "application/json" if isinstance(body, Mapping) else "text/html"

        async def act(_request: web.Request, _handler: Handler) -> web.StreamResponse:
            return web.Response(status=status, body=raw, headers={"Content-Type": mime, **(headers or {})})

        return self._fault(method, path, times, act)

    def cut(self, method: str, path: str, *, times: int = 1) -> Fault:
        """Cut the connection; nothing is done."""

        async def act(request: web.Request, _handler: Handler) -> web.StreamResponse:
            return await _cut(request, b"{")

        return self._fault(method, path, times, act)

    def swallow(self, method: str, path: str, *, times: int = 1) -> Fault:
        """Do what is asked (an event is in the room), then cut instead of answering."""

        async def act(request: web.Request, handler: Handler) -> web.StreamResponse:
            await handler(request)
            return await _cut(request, b"{")

        return self._fault(method, path, times, act)

    def cut_body(self, method: str, path: str, *, times: int = 1) -> Fault:
        """Do what is asked, and cut amid the answer's body."""

        async def act(request: web.Request, handler: Handler) -> web.StreamResponse:
            whole = await handler(request)
            raw = whole.body if isinstance(whole, web.Response) and isinstance(whole.body, bytes) else b"{}"
            return await _cut(request, raw[: len(raw) // 2])

        return self._fault(method, path, times, act)

    def amend(self, method: str, path: str, change: Callable[[Any], Any], *, times: int = 1) -> Fault:
        """Do what is asked, and answer as usual but for what `change` makes of the JSON."""

        async def act(request: web.Request, handler: Handler) -> web.StreamResponse:
            usual = await handler(request)
            told = json.loads(usual.body) if isinstance(usual, web.Response) and isinstance(usual.body, bytes) else {}
            return web.json_response(change(told), status=usual.status)

        return self._fault(method, path, times, act)

    def hold(self, method: str, path: str, until: asyncio.Event, *, times: int = 1) -> Fault:
        """Do nothing before `until` is set; then do it and answer as usual."""

        async def act(request: web.Request, handler: Handler) -> web.StreamResponse:
            await until.wait()
            return await handler(request)

        return self._fault(method, path, times, act)

    def _fault(
        self, method: str, path: str, times: int, act: Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]
    ) -> Fault:
        fault = Fault(method, re.compile(path), times, act)
        self._faults.append(fault)
        return fault


async def _cut(request: web.Request, start: bytes) -> web.StreamResponse:
    """Cut amid an answer: aiohttp silently repeats a GET or PUT once that is cut before the first header."""
    response = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "1000000"})
    await response.prepare(request)
    await response.write(start)
    if request.transport is not None:
        request.transport.abort()
    return response
