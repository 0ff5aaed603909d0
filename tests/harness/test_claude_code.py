from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from tests.harness.claude import Claude, claude_for
from tests.harness.projects import COMMAND, PROMPT
from tests.harness.standins import DONE, Anthropic, ToolCall
from tests.harness.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.harness.projects import Project
    from tests.harness.rooms import Room

pytestmark = [pytest.mark.harness, pytest.mark.timeout(300)]

TOUCH = ToolCall("Bash", {"command": COMMAND, "description": "Make a file"})
DIALOG = "Do you want to proceed?"
OFFERED = [{"label": "SQLite", "description": "A file"}, {"label": "Postgres", "description": "A server"}]
ASKED = {"question": "Which database?", "header": "Database", "options": OFFERED, "multiSelect": False}


@pytest.fixture
async def model() -> AsyncIterator[Anthropic]:
    async with Anthropic([TOUCH]) as running:
        yield running


@pytest.fixture(params=[True, False], ids=["posting", "starting"])
def posts(request: pytest.FixtureRequest) -> bool:
    """Whether the hook posts to the daemon, or starts our own program."""
    return bool(request.param)


@pytest.fixture
async def claude(model: Anthropic, room: Room, home: Path, project: Project) -> Claude:
    return await claude_for(home, project, model).connected(room)


@pytest.fixture
async def either(claude: Claude, room: Room, *, posts: bool) -> Claude:
    return await claude.connected(room, posts=posts)


async def test_what_a_person_allows_runs(either: Claude, room: Room, model: Anthropic) -> None:
    await room.daemon.start()
    running = asyncio.create_task(either.run())
    question = await room.question()
    assert COMMAND in question["content"]["body"]
    assert not either.project.has_run
    await room.answer(question, "Allow once")
    ended = await running
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert either.project.has_run
    assert len(model.results) == 1
    assert (await room.closed(question)).startswith("Allowed once by ")


async def test_what_a_person_refuses_does_not_run_and_the_model_is_told_why(
    either: Claude, room: Room, model: Anthropic
) -> None:
    await room.daemon.start()
    running = asyncio.create_task(either.run())
    question = await room.question()
    await room.answer(question, "Reject: not on a Friday")
    ended = await running
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert not either.project.has_run
    (told,) = model.results
    assert f"{room.owner.user_id} refused this in Matrix: not on a Friday" in told
    assert (await room.closed(question)).startswith("Rejected by ")


async def test_what_is_always_allowed_is_kept_by_the_program_and_not_asked_again(
    claude: Claude, room: Room, model: Anthropic
) -> None:
    await room.daemon.start()
    model.calls = [ToolCall("Bash", {"command": "mkdir -p made && touch made/marker", "description": "Make a file"})]
    running = asyncio.create_task(claude.run())
    question = await room.question()
    (always,) = [option for option in question["content"]["options"] if option["scope"] == "always"]
    assert "`mkdir -p made`" in always["label"]
    assert "`touch made/marker`" in always["label"]
    assert not claude.project.holds("made/marker")
    await room.answer(question, always["label"])
    assert (await running).code == 0
    assert claude.project.holds("made/marker")
    kept = json.loads(claude.project.read(".claude/settings.local.json"))
    assert kept["permissions"]["allow"] == ["Bash(mkdir -p made)", "Bash(touch made/marker)"]

    claude.project.remove("made/marker")
    again = await claude.run()
    assert again.code == 0, again
    assert claude.project.holds("made/marker")
    assert await room.asked() == 1


async def test_what_nobody_answers_in_time_does_not_run(
    claude: Claude, room: Room, model: Anthropic, *, posts: bool
) -> None:
    await room.daemon.start()
    claude = await claude.connected(room, posts=posts, timeout_s=6)
    ended = await claude.run()
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert not claude.project.has_run
    (told,) = model.results
    assert "Nobody answered in time" in told
    assert "refused this" not in told
    assert (await room.closed(await room.question())).startswith("Expired at ")


