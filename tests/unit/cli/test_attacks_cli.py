"""What a daemon that is none, or a token that is none, may do to a command."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.cli import waiting
from agentpod_bot.cli.asking import Asked, bound
from agentpod_bot.cli.following import GRACE_S, RETRY_S, UNSURE_S, closed, post
from agentpod_bot.proxy.client import Reply, refused
from agentpod_bot.proxy.endpoint import Wanted, find
from agentpod_bot.proxy.stopped import ExitCode, Stopped
from tests.unit.cli.test_following import ASKED, OPEN, Scripted, Timer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
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


@pytest.mark.parametrize("token", ["first-line-of-it\nsecond", "word and-word", "né" * 10])
def test_a_variable_that_holds_no_token_is_a_fault_of_the_configuration(token: str) -> None:
    with pytest.raises(Stopped, match="AGENTPOD_BOT_TOKEN holds no token") as stopped:
        find(Wanted(url="http://127.0.0.1:8470"), {"AGENTPOD_BOT_TOKEN": token})
    assert stopped.value.exit_code is ExitCode.CONFIGURATION
    assert token.rsplit(maxsplit=1)[-1] not in str(stopped.value)


def test_a_code_of_the_other_side_cannot_move_the_cursor() -> None:
    stopped = refused(Reply(500, {"code": "\x1b[2J", "detail": "x" * 100_000}), Scripted.endpoint)
    assert "\x1b" not in str(stopped)
    assert len(str(stopped)) < 5_000


@pytest.mark.parametrize("odd", ["abc", 7, None, {"a": 1}, [None, 5, "x", ["y"], {"decision": "z"}]])
async def test_a_list_of_any_shape_is_read_without_a_traceback(odd: object, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd:
        async def page(self, _query: object) -> Reply:
            return Reply(200, {"requests": odd})

        async def cancel_all(self) -> Reply:
            return Reply(200, {"cancelled": odd})

        async def ready(self, *, limit_s: float) -> Reply:
            return Reply(503, {"problems": odd, "detail": f"asked for {limit_s} s"})

    @asynccontextmanager
    async def connected(_where: object) -> AsyncIterator[Odd]:
        yield Odd()

    monkeypatch.setattr(waiting, "connected", connected)
    views = await waiting.requests(Scripted.endpoint, {})
    assert all(waiting.line(view) for view in views)
    assert all(isinstance(each, str) for each in await waiting.cancel(Scripted.endpoint, None, None))
    assert await waiting.not_ready(Scripted.endpoint)


def test_json_for_people_keeps_every_value_and_nothing_that_a_terminal_acts_on() -> None:
    content = {"comment": "caf\u00e9 \u009b2J \u202e \x1b[2J \x7f \U0001f600 \ud800", "list": [1, None]}
    text = waiting.readable(content)
    assert json.loads(text) == content
    assert all(char.isprintable() or char == "\n" for char in text)
    assert "caf\u00e9" in text


@pytest.mark.parametrize("salt", ["\ud800", "5a17"])
def test_a_view_with_another_salt_than_its_digest_is_bound_to_nothing(salt: str) -> None:
    subject = {"digest": "d1", "revision": 1, "salt": salt}
    assert not bound(Asked(ASKED.request_id, {"title": " "}, ASKED.choices), OPEN | {"subject": subject})
    body = {"session_id": "s", "title": "Deploy?", "options": [{"id": "go", "kind": "allow_once"}]}
    assert not bound(Asked(ASKED.request_id, body, ASKED.choices), OPEN | {"subject": subject})


async def test_no_retry_after_makes_the_wait_longer_than_the_question_is_open() -> None:
    busy = Reply(503, {"code": "shutting_down"}, retry_after_s=1e12)
    timer = Timer()
    with pytest.raises(Stopped):
        await closed(Scripted(busy), ASKED, OPEN, timer, lambda _: None)  # type: ignore[arg-type]
    assert sum(timer.slept) <= 600 + GRACE_S + 60


async def test_no_retry_after_makes_a_post_be_repeated_for_longer_than_it_may_be() -> None:
    busy = Reply(503, {"code": "shutting_down"}, retry_after_s=1e12)
    timer = Timer()
    with pytest.raises(Stopped):
        await post(Scripted(busy), ASKED, timer)  # type: ignore[arg-type] # a double
    assert sum(timer.slept) <= UNSURE_S + RETRY_S
