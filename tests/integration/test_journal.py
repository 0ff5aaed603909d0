"""What changes is told once each, and the audit holds, over kills of the real process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from tests.integration import said
from tests.integration.daemons import PATIENCE_S, Daemon, ran

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast

pytestmark = pytest.mark.synapse


class Events:
    """A reader of the stream, which remembers its last id as a browser does."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._response: aiohttp.ClientResponse | None = None
        self.last_id: str | None = None
        self.told: list[tuple[str, str, Any]] = []
        """Request id, status, and the request as it was then."""

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Read on after the last id."""
        headers = {"Authorization": f"Bearer {self._daemon.token}"}
        if self.last_id is not None:
            headers["Last-Event-ID"] = self.last_id
        url = f"http://127.0.0.1:{self._daemon.port}/v1/events"
        async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as self._response:
            assert self._response.status == 200
            await self.block()
            yield

    async def until(self, count: int) -> None:
        """Read until so many changes were told, of all runs."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.told) < count:
                await self.block()

    async def block(self) -> None:
        """Read one block."""
        assert self._response is not None
        fields: dict[str, str] = {}
        while line := (await self._response.content.readline()).decode():
            name, _, value = line.removesuffix("\n").partition(": ")
            if not name:
                break
            fields[name] = value
        else:
            raise ConnectionResetError("the stream has ended")
        self.last_id = fields.get("id", self.last_id)
        if "event" in fields:
            shown = json.loads(fields["data"])
            assert fields["event"] == shown["status"] == shown["request"]["status"]
            self.told.append((shown["request_id"], shown["status"], shown["request"]))


async def test_a_reader_of_the_stream_misses_nothing_over_kills_and_the_audit_holds(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    verify = [sys.executable, "-m", "agentpod_bot", "audit", "verify", "--store", str(daemon.store)]
    events = Events(daemon)
    await daemon.start()
    async with daemon.harness() as harness, events.open():
        await harness.asked(request_id="r1")
        await events.until(2)
        first = await said.question(owner, cast.room_id, "r1")
        await harness.asked(request_id="r2")
        daemon.kill()
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await events.until(99)
        assert await daemon.ended() == 128 + signal.SIGKILL
    assert (await ran(verify)).code == 0
    await owner.reply(cast.room_id, first["event_id"], "1")
    await daemon.start()
    second = await said.question(owner, cast.room_id, "r2")
    await owner.reply(cast.room_id, second["event_id"], "Reject")
    async with daemon.harness() as harness, events.open():
        await harness.view("r2", wait_s=20)
        await events.until(6)
        head = (await ran(verify)).out.partition("head ")[2].split()[0]
        daemon.terminate()
        with pytest.raises((aiohttp.ClientError, ConnectionError)):
            await events.until(99)
    assert await daemon.ended() == 0
    for request_id in ("r1", "r2"):
        of_one = [(status, shown) for name, status, shown in events.told if name == request_id]
        assert [status for status, _ in of_one] == ["queued", "pending", "decided"]
        assert [shown["decision"] is None for _, shown in of_one] == [True, True, False]
    decisions = {name: shown["decision"]["option_id"] for name, status, shown in events.told if status == "decided"}
    assert decisions == {"r1": "allow_once", "r2": "reject_once"}
    checked = await ran([*verify, "--head", head])
    assert checked.code == 0, checked
    assert daemon.logged("audit_head")