async def test_nothing_runs_while_the_daemon_is_down(either: Claude, room: Room, model: Anthropic) -> None:
    assert (await room.daemon.readiness())[0] == 0
    ended = await either.run()
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert not either.project.has_run
    assert len(model.results) == 1


async def test_nothing_runs_where_the_daemon_dies_while_it_asks(claude: Claude, room: Room, model: Anthropic) -> None:
    await room.daemon.start()
    running = asyncio.create_task(claude.run())
    await room.question()
    room.daemon.kill()
    ended = await running
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert not claude.project.has_run
    assert len(model.results) == 1


async def test_an_answer_that_comes_after_the_daemon_was_restarted_is_not_lost_where_the_hook_starts_our_program(
    claude: Claude, room: Room
) -> None:
    await room.daemon.start()
    claude = await claude.connected(room, posts=False)
    running = asyncio.create_task(claude.run())
    question = await room.question()
    room.daemon.kill()
    await room.daemon.ended()
    await room.daemon.start()
    await room.answer(question, "Allow once")
    assert (await running).code == 0
    assert claude.project.has_run
    assert await room.asked() == 1


async def test_a_question_is_cancelled_where_the_program_that_asked_is_gone(either: Claude, room: Room) -> None:
    await room.daemon.start()
    async with either.running() as process:
        question = await room.question()
        process.kill()
    assert (await room.outcome(question))["content"]["outcome"] == "cancelled"
    assert not either.project.has_run


async def test_nothing_runs_with_a_token_that_the_daemon_does_not_know(
    either: Claude, room: Room, model: Anthropic
) -> None:
    await room.daemon.start()
    room.daemon.secret("laptop", "another-token-that-nobody-knows")
    ended = await either.run()
    assert (ended.code, ended.out.strip()) == (0, DONE), ended
    assert not either.project.has_run
    assert len(model.results) == 1
    assert await room.asked() == 0


async def test_a_choice_that_a_person_makes_reaches_the_model(claude: Claude, room: Room, model: Anthropic) -> None:
    await room.daemon.start()
    model.calls = [ToolCall("AskUserQuestion", {"questions": [ASKED]})]
    async with Terminal(claude.line(PROMPT), claude.env) as terminal:
        question = await room.question()
        assert [option["meaning"] for option in question["content"]["options"]] == ["choose", "choose", "reject"]
        await room.answer(question, "2")
        await terminal.shows(DONE)
    (told,) = model.results
    assert "Postgres" in told
    assert "SQLite" not in told


async def test_an_answer_in_the_terminal_closes_the_question_in_the_room(claude: Claude, room: Room) -> None:
    await room.daemon.start()
    async with Terminal(claude.line(PROMPT), claude.env) as terminal:
        question = await room.question()
        await terminal.shows(DIALOG)
        assert not claude.project.has_run
        await terminal.press("1")
        await terminal.shows(DONE)
        assert claude.project.has_run
        assert (await room.outcome(question))["content"]["outcome"] == "answered_elsewhere"
        assert "answered there; nothing was decided here" in await room.closed(question)


async def test_an_answer_in_the_room_takes_the_dialog_from_the_terminal(claude: Claude, room: Room) -> None:
    await room.daemon.start()
    async with Terminal(claude.line(PROMPT), claude.env) as terminal:
        question = await room.question()
        await terminal.shows(DIALOG)
        await room.answer(question, "Allow once")
        await terminal.shows(DONE)
        await terminal.shows_no_more(DIALOG)
    assert claude.project.has_run
    assert (await room.closed(question)).startswith("Allowed once by ")


async def test_a_no_in_the_terminal_stays_a_no_and_its_session_s_end_closes_the_question(
    claude: Claude, room: Room
) -> None:
    await room.daemon.start()
    async with Terminal(claude.line(PROMPT), claude.env) as terminal:
        question = await room.question()
        await terminal.shows(DIALOG)
        await terminal.press("Escape")
        await terminal.shows_no_more(DIALOG)
        await terminal.press("/exit", "Enter")
        assert (await room.outcome(question))["content"]["outcome"] == "answered_elsewhere"
    assert not claude.project.has_run
