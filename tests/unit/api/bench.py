"""A real server on a real socket around a fake broker, and a client that checks every answer's form."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import aiohttp
from yarl import URL

from agentpod_bot.api import openapi
from agentpod_bot.api.app import application
from agentpod_bot.api.connection import Limits
from agentpod_bot.api.server import Server, Tcp, Unix
from agentpod_bot.api.tokens import Tokens
from agentpod_bot.core.ids import ClientName, RouteName
from agentpod_bot.core.model import Caller
from agentpod_bot.harness.registry import ADAPTERS
from tests.unit.api.fake_broker import FakeBroker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from agentpod_bot.harness.adapter import Harness

TOKEN = "laptop-token-0123456789"
OTHER_TOKEN = "server-token-0123456789"
HOOKS_TOKEN = "hooks-token-0123456789"
LAPTOP = Caller(ClientName("laptop"), frozenset({RouteName("ops")}), frozenset({"native"}))
OTHER = Caller(ClientName("server"), frozenset({RouteName("ops")}), frozenset({"native"}))
HOOKS = Caller(ClientName("hooks"), frozenset({RouteName("ops")}), frozenset({"claude-code", "toy", "toy-hook"}))
ASKED: dict[str, Any] = {
    "session_id": "acps_3f0c",
    "request_seq": 12,
    "title": "Run the test suite",
    "options": [{"id": "allow_once", "kind": "allow_once"}, {"id": "reject_once", "kind": "reject_once"}],
}
DOCUMENT = openapi.document()


@dataclass
class Ready:
    """What `/readyz` is told."""

    problems: tuple[str, ...] = ()

    async def __call__(self) -> tuple[str, ...]:
        return self.problems


@dataclass(frozen=True)
class Reply:
    """One answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem document whose members agree with each other and with the status."""
        assert self.headers["Content-Type"].startswith("application/problem+json")
        document = self.json
        assert document["type"] == f"urn:agentpod:problem:{document['code']}"
        assert document["status"] == self.status
        assert document["title"]
        assert document["detail"]
        assert document["correlation_id"] == self.headers["X-Correlation-Id"]
        return str(document["code"])


class Client:
    """Calls the server; no answer may have a status or form that the OpenAPI document does not tell."""

    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = TOKEN,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> Reply:
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        url = URL(self._base + path, encoded=True)
        async with self._session.request(method, url, headers={**bearer, **(headers or {})}, **body) as response:
            reply = Reply(response.status, response.headers, await response.read())
        assert re.fullmatch("[0-9a-f]{16}", reply.headers["X-Correlation-Id"])
        assert reply.headers["Cache-Control"] == "no-store"
        _check_declared(method, url.raw_path, reply)
        return reply

    async def get(self, path: str, **more: Any) -> Reply:
        return await self.call("GET", path, **more)

    async def post(self, path: str, content: Any = None, **more: Any) -> Reply:
        return await self.call("POST", path, **({} if content is None else {"json": content}), **more)

    async def ask(self, path: str = "/v1/requests", *, token: str | None = TOKEN, **changes: Any) -> Reply:
        return await self.post(path, ASKED | changes, token=token)


@dataclass(frozen=True)
class Bench:
    """All of one test."""

    broker: FakeBroker
    server: Server
    client: Client
    tokens: Tokens
    ready: Ready

    async def raw(self, *sent: bytes, until_eof: bool = True) -> bytes:
        """Send bytes over one connection; return what comes until the server closes it."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        try:
            for part in sent:
                writer.write(part)
                await writer.drain()
            async with asyncio.timeout(10):
                return await (reader.read() if until_eof else reader.readuntil(b"\r\n\r\n"))
        finally:
            writer.close()


async def exposition() -> tuple[bytes, str]:
    """What `/metrics` shows."""
    return b"agentpod_up 1\n", "text/plain; version=1.0.0; charset=utf-8"


@asynccontextmanager
async def bench(
    *,
    limits: Limits | None = None,
    max_waits: int = 10,
    stop_within_s: float = 5.0,
    listen: Tcp | Unix | None = None,
    adapters: Mapping[str, Harness] = ADAPTERS,
) -> AsyncIterator[Bench]:
    """Start everything, and stop it at the end."""
    broker = FakeBroker(max_waits=max_waits)
    tokens = Tokens([(TOKEN, LAPTOP), (OTHER_TOKEN, OTHER), (HOOKS_TOKEN, HOOKS)])
    ready = Ready()
    app = application(
        broker=broker,
        tokens=tokens,
        readiness=ready,
        metrics=exposition,
        limits=limits or Limits(),
        allowed_hosts=["Bot.Example.org"],
        adapters=adapters,
    )
    listen = listen or Tcp("127.0.0.1", 0)
    connector = aiohttp.UnixConnector(str(listen.path)) if isinstance(listen, Unix) else aiohttp.TCPConnector()
    async with (
        Server(app, listen, stop_within_s=stop_within_s) as server,
        aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=20)) as session,
    ):
        base = f"http://127.0.0.1:{server.port}" if server.port else "http://localhost"
        yield Bench(broker, server, Client(session, base), tokens, ready)


def _check_declared(method: str, path: str, reply: Reply) -> None:
    media_type = reply.headers.get("Content-Type", "").partition(";")[0]
    for template, operations in DOCUMENT["paths"].items():
        pattern = re.sub(r"\\\{[a-z_]+\\\}", "[^/]+", re.escape(template))
        operation = operations.get(method.lower())
        if operation is None or re.fullmatch(pattern, path) is None:
            continue
        declared = operation["responses"]
        assert str(reply.status) in declared, f"{method} {template} does not declare {reply.status}"
        assert media_type in declared[str(reply.status)]["content"]
        if media_type == "application/problem+json":
            assert reply.code in declared[str(reply.status)]["description"]
