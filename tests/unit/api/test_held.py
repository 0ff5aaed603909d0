"""Calls in a harness's own shape: held, answered in kind, and told no in kind whatever fails."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot import errors
from agentpod_bot.api.connection import Limits
from agentpod_bot.core.ids import SessionId
from agentpod_bot.core.lifecycle import Cancelled
from agentpod_bot.core.model import Closing, Hold, Outcome, PermissionRequest
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import strict_json
from agentpod_bot.harness.adapter import Ask, Call, Close, End, Manner, Settled, WhenUnanswered
from agentpod_bot.harness.options import allow_once, reject_once
from tests.unit.api.bench import HOOKS_TOKEN, TOKEN, Bench, Reply, bench
from tests.unit.api.fake_broker import CREATED_MS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ASK = {"say": "ask"}


class Toy:
    """A harness that says everything it hears back."""

    PATIENCE_S: int | None = 30

    def __init__(self, name: str, *, hook: bool) -> None:
        self.NAME = name
        self.HOOK = hook
        self.broken = False

    def parse(self, body: bytes, manner: Manner) -> Call:
        content = strict_json.read(body)
        match content.get("say"):
            case "ask":
                request = PermissionRequest(
                    SessionId("s1"), "Run it", (allow_once(), reject_once()), hold=Hold("toy:1"), raw=body
                )
                return Ask(request)
            case "close":
                return Close(Cancelled("gone"), SessionId("s1"), ("toy:",), every=False, answer={"closed": True})
            case "settle":
                return Settled({"settled": manner.when_unanswered}, "nothing to ask")
            case _:
                raise Invalid(("say",), "says nothing")

    def answer(self, asked: bytes, call: bytes, end: End, manner: Manner) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError
        return {
            "allowed": end.approves,
            "outcome": end.outcome,
            "reason": end.reason,
            "asked": json.loads(asked),
            "call": json.loads(call),
            "terminal": manner.when_unanswered is WhenUnanswered.TERMINAL and end.hands_back,
        }

    def refuse(self, call: bytes | None, end: End, manner: Manner) -> dict[str, Any]:
        if self.broken:
            raise RuntimeError
        terminal = manner.when_unanswered is WhenUnanswered.TERMINAL and end.hands_back
        said = None if call is None else call.decode(errors="replace")
        return {"refused": True, "reason": end.reason, "call": said, "terminal": terminal}


@pytest.fixture
def hook() -> Toy:
    return Toy("toy-hook", hook=True)


@pytest.fixture
async def daemon(hook: Toy) -> AsyncIterator[Bench]:
    async with bench(adapters={"toy": Toy("toy", hook=False), "toy-hook": hook}) as running:
        yield running


def post(
    daemon: Bench, content: Any = None, *, path: str = "/v1/harness/toy-hook", token: str | None = HOOKS_TOKEN
) -> asyncio.Task[Reply]:
    return asyncio.create_task(daemon.client.post(path, ASK if content is None else content, token=token))


@pytest.mark.parametrize("name", ["toy", "toy-hook"])
@pytest.mark.parametrize(("position", "allowed"), [(1, True), (2, False)])
async def test_a_call_is_answered_in_its_own_shape_when_a_person_has_answered(
    daemon: Bench, name: str, position: int, *, allowed: bool
) -> None:
    waiting = post(daemon, ASK | {"n": 1}, path=f"/v1/harness/{name}")
    await daemon.broker.until_waiting(1)
    await daemon.broker.decide(1, position)
    reply = await waiting
    assert (reply.status, reply.json["allowed"], reply.json["outcome"]) == (200, allowed, "selected")
    assert reply.json["asked"] == ASK | {"n": 1}
    assert "@owner:example.org" in reply.json["reason"]
    assert daemon.broker.delivered == {1}
    assert daemon.broker.held_as == name


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.SELECTED])
async def test_an_end_without_a_decision_is_told_in_the_harnesses_shape_and_allows_nothing(
    daemon: Bench, outcome: Outcome
) -> None:
    waiting = post(daemon)
    await daemon.broker.until_waiting(1)
    await daemon.broker.end(1, Closing(outcome, CREATED_MS + 1))
    reply = await waiting
    assert (reply.status, reply.json["allowed"], reply.json["terminal"]) == (200, False, False)


async def test_where_the_route_says_so_an_expiry_is_handed_back_to_the_terminal(daemon: Bench) -> None:
    daemon.broker.hands_back = True
    waiting = post(daemon)
    await daemon.broker.until_waiting(1)
    await daemon.broker.end(1, Closing(Outcome.EXPIRED, CREATED_MS + 1))
    assert (await waiting).json["terminal"] is True


@pytest.mark.parametrize(
    ("query", "patience_ms"),
    [("", 25_000), ("?timeout=600", 595_000), ("?timeout=4", 2_000), ("?route=ops&timeout=86400", 86_395_000)],
)
async def test_the_question_expires_before_the_harness_stops_waiting(
    daemon: Bench, query: str, patience_ms: int
) -> None:
    waiting = post(daemon, path=f"/v1/harness/toy-hook{query}")
    await daemon.broker.until_waiting(1)
    assert daemon.broker.patience_ms == patience_ms
    await daemon.broker.decide(1)
    await waiting


async def test_a_call_that_asks_nothing_is_answered_at_once(daemon: Bench) -> None:
    reply = await post(daemon, {"say": "settle"})
    assert reply.json == {"settled": "deny"}
    assert daemon.broker.asked == []


async def test_a_call_that_closes_names_what_it_closes(daemon: Bench) -> None:
    reply = await post(daemon, {"say": "close"})
    assert reply.json == {"closed": True}
    assert daemon.broker.closings == [("hooks", "toy-hook", "s1", ("toy:",), False, Cancelled("gone"))]


async def test_a_harness_that_heeds_statuses_gets_problem_documents(daemon: Bench) -> None:
    path = "/v1/harness/toy"
    assert (await post(daemon, {"say": "what"}, path=path)).code == "invalid"
    assert (await post(daemon, path=path, token=None)).code == "unauthorized"
    assert (await post(daemon, path=path, token=TOKEN)).code == "forbidden"
    assert (await post(daemon, path=f"{path}?route=other")).code == "forbidden"
    assert (await post(daemon, path=f"{path}?timeout=x")).code == "invalid"
    assert (await daemon.client.get(path, token=HOOKS_TOKEN)).code == "method_not_allowed"
    daemon.broker.failure = errors.NoApprover("route ops has no approver")
    reply = await post(daemon, path=path)
    assert (reply.status, reply.code) == (503, "no_approver")


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("no token", {"token": None}),
    ("an empty token", {"token": ""}),
    ("a wrong token", {"token": "wrong-token-0123456789"}),
    ("a token that may not", {"token": TOKEN}),
    ("an unknown route", {"path": "/v1/harness/toy-hook?route=other"}),
    ("a bad time-out", {"path": "/v1/harness/toy-hook?timeout=0"}),
    ("a path beyond", {"path": "/v1/harness/toy-hook/beyond"}),
    ("a body that says nothing", {"content": {"say": "?"}}),
]


@pytest.mark.parametrize(("_case", "call"), REFUSED, ids=[case for case, _ in REFUSED])
async def test_a_hook_is_told_no_with_status_200_whatever_is_wrong(
    daemon: Bench, _case: str, call: dict[str, Any]
) -> None:
    reply = await post(daemon, **call)
    assert (reply.status, reply.json["refused"], reply.json["terminal"]) == (200, True, False)
    assert reply.json["reason"].startswith("Nobody was asked, and nothing was allowed: ")
    assert json.loads(reply.json["call"]) == call.get("content", ASK)
    assert daemon.broker.asked == []


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b"{", "application/json"), (b"\xff", "application/json"), (b'{"say": "ask"}', "text/plain"), (b"", "text/plain")],
)
async def test_a_hooks_body_that_cannot_be_read_is_told_no(daemon: Bench, body: bytes, content_type: str) -> None:
    reply = await daemon.client.call(
        "POST", "/v1/harness/toy-hook", token=HOOKS_TOKEN, data=body, headers={"Content-Type": content_type}
    )
    assert (reply.status, reply.json["refused"]) == (200, True)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS"])
async def test_a_hook_that_uses_another_method_is_told_no(daemon: Bench, method: str) -> None:
    reply = await daemon.client.call(method, "/v1/harness/toy-hook", token=HOOKS_TOKEN)
    assert (reply.status, reply.json["refused"], reply.json["call"]) == (200, True, None)


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}])
async def test_a_page_in_a_browser_asks_nobody_through_a_hook(daemon: Bench, headers: dict[str, str]) -> None:
    reply = await daemon.client.post("/v1/harness/toy-hook", ASK, token=HOOKS_TOKEN, headers=headers)
    assert (reply.status, reply.json["refused"]) == (200, True)
    assert daemon.broker.asked == []


FAILURES = [
    (errors.NoApprover("nobody"), True),
    (errors.Unavailable("Matrix is away"), True),
    (errors.StoreUnavailable("the disk is full"), True),
    (errors.ShuttingDown(None), True),
    (errors.TooManyPending("session", 10), False),
    (errors.TooManyWaits("too many"), False),
    (errors.RequestIdReused(None, "reused"), False),  # type: ignore[arg-type]  # no row is looked at
    (errors.TooLarge("preview", "too large"), False),
    (errors.Forbidden("no"), False),
    (RuntimeError("a fault of ours with a /secret/path"), False),
]


@pytest.mark.parametrize(("failure", "unavailable"), FAILURES, ids=[type(each).__name__ for each, _ in FAILURES])
@pytest.mark.parametrize("hands_back", [False, True])
async def test_only_where_nobody_could_be_asked_does_the_terminal_decide(
    daemon: Bench, failure: BaseException, *, unavailable: bool, hands_back: bool
) -> None:
    daemon.broker.hands_back = hands_back
    daemon.broker.failure = failure
    reply = await post(daemon)
    assert (reply.status, reply.json["refused"]) == (200, True)
    assert reply.json["terminal"] is (unavailable and hands_back)
    assert "/secret/path" not in reply.json["reason"]


async def test_a_hook_that_waits_when_the_daemon_stops_is_told_no(daemon: Bench) -> None:
    waiting = post(daemon)
    await daemon.broker.until_waiting(1)
    await daemon.broker.release()
    reply = await waiting
    assert (reply.status, reply.json["refused"]) == (200, True)
    assert daemon.broker.delivered == set()


@pytest.mark.parametrize("path", ["/v1/harness/nobody", "/v1/harness/", "/v1/harness"])
@pytest.mark.parametrize("content", [{}, {"hook_event_name": "PreToolUse"}, {"toolName": "bash"}, [1]])
async def test_an_unknown_harness_is_told_to_stop(daemon: Bench, path: str, content: Any) -> None:
    reply = await post(daemon, content, path=path)
    assert reply.status == 200
    assert reply.json["continue"] is False
    assert "Nobody was asked" in reply.json["stopReason"]


async def test_a_fault_in_an_adapter_still_is_a_no(daemon: Bench, hook: Toy) -> None:
    hook.broken = True
    waiting = post(daemon)
    await daemon.broker.until_waiting(1)
    await daemon.broker.decide(1)
    reply = await waiting
    assert (reply.status, reply.json["continue"]) == (200, False)
    assert daemon.broker.delivered == set()


async def test_a_body_over_the_limit_is_told_no() -> None:
    toy = Toy("toy-hook", hook=True)
    async with bench(adapters={"toy-hook": toy}, limits=Limits(body_bytes=100)) as daemon:
        reply = await post(daemon, ASK | {"more": "x" * 200})
        # Its beginning may say for which event the no has to be.
        assert (reply.status, reply.json["refused"], reply.json["call"][:12]) == (200, True, '{"say": "ask')
        assert len(reply.json["call"]) <= 100


async def test_a_call_that_hangs_up_leaves_its_question_undelivered(daemon: Bench) -> None:
    waiting = post(daemon)
    await daemon.broker.until_waiting(1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await daemon.broker.until_waiting(0)
    assert daemon.broker.delivered == set()
