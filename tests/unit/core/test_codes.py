from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.codes import DIGITS, LETTERS, fresh_code
from agentpod_bot.core.ids import Code
from agentpod_bot.core.text import folded
from agentpod_bot.errors import Unavailable


@given(st.integers())
def test_a_code_has_two_to_four_characters_a_letter_a_digit_and_no_look_alike(seed: int) -> None:
    code = fresh_code(random.Random(seed).choice, taken=frozenset(), names=frozenset())
    assert 2 <= len(code) <= 4
    assert any(char in LETTERS for char in code)
    assert any(char in DIGITS for char in code)
    assert not set(code) & set("01258BILOSUVZ")


@given(st.integers())
def test_a_code_that_an_approval_stands_on_is_one_of_the_longest(seed: int) -> None:
    code = fresh_code(random.Random(seed).choice, taken=frozenset(), names=frozenset(), is_long=True)
    assert len(code) == 4
    assert code[0] in LETTERS
    assert code[1] in DIGITS


def test_a_code_is_none_that_is_taken_and_no_label_or_id() -> None:
    two = [Code(a + b) for a, b in product(LETTERS, DIGITS)]
    taken, free = frozenset(two[1:]), two[0]
    for seed in range(30):
        code = fresh_code(random.Random(seed).choice, taken=taken, names=frozenset())
        assert code == free or len(code) > 2
        other = fresh_code(random.Random(seed).choice, taken=taken, names=frozenset({folded(free)}))
        assert len(other) > 2


def test_a_room_without_a_free_code_is_told_so() -> None:
    with pytest.raises(Unavailable):
        fresh_code(lambda _: "A", taken=frozenset({Code("AA"), Code("AAA"), Code("AAAA")}), names=frozenset())
