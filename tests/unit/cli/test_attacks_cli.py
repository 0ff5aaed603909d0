"""What a daemon that is none, or a token that is none, may do to a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.cli.client import Reply
from agentpod_bot.cli.endpoint import Wanted, find
from agentpod_bot.cli.exits import ExitCode, Stopped
from agentpod_bot.cli.following import GRACE_S, closed
from tests.unit.cli.test_following import ASKED, OPEN, Scripted, Timer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("errors", [[{"loc": None, "msg": "x"}], [{"loc": 5}], "abc", 7, [["x"]]])
def test_a_problem_of_any_shape_becomes_a_sentence(errors: object) -> None:
    assert "not so" in Reply(422, {"detail": "not so", "errors": errors}).sentence


def test_a_sentence_of_the_other_side_cannot_move_the_cursor() -> None:
    assert "\x1b" not in Reply(401, {"detail": "\x1b[2J\x1b[1;1Happroved"}).sentence


@pytest.mark.parametrize("token", ["first-line-of-it\nsecond", "word and-word", "né" * 10])
def test_a_token_that_no_header_can_carry_is_a_fault_of_the_configuration(token: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token, encoding="utf-8")
    with pytest.raises(Stopped) as stopped:
        find(Wanted(url="http://127.0.0.1:8470", token_file=tmp_path / "token"), {})
    assert stopped.value.exit_code is ExitCode.CONFIGURATION
    assert token not in str(stopped.value)


async def test_no_retry_after_makes_the_wait_longer_than_the_question_is_open() -> None:
    busy = Reply(503, {"code": "shutting_down"}, retry_after_s=1e12)
    timer = Timer()
    with pytest.raises(Stopped):
        await closed(Scripted(busy), ASKED, OPEN, timer, lambda _: None)  # type: ignore[arg-type]
    assert sum(timer.slept) <= 600 + GRACE_S + 60
