from __future__ import annotations

import json
from typing import Any

import pytest

from agentpod_bot.proxy.client import Reply, Unreached
from agentpod_bot.proxy.door import AWAY_S, Unanswered, ask
from agentpod_bot.proxy.endpoint import Endpoint
from tests.unit.proxy.bridged import Timer

CUT = Unreached("the connection was cut", sent=True)
DOWN = Unreached("connection refused", sent=False)
GOOD = Reply(200, {}, None, "application/json", b'{"id":1,\n "result":{}}\n')
STOPPING = Reply(503, {"code": "shutting_down", "detail": "the daemon is stopping"})


class Scripted:
    """A daemon that answers from a list, each call after so many seconds; the last answer stays."""

    endpoint = Endpoint("http://127.0.0.1:8470")

    def __init__(self, timer: Timer, *answers: Reply | Unreached | float) -> None:
        self.timer, self.answers = timer, list(answers)
        self.calls: list[Any] = []

    async def call(self, method: str, path: str, **more: Any) -> Reply:
        self.calls.append((method, path, more))
        while isinstance(seconds := self.answers[0], float):
            self.timer.now += seconds
            self.answers.pop(0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Unreached):
            raise answer
        assert isinstance(answer, Reply)
        return answer


async def asked(daemon: Scripted, timer: Timer) -> Any:
    return await ask(daemon, "acp", b"{}", {"route": "ops"}, timer)  # type: ignore[arg-type] # a double


async def test_an_answer_is_one_line_and_otherwise_as_it_came() -> None:
    timer = Timer()
    daemon = Scripted(timer, GOOD)
    answer = await asked(daemon, timer)
    assert answer.line == b'{"id":1,  "result":{}}'
    assert answer.content == json.loads(GOOD.body)
    assert daemon.calls == [
        ("POST", "/v1/harness/acp", {"query": {"route": "ops"}, "body": b"{}", "limit_s": None}),
    ]


async def test_a_daemon_that_never_was_there_is_said_at_once() -> None:
    timer = Timer()
    with pytest.raises(Unanswered, match=r"could not be reached at http://127\.0\.0\.1:8470: connection ref") as why:
        await asked(Scripted(timer, DOWN), timer)
    assert why.value.unreached
    assert timer.now == 1_000


async def test_a_restart_of_the_daemon_loses_no_answer() -> None:
    timer = Timer()
    daemon = Scripted(timer, 86_400.0, STOPPING, DOWN, DOWN, Reply(502, {}), 86_400.0, CUT, DOWN, GOOD)
    assert (await asked(daemon, timer)).content["id"] == 1
    assert {json.dumps(more["query"]) for _, _, more in daemon.calls} == {'{"route": "ops"}'}


@pytest.mark.parametrize("last", [CUT, DOWN, STOPPING, Reply(504, {})])
async def test_a_daemon_that_stays_away_is_given_up_and_may_have_asked(last: Reply | Unreached) -> None:
    timer = Timer()
    with pytest.raises(Unanswered) as why:
        await asked(Scripted(timer, CUT, last), timer)
    assert not why.value.unreached
    assert AWAY_S <= timer.now - 1_000 <= AWAY_S + 10


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(401, {"code": "unauthorized", "detail": "no token."}), "HTTP 401, unauthorized): no token"),
        (Reply(500, {}, None, "text/html", b"<html>"), "HTTP 500): HTTP 500"),
        (Reply(503, {"code": "no_approver", "detail": "nobody"}), "no_approver"),
        (Reply(302, {}), "302"),
        (Reply(200, {}, None, "text/html", b"{}"), "is not agentpod-bot"),
        (Reply(200, {}, None, "application/json", b""), "is not agentpod-bot"),
        (Reply(200, {}, None, "application/json", b"[]"), "is not agentpod-bot"),
        (Reply(200, {}, None, "application/json", b'{"a":1,"a":2}'), "is not agentpod-bot"),
        (Reply(200, {}, None, "application/json", b'{"a":NaN}'), "is not agentpod-bot"),
    ],
)
async def test_whatever_else_comes_is_no_answer_and_is_not_repeated(reply: Reply, says: str) -> None:
    timer = Timer()
    daemon = Scripted(timer, reply)
    with pytest.raises(Unanswered) as why:
        await asked(daemon, timer)
    assert says in str(why.value)
    assert not why.value.unreached
    assert len(daemon.calls) == 1


async def test_a_daemon_cannot_move_the_cursor_of_a_terminal() -> None:
    timer = Timer()
    with pytest.raises(Unanswered) as why:
        await asked(Scripted(timer, Reply(500, {"code": "\x1b[2J", "detail": "\x1b[2J"})), timer)
    assert "\x1b" not in str(why.value)
