"""A homeserver that contradicts itself while the daemon starts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.integration.daemons import Daemon
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_start_whose_good_token_is_refused_in_one_place_waits_between_its_tries(tmp_path: Path) -> None:
    """As of a homeserver of which one part does not know the token that another one knows."""
    async with FakeHomeserver(now_ms=lambda: time.time_ns() // 1_000_000) as homeserver:
        pod, owner = homeserver.user("pod"), homeserver.user("owner")
        homeserver.room(pod, owner, alias="#ops:hs.example")
        token = "syt_token_that_is_long_enough"
        homeserver._devices[token] = (pod, "DEVICE")
        daemon = Daemon(
            tmp_path / "daemon", homeserver=homeserver.url, bot=(pod, token), rooms={"ops": "#ops:hs.example"}
        ).approve(owner)
        homeserver.answer_with("GET", "directory/room", status=401, body={"errcode": "M_UNKNOWN_TOKEN"}, times=3)
        try:
            await daemon.start(until_ready=False)
            await homeserver.until(lambda: homeserver.count("GET", "directory/room") == 1)
            began = time.monotonic()
            await daemon.ready()
            assert time.monotonic() - began >= 2.5
        finally:
            await daemon.stop()
