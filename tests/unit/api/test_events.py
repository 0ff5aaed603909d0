from __future__ import annotations

import asyncio
import json
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.api.connection import Limits
from agentpod_bot.core.ids import ClientName, EventId, RequestId, Row
from agentpod_bot.core.journal import UNKNOWN, Link, Place
from agentpod_bot.core.kept import AuditRow, Change
from agentpod_bot.core.model import Listed, Status
from agentpod_bot.errors import ShuttingDown, StoreUnavailable
from tests.examples import START, closed, question
from tests.unit.api.bench import OTHER, OTHER_TOKEN, TOKEN, Bench, bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PATH = "/v1/events"
ENDED = closed(1, at_ms=START)
SHOWN = Listed.of(question(1))


def change(seq: int, status: Status = Status.PENDING, shown: Listed | None = SHOWN, **changes: Any) -> Change:
    row = AuditRow(
        what="shown", at_ms=START, row=Row(1), client=ClientName("laptop"), request_id=RequestId("r1"), revision=1
    )
    return Change(link=Link(seq, f"{seq:064x}"), row=replace(row, **changes), status=status, question=shown)


@dataclass
class Reader:
    """The client's side of one stream."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    head: bytes = b""

    async def block(self) -> dict[str, str]:
        """The fields of the next block, which may be a comment; empty at the end of the stream."""
        text = await self._line()
        found: dict[str, str] = {}
        while text is not None and text != "":
            name, _, value = text.partition(":")
            assert name not in found
            found[name] = value.removeprefix(" ")
            text = await self._line()
        return found

    async def rest(self) -> bytes:
        async with asyncio.timeout(10):
            return await self.reader.read()

    async def _line(self) -> str | None:
        while True:
            async with asyncio.timeout(10):
                line = await self.reader.readline()
            if line in {b"", b"0\r\n"}:
                return None
            if not line.endswith(b"\r\n"):  # the others are those of chunked transfer
                return line.decode().removesuffix("\n")


@asynccontextmanager
async def reading(daemon: Bench, path: str = PATH, *, token: str = TOKEN, **headers: str) -> AsyncIterator[Reader]:
    """A stream whose head was read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        f"Authorization: Bearer {token}",
        *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items()),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode())
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
    try:
        yield Reader(reader, writer, head)
    finally:
        writer.close()


async def test_a_stream_says_at_once_where_it_begins_and_then_each_change_as_it_comes(daemon: Bench) -> None:
    async with reading(daemon) as reader:
        head = reader.head.decode().lower()
        assert head.startswith("http/1.1 200 ")
        assert "content-type: text/event-stream\r\n" in head
        assert "cache-control: no-store" in head
        assert await reader.block() == {"retry": "2000", "id": f"41-{'ab' * 8}"}
        [stream] = daemon.broker.streams
        assert (stream.caller.client, stream.place) == ("laptop", None)
        stream.tell((change(42, Status.QUEUED), change(45)))
        stream.tell((change(50, Status.EXPIRED, Listed.of(ENDED)),))
        blocks = [await reader.block() for _ in range(3)]
    assert [(block["event"], block["id"]) for block in blocks] == [
        ("queued", f"42-{'0' * 16}"),
        ("pending", f"45-{'0' * 16}"),
        ("expired", f"50-{'0' * 16}"),
    ]
    told = json.loads(blocks[2]["data"])
    assert set(told) == {"request_id", "revision", "status", "at", "request"}
    assert (told["request_id"], told["revision"], told["status"]) == ("r1", 1, "expired")
    assert told["at"] == "2026-10-26T07:33:20.000Z"
    assert told["request"]["status"] == "expired"
    assert told["request"]["decision"]["outcome"] == "expired"
    assert json.loads(blocks[1]["data"])["request"]["decision"] is None


async def test_a_text_with_line_breaks_stays_in_its_event(daemon: Bench) -> None:
    asked = replace(SHOWN, event_id=EventId("$a\n\nevent: decided\r\u2028data: x"))
    async with reading(daemon) as reader:
        await reader.block()
        daemon.broker.streams[0].tell((change(42, shown=asked), change(43)))
        first, second = await reader.block(), await reader.block()
    assert json.loads(first["data"])["request"]["event_id"] == asked.event_id
    assert (first["event"], second["event"]) == ("pending", "pending")


async def test_a_line_that_contradicts_its_request_is_not_told(daemon: Bench) -> None:
    """The question is the only truth: a line alone must not make anybody believe in a decision."""
    async with reading(daemon) as reader:
        await reader.block()
        told = change(43, Status.DECIDED, replace(SHOWN, status=Status.DECIDED))
        daemon.broker.streams[0].tell((change(42),))
        daemon.broker.streams[0].tell((told, change(44)))
        assert (await reader.block())["event"] == "pending"
        assert await reader.block() == {}


async def test_a_change_of_a_request_that_is_forgotten_comes_without_it(daemon: Bench) -> None:
    async with reading(daemon) as reader:
        await reader.block()
        daemon.broker.streams[0].tell((change(42, shown=None),))
        told = json.loads((await reader.block())["data"])
    assert told == {
        "request_id": "r1",
        "revision": 1,
        "status": "pending",
        "at": "2026-10-26T07:33:20.000Z",
        "request": None,
    }


