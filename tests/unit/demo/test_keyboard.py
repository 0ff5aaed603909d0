from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.demo.keyboard import Keyboard, answers_of

if TYPE_CHECKING:
    from pathlib import Path


def test_a_script_is_one_answer_a_line_without_comments_and_empty_lines(tmp_path: Path) -> None:
    script = tmp_path / "answers"
    script.write_text("# first\n1\n\n  Reject: use, say, staging  \n-\n")
    assert answers_of(None, script) == ("1", "Reject: use, say, staging", "-")


def test_a_list_is_separated_by_commas() -> None:
    assert answers_of("1, Reject,-", None) == ("1", "Reject", "-")


def test_without_either_a_person_types() -> None:
    assert answers_of(None, None) is None


def test_an_empty_list_is_no_person_who_types() -> None:
    assert answers_of("", None) == ()


def test_a_script_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        answers_of(None, tmp_path / "nowhere")


async def test_lines_come_one_by_one_and_then_the_end_for_ever() -> None:
    end, begin = os.pipe()
    keyboard = Keyboard(end)
    os.write(begin, b"1\nRej")
    assert await keyboard.line() == "1"
    os.write(begin, b"ect\r\nlast")
    assert await keyboard.line() == "Reject"
    os.close(begin)
    assert [await keyboard.line() for _ in range(3)] == ["last", None, None]
    os.close(end)
