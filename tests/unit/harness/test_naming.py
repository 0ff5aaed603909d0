from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.text import fits, visible_line
from agentpod_bot.harness import naming
from agentpod_bot.harness.opaque import fault_of_id

texts = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(st.none() | st.integers() | texts, max_size=4))
def test_an_id_of_any_names_is_a_plain_one_of_its_harness(names: list[Any]) -> None:
    made = naming.request_id("acp", *names)
    assert made == naming.request_id("acp", *names)
    assert made.startswith("acp:")
    assert fault_of_id(made) is None
    assert made != naming.request_id("acp", *names, None)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b"), ("ab",)),
        (("a", "b"), ("b", "a")),
        (("1",), (1,)),
        ((None,), ("null",)),
        ((True,), (1,)),
        ((["a"], "b"), (["a", "b"],)),
    ],
)
def test_different_names_make_different_ids(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert naming.request_id("x", *one) != naming.request_id("x", *other)


def test_the_order_of_an_objects_members_makes_no_difference_and_that_of_a_list_does() -> None:
    assert naming.hashed({"a": 1, "b": [1, 2]}) == naming.hashed({"b": [1, 2], "a": 1})
    assert naming.hashed([1, 2]) != naming.hashed([2, 1])


@pytest.mark.parametrize("name", ["896e5561-d643", "sess_1", "a" * 255, "Sitzung ä"])
def test_a_plain_session_name_is_the_sessions_id(name: str) -> None:
    assert naming.session_id(name) == name


@pytest.mark.parametrize("name", ["a" * 256, "a\nb", "a\u202eb", "a\u200bb", 7, ["a"], {"a": 1}, False, " \t"])
def test_any_other_session_name_has_a_hash_for_an_id(name: Any) -> None:
    made = naming.session_id(name)
    assert made != name
    assert fault_of_id(made) is None
    assert made == naming.session_id(name) != naming.session_id([name])


@pytest.mark.parametrize("name", [None, ""])
def test_calls_without_a_session_are_of_one(name: Any) -> None:
    assert naming.session_id(name) == naming.NO_SESSION


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("allow-once", "allow-once"),
        ("", "option:3"),
        ("a" * 200, "a" * 200),
        ("a" * 201, "option:3"),
        ("a\nb", "option:3"),
        ("agentpod.reject", "option:3"),
    ],
)
def test_an_options_own_id_stands_where_it_can(name: str, expected: str) -> None:
    assert naming.option_id(name, 3) == expected


@pytest.mark.parametrize("value", [None, "", " \n", 7, ["x"], {"x": 1}])
def test_what_is_no_text_is_none(value: Any) -> None:
    assert naming.text_of(value) == ""
    assert naming.text_of(value, "else") == "else"
    assert naming.name_of(value) is None


def test_a_text_stays_as_it_is_and_a_name_is_cut() -> None:
    assert naming.text_of(" x ") == " x "
    assert naming.name_of("x" * 300) == "x" * 255


@pytest.mark.parametrize(
    ("what", "detail", "title"),
    [
        ("Bash", "npm test", "Bash: npm test"),
        ("Bash", "", "Bash"),
        ("Bash", " \n ", "Bash"),
        ("Bash", "\n cd x\nrm -rf y", "Bash: cd x"),
        ("Bash", "x" * 300, f"Bash: {'x' * 193}…"),
        ("Bash", "x" * 194, f"Bash: {'x' * 194}"),
    ],
)
def test_a_title_says_the_first_line_of_what_is_done(what: str, detail: str, title: str) -> None:
    assert naming.title_of(what, detail) == title


@given(texts)
def test_a_label_can_be_shown_and_is_a_text_or_its_beginning(text: str) -> None:
    label = naming.label_of(text)
    assert len(visible_line(label)) <= naming.MOST_LABEL
    assert label == text or (label.endswith("…") and text.startswith(label[:-1]))
    assert (label == text) == fits(text, naming.MOST_LABEL)
    assert label or not text


@pytest.mark.parametrize("text", ["x" * 151, "\u202e" * 40, "\n" * 76])
def test_a_label_that_would_be_shown_too_long_is_cut_no_more_than_needed(text: str) -> None:
    label = naming.label_of(text)
    assert label.endswith("…")
    assert not fits(text[: len(label)], naming.MOST_LABEL - 1)
