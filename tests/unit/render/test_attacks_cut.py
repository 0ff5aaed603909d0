"""What is cut must be known to be cut, wherever the cut falls."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot.core.model import FieldPreview, Meaning
from agentpod_bot.render.question import compose
from tests.unit.render.samples import ASKED

DIRECTION = "\u202e"
"""Shown as an escape of eight characters, which is never cut in two."""


@pytest.mark.parametrize("before", range(8))
def test_a_title_that_is_cut_before_an_escape_is_one_that_was_cut(before: int) -> None:
    """Nobody can approve what nobody saw."""
    title = "x" * before + DIRECTION * 100 + "; rm -rf ~/work"
    question, content = compose(replace(ASKED, title=title), mentions=(), other_codes=frozenset())
    assert "rm -rf" not in content["body"]
    assert content["subject"]["preview_complete"] is False
    assert [offered for offered in question.offered if offered.option.meaning is Meaning.APPROVE] == []


@pytest.mark.parametrize("before", range(8))
def test_a_part_whose_name_is_cut_before_an_escape_is_one_that_was_cut(before: int) -> None:
    preview = (FieldPreview("x" * before + DIRECTION * 20 + "; rm -rf ~/work", "y"),)
    _, content = compose(replace(ASKED, preview=preview), mentions=(), other_codes=frozenset())
    assert "rm -rf" not in content["body"]
    assert content["subject"]["preview_complete"] is False
