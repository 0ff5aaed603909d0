from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.harness import tool_input

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)


def shown(part: Any) -> str:
    """The content of one part."""
    return part.value if isinstance(part, FieldPreview) else part.text


def test_each_member_is_shown_in_its_order_as_what_it_is() -> None:
    given_input = {
        "description": "Runs it",
        "command": "npm test",
        "timeout": 60000,
        "run_in_background": False,
        "nothing": None,
        "options": {"a": [1, 2]},
        "content": "one\ntwo",
    }
    assert tool_input.preview_of(given_input) == (
        FieldPreview("description", "Runs it"),
        TextPreview("Command", "npm test", "bash"),
        FieldPreview("timeout", "60000"),
        FieldPreview("run_in_background", "false"),
        FieldPreview("nothing", "null"),
        FieldPreview("options", '{"a": [1, 2]}'),
        TextPreview("content", "one\ntwo"),
    )


@pytest.mark.parametrize("text", ["x" * 201, "a\nb", "a\rb"])
def test_a_text_that_is_no_line_is_shown_as_a_block(text: str) -> None:
    assert tool_input.preview_of({"content": text}) == (TextPreview("content", text),)


def test_a_long_value_is_shown_as_a_block_of_json() -> None:
    (part,) = tool_input.preview_of({"items": list(range(100))})
    assert isinstance(part, TextPreview)
    assert part.language == "json"
    assert json.loads(part.text) == list(range(100))


def test_a_command_that_is_a_list_is_shown_as_one() -> None:
    assert tool_input.preview_of({"command": ["git", "push"]}) == (FieldPreview("command", '["git", "push"]'),)


@given(st.dictionaries(texts, values, max_size=6))
def test_no_member_is_left_out_and_none_is_changed(given_input: dict[str, Any]) -> None:
    parts = tool_input.preview_of(given_input)
    assert len(parts) == len(given_input)
    for part, (name, value) in zip(parts, given_input.items(), strict=True):
        assert part.label in {name, f"Input {name}", "Command"}  # type: ignore[union-attr]  # an input is never shown as a diff
        is_plain = isinstance(value, str) and shown(part) == value
        assert is_plain or json.loads(shown(part)) == value


@given(st.dictionaries(texts, texts, max_size=6))
def test_no_member_passes_for_a_line_of_ours(given_input: dict[str, str]) -> None:
    for part, name in zip(tool_input.preview_of(given_input), given_input, strict=True):
        label = part.label  # type: ignore[union-attr]  # an input is never shown as a diff
        begins_small = label[:1] == label[:1].lower()
        assert begins_small or label == f"Input {name}" or (label, name) == ("Command", "command")


@pytest.mark.parametrize("name", ["Command", "Tool", "Folder", "Note", "Option 1 in full", "Тool", "Ǆ", "Input"])
def test_a_member_that_is_called_like_a_line_of_ours_is_said_to_be_one_of_the_input(name: str) -> None:
    assert tool_input.preview_of({name: "x"}) == (FieldPreview(f"Input {name}", "x"),)


@given(values, values)
def test_two_short_values_that_differ_are_shown_differently(one: Any, other: Any) -> None:
    if json.dumps(one) != json.dumps(other) and max(len(json.dumps(each)) for each in (one, other)) <= tool_input.SHORT:
        assert tool_input.preview_of({"a": one}) != tool_input.preview_of({"a": other})


@pytest.mark.parametrize("text", ["true", "null", "7", "-1.5e3", "[]", '{"a": 1}', '"x"'])
def test_a_text_that_would_read_as_another_value_stands_in_quotation_marks(text: str) -> None:
    assert tool_input.preview_of({"a": text}) == (FieldPreview("a", json.dumps(text)),)
    assert tool_input.preview_of({"command": text}) == (TextPreview("Command", text, "bash"),)


@pytest.mark.parametrize("text", ["True", "true story", "7 days", "[x]", "{", "-", "", "nulls", "2026-11-30"])
def test_any_other_text_is_shown_as_it_is(text: str) -> None:
    assert tool_input.preview_of({"a": text}) == (FieldPreview("a", text),)


def test_a_label_of_ours_stays_as_it_is() -> None:
    assert tool_input.fields_of({"Reason": "true", "Number": 7}) == (
        FieldPreview("Reason", "true"),
        FieldPreview("Number", "7"),
    )


def test_an_input_of_very_many_members_is_shown_whole() -> None:
    many = {str(number): number for number in range(101)}
    (part,) = tool_input.preview_of(many)
    assert part == TextPreview("Input", json.dumps(many, indent=2), "json")


@pytest.mark.parametrize(("value", "language"), [("ls", None), ([1], "json"), (7, "json"), (False, "json"), ("", None)])
def test_an_input_that_is_no_object_is_shown_whole(value: Any, language: str | None) -> None:
    assert tool_input.preview_of(value) == (TextPreview("Input", tool_input.as_text(value), language),)


@pytest.mark.parametrize("value", [None, {}])
def test_an_input_that_is_none_shows_nothing(value: Any) -> None:
    assert tool_input.preview_of(value) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"file_path": "/a", "command": "ls"}, "ls"),
        ({"command": ["git", "push"]}, "git push"),
        ({"command": "", "path": "/a"}, "/a"),
        ({"command": ["git", 1], "url": "https://x.example"}, "https://x.example"),
        ({"command": []}, ""),
        ({"query": "tests"}, "tests"),
        ({"notebook_path": "/n"}, "/n"),
        ({"pattern": "*.py"}, "*.py"),
        ({"other": "x"}, ""),
        ("ls", ""),
        (None, ""),
    ],
)
def test_a_headline_is_what_the_tool_works_on(value: Any, expected: str) -> None:
    assert tool_input.headline(value) == expected


@given(values)
def test_a_value_in_one_line_is_the_value(value: Any) -> None:
    line = tool_input.as_line(value)
    assert line == value if isinstance(value, str) else json.loads(line) == value
    assert isinstance(value, str) or "\n" not in line
