"""A receiver on loopback that verifies signatures with the library's own verifier, and misbehaves as told."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from standardwebhooks.webhooks import Webhook

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Sequence

SECRET = "whsec_bWFkZS11cC1tYWRlLXVwLW1hZGUtdXAtbWFkZS11cCE="
OTHER_SECRET = "whsec_b3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXItb3RoZXIh"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Taken:
    """One POST whose signature was good."""

    target: str
    headers: dict[str, str]
    body: str

    @property
    def says(self) -> dict[str, Any]:
        """The body, read."""
        read: dict[str, Any] = json.loads(self.body)
        return read


@dataclass
class Receiver:
    """Answers each connection with the next of `answers` (raw bytes), then with `usual`; None never answers."""

    port: int = 0
    usual: bytes | None = OK
    answers: list[bytes | None] = field(default_factory=list)
    endless: bytes | None = None
    """Sent again and again after an answer, until the other side has had enough."""
    secret: str = SECRET
    connections: int = 0
    taken: list[Taken] = field(default_factory=list)

    def url(self, path: str = "/hooks", *, host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # hung up: that is what some tests want
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *fields = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in fields)}
        body = (await reader.readexactly(int(headers["content-length"]))).decode()
        Webhook(self.secret).verify(body, headers, json_parse=False)
        method, target, _ = line.split(" ")
        assert method == "POST"
        self.taken.append(Taken(target, headers, body))
        answer = self.answers.pop(0) if self.answers else self.usual
        if answer is None:
            await reader.read()  # until the other side hangs up
            return
        writer.write(answer)
        while self.endless is not None:
            writer.write(self.endless)
            await writer.drain()


def answer(status: int, *headers: str) -> bytes:
    """An answer without a body."""
    return "\r\n".join([f"HTTP/1.1 {status} Said", *headers, "Content-Length: 0", "", ""]).encode()


@asynccontextmanager
async def receiving(
    tls: ssl.SSLContext | None = None, *, answers: Sequence[bytes | None] = ()
) -> AsyncIterator[Receiver]:
    """A receiver that runs."""
    receiver = Receiver(answers=list(answers))
    tasks: set[asyncio.Task[None]] = set()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(receiver.serve(reader, writer))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(begin, "127.0.0.1", 0, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        await server.wait_closed()
        faults = await asyncio.gather(*tasks, return_exceptions=True) if tasks else []
        assert [fault for fault in faults if fault is not None] == []
