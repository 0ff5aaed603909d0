from __future__ import annotations

import asyncio
import gzip
import json
import re
import threading
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.api.calls import PARSED_AT_ONCE
from agentpod_bot.api.connection import Limits
from agentpod_bot.harness import strict_json
from tests.unit.api.bench import ASKED, TOKEN, bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.api.bench import Bench

SENT = json.dumps(ASKED).encode()
HEAD = f"POST /v1/requests HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n".encode()
JSON = b"Content-Type: application/json\r\n"


@pytest.mark.parametrize("value", ["application/json", "Application/JSON", "application/json; charset=UTF-8"])
async def test_json_is_taken(daemon: Bench, value: str) -> None:
    reply = await daemon.client.call("POST", "/v1/requests", data=SENT, headers={"Content-Type": value})
    assert reply.status == 201


@pytest.mark.parametrize(
    "value",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/json; charset=utf-16",
        "application/problem+json",
        "text/json",
        "application/jsonp",
        "text/plain; application/json",
        "",
    ],
)
async def test_a_body_of_any_other_type_is_415(daemon: Bench, value: str) -> None:
    for path in ("/v1/requests", "/v1/requests/x/cancel", "/v1/cancel-all"):
        reply = await daemon.client.call("POST", path, data=SENT, headers={"Content-Type": value})
        assert (reply.status, reply.code) == (415, "unsupported_media_type")
    assert daemon.broker.asked == []


async def test_a_call_without_a_body_needs_no_type(daemon: Bench) -> None:
    await daemon.client.ask()
    reply = await daemon.client.call(
        "POST", "/v1/cancel-all", headers={"Content-Type": "text/plain"}, skip_auto_headers=[]
    )
    assert (reply.status, reply.json) == (200, {"cancelled": ["acps_3f0c:12"]})


async def test_a_body_that_nothing_is_read_from_must_be_json_all_the_same(daemon: Bench) -> None:
    await daemon.client.ask()
    for path in ("/v1/cancel-all", "/v1/requests/acps_3f0c:12/cancel", "/v1/sessions/acps_3f0c/cancel"):
        reply = await daemon.client.call("POST", path, data=b"{", headers={"Content-Type": "application/json"})
        assert (reply.status, reply.code) == (400, "malformed_json")
    assert (await daemon.client.get("/v1/requests?status=pending")).json["requests"]


async def test_a_compressed_body_is_not_read(daemon: Bench) -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    reply = await daemon.client.call("POST", "/v1/requests", data=gzip.compress(SENT), headers=headers)
    assert (reply.status, reply.code) == (415, "unsupported_media_type")


@pytest.fixture
async def narrow() -> AsyncIterator[Bench]:
    async with bench(limits=Limits(body_bytes=1_000, lingering_s=0.1)) as running:
        yield running


async def test_a_body_up_to_the_limit_is_taken(narrow: Bench) -> None:
    padded = SENT + b" " * (1_000 - len(SENT))
    headers = {"Content-Type": "application/json"}
    assert (await narrow.client.call("POST", "/v1/requests", data=padded, headers=headers)).status == 201
    reply = await narrow.client.call("POST", "/v1/requests", data=padded + b" ", headers=headers)
    assert (reply.status, reply.code) == (413, "body_too_large")


@pytest.mark.parametrize("path", ["/v1/requests", "/v1/cancel-all"])
async def test_a_large_body_is_read_beside_the_loop_and_a_small_one_in_it(
    daemon: Bench, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    readers: list[int] = []
    read = strict_json.read

    def noted(body: bytes) -> dict[str, Any]:
        readers.append(threading.get_ident())
        return read(body)

    monkeypatch.setattr(strict_json, "read", noted)
    headers = {"Content-Type": "application/json"}
    for padding in (0, PARSED_AT_ONCE):
        sent = SENT + b" " * padding
        assert (await daemon.client.call("POST", path, data=sent, headers=headers)).status < 300
    here = threading.get_ident()
    assert [reader == here for reader in readers] == [True, False]


async def test_a_large_body_that_cannot_be_read_is_refused_like_a_small_one(daemon: Bench) -> None:
    headers = {"Content-Type": "application/json"}
    sent = b"{" + b" " * PARSED_AT_ONCE
    for path in ("/v1/requests", "/v1/cancel-all", "/v1/requests/x/answered-elsewhere", "/v1/requests/x/progress"):
        reply = await daemon.client.call("POST", path, data=sent, headers=headers)
        assert (reply.status, reply.code) == (400, "malformed_json")


async def test_a_body_that_says_its_length_is_refused_before_it_comes(narrow: Bench) -> None:
    answer = await narrow.raw(HEAD + JSON + b"Content-Length: 100000000\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"code":"body_too_large"' in answer


async def test_a_body_in_chunks_is_cut_off_at_the_limit(narrow: Bench) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b" " * 100

    headers = {"Content-Type": "application/json"}
    reply = await narrow.client.call("POST", "/v1/requests", data=pieces(), headers=headers)
    assert (reply.status, reply.code) == (413, "body_too_large")


async def test_a_body_in_chunks_is_a_body(narrow: Bench) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield SENT[:50]
        yield SENT[50:]

    headers = {"Content-Type": "application/json"}
    assert (await narrow.client.call("POST", "/v1/requests", data=pieces(), headers=headers)).status == 201
    headers = {"Content-Type": "text/plain"}
    assert (await narrow.client.call("POST", "/v1/requests", data=pieces(), headers=headers)).status == 415


async def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    async with bench(limits=Limits(body_s=0.1, lingering_s=0.1)) as daemon:
        answer = await daemon.raw(HEAD + JSON + b"Content-Length: 500\r\n\r\n" + b" " * 10)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"body_too_slow"' in answer


async def test_a_body_with_broken_framing_is_400(narrow: Bench) -> None:
    answer = await narrow.raw(HEAD + JSON + b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n")
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert b'"code":"malformed_http"' in answer


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: -1\r\n\r\n",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_ambiguous_framing_is_refused(narrow: Bench, framing: bytes) -> None:
    answer = await narrow.raw(HEAD + JSON + framing)
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert narrow.broker.asked == []


async def test_an_unread_body_does_not_become_the_next_request(narrow: Bench) -> None:
    hidden = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    length = f"Content-Length: {len(hidden)}\r\n\r\n".encode()
    after = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = await narrow.raw(HEAD + b"Content-Type: text/plain\r\n" + length + hidden + after)
    assert re.findall(rb"HTTP/1\.1 ([0-9]+)", answer) == [b"415", b"200"]
    assert b"alive" in answer
    assert b"ready" not in answer


async def test_a_body_is_announced_and_then_sent(narrow: Bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", narrow.server.port)
    writer.write(HEAD + JSON + f"Expect: 100-continue\r\nContent-Length: {len(SENT)}\r\n\r\n".encode())
    async with asyncio.timeout(5):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(SENT)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 201 ")
    writer.close()


async def test_an_unknown_expectation_is_a_problem(daemon: Bench) -> None:
    reply: Any = await daemon.client.get("/v1/requests", headers={"Expect": "miracles"})
    assert (reply.status, reply.code) == (417, "expectation_failed")
