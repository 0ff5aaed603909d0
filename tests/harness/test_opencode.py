from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from agentpod_bot.demo.process import free_port
from tests.harness.programs import OPENCODE
from tests.harness.projects import COMMAND, PROMPT
from tests.harness.rooms import connected
from tests.harness.standins import Anthropic, ToolCall
from tests.integration.daemons import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.harness.projects import Project
    from tests.harness.rooms import Room

pytestmark = [pytest.mark.harness, pytest.mark.timeout(400)]

PLUGIN = Path(__file__).parents[2] / "contrib" / "opencode" / "agentpod-bot.js"
TOUCH = ToolCall("bash", {"command": COMMAND, "description": "Make a file"})
READY_S = 180.0
PROBE_S = 5.0


class OpenCode:
    """`opencode serve` with our plugin, and one session at it."""

    def __init__(self, calling: aiohttp.ClientSession) -> None:
        self._calling = calling
        self._session = ""

    async def ready(self) -> None:
        """Wait until it has loaded what it loads at its first call, and begin the session."""

        async def answers() -> bool:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                async with self._calling.get("/permission", timeout=aiohttp.ClientTimeout(total=PROBE_S)) as response:
                    return response.status == 200
            return False

        await eventually(answers, within_s=READY_S)
        self._session = (await self._post("/session", {}))["id"]

    async def turn(self) -> None:
        """One prompt, to the end of its turn."""
        prompt = {"parts": [{"type": "text", "text": PROMPT}]}
        told = await self._post(f"/session/{self._session}/message", prompt)
        assert told["info"]["sessionID"] == self._session

    async def abort(self) -> None:
        """Abort the turn, as a person at its own screen does."""
        await self._post(f"/session/{self._session}/abort", {})

    async def permissions(self) -> list[dict[str, Any]]:
        """What it waits for."""
        async with self._calling.get("/permission") as response:
            waiting: list[dict[str, Any]] = await response.json()
            return waiting

    async def reply(self, permission_id: str, word: str) -> None:
        """Answer in its own dialog."""
        await self._post(f"/permission/{permission_id}/reply", {"reply": word})

    async def _post(self, path: str, body: Any) -> Any:
        async with self._calling.post(path, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()


@pytest.fixture(scope="module")
def config_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The user's configuration with the plugin: OpenCode fetches its plugins' library into it at its first start."""
    folder = tmp_path_factory.mktemp("config")
    (folder / "opencode" / "plugin").mkdir(parents=True)
    shutil.copy(PLUGIN, folder / "opencode" / "plugin")
    return folder


@pytest.fixture
async def model() -> AsyncIterator[Anthropic]:
    async with Anthropic([TOUCH]) as running:
        yield running


@pytest.fixture
async def opencode(
    model: Anthropic, room: Room, project: Project, home: Path, config_home: Path
) -> AsyncIterator[OpenCode]:
    """Set up as `connect` says, but for the folder of the plugin."""
    port = free_port()
    found = await connected(room, "opencode")
    exports = next(text for where, language, text in found if language == "sh" and "shell" in where)
    asking = next(text for where, _, text in found if "opencode.json" in where)
    provider = {
        "npm": "@ai-sdk/anthropic",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "dummy"},
        "models": {"standin": {"name": "standin"}},
    }
    names = {"model": "standin/standin", "small_model": "standin/standin", "autoupdate": False, "share": "disabled"}
    settings = json.loads(asking) | names | {"provider": {"standin": provider}}
    project.write("opencode.json", json.dumps(settings))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(config_home),
        "AGENTPOD_RETRY_S": "20",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
    }
    words = [str(OPENCODE.path), "serve", "--hostname", "127.0.0.1", "--port", str(port)]
    with (home / "opencode.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            f"{exports}\nexec {shlex.join(words)}",
            cwd=project.folder,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        timeout = aiohttp.ClientTimeout(total=READY_S)
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", timeout=timeout) as calling:
            running = OpenCode(calling)
            await running.ready()
            yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_what_a_person_allows_runs(opencode: OpenCode, room: Room, model: Anthropic, project: Project) -> None:
    await room.daemon.start()
    turn = asyncio.create_task(opencode.turn())
    question = await room.question()
    assert COMMAND in question["content"]["body"]
    assert not project.has_run
    await room.answer(question, "Allow once")
    await turn
    assert project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Allowed once by ")


async def test_what_a_person_refuses_does_not_run_and_the_model_is_told_why(
    opencode: OpenCode, room: Room, model: Anthropic, project: Project
) -> None:
    await room.daemon.start()
    turn = asyncio.create_task(opencode.turn())
    question = await room.question()
    await room.answer(question, "Reject: not on a Friday")
    await turn
    assert not project.has_run
    (told,) = model.results
    assert f"{room.owner.user_id} refused this in Matrix: not on a Friday" in told
    assert (await room.closed(question)).startswith("Rejected by ")


async def test_what_nobody_answers_in_time_does_not_run(
    opencode: OpenCode, room: Room, model: Anthropic, project: Project
) -> None:
    room.daemon.config["requests"] = {"time_to_live": "1s"}
    await room.daemon.start()
    await opencode.turn()
    assert not project.has_run
    (told,) = model.results
    assert "Nobody answered in time" in told
    assert (await room.closed(await room.question())).startswith("Expired at ")


async def test_nothing_runs_while_the_daemon_is_down(opencode: OpenCode, model: Anthropic, project: Project) -> None:
    await opencode.turn()
    assert not project.has_run
    (told,) = model.results
    assert "the daemon could not be reached" in told


async def test_an_answer_in_its_own_dialog_closes_the_question_in_the_room(
    opencode: OpenCode, room: Room, project: Project
) -> None:
    await room.daemon.start()
    turn = asyncio.create_task(opencode.turn())
    question = await room.question()
    (waiting,) = await opencode.permissions()
    await opencode.reply(waiting["id"], "once")
    await turn
    assert project.has_run
    assert (await room.outcome(question))["content"]["outcome"] == "answered_elsewhere"


async def test_an_answer_that_comes_after_the_daemon_was_restarted_is_not_lost(
    opencode: OpenCode, room: Room, project: Project
) -> None:
    await room.daemon.start()
    turn = asyncio.create_task(opencode.turn())
    question = await room.question()
    room.daemon.kill()
    await room.daemon.ended()
    await room.daemon.start()
    await room.answer(question, "Allow once")
    await turn
    assert project.has_run
    assert await room.asked() == 1


async def test_a_question_is_cancelled_where_its_turn_is_aborted(
    opencode: OpenCode, room: Room, project: Project
) -> None:
    await room.daemon.start()
    turn = asyncio.create_task(opencode.turn())
    question = await room.question()
    await opencode.abort()
    await turn
    assert not project.has_run
    assert (await room.outcome(question))["content"]["outcome"] == "cancelled"
