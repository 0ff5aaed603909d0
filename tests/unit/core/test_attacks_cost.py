"""What a text from outside may cost: the store's one thread and the event loop wait meanwhile.

Normalising a text can cost the square of its length, and make it eighteen times as long.
So no long text from outside is ever normalised, whatever is asked of it.
"""

from __future__ import annotations

import unicodedata
from dataclasses import replace

import pytest

from agentpod_bot.core.answer import LONGEST_HEAD, NoMatch, match_readings, readings
from agentpod_bot.core.ids import Code, OptionId
from agentpod_bot.core.judge import judge_said
from agentpod_bot.core.labels import MAX_LABEL, Withhold, offer
from agentpod_bot.core.model import Meaning, Option, Scope
from agentpod_bot.core.text import visible_line
from agentpod_bot.errors import TooLarge
from agentpod_bot.render.question import compose
from tests.examples import ALLOW, REJECT, question, said, scene

MARKS = "\u0301\u0327"
"""Two combining marks in the wrong order: normalising sorts a run of them, and twice as many cost four times."""
LIGATURE = "\ufdfa"
"""One character that NFKC makes eighteen of."""


@pytest.fixture
def normalised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lengths of all texts that are normalised."""
    lengths: list[int] = []
    normalize = unicodedata.normalize

    def spy(form: str, text: str) -> str:
        lengths.append(len(text))
        return normalize(form, text)  # type: ignore[arg-type]  # as it came

    monkeypatch.setattr("unicodedata.normalize", spy)
    return lengths


@pytest.mark.parametrize(
    "body", ["1 " + MARKS * 15_000, MARKS * 15_000 + " K7", "3: " + MARKS * 15_000, LIGATURE * 9_000]
)
def test_no_long_message_is_ever_normalised(body: str, normalised: list[int]) -> None:
    offered = offer((ALLOW, REJECT), withhold=Withhold.NOTHING)
    match_readings(readings(body, frozenset({Code("K7")})), offered)
    judge_said(said(body), scene(question(1)))
    judge_said(said(body), scene(question(1), question(2, code="M3")))
    assert max(normalised, default=0) <= LONGEST_HEAD


def test_a_message_as_long_as_a_room_takes_matches_nothing() -> None:
    offered = offer((ALLOW, REJECT), withhold=Withhold.NOTHING)
    assert isinstance(match_readings(readings("1 " + MARKS * 15_000, frozenset()), offered), NoMatch)


@pytest.mark.parametrize("text", [MARKS * 1_000, LIGATURE * 2_000, "n\u00b4o " * 500])
def test_names_that_no_room_can_show_are_refused_without_being_normalised(text: str, normalised: list[int]) -> None:
    meanings = [Meaning.APPROVE, *[Meaning.REJECT] * 19]
    options = tuple(Option(OptionId(f"o{n}"), text, meaning, Scope.ONCE) for n, meaning in enumerate(meanings))
    with pytest.raises(TooLarge):
        offer(options, withhold=Withhold.NOTHING)
    assert max(normalised, default=0) <= MAX_LABEL


@pytest.mark.parametrize("text", ["x" * 100_000, "\u6f22" * 34_000, "\\" * 50_000])
def test_a_long_line_is_cut_to_its_limit(text: str) -> None:
    assert len(visible_line(text, limit=300)) == 300


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\u6f22" * 340_000])
def test_a_title_that_is_no_title_is_refused_before_anything_is_made_of_it(text: str, normalised: list[int]) -> None:
    asked = replace(question(1).asked, title=text)
    normalised.clear()
    with pytest.raises(TooLarge) as refused:
        compose(asked, mentions=(), other_codes=frozenset())
    assert refused.value.field == "title"
    assert normalised == []
