"""A wire between a bot and its homeserver that notes when what passes, and changes nothing.

Every arm's bot speaks through one, so the tenth of a millisecond that it costs is in all
of them alike. It forwards first and notes afterwards.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

LOOPBACK = "127.0.0.1"


@dataclass(slots=True)
class Exchange:
    """One HTTP request and its answer, times by `perf_counter` as their last bytes passed."""

    request: bytearray = field(default_factory=bytearray)
    answer: bytearray = field(default_factory=bytearray)
    asked_at: float = 0.0
    answered_at: float = 0.0
    """0 while nothing of the answer has come."""

    @property
    def line(self) -> bytes:
        """Method and target."""
        return bytes(self.request.split(b"\r\n", 1)[0])


class Wire:
    """A listener whose connections lead to one port of this machine; use it with `async with`."""

    def __init__(self, port: int) -> None:
        self.url = ""
        self._port = port
        self._exchanges: list[Exchange] = []
        self._listener: asyncio.Server | None = None
        self._open: set[asyncio.Transport] = set()

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(lambda: Inner(self), LOOPBACK, 0)
        self.url = f"http://{LOOPBACK}:{self._listener.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cut every connection."""
        if self._listener is not None:
            self._listener.close()
        for transport in tuple(self._open):
            transport.abort()

    def forget(self) -> None:
        """Drop every exchange that is over."""
        self._exchanges = [exchange for exchange in self._exchanges if not exchange.answered_at]

    def first(self, wanted: Callable[[Exchange], bool]) -> Exchange:
        """Return the earliest remembered exchange that is wanted. Raises LookupError for none."""
        for exchange in self._exchanges:
            if wanted(exchange):
                return exchange
        raise LookupError("no such exchange passed the wire")

    async def connect(self, inner: Inner) -> asyncio.Transport:
        """Open the other half of a connection."""
        transport, _ = await asyncio.get_running_loop().create_connection(
            lambda: Outer(self, inner), LOOPBACK, self._port
        )
        return transport

    def begin(self) -> Exchange:
        """Remember a new exchange."""
        exchange = Exchange()
        self._exchanges.append(exchange)
        return exchange

    def opened(self, transport: asyncio.Transport) -> None:
        """Keep a connection, so that the end cuts it."""
        self._open.add(transport)

    def closed(self, transport: asyncio.Transport) -> None:
        """Forget a connection."""
        self._open.discard(transport)


class Inner(asyncio.Protocol):
    """The half towards the bot. A connection carries one exchange after another."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._current: Exchange | None = None
        self._transport: asyncio.Transport | None = None
        self._other: asyncio.Transport | None = None
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Read nothing before the homeserver is reached."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(transport)
        transport.pause_reading()
        self._transport = transport
        self._wire.opened(transport)
        self._connecting = asyncio.get_running_loop().create_task(self._connect(transport))

    async def _connect(self, transport: asyncio.Transport) -> None:
        try:
            self._other = await self._wire.connect(self)
        except OSError:
            transport.abort()  # the bot sees a homeserver that cannot be reached, and so it is
        else:
            transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Pass a part of a request on."""
        now = perf_counter()
        if self._other is not None:
            self._other.write(data)
        if self._current is None or self._current.answered_at:
            self._current = self._wire.begin()
        self._current.request += data
        self._current.asked_at = now

    def answered(self, data: bytes, now: float) -> None:
        """Pass a part of an answer back."""
        if self._transport is not None:
            self._transport.write(data)
        if self._current is not None:
            self._current.answer += data
            self._current.answered_at = now

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        """Close the other half."""
        if self._transport is not None:
            self._wire.closed(self._transport)
        if self._other is not None:
            self._other.close()

    def hang_up(self) -> None:
        """The homeserver closed the connection."""
        if self._transport is not None:
            self._transport.close()


class Outer(asyncio.Protocol):
    """The half towards the homeserver."""

    def __init__(self, wire: Wire, inner: Inner) -> None:
        self._wire = wire
        self._inner = inner
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError(transport)
        self._transport = transport
        self._wire.opened(transport)

    def data_received(self, data: bytes) -> None:
        """Pass a part of an answer back."""
        self._inner.answered(data, perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio names it
        """Close the other half."""
        if self._transport is not None:
            self._wire.closed(self._transport)
        self._inner.hang_up()
