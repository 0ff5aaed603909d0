"""The real process that hears nothing of its homeserver any more: when readiness says so, and when no longer."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration import jumping
from tests.integration.daemons import Daemon, eventually
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LAST_GOOD_SYNC = re.compile(r"^agentpod_last_good_sync_timestamp_seconds (\S+)$", re.MULTILINE)


class JumpingDaemon(Daemon):
    """A daemon for which half a minute can pass at once."""

    def command(self, *arguments: str) -> list[str]:
        """As the real one, from another script."""
        command = super().command(*arguments)
        at = command.index("-m")
        return [*command[:at], str(Path(jumping.__file__)), *command[at + 2 :]]

    async def jump(self) -> None:
        """Let half a minute pass."""
        before_s = await self.silent_for_s()
        os.kill(self.pid, signal.SIGUSR1)

        async def it_passed() -> bool:
            return await self.silent_for_s() >= before_s + jumping.JUMP_S

        await eventually(it_passed)

    async def silent_for_s(self) -> float:
        """How old the last good sync is, as the metrics tell."""
        async with self.harness() as harness:
            told = LAST_GOOD_SYNC.search((await harness.call("GET", "/metrics")).body)
        assert told is not None
        return time.time() - float(told[1])


@pytest.fixture
async def hs() -> AsyncIterator[FakeHomeserver]:
    async with FakeHomeserver() as running:
        yield running


async def test_readiness_ends_once_the_last_good_sync_is_over_a_minute_old_and_comes_back_with_the_next(
    hs: FakeHomeserver, tmp_path: Path
) -> None:
    pod, owner = hs.user("pod"), hs.user("owner")
    room = hs.room(pod, owner)
    daemon = JumpingDaemon(tmp_path / "daemon", homeserver=hs.url, bot=(pod, hs.token(pod)), rooms={"ops": room})
    daemon.approve(owner)
    try:
        await daemon.start()
        hs.answer_with("GET", "/sync", times=1_000, status=502)
        hs.say(room, owner, "ends the sync that waits for news")
        await daemon.until_logged("sync_failed")
        await daemon.jump()
        assert (await daemon.readiness())[0] == 200  # a homeserver that restarts is no trouble yet
        await daemon.jump()
        status, body = await daemon.readiness()
        assert (status, body["problems"]) == (503, ["sync_stale"])
        async with daemon.harness() as harness:
            refused = await harness.ask()
            assert (refused.status, refused.body["code"]) == (503, "matrix_unavailable")
        hs.clear_faults()
        await daemon.ready()
    finally:
        await daemon.stop()
