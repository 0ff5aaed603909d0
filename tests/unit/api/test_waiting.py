from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import aiohttp
import pytest

from agentpod_bot.core.ids import Row
from agentpod_bot.core.model import Closing, Outcome, Status
from agentpod_bot.errors import StoreUnavailable
from tests.unit.api.bench import OTHER_TOKEN, TOKEN, bench

if TYPE_CHECKING:
    from tests.unit.api.bench import Bench

ID = "/v1/requests/acps_3f0c%3A12"
GET = f"GET {ID}?wait=60 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()


async def test_a_call_is_held_until_the_answer_is_there(daemon: Bench) -> None:
    call = asyncio.create_task(daemon.client.ask("/v1/requests?wait=60"))
    await daemon.broker.until_waiting(1)
    assert not call.done()
    await daemon.broker.decide(1)
    reply = await call
    assert (reply.status, reply.json["decision"]["option_id"]) == (201, "allow_once")
    assert daemon.broker.delivered == {Row(1)}
    assert daemon.broker.waits == 0


async def test_every_call_that_waits_gets_the_answer(daemon: Bench) -> None:
    await daemon.client.ask()
    calls = [asyncio.create_task(daemon.client.get(f"{ID}?wait=60")) for _ in range(5)]
    calls.append(asyncio.create_task(daemon.client.ask("/v1/requests?wait=60")))
    await daemon.broker.until_waiting(6)
    await daemon.broker.decide(1, position=2)
    replies = await asyncio.gather(*calls)
    assert {(reply.status, reply.json["decision"]["option_id"]) for reply in replies} == {(200, "reject_once")}


async def test_a_wait_that_is_over_shows_the_request_as_it_is_and_changes_nothing(daemon: Bench) -> None:
    await daemon.client.ask()
    for _ in range(3):
        reply = await daemon.client.get(f"{ID}?wait=0.01")
        assert (reply.status, reply.json["status"], reply.json["decision"]) == (200, "pending", None)
    assert daemon.broker.delivered == set()
    await daemon.broker.decide(1)
    assert (await daemon.client.get(ID)).json["status"] == "decided"


async def test_an_expiry_ends_the_wait_with_words_that_blame_nobody(daemon: Bench) -> None:
    call = asyncio.create_task(daemon.client.ask("/v1/requests?wait=60"))
    await daemon.broker.until_waiting(1)
    await daemon.broker.end(1, Closing(Outcome.EXPIRED, 1_794_047_400_000))
    view = (await call).json
    assert view["status"] == "expired"
    assert view["decision"] == {
        "outcome": "expired",
        "answered_at": "2026-11-07T10:30:00.000Z",
        "reason": "nobody answered before the deadline; nobody refused, and nothing was allowed",
    }


@pytest.mark.parametrize(
    "wait", ["601", "-1", "1e2", "inf", "nan", "", "1s", "+1", "0x1", " 1", "600.5", "1.", ".5", "\u0663"]
)
async def test_a_wait_that_is_no_number_from_0_to_600_is_refused_before_anything_is_asked(
    daemon: Bench, wait: str
) -> None:
    for call in (daemon.client.ask, daemon.client.get):
        path = "/v1/requests" if call == daemon.client.ask else ID
        reply = await call(f"{path}?wait={wait.encode().hex('%').join(['%', '']) if wait else ''}")
        assert (reply.status, reply.code) == (422, "invalid")
        assert reply.json["errors"][0]["loc"] == ["query", "wait"]
    assert daemon.broker.asked == []


async def test_two_waits_in_one_call_are_refused(daemon: Bench) -> None:
    assert (await daemon.client.ask("/v1/requests?wait=1&wait=2")).status == 422


@pytest.mark.parametrize("wait", ["0", "0.5", "600", "600.0"])
async def test_a_wait_up_to_ten_minutes_is_taken(daemon: Bench, wait: str) -> None:
    await daemon.client.ask()
    await daemon.broker.decide(1)
    assert (await daemon.client.get(f"{ID}?wait={wait}")).status == 200


async def test_the_waits_of_a_token_are_bounded(daemon: Bench) -> None:
    await daemon.client.ask()
    calls = [asyncio.create_task(daemon.client.get(f"{ID}?wait=60")) for _ in range(10)]
    await daemon.broker.until_waiting(10)
    reply = await daemon.client.get(f"{ID}?wait=60")
    assert (reply.status, reply.code, reply.headers["Retry-After"]) == (503, "too_many_waits", "10")
    await daemon.broker.decide(1)
    assert {(await call).status for call in calls} == {200}


async def test_a_connection_that_is_closed_frees_its_wait_at_once_and_changes_nothing(daemon: Bench) -> None:
    await daemon.client.ask()
    _, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
    writer.write(GET)
    await daemon.broker.until_waiting(1)
    writer.close()
    async with asyncio.timeout(5):
        await daemon.broker.until_waiting(0)
    assert daemon.broker.questions[Row(1)].status is Status.PENDING
    await daemon.broker.decide(1)
    assert daemon.broker.delivered == set()
    assert (await daemon.client.get(ID)).json["decision"]["option_id"] == "allow_once"
    assert daemon.broker.delivered == {Row(1)}


