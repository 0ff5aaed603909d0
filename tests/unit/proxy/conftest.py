from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from agentpod_bot.proxy.endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass
class Call:
    """One call of a harness, which the test answers by hand."""

    request: web.Request
    body: bytes
    answered: asyncio.Future[web.Response | None] = field(default_factory=asyncio.Future)
    gone: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    def answer(self, content: Any, status: int = 200) -> None:
        self.answered.set_result(web.json_response(content, status=status))

    def answer_raw(self, body: bytes, media_type: str, status: int = 200) -> None:
        self.answered.set_result(web.Response(body=body, content_type=media_type, status=status))

    def cut(self) -> None:
        self.answered.set_result(None)


class Room:
    """A daemon that says nothing by itself."""

    def __init__(self) -> None:
        self.endpoint = Endpoint("http://unset")
        self.calls: asyncio.Queue[Call] = asyncio.Queue()
        self.cancelled: asyncio.Queue[str] = asyncio.Queue()

    async def next(self) -> Call:
        return await asyncio.wait_for(self.calls.get(), 20)

    async def harness(self, request: web.Request) -> web.StreamResponse:
        call = Call(request, await request.read())
        self.calls.put_nowait(call)
        try:
            response = await call.answered
        except asyncio.CancelledError:
            call.gone.set()
            raise
        if response is not None:
            return response
        half = web.StreamResponse(headers={"Content-Type": "application/json", "Content-Length": "100"})
        await half.prepare(request)
        await half.write(b'{"jsonrpc":')
        assert request.transport is not None
        request.transport.abort()
        return half

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        self.cancelled.put_nowait(request.match_info["request_id"])
        return web.json_response({})


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    """A daemon whose every answer the test gives."""
    room = Room()
    served = web.Application(client_max_size=64 * 2**20)
    served.router.add_post("/v1/harness/{harness}", room.harness)
    served.router.add_post("/v1/requests/{request_id}/cancel", room.cancel)
    runner = web.AppRunner(served, handler_cancellation=True, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    room.endpoint = Endpoint(f"http://{host}:{port}", None, "made-up")
    yield room
    await runner.cleanup()
