from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.proxy import door
from agentpod_bot.proxy.client import Reply, Unreached
from agentpod_bot.proxy.endpoint import Endpoint
from agentpod_bot.proxy.mcp_approve import approve, fits, request_id_of

if TYPE_CHECKING:
    from agentpod_bot.proxy.client import Daemon

CALL: dict[str, Any] = {"tool_name": "Bash", "input": {"command": "npm test"}, "tool_use_id": "toolu_01ABC"}
ALLOW: dict[str, Any] = {"behavior": "allow", "updatedInput": {"command": "npm test"}}
DENY: dict[str, Any] = {"behavior": "deny", "message": "@owner:example.org refused this in Matrix."}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


class FakeTime:
    """Fits `door.Timer`: its time passes only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeDaemon:
    """Answers each call with the next of what it was given, the last one again and again."""

    endpoint = Endpoint("http://127.0.0.1:8470")

    def __init__(self, *answers: Reply | Unreached) -> None:
        self.answers = list(answers)
        self.calls: list[tuple[str, str, Any, Any]] = []

    async def call(self, method: str, path: str, *, query: Any = None, body: Any = None, **_: Any) -> Reply:
        self.calls.append((method, path, query, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Unreached):
            raise answer
        return answer


def reply(status: int, content: object, media_type: str = "application/json") -> Reply:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return Reply(status, content if isinstance(content, dict) else {}, body=body, media_type=media_type)


async def told(*answers: Reply | Unreached, call: dict[str, Any] = CALL) -> dict[str, Any]:
    daemon = FakeDaemon(*answers)
    return await approve(cast("Daemon", daemon), call, {"route": "ops"}, FakeTime())


async def test_what_the_daemon_answers_is_what_the_tool_says() -> None:
    daemon = FakeDaemon(reply(200, ALLOW))
    assert await approve(cast("Daemon", daemon), CALL, {"route": "ops"}, FakeTime()) == ALLOW
    ((method, path, query, body),) = daemon.calls
    assert (method, path, query) == ("POST", "/v1/harness/claude-prompt", {"route": "ops"})
    assert json.loads(body) == CALL
    assert await told(reply(200, DENY)) == DENY


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Unreached("connection refused", sent=False), "connection refused"),
        (reply(401, {"code": "unauthorized", "detail": "send a token"}), "send a token"),
        (reply(422, {"code": "invalid", "detail": "input: must be an object"}), "must be an object"),
        (reply(500, b"<h1>oops</h1>", "text/html"), "HTTP 500"),
        (reply(503, {"code": "no_approver", "detail": "nobody may answer"}), "nobody may answer"),
        (reply(200, b"<h1>welcome</h1>", "text/html"), "no JSON"),
        (reply(200, b"[]"), "not agentpod-bot"),
        (reply(200, {}), "no answer to this call"),
        (reply(200, {"behavior": "allow"}), "no answer to this call"),
        (reply(200, {"decision": "approve"}), "no answer to this call"),
        (reply(200, ALLOW | {"updatedInput": {"command": "npm publish"}}), "no answer to this call"),
        (reply(200, ALLOW | {"updatedInput": {"command": "npm test", "timeout": 1}}), "no answer to this call"),
        (reply(200, ALLOW | {"surprise": 1}), "no answer to this call"),
        (reply(200, {"behavior": "deny", "message": ""}), "no answer to this call"),
        (reply(307, b"", "text/plain"), "HTTP 307"),
    ],
)
async def test_whatever_is_no_answer_of_the_daemon_denies_with_the_reason(answer: Reply | Unreached, why: str) -> None:
    said = await told(answer)
    assert said.keys() == {"behavior", "message"}
    assert said["behavior"] == "deny"
    assert why in said["message"]
    assert "refused this" not in said["message"], "nobody refused"


async def test_an_answer_given_while_the_connection_was_broken_counts() -> None:
    """The same call again joins the question that the first one asked."""
    daemon = FakeDaemon(Unreached("the connection was cut", sent=True), reply(200, ALLOW))
    assert await approve(cast("Daemon", daemon), CALL, {}, FakeTime()) == ALLOW
    first, second = daemon.calls
    assert first == second


async def test_a_daemon_that_stays_away_denies_and_nobody_says_that_nobody_was_asked() -> None:
    said = await told(Unreached("the connection was cut", sent=True))
    assert said["behavior"] == "deny"
    assert "No answer came back" in said["message"]
    assert "Nobody was asked" not in said["message"]


def test_a_call_with_a_name_has_an_id_by_which_it_can_be_cancelled() -> None:
    assert request_id_of(CALL) is not None
    assert request_id_of({name: CALL[name] for name in ("tool_name", "input")}) is None
    assert request_id_of({"tool_name": "Bash"}) is None


def test_a_chosen_answer_is_the_only_thing_that_an_allowance_adds() -> None:
    questions = {"questions": [{"question": "Which?", "options": [{"label": "A"}]}], "answers": {}}
    call = {"tool_name": "AskUserQuestion", "input": questions}
    assert fits({"behavior": "allow", "updatedInput": questions | {"answers": {"Which?": "A"}}}, call)
    assert not fits({"behavior": "allow", "updatedInput": questions | {"questions": []}}, call)
    assert not fits({"behavior": "allow", "updatedInput": {"command": "x", "answers": {}}}, CALL)


@given(answer=JSON, other=JSON)
def test_an_allowance_fits_only_the_input_that_was_asked_about(answer: object, other: object) -> None:
    given_answer = {"behavior": "allow", "updatedInput": {"command": answer}}
    call = {"tool_name": "Bash", "input": {"command": other}}
    assert fits(given_answer, call) == (json.dumps(answer, sort_keys=True) == json.dumps(other, sort_keys=True))


def test_the_door_is_patient_for_longer_than_it_pauses() -> None:
    assert door.AWAY_S > door.RETRY_S
