from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, TextPreview
from agentpod_bot.harness import claude_code
from agentpod_bot.harness.claude_code_questions import ONE_AT_A_TIME
from tests.unit.harness.hooks import ALLOWED, ASKING, LEAVING_PLAN, QUESTION, REFUSED, allows, asked, picked, told

SQLITE = {"label": "SQLite"}


def asking(*questions: Any, **more: Any) -> dict[str, Any]:
    """A call of AskUserQuestion."""
    return {**ASKING, "tool_input": {"questions": list(questions), **more}}


def labels(call: dict[str, Any]) -> list[str]:
    """What a person can choose, as the room shows it."""
    return [each.printed for each in offer(asked(claude_code, call).options, withhold=Withhold.NOTHING)]


def test_the_choices_of_one_question_are_the_options_and_a_rejection() -> None:
    request = asked(claude_code, ASKING)
    assert labels(ASKING) == ["SQLite (other)", "Postgres (other)", "Reject"]
    assert request.title == "AskUserQuestion: Which database should I use?"
    assert request.preview[2:] == (
        TextPreview("Question", "Which database should I use?"),
        FieldPreview("Header", "Database"),
        FieldPreview("Choice", "SQLite: Simple file"),
        FieldPreview("Choice", "Postgres: Server"),
    )


def test_the_chosen_label_is_the_answer_to_the_question() -> None:
    postgres = asked(claude_code, ASKING).options[1]
    decision = told(claude_code, ASKING, picked(postgres))["hookSpecificOutput"]["decision"]
    assert decision == {
        "behavior": "allow",
        "updatedInput": {"questions": [QUESTION], "answers": {"Which database should I use?": "Postgres"}},
    }


def test_other_members_of_the_input_go_back_and_are_shown() -> None:
    call = asking({**QUESTION, "weight": 3}, answers={"old": "x"}, metadata={"source": "plan"})
    request = asked(claude_code, call)
    assert "weight" in str(request.preview)
    assert FieldPreview("metadata", '{"source": "plan"}') in request.preview
    updated = told(claude_code, call, picked(request.options[0]))["hookSpecificOutput"]["decision"]["updatedInput"]
    assert updated == {
        "questions": [{**QUESTION, "weight": 3}],
        "answers": {"Which database should I use?": "SQLite"},
        "metadata": {"source": "plan"},
    }


@pytest.mark.parametrize("odd", [{"header": {"x": "hidden"}}, {"options": [{**SQLITE, "description": ["hidden"]}]}])
def test_what_is_no_text_where_one_belongs_is_shown_as_it_is(odd: dict[str, Any]) -> None:
    assert "hidden" in str(asked(claude_code, asking({**QUESTION, **odd})).preview)


def test_a_question_without_descriptions_shows_its_labels_as_options_alone() -> None:
    call = asking({"question": "Which?", "options": [SQLITE]})
    assert labels(call) == ["SQLite (other)", "Reject"]
    assert asked(claude_code, call).preview[2:] == (TextPreview("Question", "Which?"),)


@pytest.mark.parametrize(
    "questions",
    [
        [QUESTION, QUESTION],
        [{**QUESTION, "multiSelect": True}],
        [{**QUESTION, "multiSelect": None}],
        [{**QUESTION, "multiSelect": "no"}],
        [{**QUESTION, "options": []}],
        [{**QUESTION, "options": [SQLITE, SQLITE]}],
        [{**QUESTION, "options": [{"label": ""}]}],
        [{**QUESTION, "options": [{"label": "\u200b"}]}],
        [{**QUESTION, "options": [SQLITE, "Postgres"]}],
        [{**QUESTION, "options": [SQLITE, {"label": 7}]}],
        [{**QUESTION, "options": [{"label": str(number)} for number in range(20)]}],
        [{**QUESTION, "question": " "}],
        [{"question": "Which?"}],
        ["Which?"],
        [],
    ],
)
def test_what_one_choice_cannot_answer_can_only_be_rejected_and_says_what_else_to_do(questions: list[Any]) -> None:
    call = asking(*questions)
    request = asked(claude_code, call)
    assert [option.meaning for option in request.options] == [Meaning.REJECT]
    assert request.preview[-1] == FieldPreview("How to answer", ONE_AT_A_TIME)
    assert not allows(told(claude_code, call, ALLOWED))
    for choice in asked(claude_code, ASKING).options[:2]:
        assert not allows(told(claude_code, call, picked(choice)))


def test_a_reason_given_with_a_rejection_reaches_the_agent() -> None:
    decision = told(claude_code, asking(QUESTION, QUESTION), REFUSED)["hookSpecificOutput"]["decision"]
    assert decision["message"].endswith("use staging")


def test_a_plain_allow_never_answers_a_question() -> None:
    assert not allows(told(claude_code, ASKING, ALLOWED))


def test_nineteen_choices_fit_and_a_long_one_stands_in_full_in_the_preview() -> None:
    long = "x" * 300
    call = asking({"question": "Which?", "options": [{"label": f"{number} {long}"} for number in range(19)]})
    request = asked(claude_code, call)
    assert len(request.options) == 20
    assert FieldPreview("Option 19 in full", f"18 {long}") in request.preview
    answer = told(claude_code, call, picked(request.options[18]))
    assert answer["hookSpecificOutput"]["decision"]["updatedInput"]["answers"] == {"Which?": f"18 {long}"}


def test_a_plan_is_shown_and_goes_back_with_the_allow() -> None:
    request = asked(claude_code, LEAVING_PLAN)
    assert request.title == "ExitPlanMode: # Plan"
    assert request.tool_kind == "switch_mode"
    assert TextPreview("plan", "# Plan\nFirst the tests.") in request.preview
    assert request.preview_complete
    decision = told(claude_code, LEAVING_PLAN, ALLOWED)["hookSpecificOutput"]["decision"]
    assert decision == {"behavior": "allow", "updatedInput": LEAVING_PLAN["tool_input"]}


@pytest.mark.parametrize("plan", [{}, {"plan": " "}, {"planFilePath": "/repo/plan.md"}])
def test_a_plan_that_was_not_sent_is_missing_from_the_preview(plan: dict[str, Any]) -> None:
    assert not asked(claude_code, {**LEAVING_PLAN, "tool_input": plan}).preview_complete
