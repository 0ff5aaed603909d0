from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.proxy import client
from agentpod_bot.proxy.client import Unreached, connected

if TYPE_CHECKING:
    from tests.unit.proxy.conftest import Room


async def test_a_body_of_bytes_is_sent_as_it_is_and_an_answer_kept_as_it_came(room: Room) -> None:
    async with connected(room.endpoint) as daemon:
        calling = asyncio.create_task(daemon.call("POST", "/v1/harness/acp", body=b' {"a": 1.50} ', limit_s=None))
        call = await room.next()
        assert call.body == b' {"a": 1.50} '
        assert call.request.content_type == "application/json"
        call.answer_raw(b'{ "b":1e2 }', "application/json", 418)
        reply = await calling
    assert (reply.status, reply.body, reply.media_type) == (418, b'{ "b":1e2 }', "application/json")


async def test_an_answer_that_is_cut_or_too_large_is_none(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LARGEST_ANSWER", 1_000)
    async with connected(room.endpoint) as daemon:
        for large in (True, False):
            calling = asyncio.create_task(daemon.call("POST", "/v1/harness/acp", body=b"{}"))
            call = await room.next()
            if large:
                call.answer({"a": "x" * 2_000})
            else:
                call.cut()
            with pytest.raises(Unreached) as fault:
                await calling
            assert fault.value.sent


async def test_a_call_that_is_given_up_drops_its_connection(room: Room) -> None:
    async with connected(room.endpoint) as daemon:
        calling = asyncio.create_task(daemon.call("POST", "/v1/harness/acp", body=b"{}", limit_s=None))
        call = await room.next()
        calling.cancel()
        await asyncio.wait_for(call.gone.wait(), 20)
