"""A configuration that is taken over while the daemon is still starting."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.integration.daemons import Daemon, eventually
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from pathlib import Path


async def test_an_approver_taken_out_while_the_start_still_looks_up_a_room_can_approve_nothing(tmp_path: Path) -> None:
    """The start must not put its older idea of the rules over those that the log says were taken over."""
    async with FakeHomeserver(now_ms=lambda: time.time_ns() // 1_000_000) as homeserver:
        pod, owner, second = (homeserver.user(name) for name in ("pod", "owner", "second"))
        room_id = homeserver.room(pod, owner, second, alias="#ops:hs.example")
        token = "syt_token_that_is_long_enough"
        homeserver._devices[token] = (pod, "DEVICE")
        daemon = Daemon(
            tmp_path / "daemon", homeserver=homeserver.url, bot=(pod, token), rooms={"ops": "#ops:hs.example"}
        ).approve(owner)
        released = asyncio.Event()
        looked_up = homeserver.hold("GET", "directory/room", released)
        try:
            await daemon.start(until_ready=False)
            await asyncio.wait_for(looked_up.hit.wait(), 20)
            daemon.config["routes"]["ops"] = {"room": room_id, "approvers": [second]}
            daemon.write()
            daemon.hang_up()
            await daemon.until_logged("configuration_reloaded")
            released.set()
            await daemon.ready()
            async with daemon.harness() as harness:
                await harness.asked(request_id="acps_1:1")

                async def is_posted() -> bool:
                    return (await harness.view("acps_1:1"))["event_id"] is not None

                await eventually(is_posted)
                question = (await harness.view("acps_1:1"))["event_id"]
                homeserver.say(room_id, owner, "1", reply_to=question)
                homeserver.say(room_id, second, "2", reply_to=question)
                decided = await harness.view("acps_1:1", wait_s=10)
        finally:
            released.set()
            await daemon.stop()
    assert decided["decision"]["answered_by"] == second
    assert decided["decision"]["meaning"] == "reject"