async def test_a_reset_connection_frees_its_wait_too(daemon: Bench) -> None:
    await daemon.client.ask()
    _, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
    writer.write(GET)
    await daemon.broker.until_waiting(1)
    writer.transport.abort()
    async with asyncio.timeout(5):
        await daemon.broker.until_waiting(0)


async def test_a_client_that_hangs_up_with_its_answer_does_not_undo_the_note_that_it_got_it(daemon: Bench) -> None:
    await daemon.client.ask()
    await daemon.broker.decide(1)
    daemon.broker.pause = asyncio.Event()
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
    writer.write(GET)
    await reader.readuntil(b"}}")
    await daemon.broker.paused.wait()
    writer.transport.abort()
    await asyncio.sleep(0.05)  # real sockets: the server has to notice
    assert daemon.broker.delivered == set()
    daemon.broker.pause.set()
    async with asyncio.timeout(5):
        await daemon.broker.until_waiting(0)
    assert daemon.broker.delivered == {Row(1)}


@pytest.mark.parametrize("path", ["/v1/requests", f"{ID}/cancel", f"{ID}/answered-elsewhere", "/v1/cancel-all"])
async def test_a_change_is_whole_even_where_its_caller_hangs_up_in_the_middle(daemon: Bench, path: str) -> None:
    if path != "/v1/requests":
        await daemon.client.ask()
    changes = daemon.broker.changes
    daemon.broker.pause = asyncio.Event()
    call = asyncio.create_task(daemon.client.ask(path))
    await daemon.broker.paused.wait()
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.05)  # real sockets: the server has to notice
    assert daemon.broker.changes == changes
    daemon.broker.pause.set()
    async with asyncio.timeout(5):
        await daemon.broker.until_waiting(0)
        while daemon.broker.changes == changes:
            await asyncio.sleep(0.001)
    assert len(daemon.broker.questions) == 1


async def test_an_answer_that_was_written_stays_the_answer_where_its_note_fails(daemon: Bench) -> None:
    await daemon.client.ask()
    await daemon.broker.decide(1)
    for failure in (StoreUnavailable("disk full"), RuntimeError("bug")):
        daemon.broker.leaving_failure = failure
        reply = await daemon.client.get(ID)
        assert (reply.status, reply.json["status"]) == (200, "decided")
    daemon.broker.leaving_failure = None
    assert (await daemon.client.get("/v1/requests")).status == 200


async def test_on_shutdown_every_wait_ends_with_a_503_that_shows_the_open_request(daemon: Bench) -> None:
    await daemon.client.ask()
    calls = [asyncio.create_task(daemon.client.get(f"{ID}?wait=60")) for _ in range(3)]
    calls.append(asyncio.create_task(daemon.client.ask("/v1/requests?wait=60", request_seq=13)))
    await daemon.broker.until_waiting(4)
    await asyncio.gather(daemon.broker.release(), daemon.server.stop())
    for call in calls:
        reply = await call
        assert (reply.status, reply.code, reply.headers["Retry-After"]) == (503, "shutting_down", "5")
        assert reply.json["request"]["status"] == "pending"
        assert reply.headers["Connection"] == "close"
    assert all(question.is_open for question in daemon.broker.questions.values())
    with pytest.raises(aiohttp.ClientConnectionError):
        await daemon.client.get("/healthz")


async def test_an_answer_that_comes_while_stopping_still_gets_through(daemon: Bench) -> None:
    call = asyncio.create_task(daemon.client.ask("/v1/requests?wait=60"))
    await daemon.broker.until_waiting(1)
    stopping = asyncio.create_task(daemon.server.stop())
    await asyncio.sleep(0.05)
    assert not stopping.done()
    await daemon.broker.decide(1)
    assert (await call).json["decision"]["option_id"] == "allow_once"
    await stopping


async def test_stopping_does_not_wait_for_ever() -> None:
    async with bench(stop_within_s=0.2) as daemon:
        call = asyncio.create_task(daemon.client.ask("/v1/requests?wait=60"))
        await daemon.broker.until_waiting(1)
        async with asyncio.timeout(5):
            await daemon.server.stop()
        with pytest.raises(aiohttp.ClientError):
            await call
        await daemon.broker.until_waiting(0)
        assert daemon.broker.questions[Row(1)].is_open


async def test_an_idle_connection_does_not_hold_up_the_stop(daemon: Bench) -> None:
    await daemon.client.get("/healthz")
    reader, writer = await asyncio.open_connection("127.0.0.1", daemon.server.port)
    async with asyncio.timeout(2):
        await daemon.server.stop()
        assert await reader.read() == b""
    writer.close()


async def test_one_clients_wait_is_nothing_to_another(daemon: Bench) -> None:
    await daemon.client.ask()
    reply = await daemon.client.get(f"{ID}?wait=60", token=OTHER_TOKEN)
    assert reply.status == 404
