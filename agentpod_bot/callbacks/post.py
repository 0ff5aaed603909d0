"""One try: a POST over a connection of its own to an address that was checked.

A name is looked up for every try, and the very addresses that passed the check are
connected to: a name server that changes its mind in between changes nothing.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from agentpod_bot import __version__
from agentpod_bot.callbacks.address import read
from agentpod_bot.callbacks.reply import Failed, Reply, Why, judged
from agentpod_bot.callbacks.signing import signed

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext

    from agentpod_bot.callbacks.address import Allowed
    from agentpod_bot.callbacks.target import Target
    from agentpod_bot.core.ids import WebhookId
    from agentpod_bot.ports import Clock

TIMEOUT_S = 15.0
"""Bound of a whole try: name, connection, TLS, request and the head of the answer."""
MOST_HEADER_BYTES = 8_190
MOST_HEADERS = 64


class AddressRefused(OSError):
    """Where a target leads, no callback may go."""


class Checked(AbstractResolver):
    """Looks names up by another resolver, and passes on only addresses to which a callback may go."""

    def __init__(self, names: AbstractResolver, allowed: Allowed) -> None:
        self._names = names
        self._allowed = allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The host's allowed addresses. Raises AddressRefused where it has none."""
        found = await self._names.resolve(host, port, family)
        passed = [one for one in found if self._allowed(read(one["host"]))]
        if not passed:
            raise AddressRefused("no address of the host is one to which callbacks may go")
        return passed

    async def close(self) -> None:
        """Nothing of our own is open."""


class Poster:
    """Makes single tries. `names` looks hosts up; `tls` says which certificates are trusted."""

    def __init__(
        self,
        clock: Clock,
        *,
        names: Callable[[], AbstractResolver] = aiohttp.ThreadedResolver,
        tls: SSLContext | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self._names = names
        self._tls: SSLContext | bool = True if tls is None else tls
        self._timeout_s = timeout_s

    async def __call__(self, target: Target, webhook_id: WebhookId, body: str) -> Reply:
        """Post a body of JSON to a target. What goes wrong is a `Failed`; of the answer only the head is read."""
        now_ms = self._clock.now_ms()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"agentpod-bot/{__version__}",
            **signed(webhook_id, body, secrets=target.secrets, now_ms=now_ms),
        }
        try:
            async with asyncio.timeout(self._timeout_s), self._session(target.allowed) as session:
                # The URL goes out as it was written: re-quoted, it might be another one.
                url = URL(target.url, encoded=True)
                answer = await session.post(url, data=body.encode(), headers=headers, allow_redirects=False)
                answer.close()
                return judged(answer.status, answer.headers.get("Retry-After"), now_ms)
        except TimeoutError:
            return Failed(Why.TIMED_OUT)
        except (aiohttp.ClientSSLError, aiohttp.ClientConnectorCertificateError):
            return Failed(Why.TLS)
        except aiohttp.ClientConnectorError as error:
            return Failed(Why.ADDRESS_REFUSED if isinstance(error.os_error, AddressRefused) else Why.UNREACHABLE)
        except (aiohttp.ClientError, OSError, ValueError):
            return Failed(Why.UNREACHABLE)

    def _session(self, allowed: Allowed) -> aiohttp.ClientSession:
        """A session for one try: nothing is kept in it for another one, no cookie, name or connection."""

        def gate(address: Any) -> socket.socket:
            """The last look before a socket is made: an address in the URL itself asks no resolver."""
            family, kind, protocol, _, at = address
            if not allowed(read(at[0])):
                raise AddressRefused("callbacks may not go to this address")
            return socket.socket(family, kind, protocol)

        connector = aiohttp.TCPConnector(
            resolver=Checked(self._names(), allowed),
            socket_factory=gate,
            force_close=True,
            ssl=self._tls,
        )
        return aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            trust_env=False,
            auto_decompress=False,
            max_line_size=MOST_HEADER_BYTES,
            max_field_size=MOST_HEADER_BYTES,
            max_headers=MOST_HEADERS,
        )
