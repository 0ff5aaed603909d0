from __future__ import annotations

import pytest

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import Meaning, Option, Scope
from agentpod_bot.harness import options


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (options.allow_once(), ("allow_once", "Allow once", Meaning.APPROVE, Scope.ONCE)),
        (options.allow_always(), ("allow_always", "Always allow", Meaning.APPROVE, Scope.ALWAYS)),
        (options.reject_once(), ("reject_once", "Reject", Meaning.REJECT, Scope.ONCE)),
        (options.reject_always(), ("reject_always", "Never allow", Meaning.REJECT, Scope.ALWAYS)),
        (options.choose("SQLite", option_id=OptionId("0")), ("0", "SQLite", Meaning.CHOOSE, None)),
        (options.allow_once("Allow it", option_id=OptionId("a")), ("a", "Allow it", Meaning.APPROVE, Scope.ONCE)),
    ],
)
def test_an_option_means_what_its_maker_is_called(made: Option, expected: tuple[object, ...]) -> None:
    assert (made.option_id, made.label, made.meaning, made.scope) == expected


def test_the_four_usual_ones_are_printed_plainly_and_answer_to_their_ids() -> None:
    four = (options.allow_once(), options.allow_always(), options.reject_once(), options.reject_always())
    offered = offer(four, withhold=Withhold.NOTHING)
    assert [each.printed for each in offered] == ["Allow once", "Always allow", "Reject", "Never allow"]
    assert [each.id_matches for each in offered] == [True, False, True, False]
