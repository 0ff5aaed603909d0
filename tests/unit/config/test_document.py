from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentpod_bot.config import document
from agentpod_bot.errors import ConfigurationError

HERE = Path("config.yaml")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("off", "off"),
        ("no", "no"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2026-11-07", "2026-11-07"),
        ("true", True),
        ("~", None),
        ("", None),
        ("12", 12),
        ("1.5", 1.5),
        ('"12"', "12"),
        ("!!str 12", "12"),
    ],
)
def test_only_what_yaml_1_2_calls_so_is_no_text(text: str, value: Any) -> None:
    """`reactions: off` must not become false."""
    found = document.parse(f"a: {text}\n", HERE)
    assert (found.root, found.faults) == ({"a": value}, [])


def test_keys_are_texts_whatever_they_look_like() -> None:
    assert document.parse("on: 1\n12: 2\n", HERE).root == {"on": 1, "12": 2}


def test_every_key_and_item_knows_its_line() -> None:
    found = document.parse("a:\n  b:\n    - x\n    - y\nc: 1\n", HERE)
    assert found.lines == {("a",): 1, ("a", "b"): 2, ("a", "b", 0): 3, ("a", "b", 1): 4, ("c",): 5}


def test_a_key_given_twice_is_a_fault_and_not_overwritten() -> None:
    found = document.parse("a:\n  b: 1\n  c: 2\n  b: 3\n", HERE)
    assert [str(fault) for fault in found.faults] == ["a.b: is given twice; first on line 2 (config.yaml:4)"]
    assert found.root["a"]["b"] == 1


def test_an_unquoted_room_id_is_said_to_need_quotes() -> None:
    (fault,) = document.parse("room: !abc:hs.test\n", HERE).faults
    assert str(fault) == "room: has a tag instead of a value; what begins with ! needs quotes (config.yaml:1)"


def test_a_tag_that_would_run_code_is_only_a_fault() -> None:
    (fault,) = document.parse('a: !!python/object/apply:os.system ["true"]\n', HERE).faults
    assert "has a tag" in str(fault)


def test_an_unquoted_user_id_is_said_to_need_quotes_with_line_and_column() -> None:
    with pytest.raises(ConfigurationError, match=r"config\.yaml: line 2, column 12: .* begins with @ needs quotes"):
        document.parse("homeserver:\n  user_id: @pod:hs.test\n", HERE)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("# nothing\n", "is empty"),
        ("[1]", "is no mapping"),
        ("text", "is no mapping"),
        ("a: [", "line 1, column 5"),
        ("a: 1\n b: 2\n", "line 2, column 3"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: another document begins here; the configuration is one"),
        ("a: *b", "line 1, column 4"),
        ("a: \x07", "has a character that YAML does not allow"),
        ("a: " + "[" * 1_500, "is nested too deeply"),
        ("a: &a [*a]", "unfold without end"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefg", "bcdefgh", strict=True)
            ),
            "unfold without end",
        ),
    ],
)
def test_what_is_no_configuration_at_all_is_refused_with_its_place(text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        document.parse(text, HERE)
    (line,) = refused.value.problems
    assert line.startswith("config.yaml: ")
    assert says in line


def test_a_fault_in_the_yaml_does_not_repeat_the_line_which_may_hold_a_secret() -> None:
    with pytest.raises(ConfigurationError) as refused:
        document.parse('token: "syt_made_up_secret\n', HERE)
    assert "syt_made_up_secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"a: \xff\n", "is not UTF-8 at byte 3"), (b"#" * (document.MAX_BYTES + 1), "is larger than")],
)
def test_a_file_that_is_no_text_of_fair_size_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=says):
        document.read(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.yaml: there is no such file"):
        document.read(tmp_path / "none.yaml")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        document.read(tmp_path)
