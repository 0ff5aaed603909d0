"""What a text from outside may cost: the store's one thread and the event loop wait meanwhile."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.answer import NoMatch, match_readings, readings
from agentpod_bot.core.digest import content_key
from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import Meaning, Option, Scope, TextPreview
from agentpod_bot.core.text import visible_line
from agentpod_bot.errors import TooLarge
from agentpod_bot.render.question import compose
from tests.examples import ALLOW, REJECT, ROUTE, question, request

if TYPE_CHECKING:
    from collections.abc import Iterator

BUDGET_S = 0.3
"""Of this process's own time; each case took 0.9 s to minutes before."""
MARKS = "\u0301\u0327"
"""Two combining marks in the wrong order: normalising sorts a run of them, and twice as many cost four times."""
LIGATURE = "\ufdfa"
"""One character that NFKC makes eighteen of."""


@contextmanager
def in_no_time() -> Iterator[None]:
    began = time.process_time()
    yield
    assert time.process_time() - began < BUDGET_S


def test_a_message_as_long_as_a_room_takes_is_matched_in_no_time() -> None:
    offered = offer((ALLOW, REJECT), withhold=Withhold.NOTHING)
    with in_no_time():
        found = match_readings(readings("1 " + MARKS * 15_000, frozenset()), offered)
    assert isinstance(found, NoMatch)


@pytest.mark.parametrize("text", [MARKS * 1_000, LIGATURE * 2_000, "n\u00b4o " * 500])
def test_names_that_no_room_can_show_are_refused_in_no_time(text: str) -> None:
    meanings = [Meaning.APPROVE, *[Meaning.REJECT] * 19]
    options = tuple(Option(OptionId(f"o{n}"), text, meaning, Scope.ONCE) for n, meaning in enumerate(meanings))
    with in_no_time(), pytest.raises(TooLarge):
        offer(options, withhold=Withhold.NOTHING)


@pytest.mark.parametrize("text", ["x" * 1_000_000, "漢" * 340_000, "\\" * 500_000])
def test_a_title_is_cut_without_being_taken_apart_letter_by_letter(text: str) -> None:
    with in_no_time():
        shown = visible_line(text, limit=300)
    assert len(shown) == 300


@pytest.mark.parametrize("text", ["x" * 1_000_000, "漢" * 340_000])
def test_a_question_with_the_longest_title_that_a_body_takes_is_composed_in_no_time(text: str) -> None:
    with in_no_time():
        compose(replace(question(1).asked, title=text), mentions=(), other_codes=frozenset())


@pytest.mark.parametrize("text", ["\n" * 500_000, "\\" * 500_000])
def test_the_digest_of_the_longest_preview_that_a_body_takes_is_there_in_no_time(text: str) -> None:
    asked = replace(request(), preview=(TextPreview("Command", text),))
    with in_no_time():
        content_key(asked, ROUTE)
