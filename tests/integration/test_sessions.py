"""The real process whose session ends at the real homeserver: one that lapsed is renewed, one that was ended is not."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from agentpod_bot.demo.person import Person
from tests.integration import said
from tests.integration.conftest import new_folder
from tests.integration.daemons import Daemon, Forwarder, eventually
from tests.integration.lapsing import LapsingSynapse
from tests.integration.people import People, give_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account

pytestmark = pytest.mark.synapse

READINESS_S = 10.0
"""So soon readiness says that the token is dead."""


class Scene:
    """The daemon, not started yet, on a session of its own; the account's first session looks on."""

    def __init__(self, synapse: LapsingSynapse, pod: Account, owner: Account, room_id: str, login: Any) -> None:
        self.synapse = synapse
        self.pod, self.owner = pod, owner
        self.room_id = room_id
        self.login: dict[str, Any] = login
        self.daemon: Daemon

    async def devices(self) -> set[str]:
        """Every session of the bot's account."""
        async with self.synapse.person(self.pod) as pod:
            return {device["device_id"] for device in (await pod.call("GET", "devices"))["devices"]}

    def renewable_by_refresh_token(self) -> None:
        """Configure the refresh token."""
        file = self.daemon.secret("refresh_token", self.login["refresh_token"])
        self.daemon.config["homeserver"]["refresh_token_file"] = file

    def renewable_by_password(self) -> None:
        """Configure the password, and the device to keep."""
        self.daemon.config["homeserver"]["device_id"] = self.login["device_id"]
        self.daemon.config["homeserver"]["password_file"] = self.daemon.secret("password", self.pod.password)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def lapsing() -> AsyncIterator[LapsingSynapse]:
    if importlib.util.find_spec("synapse") is None:
        pytest.skip("needs the extra `demo`")
    async with LapsingSynapse() as running:
        yield running


@pytest.fixture
def people(lapsing: LapsingSynapse, tmp_path: Path, *, sealed: bool) -> People:
    """People at the homeserver where sessions lapse."""
    return People(lapsing, new_folder(tmp_path / "devices"), sealed)


@pytest.fixture
async def scene(lapsing: LapsingSynapse, people: People, tmp_path: Path, *, sealed: bool) -> AsyncIterator[Scene]:
    names = [f"{name}{tmp_path.name}".lower().replace("[", "-").replace("]", "") for name in ("pod", "owner")]
    pod, owner = [await lapsing.register(name) for name in names]
    made = Scene(lapsing, pod, owner, await people.room(owner, pod), await lapsing.log_in(pod))
    bot = (pod.user_id, made.login["access_token"])
    made.daemon = Daemon(tmp_path / "daemon", homeserver=lapsing.url, bot=bot, rooms={"ops": made.room_id})
    made.daemon.approve(owner.user_id)
    if sealed:
        await give_keys(made.daemon, replace(pod, device_id=made.login["device_id"]))
    yield made
    await made.daemon.stop()


@pytest.mark.parametrize("way", [Scene.renewable_by_refresh_token, Scene.renewable_by_password])
async def test_44_a_session_that_lapsed_at_a_real_homeserver_is_renewed_on_its_device_and_no_answer_is_lost(
    scene: Scene, people: People, way: Any
) -> None:
    way(scene)
    devices = await scene.devices()
    async with Forwarder(scene.synapse.url) as homeserver, people.at(scene.owner) as owner:
        await homeserver.open()
        scene.daemon.config["homeserver"]["url"] = homeserver.url
        await scene.daemon.start()
        async with scene.daemon.harness() as harness:
            await harness.asked(request_id="r1")
            question = await said.question(owner, scene.room_id, "r1")
            await homeserver.close()  # so that the answer comes while there is no session
            scene.synapse.lapse(scene.login["access_token"])
            await owner.reply(scene.room_id, question["event_id"], "2: not without a session")
            await homeserver.open()
            decision = (await harness.view("r1", wait_s=60))["decision"]
            assert (decision["option_id"], decision["comment"]) == ("reject_once", "not without a session")
            edit = await said.outcome(owner, scene.room_id, question["event_id"])
            assert edit["content"]["option_id"] == "reject_once"
            await scene.daemon.ready()
        refused = scene.daemon.logged("sync_token_refused")
        assert [line["soft_logout"] for line in refused] == [True]
        kept = (scene.daemon.folder / "access_token").read_text().strip()
        assert kept != scene.login["access_token"]
        async with Person(scene.synapse.url, scene.pod.user_id, kept) as bot:
            assert (await bot.call("GET", "account/whoami"))["device_id"] == scene.login["device_id"]
        assert await scene.devices() == devices
        assert len(said.questions(await owner.history(scene.room_id))) == 1
        await scene.daemon.stop()
        await scene.daemon.start()  # with the token that was kept
    assert len(scene.daemon.logged("session_renewed")) == 1


@pytest.mark.parametrize("sealed", [False], ids=["plain"])  # nothing is said in the room
async def test_44_a_session_that_somebody_ended_at_a_real_homeserver_is_never_logged_in_again(scene: Scene) -> None:
    scene.renewable_by_password()
    await scene.daemon.start()
    async with Person(scene.synapse.url, scene.pod.user_id, scene.login["access_token"]) as bot:
        await bot.call("POST", "logout", {})

    async def is_red() -> bool:
        status, body = await scene.daemon.readiness()
        return status == 503 and body["problems"] == ["token_refused"]

    await eventually(is_red, within_s=READINESS_S)
    said_so = await scene.daemon.until_logged("session_not_renewed")
    assert "ended" in said_so["error"]
    assert [line["soft_logout"] for line in scene.daemon.logged("sync_token_refused")] == [False]
    await scene.daemon.stop()
    await scene.daemon.start(until_ready=False)  # nor at the next start
    assert await scene.daemon.ended() == 77
    assert await scene.devices() == {scene.pod.device_id}
