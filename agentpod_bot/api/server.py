"""The listening socket: TCP or Unix, started and stopped without cutting anyone off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import structlog
from aiohttp import web

from agentpod_bot.api.calls import LIMITS, STOPPING
from agentpod_bot.api.connection import Connection
from agentpod_bot.api.crowd import BACKLOG, Crowd
from agentpod_bot.errors import ConfigurationError
from agentpod_bot.unix_socket import Bound, bind

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Tcp:
    """Listen on an address; port 0 takes a free one."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Unix:
    """Listen on a Unix socket that only its owner can use."""

    path: Path


class Server:
    """Serves one application on one listener.

    To stop without loss: let the broker release its waiting calls first (they are answered
    503 `shutting_down`), then await `stop()`.
    """

    def __init__(self, app: web.Application, listen: Tcp | Unix, *, stop_within_s: float = 10.0) -> None:
        self._app = app
        self._listen = listen
        # The library waits twice: for the answers, and again for its tasks.
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=stop_within_s / 2)
        self._crowd = Crowd(app[LIMITS].connections)
        self._listener: asyncio.Server | None = None
        self._bound: Bound | None = None

    @property
    def port(self) -> int:
        """The bound TCP port; 0 for a Unix socket and before the start."""
        match self._listener, self._listen:
            case asyncio.Server(sockets=[first, *_]), Tcp():
                return int(first.getsockname()[1])
            case _:
                return 0

    async def start(self) -> None:
        """Begin to listen. Raises `ConfigurationError` where the address or socket cannot be had."""
        await self._runner.setup()
        try:
            match self._listen:
                case Tcp(host, port):
                    self._listener = await self._listen_on_address(host, port)
                case Unix(path):
                    self._listener = await self._listen_on_socket(path)
                case _:
                    assert_never(self._listen)
        except BaseException:
            await self._runner.cleanup()
            raise
        log.info("http_listening", **self._place())

    async def stop(self) -> None:
        """Stop listening, let every call that is being answered come to its end, then close.

        Connections that wait for a next request are closed at once; what still runs at the
        deadline is cut. May be called twice, and without a start.
        """
        self._app[STOPPING].set()
        listener, self._listener = self._listener, None
        if listener is None:
            return
        listener.close()
        if self._bound is not None:
            self._bound.remove()
        await self._runner.cleanup()
        await asyncio.sleep(0)  # the closed connections' tasks end in the loop's next turn

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self.stop()

    def _place(self) -> dict[str, str | int]:
        match self._listen:
            case Tcp(host=host):
                return {"host": host, "port": self.port}
            case Unix(path=path):
                return {"socket": str(path)}
            case _:
                assert_never(self._listen)

    async def _listen_on_address(self, host: str, port: int) -> asyncio.Server:
        try:
            return await asyncio.get_running_loop().create_server(self._connection, host, port, backlog=BACKLOG)
        except OSError as fault:
            raise ConfigurationError(f"http.listen: cannot listen on {host} port {port}: {fault.strerror}") from fault

    async def _listen_on_socket(self, path: Path) -> asyncio.Server:
        self._bound = bind(path, setting="http.socket")
        return await asyncio.get_running_loop().create_unix_server(
            self._connection, sock=self._bound.socket, backlog=BACKLOG
        )

    def _connection(self) -> Connection:
        manager = self._runner.server
        if manager is None:  # accepted in the same turn of the loop in which the server was stopped
            raise ConnectionAbortedError("the server is stopped")
        return Connection(manager, loop=asyncio.get_running_loop(), limits=self._app[LIMITS], crowd=self._crowd)
