from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.harness.claude import claude_for
from tests.harness.programs import CLAUDE_AGENT_ACP
from tests.harness.projects import COMMAND, PROMPT
from tests.harness.rooms import connected
from tests.harness.standins import Anthropic, ToolCall
from tests.harness.talking import Talking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.claude import Claude
    from tests.harness.projects import Project
    from tests.harness.rooms import Room
    from tests.harness.talking import Message

pytestmark = [pytest.mark.harness, pytest.mark.timeout(300)]

TOUCH = ToolCall("Bash", {"command": COMMAND, "description": "Make a file"})
NO_POWERS = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}


class Agent(Talking):
    """The agent behind our bridge, started as `connect` says, and its client with one session."""

    session: str

    async def begin_turn(self, project: Project) -> int:
        """Let the model do what it is to do; return the prompt's id."""
        await self.call("initialize", protocolVersion=1, clientCapabilities=NO_POWERS)
        self.session = (await self.call("session/new", cwd=str(project.folder), mcpServers=[]))["sessionId"]
        return await self.begin("session/prompt", sessionId=self.session, prompt=[{"type": "text", "text": PROMPT}])

    async def turn(self, prompt: int) -> Message:
        """The turn's result, once it is over. No question of it came to the client."""
        answer = await self.until(lambda message: message.get("id") == prompt and "method" not in message)
        assert self.questions() == []
        result: Message = answer["result"]
        return result


@pytest.fixture
async def model() -> AsyncIterator[Anthropic]:
    async with Anthropic([TOUCH]) as running:
        yield running


@pytest.fixture
def claude(model: Anthropic, home: Path, project: Project) -> Claude:
    return claude_for(home, project, model)


@pytest.fixture
async def agent(claude: Claude, room: Room) -> AsyncIterator[Agent]:
    settings = next(json.loads(text) for _, language, text in await connected(room, "acp") if language == "json")
    line = shlex.join([settings["command"], *settings["args"]])
    env = claude.env | {"PATH": f"{CLAUDE_AGENT_ACP.path.parent}:{claude.env['PATH']}"}
    async with Agent(line, folder=claude.project.folder, env=env, extra={"jsonrpc": "2.0"}) as running:
        yield running


async def test_what_a_person_allows_runs(agent: Agent, claude: Claude, room: Room, model: Anthropic) -> None:
    await room.daemon.start()
    prompt = await agent.begin_turn(claude.project)
    question = await room.question()
    assert COMMAND in question["content"]["body"]
    assert not claude.project.has_run
    await room.answer(question, "Allow")
    assert (await agent.turn(prompt))["stopReason"] == "end_turn"
    assert claude.project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Allowed once by ")
    assert await agent.end() == 0


async def test_what_a_person_refuses_does_not_run(agent: Agent, claude: Claude, room: Room, model: Anthropic) -> None:
    await room.daemon.start()
    prompt = await agent.begin_turn(claude.project)
    question = await room.question()
    await room.answer(question, "Reject")
    assert (await agent.turn(prompt))["stopReason"] == "end_turn"
    assert not claude.project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Rejected by ")


async def test_what_nobody_answers_in_time_does_not_run(
    agent: Agent, claude: Claude, room: Room, model: Anthropic
) -> None:
    room.daemon.config["requests"] = {"time_to_live": "1s"}
    await room.daemon.start()
    await agent.turn(await agent.begin_turn(claude.project))
    assert not claude.project.has_run
    (told,) = model.results
    assert "refused" not in told
    assert (await room.closed(await room.question())).startswith("Expired at ")


async def test_nothing_runs_while_the_daemon_is_down(agent: Agent, claude: Claude, model: Anthropic) -> None:
    await agent.turn(await agent.begin_turn(claude.project))
    assert not claude.project.has_run
    (told,) = model.results
    assert "refused" not in told


async def test_a_question_is_cancelled_where_its_turn_is(agent: Agent, claude: Claude, room: Room) -> None:
    await room.daemon.start()
    prompt = await agent.begin_turn(claude.project)
    question = await room.question()
    await agent.tell("session/cancel", sessionId=agent.session)
    assert (await agent.turn(prompt))["stopReason"] == "cancelled"
    assert not claude.project.has_run
    assert (await room.outcome(question))["content"]["outcome"] == "cancelled"
