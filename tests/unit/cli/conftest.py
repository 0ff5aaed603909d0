from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from aiohttp import web
from typer.testing import CliRunner, Result

from agentpod_bot.cli.commands import app

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class FakeDaemon:
    """Answers each call with the next scripted answer of its route, and keeps what was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.script: dict[tuple[str, str], list[Any]] = {}
        self.calls: list[tuple[str, str, dict[str, str], Any, str | None]] = []

    def will(self, method: str, path: str, *answers: Any) -> None:
        """Script a route: (status, JSON) each, or a function of the posted body giving that; the last one stays."""
        self.script[method, path] = list(answers)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.calls.append(
            (request.method, request.raw_path, dict(request.query), body, request.headers.get("Authorization"))
        )
        path = "/v1/requests/ID" if request.path.startswith("/v1/requests/") else request.path
        path += "/cancel" if path.endswith("ID") and request.path.endswith("/cancel") else ""
        answers = self.script[request.method, path]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        status, content, *headers = answer(body) if callable(answer) else answer
        return web.json_response(content, status=status, headers=headers[0] if headers else None)

    @property
    def posted(self) -> Any:
        """The body of the first POST to /v1/requests."""
        return next(body for method, path, _, body, _ in self.calls if (method, path) == ("POST", "/v1/requests"))


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    """A scripted HTTP server on a thread of its own: the commands bring their own event loop."""
    fake = FakeDaemon()
    loop = asyncio.new_event_loop()
    started = threading.Event()

    async def start() -> web.AppRunner:
        served = web.Application()
        served.router.add_route("*", "/{tail:.*}", fake.serve)
        runner = web.AppRunner(served)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        fake.url = f"http://{host}:{port}"
        return runner

    def live() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=live)
    thread.start()
    assert started.wait(10)
    yield fake
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10)


Command = Callable[..., Result]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run `agentpod-bot` with these words, in an environment that says nothing."""
    for name in ("URL", "SOCKET", "TOKEN", "TOKEN_FILE", "CONFIG"):
        monkeypatch.delenv(f"AGENTPOD_BOT_{name}", raising=False)

    def run(*words: str, **options: Any) -> Result:
        return CliRunner().invoke(app, list(words), prog_name="agentpod-bot", **options)

    return run
