from __future__ import annotations

import asyncio
import resource
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot.api.connection import Limits
from agentpod_bot.api.crowd import BACKLOG, MOST, Crowd, connections_within, room_for
from agentpod_bot.api.server import Tcp, Unix
from tests.unit.api.bench import bench

if TYPE_CHECKING:
    from pathlib import Path

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def is_served(streams: Streams) -> bool:
    reader, writer = streams
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        writer.write(HEALTH)
        async with asyncio.timeout(5):
            return (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
    return False


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_one_connection_too_many_is_closed_and_the_others_go_on(tmp_path: Path, over: str) -> None:
    path = tmp_path / "bot.sock"
    listen = Tcp("127.0.0.1", 0) if over == "tcp" else Unix(path)
    async with bench(limits=Limits(connections=3), listen=listen) as daemon:

        async def connected() -> Streams:
            if over == "unix":
                return await asyncio.open_unix_connection(str(path))
            return await asyncio.open_connection("127.0.0.1", daemon.server.port)

        with capture_logs() as logged:
            inside = [await connected() for _ in range(3)]
            assert [await is_served(each) for each in inside] == [True] * 3
            outside = [await connected() for _ in range(5)]
            assert [await is_served(each) for each in outside] == [False] * 5
            assert [await is_served(each) for each in inside] == [True] * 3
        told = [line for line in logged if line["event"] == "http_connections_turned_away"]
        assert [(line["limit"], line["log_level"]) for line in told] == [(3, "warning")]
        inside.pop()[1].close()
        while not await is_served(after := await connected()):
            after[1].close()
        for _, writer in (*inside, *outside, after):
            writer.close()


def test_that_there_is_no_room_is_told_once_a_minute_with_how_many_were_turned_away() -> None:
    crowd = Crowd(0)
    with capture_logs() as logged:
        for now in (0.0, 1.0, 59.9, 60.0, 61.0):
            assert not crowd.enter(asyncio.Protocol(), now)
    assert [line["turned_away"] for line in logged] == [1, 3]


def test_room_is_made_only_by_who_was_inside() -> None:
    crowd = Crowd(1)
    first, second = asyncio.Protocol(), asyncio.Protocol()
    assert crowd.enter(first, 0.0)
    assert not crowd.enter(second, 0.0)
    crowd.leave(second)
    assert not crowd.enter(second, 0.0)
    crowd.leave(first)
    assert crowd.enter(second, 0.0)
    assert first not in crowd


@pytest.mark.parametrize(("files", "connections"), [(256, 128), (1024, 512), (4096, 3584), (1_048_576, MOST)])
def test_connections_never_take_every_file_descriptor(files: int, connections: int) -> None:
    assert connections_within(files) == connections
    assert files < 1024 or connections + 3 * BACKLOG + 128 <= files


def test_the_limit_is_that_of_this_process() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        assert room_for() == Limits().connections == 512
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
