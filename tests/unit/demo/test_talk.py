from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agentpod_bot.demo.harness import QUESTIONS
from agentpod_bot.demo.person import Message
from agentpod_bot.demo.screen import Screen
from agentpod_bot.demo.talk import DemoOptions, came_back, run_demo, told

YOU = "@you:localhost"


def decided(option_id: str, by: str = YOU) -> dict[str, Any]:
    decision = {"option_id": option_id, "label": "Allow once", "answered_by": by, "via": "number"}
    return {"status": "decided", "decision": decision}


@pytest.mark.parametrize(
    ("answer", "option_id"),
    [("1", "allow_once"), ("4", "reject_always"), ("reject", "reject_once"), ("allow_always", "allow_always")],
)
def test_an_answer_came_back_where_the_harness_was_told_that_option(answer: str, option_id: str) -> None:
    assert came_back(answer, QUESTIONS[0], decided(option_id), YOU)


@pytest.mark.parametrize(
    ("answer", "view"),
    [
        ("1", decided("reject_once")),
        ("3: not now", decided("allow_once")),
        ("Reject", decided("allow_once")),
        ("5", decided("allow_once")),
        ("1", decided("allow_once", by="@mallory:localhost")),
        ("1", {"status": "expired", "decision": {"outcome": "expired"}}),
        ("-", decided("allow_once")),
        ("-", {"status": "cancelled", "decision": {"outcome": "cancelled"}}),
    ],
)
def test_an_answer_did_not_come_back_where_the_harness_was_told_anything_else(
    answer: str, view: dict[str, Any]
) -> None:
    assert not came_back(answer, QUESTIONS[0], view, YOU)


def test_a_question_left_alone_came_back_as_expired() -> None:
    view = {"status": "expired", "decision": {"outcome": "expired"}}
    assert came_back("-", QUESTIONS[2], view, YOU)
    assert "Nothing was allowed" in told(view)


def test_the_sentence_of_a_decision_names_option_person_and_form() -> None:
    assert told(decided("allow_once")) == "Decided: Allow once (allow_once), by @you:localhost, via number."


@pytest.mark.parametrize(
    "options",
    [
        DemoOptions(answers=""),
        DemoOptions(answers="1,1,1,1"),
        DemoOptions(answers="1", script=Path("answers")),
        DemoOptions(script=Path("/nowhere/at/all")),
    ],
)
async def test_answers_that_cannot_be_used_are_refused_before_anything_starts(options: DemoOptions) -> None:
    written = io.StringIO()
    assert await run_demo(options, Screen(Console(file=written, width=100))) == 2
    assert len(written.getvalue().strip().splitlines()) == 1
    assert "Errno" not in written.getvalue()


def test_what_the_room_says_is_never_read_as_markup() -> None:
    written = io.StringIO()
    message = Message("$1", "@pod:localhost", "[red]1.[/red] Allow [link=http://x]once", "m.text")
    Screen(Console(file=written, width=100)).room("Agents", [message], "$1")
    assert message.body in written.getvalue()
