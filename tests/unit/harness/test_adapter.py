from __future__ import annotations

import pytest

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import Meaning, Option, Outcome, Scope
from agentpod_bot.harness.adapter import End

OTHERS = [outcome for outcome in Outcome if outcome is not Outcome.SELECTED]


def ended(outcome: Outcome | None, meaning: Meaning | None, scope: Scope | None = Scope.ONCE) -> End:
    """An end; without a meaning, one without an option."""
    option = None if meaning is None else Option(OptionId("x"), "Allow once", meaning, scope)
    return End(outcome, "Said so.", option)


@pytest.mark.parametrize(
    ("meaning", "said"),
    [
        (Meaning.APPROVE, (True, False, False)),
        (Meaning.REJECT, (False, True, False)),
        (Meaning.CHOOSE, (False, False, True)),
        (None, (False, False, False)),
    ],
)
def test_a_decision_is_what_its_options_meaning_says(meaning: Meaning | None, said: tuple[bool, ...]) -> None:
    end = ended(Outcome.SELECTED, meaning)
    assert (end.approves, end.rejects, end.chooses) == said


@pytest.mark.parametrize("outcome", [None, *OTHERS])
@pytest.mark.parametrize("meaning", list(Meaning))
def test_no_other_outcome_decides_anything_whatever_option_it_carries(
    outcome: Outcome | None, meaning: Meaning
) -> None:
    end = ended(outcome, meaning)
    assert (end.approves, end.approves_always, end.rejects, end.chooses) == (False, False, False, False)


@pytest.mark.parametrize(("scope", "always"), [(Scope.ONCE, False), (Scope.ALWAYS, True), (None, True)])
def test_an_approval_whose_scope_nobody_knows_counts_as_one_for_always(scope: Scope | None, always: bool) -> None:
    assert ended(Outcome.SELECTED, Meaning.APPROVE, scope).approves_always is always
    assert not ended(Outcome.SELECTED, Meaning.REJECT, scope).approves_always
    assert not ended(Outcome.SELECTED, Meaning.CHOOSE, scope).approves_always


@pytest.mark.parametrize("outcome", [None, *Outcome])
@pytest.mark.parametrize("unavailable", [False, True])
def test_only_silence_and_a_room_out_of_reach_hand_a_call_back(outcome: Outcome | None, unavailable: bool) -> None:
    end = End(outcome, "Said so.", unavailable=unavailable)
    assert end.hands_back == (outcome is Outcome.EXPIRED or (outcome is None and unavailable))
