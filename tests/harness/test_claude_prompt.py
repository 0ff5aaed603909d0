from __future__ import annotations

import asyncio
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.harness.claude import claude_for
from tests.harness.projects import COMMAND
from tests.harness.rooms import connected
from tests.harness.standins import DONE, Anthropic, ToolCall

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.claude import Claude
    from tests.harness.projects import Project
    from tests.harness.rooms import Room

pytestmark = [pytest.mark.harness, pytest.mark.timeout(300)]

TOUCH = ToolCall("Bash", {"command": COMMAND, "description": "Make a file"})
SERVERS = "agentpod.json"


@pytest.fixture
async def model() -> AsyncIterator[Anthropic]:
    async with Anthropic([TOUCH]) as running:
        yield running


@pytest.fixture
def claude(model: Anthropic, home: Path, project: Project) -> Claude:
    return claude_for(home, project, model)


@pytest.fixture
async def options(claude: Claude, room: Room) -> list[str]:
    """The options of `claude -p` as `connect` prints them; the file that they name is written."""
    found = await connected(room, "mcp")
    servers = next(text for where, language, text in found if language == "json" and SERVERS in where)
    claude.project.write(SERVERS, servers)
    line = next(text for _, language, text in found if language == "sh" and text.startswith("claude -p "))
    return shlex.split(line)[3:]


async def test_what_a_person_allows_runs(claude: Claude, options: list[str], room: Room, model: Anthropic) -> None:
    await room.daemon.start()
    running = asyncio.create_task(claude.run(*options))
    question = await room.question()
    assert COMMAND in question["content"]["body"]
    assert not claude.project.has_run
    await room.answer(question, "Allow once")
    ended = await running
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert claude.project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Allowed once by ")


async def test_what_a_person_refuses_does_not_run_and_the_model_is_told_why(
    claude: Claude, options: list[str], room: Room, model: Anthropic
) -> None:
    await room.daemon.start()
    running = asyncio.create_task(claude.run(*options))
    question = await room.question()
    await room.answer(question, "Reject: not on a Friday")
    assert (await running).code == 0
    assert not claude.project.has_run
    (told,) = model.results
    assert f"{room.owner.user_id} refused this in Matrix: not on a Friday" in told
    assert (await room.closed(question)).startswith("Rejected by ")


async def test_what_nobody_answers_in_time_does_not_run(
    claude: Claude, options: list[str], room: Room, model: Anthropic
) -> None:
    room.daemon.config["requests"] = {"time_to_live": "1s"}
    await room.daemon.start()
    assert (await claude.run(*options)).code == 0
    assert not claude.project.has_run
    (told,) = model.results
    assert "Nobody answered in time" in told
    assert (await room.closed(await room.question())).startswith("Expired at ")


async def test_nothing_runs_while_the_daemon_is_down(
    claude: Claude, options: list[str], room: Room, model: Anthropic
) -> None:
    assert (await room.daemon.readiness())[0] == 0
    assert (await claude.run(*options)).code == 0
    assert not claude.project.has_run
    (told,) = model.results
    assert "could not be reached" in told
