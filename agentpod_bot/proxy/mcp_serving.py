"""Serving MCP: over stdin and stdout, or over streamable HTTP behind a token."""

from __future__ import annotations

import hmac
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings

from agentpod_bot.proxy.pipes import LineTooLong, Source, lines

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import anyio
    from mcp.server.lowlevel import Server
    from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
STDIN = 0
MOST_BYTES = 2 * 2**20
"""Of one message over HTTP; the daemon takes no question of more than half of it."""
CLOSING_S = 2
"""How long open streams may still end by themselves; most clients keep one open for ever."""


async def over_stdio(served: Server[Any]) -> None:
    """Serve the client at stdin and stdout until stdin ends; calls that wait are cancelled then."""
    # The SDK's own reader cannot be left while it waits for a line, which a signal must be able to do.
    incoming = cast("anyio.AsyncFile[str]", texts(lines(Source(STDIN))))
    async with stdio_server(stdin=incoming) as (read, write):
        await served.run(read, write, served.create_initialization_options())


async def texts(source: AsyncIterator[bytes]) -> AsyncIterator[str]:
    """Lines as text; they end at one that is too long to be a message."""
    with suppress(LineTooLong):
        async for line in source:
            yield line.decode("utf-8", "replace")


async def over_http(served: Server[Any], host: str, port: int, token: str, names: Iterable[str]) -> None:
    """Serve any number of clients that hold `token`, until a signal stops it.

    A call must name one of `names`, or the address itself, as its host, and must not come
    from a web page.
    """
    config = uvicorn.Config(
        application(served, token, hosts(host, port, names)),
        host=host.strip("[]"),
        port=port,
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSING_S,
    )
    await uvicorn.Server(config).serve()


def application(served: Server[Any], token: str, allowed: list[str]) -> ASGIApp:
    """The ASGI application: the token first, then host and origin, then MCP."""
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=allowed, allowed_origins=[]
    )
    inner = served.streamable_http_app(
        streamable_http_path=PATH, transport_security=security, max_request_body_size=MOST_BYTES
    )
    return Bearer(inner, token)


def hosts(host: str, port: int, names: Iterable[str]) -> list[str]:
    """What the `Host` header of a call may say."""
    spelled = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return sorted({f"{name}:{port}" for name in (spelled, *LOOPBACK, *names)} | set(names))


class Bearer:
    """Lets only those calls pass that bring the token; it is compared in a time that tells nothing of it."""

    def __init__(self, inner: ASGIApp, token: str) -> None:
        self._inner = inner
        self._digest = sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope; what has no token is answered with 401."""
        if scope["type"] != "lifespan" and not self._brings_token(scope):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"send Authorization: Bearer and the token\n"})
            return
        await self._inner(scope, receive, send)

    def _brings_token(self, scope: Scope) -> bool:
        match [value for name, value in scope.get("headers", ()) if name == b"authorization"]:
            case [bytes(value)]:
                kind, _, token = value.partition(b" ")
                return kind.lower() == b"bearer" and hmac.compare_digest(sha256(token.strip()).digest(), self._digest)
            case _:
                return False
