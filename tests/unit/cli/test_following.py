from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.cli.asking import Asked, choices
from agentpod_bot.cli.following import GRACE_S, UNSURE_S, closed, post
from agentpod_bot.core.ids import RequestId
from agentpod_bot.proxy.client import Reply, Unreached
from agentpod_bot.proxy.endpoint import Endpoint
from agentpod_bot.proxy.stopped import ExitCode, Stopped

ASKED = Asked(RequestId("ask_1:a"), {"request_id": "ask_1:a"}, choices(()))
OPEN = {
    "request_id": "ask_1:a",
    "status": "pending",
    "subject": {"revision": 1, "digest": "d1"},
    "created_at": "2026-11-07T10:00:00.000Z",
    "expires_at": "2026-11-07T10:10:00.000Z",
}
ENDED = OPEN | {"status": "decided"}
CUT = Unreached("the connection was cut", sent=True)
DOWN = Unreached("connection refused", sent=False)


class Timer:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


class Scripted:
    """A daemon that answers from a list; the last answer stays."""

    endpoint = Endpoint("http://127.0.0.1:8470")

    def __init__(self, *answers: Reply | Unreached) -> None:
        self.answers = list(answers)
        self.bodies: list[Any] = []

    def next(self) -> Reply:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Unreached):
            raise answer
        return answer

    async def submit(self, body: Any) -> Reply:
        self.bodies.append(body)
        return self.next()

    async def wait(self, request_id: RequestId, wait_s: int) -> Reply:
        assert (request_id, wait_s) == ("ask_1:a", 60)
        return self.next()


def problem(status: int, code: str, retry_after_s: float | None = None) -> Reply:
    return Reply(status, {"code": code, "detail": "why"}, retry_after_s)


async def test_a_post_whose_answer_was_lost_is_repeated_with_the_same_request_id() -> None:
    daemon = Scripted(CUT, problem(503, "shutting_down", 5), problem(502, ""), Reply(200, OPEN))
    timer = Timer()
    assert await post(daemon, ASKED, timer) == OPEN  # type: ignore[arg-type] # a double
    assert [body["request_id"] for body in daemon.bodies] == ["ask_1:a"] * 4
    assert timer.slept == [2.0, 5, 2.0]


async def test_a_daemon_that_is_not_there_is_said_at_once() -> None:
    daemon, timer = Scripted(DOWN), Timer()
    with pytest.raises(Stopped, match=r"no daemon answers at http://127\.0\.0\.1:8470: connection refused") as stopped:
        await post(daemon, ASKED, timer)  # type: ignore[arg-type] # a double
    assert stopped.value.exit_code is ExitCode.UNREACHABLE
    assert timer.slept == []


@pytest.mark.parametrize(
    ("reply", "exit_code"),
    [
        (problem(401, "unauthorized"), ExitCode.REFUSED),
        (problem(403, "forbidden"), ExitCode.REFUSED),
        (problem(409, "request_id_reused"), ExitCode.NO_ANSWER),
        (problem(413, "too_large"), ExitCode.USAGE),
        (problem(422, "invalid"), ExitCode.USAGE),
        (problem(429, "too_many_pending", 10), ExitCode.UNREACHABLE),
        (problem(503, "no_approver", 10), ExitCode.UNREACHABLE),
        (Reply(302, {}), ExitCode.UNREACHABLE),
    ],
)
async def test_a_refused_post_ends_at_once_and_never_with_0_or_1(reply: Reply, exit_code: ExitCode) -> None:
    timer = Timer()
    with pytest.raises(Stopped) as stopped:
        await post(Scripted(reply), ASKED, timer)  # type: ignore[arg-type] # a double
    assert stopped.value.exit_code is exit_code
    assert timer.slept == []


@pytest.mark.parametrize("answer", [CUT, problem(500, "internal_error")])
async def test_a_post_is_not_repeated_for_ever(answer: Reply | Unreached) -> None:
    timer = Timer()
    with pytest.raises(Stopped) as stopped:
        await post(Scripted(answer), ASKED, timer)  # type: ignore[arg-type] # a double
    assert stopped.value.exit_code is ExitCode.UNREACHABLE
    assert timer.now >= 1_000 + UNSURE_S


async def test_the_wait_goes_on_over_a_restart_and_says_so_once() -> None:
    daemon = Scripted(
        Reply(200, OPEN),
        problem(503, "shutting_down", 5),
        DOWN,
        DOWN,
        CUT,
        problem(429, "too_many_waits"),
        Reply(200, ENDED),
    )
    said: list[str] = []
    assert await closed(daemon, ASKED, OPEN, Timer(), said.append) == ENDED  # type: ignore[arg-type] # a double
    assert len(said) == 1
    assert "trying again" in said[0]


async def test_a_daemon_that_stays_away_past_the_expiry_is_given_up() -> None:
    timer = Timer()
    with pytest.raises(Stopped) as stopped:
        await closed(Scripted(DOWN), ASKED, OPEN, timer, [].append)  # type: ignore[arg-type] # a double
    assert stopped.value.exit_code is ExitCode.UNREACHABLE
    assert 600 + GRACE_S <= timer.now - 1_000 < 600 + GRACE_S + 10


@pytest.mark.parametrize(("status", "exit_code"), [(404, ExitCode.NO_ANSWER), (401, ExitCode.REFUSED)])
async def test_a_request_that_the_daemon_no_longer_knows_is_no_answer(status: int, exit_code: ExitCode) -> None:
    with pytest.raises(Stopped) as stopped:
        await closed(Scripted(problem(status, "x")), ASKED, OPEN, Timer(), [].append)  # type: ignore[arg-type] # a double
    assert stopped.value.exit_code is exit_code


async def test_another_revision_ends_the_wait() -> None:
    """What somebody answers to the newer question is no answer to this one."""
    newer = OPEN | {"subject": {"revision": 2, "digest": "d2"}}
    assert await closed(Scripted(Reply(200, newer)), ASKED, OPEN, Timer(), [].append) == newer  # type: ignore[arg-type] # a double
