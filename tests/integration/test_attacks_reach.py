"""Questions in two rooms, while the configuration changes."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.integration.daemons import Daemon, eventually
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from pathlib import Path


async def test_what_ended_while_its_second_route_went_is_shown_as_ended_there(tmp_path: Path) -> None:
    """Nobody may read for ever that it is open: the room is still written to, though no route names it any more."""
    async with FakeHomeserver(now_ms=lambda: time.time_ns() // 1_000_000) as homeserver:
        pod, owner, lead = (homeserver.user(name) for name in ("pod", "owner", "lead"))
        here, there = homeserver.room(pod, owner), homeserver.room(pod, lead)
        token = "syt_token_that_is_long_enough"
        homeserver._devices[token] = (pod, "DEVICE")
        rooms = {"ops": here, "leads": there}
        daemon = Daemon(tmp_path / "daemon", homeserver=homeserver.url, bot=(pod, token), rooms=rooms)
        daemon.config["routes"]["ops"] |= {"approvers": [owner], "escalate": {"after": "1s", "to": "leads"}}
        daemon.config["routes"]["leads"]["approvers"] = [lead]
        daemon.config["clients"]["laptop"]["routes"] = ["ops"]

        def in_second_room() -> list[dict[str, object]]:
            return [e["content"] for e in homeserver.sent_by(pod) if homeserver.room_of(e["event_id"]) == there]

        async def is_copied() -> bool:
            return bool(in_second_room())

        async def is_over() -> bool:
            return any(content.get("outcome") == "expired" for content in in_second_room())

        released = asyncio.Event()
        try:
            await daemon.start()
            async with daemon.harness() as harness:
                await harness.asked(request_id="acps_1:1", ttl_s=5)
                await eventually(is_copied)
            daemon.kill()
            await daemon.ended()
            del daemon.config["routes"]["leads"], daemon.config["routes"]["ops"]["escalate"]
            homeserver.hold("GET", "whoami", released)
            await daemon.start(until_ready=False)
            await daemon.until_logged("permission_request_closed")
            released.set()
            await eventually(is_over)
        finally:
            released.set()
            await daemon.stop()
