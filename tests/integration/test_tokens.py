"""The real process whose access token dies, at a fake homeserver: what it says, and how it comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest_asyncio

from tests.integration.daemons import Daemon, eventually
from tests.matrix.fake_homeserver import PASSWORD, FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

QUESTION = "dev.agentpod.permission.v2"


class Scene:
    """The daemon, not started yet, with one room and one approver."""

    def __init__(self, hs: FakeHomeserver, folder: Path) -> None:
        self.hs = hs
        self.pod, self.owner = hs.user("pod"), hs.user("owner")
        self.room = hs.room(self.pod, self.owner)
        self.token = hs.token(self.pod, "POD")
        self.daemon = Daemon(folder, homeserver=hs.url, bot=(self.pod, self.token), rooms={"ops": self.room})
        self.daemon.approve(self.owner)
        self.daemon.config["routes"]["ops"]["reactions"] = "accept"

    def questions(self) -> list[str]:
        """Event ids of the questions in the room."""
        return [
            event["event_id"]
            for event in self.hs.sent_by(self.pod)
            if event["content"].get("suite_event_type") == QUESTION
        ]

    async def red(self) -> None:
        """Return once it says that its token is refused."""

        async def is_red() -> bool:
            status, body = await self.daemon.readiness()
            return status == 503 and body["problems"] == ["token_refused"]

        await eventually(is_red)


@pytest_asyncio.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with FakeHomeserver() as hs:
        made = Scene(hs, tmp_path / "daemon")
        yield made
        await made.daemon.stop()


async def test_44_a_lapsed_session_is_logged_in_again_on_its_device_and_nothing_is_lost(scene: Scene) -> None:
    scene.daemon.config["homeserver"]["device_id"] = "POD"
    scene.daemon.config["homeserver"]["password_file"] = scene.daemon.secret("password", PASSWORD)
    await scene.daemon.start()
    async with scene.daemon.harness() as harness:
        await harness.asked(request_id="r1")
        await scene.hs.until(scene.questions)
        scene.hs.revoke(scene.token, soft_logout=True)
        scene.hs.say(scene.room, scene.owner, "1")
        assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "allow_once"
        await scene.daemon.ready()
        assert len(scene.questions()) == 1
    await scene.daemon.stop()
    assert scene.hs.count("POST", "/login") == 1
    await scene.daemon.start()  # with the token that was kept
    assert scene.hs.count("POST", "/login") == 1


async def test_a_session_that_lapsed_while_it_was_down_is_renewed_at_the_start(scene: Scene) -> None:
    refresh = scene.hs.refresh_token(scene.pod, "POD")
    scene.daemon.config["homeserver"]["refresh_token_file"] = scene.daemon.secret("refresh_token", refresh)
    scene.hs.revoke(scene.token, soft_logout=True)
    await scene.daemon.start()
    assert (scene.daemon.folder / "refresh_token").read_text().strip() != refresh
    assert (scene.daemon.folder / "access_token").read_text().strip() != scene.token


async def test_44_without_a_way_to_renew_it_it_stays_up_and_sighup_brings_the_new_token(scene: Scene) -> None:
    await scene.daemon.start()
    async with scene.daemon.harness() as harness:
        await harness.asked(request_id="r1")
        await scene.hs.until(scene.questions)
        scene.hs.revoke(scene.token)
        await scene.red()
        assert (await harness.ask()).body["code"] == "matrix_unavailable"
        scene.hs.say(scene.room, scene.owner, "1")
        scene.daemon.secret("access_token", scene.hs.token(scene.owner))
        scene.daemon.hang_up()
        refused = await scene.daemon.until_logged("configuration_refused")
        assert refused["problems"] == [f"homeserver.user_id: the access token is that of {scene.owner}"]
        assert (await harness.view("r1"))["status"] == "pending"
        scene.daemon.secret("access_token", scene.hs.token(scene.pod, "ANOTHER"))
        scene.daemon.hang_up()
        await scene.daemon.ready()
        assert (await harness.view("r1", wait_s=20))["decision"]["option_id"] == "allow_once"
        assert len(scene.questions()) == 1
