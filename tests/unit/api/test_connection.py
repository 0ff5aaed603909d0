from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from structlog.testing import capture_logs

from agentpod_bot.api.connection import Limits
from tests.unit.api.bench import TOKEN, bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.unit.api.bench import Bench

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PATIENCE_S = 8
LONG_BEFORE_THE_KEEP_ALIVE_S = 3.0


@pytest.fixture
async def impatient() -> AsyncIterator[Bench]:
    async with bench(limits=Limits(head_s=0.2, keepalive_s=4.0, lingering_s=0.1)) as running:
        yield running


async def seconds_until_closed(daemon: Bench, *sent: bytes, pause_s: float = 0.0) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
    loop = asyncio.get_running_loop()
    began = loop.time()
    for part in sent:
        writer.write(part)
        await asyncio.sleep(pause_s)
    async with asyncio.timeout(PATIENCE_S):
        await reader.read()
    writer.close()
    return loop.time() - began


async def test_a_connection_that_says_nothing_is_closed(impatient: Bench) -> None:
    assert 0.15 < await seconds_until_closed(impatient) < LONG_BEFORE_THE_KEEP_ALIVE_S


async def test_a_head_that_does_not_end_is_closed(impatient: Bench) -> None:
    assert 0.15 < await seconds_until_closed(impatient, HEALTH[:20]) < LONG_BEFORE_THE_KEEP_ALIVE_S


async def test_a_head_that_trickles_is_closed_all_the_same(impatient: Bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.server.port)

    async def trickle() -> None:
        writer.write(HEALTH[:25])
        while True:
            await asyncio.sleep(0.05)
            writer.write(b"x")

    trickling = asyncio.create_task(trickle())
    async with asyncio.timeout(LONG_BEFORE_THE_KEEP_ALIVE_S):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    trickling.cancel()
    writer.close()


async def test_a_second_head_that_does_not_end_is_closed_before_the_keep_alive(impatient: Bench) -> None:
    assert await seconds_until_closed(impatient, HEALTH, b"GET /", pause_s=0.05) < LONG_BEFORE_THE_KEEP_ALIVE_S


async def test_an_idle_connection_is_kept_for_the_keep_alive_and_then_closed() -> None:
    async with bench(limits=Limits(head_s=0.1, keepalive_s=0.4)) as daemon:
        assert await seconds_until_closed(daemon, HEALTH) > 0.35


async def test_a_kept_connection_serves_again(impatient: Bench) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", impatient.server.port)
    for _ in range(3):
        writer.write(HEALTH)
        assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.3)  # longer than a head may take, shorter than the keep-alive
    writer.close()


async def test_a_call_that_waits_is_under_no_deadline_of_a_head(impatient: Bench) -> None:
    await impatient.client.ask()
    reply = await impatient.client.get("/v1/requests/acps_3f0c%3A12?wait=0.6")
    assert (reply.status, reply.json["status"]) == (200, "pending")


async def test_pipelined_calls_are_answered_in_their_order(impatient: Bench) -> None:
    closing = HEALTH.replace(b"healthz", b"readyz").replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    answer = await impatient.raw(HEALTH + HEALTH + closing)
    assert answer.count(b"HTTP/1.1 200 ") == 3
    assert answer.endswith(b'{"status":"ready","routes":{}}')


@pytest.mark.parametrize(
    "sent",
    [
        b"nonsense\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a TLS hello",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n",
        b"GET /" + b"x" * 10_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(100)) + b"\r\n",
    ],
)
async def test_what_is_no_http_is_answered_with_a_problem_and_closed(
    impatient: Bench, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = await impatient.raw(sent)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 400 " in head.partition(b"\r\n")[0]
    assert b"Content-Type: application/problem+json" in head
    assert b'"code":"malformed_http"' in body
    assert not [record for record in caplog.records if record.exc_info]


async def test_a_head_that_is_too_long_does_not_bring_its_token_into_the_log(
    impatient: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    sent = (
        f"GET /v1/requests HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}{'x' * 10_000}\r\n\r\n".encode()
    )
    with caplog.at_level(logging.DEBUG), capture_logs() as logged:
        answer = await impatient.raw(sent)
    assert b" 400 " in answer.partition(b"\r\n")[0]
    assert [line["event"] for line in logged] == ["http_request_malformed"]
    for told in (repr(logged), caplog.text, answer.decode()):
        assert TOKEN not in told


async def test_a_client_that_does_not_read_is_cut_off_and_got_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_drained(_response: web.Response) -> None:
        await asyncio.Event().wait()

    async with bench(limits=Limits(write_s=0.05)) as daemon:
        await daemon.client.ask()
        await daemon.broker.decide(1)
        monkeypatch.setattr(web.Response, "write_eof", never_drained)
        get = f"GET /v1/requests/acps_3f0c%3A12 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        with suppress(ConnectionError):
            assert b"allow_once" not in await daemon.raw(get.encode())
        await daemon.broker.until_waiting(0)
        assert daemon.broker.delivered == set()


async def test_every_answer_has_a_name_of_its_own(impatient: Bench) -> None:
    names = {(await impatient.client.get("/healthz")).headers["X-Correlation-Id"] for _ in range(5)}
    assert len(names) == 5


async def test_answers_are_kept_out_of_caches(impatient: Bench) -> None:
    reply = await impatient.client.get("/v1/requests")
    assert (reply.headers["Cache-Control"], reply.headers["X-Content-Type-Options"]) == ("no-store", "nosniff")
