"""A client of the daemon's own HTTP endpoint."""

from __future__ import annotations

import json
import os
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from agentpod_bot.core.text import visible_line
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from agentpod_bot.core.ids import RequestId, SessionId
    from agentpod_bot.proxy.endpoint import Endpoint

CALL_S = 30.0
"""Seconds that a call may take beside what it waits for."""
CONNECT_S = 5.0
LONGEST_SENTENCE = 2_000
LARGEST_ANSWER = 64 * 2**20
"""Bytes of an answer's body; whatever answers may be no daemon of ours."""
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer. `content` is empty where the body was no JSON object."""

    status: int
    content: dict[str, Any]
    retry_after_s: float | None = None
    media_type: str = ""
    body: bytes = b""

    @property
    def code(self) -> str:
        """The stable code of a problem document, or the empty string."""
        return str(self.content.get("code", ""))

    @property
    def sentence(self) -> str:
        """What a problem document says, with every field that it faults, on one line and safe for a terminal.

        Whatever answers may be no daemon of ours, so any shape of content gives a sentence.
        """
        said = str(self.content.get("detail") or self.content.get("title") or f"HTTP {self.status}")
        faults = [fault for fault in faults_of(self.content.get("errors")) if fault not in said]
        return visible_line("; ".join([said, *faults]), limit=LONGEST_SENTENCE)


class Unreached(Exception):
    """No answer came. `sent` is true where the daemon may have taken the call all the same."""

    def __init__(self, msg: str, *, sent: bool) -> None:
        super().__init__(msg)
        self.sent = sent


class Daemon:
    """A running daemon. Every call returns its `Reply`, whatever the status, or raises `Unreached`."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: Endpoint) -> None:
        self._session = session
        self.endpoint = endpoint

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | bytes | None = None,
        extra_s: float = 0.0,
        limit_s: float | None = CALL_S,
    ) -> Reply:
        """Make one call. `path` is escaped already; `extra_s` is how long the daemon may hold it.

        A body of bytes is sent as it is, as JSON. `limit_s=None` waits for as long as it takes.
        """
        url = URL(self.endpoint.url + path, encoded=True).with_query(query)
        headers = {"Authorization": f"Bearer {self.endpoint.token}"} if self.endpoint.token else {}
        if isinstance(body, bytes):
            headers["Content-Type"] = "application/json"
        total = None if limit_s is None else limit_s + extra_s
        try:
            async with self._session.request(
                method,
                url,
                json=None if isinstance(body, bytes) else body,
                data=body if isinstance(body, bytes) else None,
                headers=headers,
                allow_redirects=False,  # a token goes to the daemon and nowhere else
                timeout=aiohttp.ClientTimeout(total=total, connect=CONNECT_S),
            ) as response:
                answered = await whole(response)
                return Reply(
                    response.status, content_of(answered), retry_after(response), response.content_type, answered
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as fault:
            raise Unreached(reason(fault), sent=False) from fault
        except (aiohttp.ClientError, TimeoutError, OSError) as fault:
            raise Unreached(reason(fault), sent=True) from fault

    async def submit(self, body: Mapping[str, Any]) -> Reply:
        """Ask; returns as soon as the daemon has stored the request."""
        return await self.call("POST", "/v1/requests", body=body)

    async def wait(self, request_id: RequestId, wait_s: int) -> Reply:
        """The request's view, once it is closed or `wait_s` seconds have passed."""
        return await self.call(
            "GET", f"/v1/requests/{escaped(request_id)}", query={"wait": str(wait_s)}, extra_s=wait_s
        )

    async def page(self, query: Mapping[str, str]) -> Reply:
        """One page of this client's requests."""
        return await self.call("GET", "/v1/requests", query=query)

    async def cancel(self, request_id: RequestId) -> Reply:
        """Say that nobody needs this request any more."""
        return await self.call("POST", f"/v1/requests/{escaped(request_id)}/cancel")

    async def cancel_session(self, session_id: SessionId) -> Reply:
        """Cancel every open request of a session."""
        return await self.call("POST", f"/v1/sessions/{escaped(session_id)}/cancel")

    async def cancel_all(self) -> Reply:
        """Cancel every open request of this client."""
        return await self.call("POST", "/v1/cancel-all")

    async def ready(self, *, limit_s: float) -> Reply:
        """Whether the daemon is ready; needs no token."""
        return await self.call("GET", "/readyz", limit_s=limit_s)


@asynccontextmanager
async def connected(endpoint: Endpoint) -> AsyncIterator[Daemon]:
    """A client of `endpoint`; connections are closed at the end. Proxies of the environment are not used."""
    connector: aiohttp.BaseConnector
    if endpoint.socket is not None:
        connector = aiohttp.UnixConnector(path=str(endpoint.socket), limit=0)
    else:
        connector = aiohttp.TCPConnector(socket_factory=lasting, limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield Daemon(session, endpoint)


async def whole(response: aiohttp.ClientResponse) -> bytes:
    """The body of an answer. Raises `ClientPayloadError` where it is cut, or larger than any of ours."""
    read = bytearray()
    async for chunk in response.content.iter_chunked(_CHUNK):
        read += chunk
        if len(read) > LARGEST_ANSWER:
            raise aiohttp.ClientPayloadError("the answer is too large")
    return bytes(read)


def lasting(place: tuple[Any, ...]) -> socket.socket:
    """A socket for a call that may wait for hours: the system notices where the other machine is gone."""
    family, kind, protocol, *_ = place
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return made


def escaped(opaque: str) -> str:
    """An id as one segment of a path; ids are opaque and may hold any character of a URL."""
    return quote(opaque, safe="")


def content_of(body: bytes) -> dict[str, Any]:
    """The JSON object of a body; empty for anything else (a proxy's page, say)."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def faults_of(errors: object) -> list[str]:
    """The faults of a problem document as `field: reason`; what has another shape is left out."""
    found: list[str] = []
    for error in errors if isinstance(errors, list) else ():
        match error:
            case {"loc": [*loc], "msg": str(msg)}:
                found.append(f"{'.'.join(map(str, loc))}: {msg}")
            case {"msg": str(msg)}:
                found.append(msg)
            case _:
                pass
    return found


def retry_after(response: aiohttp.ClientResponse) -> float | None:
    """The seconds of `Retry-After`; None where there are none (a date is not read)."""
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isascii() and value.isdecimal() else None


def reason(fault: BaseException) -> str:
    """Why a connection failed, in a few words."""
    match fault:
        case aiohttp.ClientConnectorError(os_error=OSError(errno=int(number))) if number > 0:
            return os.strerror(number).lower()
        case TimeoutError():
            return "no answer in time"
        case aiohttp.ServerDisconnectedError():
            return "the connection was cut"
        case _:
            return visible_line(str(fault) or type(fault).__name__, limit=LONGEST_SENTENCE)


def refused(reply: Reply, endpoint: Endpoint) -> Stopped:
    """What an answer that is no success means for a command: its exit code and a sentence."""
    match reply.status:
        case 401 | 403:
            return Stopped(ExitCode.REFUSED, f"{endpoint} refuses: {reply.sentence}")
        case 404 | 409:
            return Stopped(ExitCode.NO, reply.sentence)
        case 400 | 413 | 415 | 422:
            return Stopped(ExitCode.USAGE, f"{endpoint} does not accept this: {reply.sentence}")
        case _:
            code = f" ({visible_line(reply.code, limit=LONGEST_SENTENCE)})" if reply.code else ""
            return Stopped(ExitCode.UNREACHABLE, f"{endpoint} cannot take this now: {reply.sentence}{code}")


def unreachable(fault: Unreached, endpoint: Endpoint) -> Stopped:
    """The daemon did not answer: the exit code and a sentence."""
    return Stopped(ExitCode.UNREACHABLE, f"no daemon answers at {endpoint}: {fault}")
