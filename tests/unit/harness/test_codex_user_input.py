from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.labels import MAX_OPTIONS, Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import codex
from tests.unit.harness.codex_calls import (
    BOTS_REJECT,
    CHOICE,
    MANNER,
    NON_DECISIONS,
    SECRET,
    USER_INPUT,
    answer,
    asked,
    changed,
    chose,
    ended,
    foreign,
    sent,
    settled,
    took,
)

Json = dict[str, Any]
NOTHING: Json = {"answers": {}}


def asking(**question: Any) -> Json:
    return changed(USER_INPUT, questions=[CHOICE | question])


def of_labels(*labels: str) -> Json:
    return asking(options=[{"label": label, "description": ""} for label in labels])


def test_a_question_with_choices_is_asked_with_them_and_nothing_else() -> None:
    request = asked(USER_INPUT)
    assert [each.printed for each in offer(request.options, withhold=Withhold.NOTHING)] == ["Postgres", "SQLite"]
    assert {each.meaning for each in request.options} == {Meaning.CHOOSE}
    assert request.title == "Database: Which database?"
    assert request.preview == (
        FieldPreview("Question", "Which database?"),
        FieldPreview("Choice 1 means", "server"),
        FieldPreview("Choice 2 means", "file"),
    )


def test_the_choice_of_a_person_is_sent_by_its_label() -> None:
    assert chose(USER_INPUT, "choice:1") == {"answers": {"one": {"answers": ["SQLite"]}}}


def test_a_label_is_sent_whole_though_it_is_shown_shortened() -> None:
    label = "use the database " * 20
    call = of_labels(label, f"{label}!")
    shown = [each.printed for each in offer(asked(call).options, withhold=Withhold.NOTHING)]
    assert len(set(shown)) == 2, "the ids keep two labels apart that begin alike"
    assert FieldPreview("Choice 2", f"{label}!") in asked(call).preview
    assert chose(call, "choice:1") == {"answers": {"one": {"answers": [f"{label}!"]}}}


def test_choices_that_find_no_place_are_counted() -> None:
    call = of_labels(*(f"choice {number}" for number in range(25)))
    assert len(asked(call).options) == MAX_OPTIONS
    assert FieldPreview("Choices left out", "5 that Codex offers") in asked(call).preview


@pytest.mark.parametrize("outcome", NON_DECISIONS)
def test_where_nobody_chose_nothing_is_answered(outcome: Any) -> None:
    assert answer(USER_INPUT, ended(outcome))["result"] == NOTHING


@pytest.mark.parametrize(
    "taken",
    [
        BOTS_REJECT,
        foreign("choice:0"),
        foreign("choice:0", Meaning.REJECT),
        foreign("choice:2", Meaning.CHOOSE, None),
        foreign("Postgres", Meaning.CHOOSE, None),
    ],
)
def test_what_is_none_of_its_choices_answers_nothing(taken: Any) -> None:
    assert answer(USER_INPUT, took(taken))["result"] == NOTHING


@pytest.mark.parametrize(
    "questions",
    [
        [],
        [SECRET],
        [CHOICE, SECRET],
        [CHOICE, CHOICE | {"id": "other"}],
        [CHOICE | {"options": None}],
        [CHOICE | {"options": []}],
        [CHOICE | {"isSecret": True}],
        [CHOICE | {"isSecret": "true"}],
        [CHOICE | {"isSecret": 1}],
        [CHOICE | {"isSecret": 0}],
    ],
)
def test_a_secret_or_free_text_or_several_questions_are_never_shown(questions: list[Json]) -> None:
    call = changed(USER_INPUT, questions=questions)
    assert settled(call) == {"id": 6, "result": NOTHING}
    assert codex.answer(sent(call), sent(call), took(foreign("choice:0", Meaning.CHOOSE, None)), MANNER)["result"] == (
        NOTHING
    )


@pytest.mark.parametrize("secret", [None, False])
def test_what_is_said_to_be_no_secret_is_asked(secret: Any) -> None:
    assert asked(asking(isSecret=secret)).options


@pytest.mark.parametrize(
    ("question", "place"),
    [
        ({"id": ""}, "id"),
        ({"id": None}, "id"),
        ({"question": None}, "question"),
        ({"options": "Postgres"}, "options"),
        ({"options": [{"description": "x"}]}, "options"),
        ({"options": ["Postgres"]}, "options"),
    ],
)
def test_a_question_that_cannot_be_read_is_not_asked(question: Json, place: str) -> None:
    with pytest.raises(Invalid) as caught:
        codex.parse(sent(asking(**question)), MANNER)
    assert caught.value.loc[:4] == ("params", "questions", 0, place)