@pytest.mark.parametrize(
    ("query", "header", "place"),
    [
        ("?since=7", None, Place(7)),
        (f"?since=7-{'0a' * 8}", None, Place(7, "0a" * 8)),
        ("", f"9-{'0a' * 8}", Place(9, "0a" * 8)),
        ("?since=7", "9", Place(9)),
        ("", "an id of another server", UNKNOWN),
        ("", "", UNKNOWN),
        ("", "-1", UNKNOWN),
        ("", "9" * 19, UNKNOWN),
        ("", f"9-{'0A' * 8}", UNKNOWN),
    ],
)
async def test_a_stream_begins_after_the_event_that_is_named(
    daemon: Bench, query: str, header: str | None, place: Place
) -> None:
    headers = {} if header is None else {"Last_Event_ID": header}
    async with reading(daemon, PATH + query, **headers) as reader:
        first = await reader.block()
    assert daemon.broker.streams[0].place == place
    assert first.get("event") == ("reset" if place == UNKNOWN else None)


async def test_a_place_that_is_not_known_is_told_by_a_reset_from_which_one_can_go_on(daemon: Bench) -> None:
    async with reading(daemon, Last_Event_ID="nothing of ours") as reader:
        first = await reader.block()
    assert (first["event"], first["id"]) == ("reset", f"41-{'ab' * 8}")
    assert "may have been missed" in json.loads(first["data"])["reason"]


@pytest.mark.parametrize("since", ["", "x", "-1", "1.5", "7-", "7-00", f"7-{'0' * 64}", "9" * 19, "9" * 20, "%D9%A3"])
async def test_a_since_that_is_no_id_is_refused(daemon: Bench, since: str) -> None:
    reply = await daemon.client.get(f"{PATH}?since={since}")
    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.json["errors"][0]["loc"] == ["query", "since"]


async def test_a_stream_needs_a_token_and_has_a_place_among_the_tokens_waiting_calls() -> None:
    async with bench(max_waits=1) as daemon:
        assert (await daemon.client.get(PATH, token=None)).code == "unauthorized"
        async with reading(daemon, token=OTHER_TOKEN):
            assert daemon.broker.streams[0].caller.client == "server"
            refused = await daemon.client.get(PATH)
            assert (refused.status, refused.code) == (503, "too_many_waits")
            assert "Retry-After" in refused.headers
        await daemon.broker.until_waiting(0)


async def test_a_reader_that_hangs_up_gives_its_place_back(daemon: Bench) -> None:
    async with reading(daemon) as reader:
        await reader.block()
        assert daemon.broker.waits == 1
    await daemon.broker.until_waiting(0)


async def test_while_nothing_happens_a_comment_says_that_the_stream_lives() -> None:
    async with bench(limits=Limits(heartbeat_s=0.02)) as daemon, reading(daemon) as reader:
        await reader.block()
        for _ in range(3):
            assert await reader.block() == {"": "nothing new"}
        daemon.broker.streams[0].tell((change(42),))
        while not (block := await reader.block()).get("event"):
            pass
        assert block["event"] == "pending"


@pytest.mark.parametrize("failure", [ShuttingDown(None), StoreUnavailable("the disk is full")])
async def test_a_stream_that_cannot_go_on_ends_after_all_that_it_told(daemon: Bench, failure: Exception) -> None:
    async with reading(daemon) as reader:
        await reader.block()
        daemon.broker.streams[0].tell((change(42),))
        daemon.broker.streams[0].tell(failure)
        assert (await reader.block())["event"] == "pending"
        assert await reader.block() == {}
    await daemon.broker.until_waiting(0)


async def test_a_stream_that_cannot_begin_is_answered_with_why(daemon: Bench) -> None:
    for failure, code in ((ShuttingDown(None), "shutting_down"), (StoreUnavailable("full"), "store_unavailable")):
        daemon.broker.failure = failure
        reply = await daemon.client.get(PATH)
        assert (reply.status, reply.code) == (503, code)


async def test_stopping_the_server_waits_for_no_stream_longer_than_for_any_other_call() -> None:
    async with bench(stop_within_s=1) as daemon, reading(daemon) as reader:
        await reader.block()
        daemon.broker.streams[0].tell(ShuttingDown(None))
        async with asyncio.timeout(5):
            await daemon.server.stop()
        assert (await reader.rest()).endswith(b"\r\n0\r\n\r\n")


async def test_nothing_more_is_told_once_the_token_is_none_any_more(daemon: Bench) -> None:
    async with reading(daemon) as reader, reading(daemon, token=OTHER_TOKEN) as other:
        await reader.block()
        await other.block()
        daemon.tokens.replace([(OTHER_TOKEN, OTHER)])
        for stream in daemon.broker.streams:
            stream.tell((change(42),))
        assert await reader.block() == {}
        assert (await other.block())["event"] == "pending"


async def test_a_reader_that_does_not_read_is_cut_off_and_its_place_is_free() -> None:
    long = replace(SHOWN, code="x" * 200_000)  # type: ignore[arg-type]  # no code is that long; only the size counts
    async with bench(limits=Limits(write_s=0.2)) as daemon:
        slow = socket.create_connection(("127.0.0.1", daemon.server.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.sendall(f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        await daemon.broker.until_waiting(1)
        for seq in range(200):
            daemon.broker.streams[0].tell((change(seq, shown=long),))
        async with asyncio.timeout(10):
            await daemon.broker.until_waiting(0)
        slow.close()


async def test_a_fast_reader_is_not_held_back_by_a_slow_one() -> None:
    long = replace(SHOWN, code="x" * 200_000)  # type: ignore[arg-type]  # as above
    async with bench() as daemon, reading(daemon) as fast:
        await fast.block()
        async with reading(daemon):
            await daemon.broker.until_waiting(2)
            for seq in range(200):
                daemon.broker.streams[1].tell((change(seq, shown=long),))
            for seq in range(9):
                daemon.broker.streams[0].tell((change(seq),))
                assert (await fast.block())["event"] == "pending"
