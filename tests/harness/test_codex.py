from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from tests.harness.programs import CODEX
from tests.harness.projects import COMMAND, PROMPT
from tests.harness.rooms import connected
from tests.harness.standins import OpenAIResponses, ToolCall
from tests.harness.talking import Talking

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.projects import Project
    from tests.harness.rooms import Room
    from tests.harness.talking import Message

pytestmark = [pytest.mark.harness, pytest.mark.timeout(300)]

TOUCH = ToolCall("exec_command", {"cmd": COMMAND})
BEFORE, AFTER = "as it was\n", "changed\n"
NOTES = "notes.txt"
PATCH = f"""apply_patch <<'EOP'
*** Begin Patch
*** Update File: {NOTES}
@@
-{BEFORE}+{AFTER}*** End Patch
EOP"""
CONFIG = """
model = "standin"
model_provider = "standin"
[model_providers.standin]
name = "standin"
base_url = {url}
wire_api = "responses"
env_key = "STANDIN_KEY"
requires_openai_auth = false
[projects.{project}]
trust_level = "trusted"
"""

CAPABILITIES = {"experimentalApi": True}


class Codex(Talking):
    """`codex app-server` behind our bridge, started as `connect` says, and its client with one thread."""

    thread: str
    turn_id: str

    async def begin_turn(self) -> None:
        """Let the model do what it is to do."""
        await self.call("initialize", clientInfo={"name": "client", "version": "1"}, capabilities=CAPABILITIES)
        await self.tell("initialized")
        started = await self.call("thread/start", approvalPolicy="untrusted", sandbox="workspace-write")
        self.thread = started["thread"]["id"]
        begun = await self.call("turn/start", threadId=self.thread, input=[{"type": "text", "text": PROMPT}])
        self.turn_id = begun["turn"]["id"]

    async def interrupt(self) -> None:
        """Stop the turn, as a person at the client does."""
        await self.call("turn/interrupt", threadId=self.thread, turnId=self.turn_id)

    async def turn(self) -> Message:
        """The turn, once it is over. No question of it came to the client."""
        completed = await self.until(lambda message: message.get("method") == "turn/completed")
        assert self.questions() == []
        over: Message = completed["params"]["turn"]
        return over


@pytest.fixture
async def model() -> AsyncIterator[OpenAIResponses]:
    async with OpenAIResponses([TOUCH]) as running:
        yield running


@pytest.fixture
async def codex(model: OpenAIResponses, room: Room, project: Project, home: Path) -> AsyncIterator[Codex]:
    config = CONFIG.format(url=json.dumps(f"{model.url}/v1"), project=json.dumps(str(project.folder)))
    (home / "config.toml").write_text(config)
    env = {
        "PATH": f"{CODEX.path.parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "STANDIN_KEY": "dummy",
    }
    lines = [text for _, language, text in await connected(room, "codex") if language == "sh"]
    line = next(line for line in lines if line.endswith(" app-server"))
    async with Codex(line, folder=project.folder, env=env) as running:
        yield running


async def test_what_a_person_allows_runs(codex: Codex, room: Room, model: OpenAIResponses, project: Project) -> None:
    await room.daemon.start()
    await codex.begin_turn()
    question = await room.question()
    assert COMMAND in question["content"]["body"]
    assert not project.has_run
    await room.answer(question, "Allow once")
    assert (await codex.turn())["status"] == "completed"
    assert project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Allowed once by ")
    assert await codex.end() == 0


async def test_what_a_person_refuses_does_not_run(
    codex: Codex, room: Room, model: OpenAIResponses, project: Project
) -> None:
    await room.daemon.start()
    await codex.begin_turn()
    question = await room.question()
    await room.answer(question, "Reject")
    assert (await codex.turn())["status"] == "completed"
    assert not project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Rejected by ")


async def test_what_nobody_answers_in_time_does_not_run(
    codex: Codex, room: Room, model: OpenAIResponses, project: Project
) -> None:
    room.daemon.config["requests"] = {"time_to_live": "1s"}
    await room.daemon.start()
    await codex.begin_turn()
    question = await room.question()
    assert (await codex.turn())["status"] == "completed"
    assert not project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Expired at ")


async def test_nothing_runs_while_the_daemon_is_down(
    codex: Codex, room: Room, model: OpenAIResponses, project: Project
) -> None:
    assert (await room.daemon.readiness())[0] == 0
    await codex.begin_turn()
    assert (await codex.turn())["status"] == "completed"
    assert not project.has_run
    assert len(model.results) == 1


async def test_a_question_is_cancelled_where_its_turn_is_interrupted(
    codex: Codex, room: Room, project: Project
) -> None:
    await room.daemon.start()
    await codex.begin_turn()
    question = await room.question()
    await codex.interrupt()
    assert (await codex.turn())["status"] == "interrupted"
    assert (await room.outcome(question))["content"]["outcome"] == "cancelled"
    assert not project.has_run


async def test_an_answer_that_comes_after_the_daemon_was_restarted_is_not_lost(
    codex: Codex, room: Room, project: Project
) -> None:
    await room.daemon.start()
    await codex.begin_turn()
    question = await room.question()
    room.daemon.kill()
    await room.daemon.ended()
    await room.daemon.start()
    await room.answer(question, "Allow once")
    assert (await codex.turn())["status"] == "completed"
    assert project.has_run
    assert await room.asked() == 1


@pytest.mark.parametrize(
    ("answer", "afterwards"), [("Allow once", AFTER), ("Reject", BEFORE)], ids=["allowed", "rejected"]
)
async def test_a_file_is_changed_only_where_a_person_allows_it(
    codex: Codex, room: Room, model: OpenAIResponses, project: Project, *, answer: str, afterwards: str
) -> None:
    await room.daemon.start()
    model.calls = [ToolCall("exec_command", {"cmd": PATCH})]
    project.write(NOTES, BEFORE)
    await codex.begin_turn()
    question = await room.question()
    assert "-as it was" in question["content"]["body"]
    assert "+changed" in question["content"]["body"]
    assert project.read(NOTES) == BEFORE
    await room.answer(question, answer)
    assert (await codex.turn())["status"] == "completed"
    assert project.read(NOTES) == afterwards
