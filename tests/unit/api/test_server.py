from __future__ import annotations

import asyncio
import os
import stat
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.api.server import Tcp, Unix
from agentpod_bot.errors import ConfigurationError
from tests.unit.api.bench import bench

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_unix_socket_is_for_its_owner_only_and_gone_after_the_stop(tmp_path: Path) -> None:
    path = tmp_path / "bot.sock"
    umask = os.umask(0)
    try:
        async with bench(listen=Unix(path)) as daemon:
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert os.umask(0) == 0
            assert daemon.server.port == 0
            assert (await daemon.client.ask()).status == 201
            assert (await daemon.client.get("/v1/requests", token=None)).status == 401
        assert not path.exists()
    finally:
        os.umask(umask)


@pytest.mark.parametrize("host", ["anything.example", "localhost"])
async def test_over_a_unix_socket_any_host_is_ours_but_no_origin(tmp_path: Path, host: str) -> None:
    async with bench(listen=Unix(tmp_path / "bot.sock")) as daemon:
        assert (await daemon.client.get("/healthz", headers={"Host": host})).status == 200
        reply = await daemon.client.get("/healthz", headers={"Host": host, "Origin": "http://localhost"})
        assert reply.code == "origin_not_allowed"


async def test_a_socket_that_somebody_listens_on_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "bot.sock"
    async with bench(listen=Unix(path)) as first:
        with pytest.raises(ConfigurationError, match=r"http\.socket: another process listens"):
            async with bench(listen=Unix(path)):
                pass
        assert (await first.client.get("/healthz")).status == 200


async def test_a_socket_in_a_folder_that_is_not_there_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"http\.socket"):
        async with bench(listen=Unix(tmp_path / "missing" / "bot.sock")):
            pass


async def test_stopping_leaves_a_socket_that_another_has_put_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "bot.sock"
    async with bench(listen=Unix(path)) as first:
        path.rename(tmp_path / "old.sock")
        async with bench(listen=Unix(path)) as second:
            await first.server.stop()
            assert path.exists()
            assert (await second.client.get("/healthz")).status == 200


async def test_an_address_that_is_taken_is_a_fault_of_the_configuration() -> None:
    async with bench() as daemon:
        with pytest.raises(
            ConfigurationError, match=rf"http\.listen: cannot listen on 127\.0\.0\.1 port {daemon.server.port}"
        ):
            async with bench(listen=Tcp("127.0.0.1", daemon.server.port)):
                pass


async def test_stopping_twice_is_stopping_once() -> None:
    async with bench() as daemon:
        await asyncio.gather(daemon.server.stop(), daemon.server.stop())
        await daemon.server.stop()
        assert daemon.server.port == 0
