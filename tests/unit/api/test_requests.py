from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from agentpod_bot import errors
from agentpod_bot.core.model import Claim, Closing, Outcome, Progress
from tests.unit.api.bench import ASKED, HOOKS_TOKEN, OTHER_TOKEN, TOKEN

if TYPE_CHECKING:
    from tests.unit.api.bench import Bench

ID = "/v1/requests/acps_3f0c%3A12"


async def test_a_request_is_created_and_shown_open(daemon: Bench) -> None:
    reply = await daemon.client.ask()
    assert reply.status == 201
    assert reply.json == {
        "request_id": "acps_3f0c:12",
        "session_id": "acps_3f0c",
        "request_seq": 12,
        "status": "pending",
        "route": "ops",
        "room_id": "!room",
        "event_id": "$question1",
        "code": "K7",
        "created_at": "2026-11-07T10:00:00.000Z",
        "expires_at": "2026-11-07T10:30:00.000Z",
        "delivered_at": None,
        "subject": {
            "id": "acps_3f0c:12",
            "revision": 1,
            "digest": daemon.broker.questions[next(iter(daemon.broker.questions))].asked.digest,
            "salt": "00" * 16,
        },
        "decision": None,
    }


async def test_a_repeat_is_the_same_request(daemon: Bench) -> None:
    await daemon.client.ask()
    again = await daemon.client.ask()
    assert (again.status, again.json["request_id"]) == (200, "acps_3f0c:12")
    assert len(daemon.broker.questions) == 1


async def test_a_decision_says_who_answered_what_and_how(daemon: Bench) -> None:
    await daemon.client.ask()
    await daemon.broker.decide(1, position=2, comment="use staging")
    view = (await daemon.client.get(ID)).json
    assert view["status"] == "decided"
    assert view["decision"] == {
        "outcome": "selected",
        "option_id": "reject_once",
        "label": "Reject",
        "meaning": "reject",
        "scope": "once",
        "answered_by": "@owner:example.org",
        "answered_at": "2026-11-07T10:00:02.000Z",
        "via": "number",
        "comment": "use staging",
        "event_id": "$answer",
        "voters": None,
    }


async def test_other_content_under_an_id_is_a_conflict_that_shows_what_is_there(daemon: Bench) -> None:
    await daemon.client.ask()
    reused = await daemon.client.ask(title="Something else")
    assert (reused.status, reused.code) == (409, "request_id_reused")
    assert reused.json["request"]["status"] == "pending"
    assert reused.json["request"]["decision"] is None
    await daemon.broker.decide(1)
    closed = await daemon.client.ask(title="Something else")
    assert (closed.status, closed.code) == (409, "request_closed")
    assert closed.json["request"]["decision"]["option_id"] == "allow_once"


async def test_every_field_at_fault_is_named_and_nothing_is_asked(daemon: Bench) -> None:
    reply = await daemon.client.ask(title=" ", expires_at="soon")
    assert (reply.status, reply.code) == (422, "invalid")
    assert [fault["loc"] for fault in reply.json["errors"]] == [["expires_at"]]
    reply = await daemon.client.ask(title=" ", expires_at="2026-02-30T10:30:00Z")
    assert [fault["loc"] for fault in reply.json["errors"]] == [["title"], ["expires_at"]]
    assert all(fault["msg"] for fault in reply.json["errors"])
    assert daemon.broker.asked == []


@pytest.mark.parametrize("sent", [b"{", b'{"a": NaN}', b'{"title": "a", "title": "b"}', b"\xff", b"[" * 200_000])
async def test_a_body_that_is_no_json_is_400(daemon: Bench, sent: bytes) -> None:
    reply = await daemon.client.call("POST", "/v1/requests", data=sent, headers={"Content-Type": "application/json"})
    assert (reply.status, reply.code) == (400, "malformed_json")
    assert "errors" not in reply.json


async def test_a_request_without_a_body_is_400(daemon: Bench) -> None:
    assert (await daemon.client.post("/v1/requests")).code == "malformed_json"


async def test_a_token_for_another_harness_may_not_ask_in_the_native_form(daemon: Bench) -> None:
    reply = await daemon.client.ask(token=HOOKS_TOKEN)
    assert (reply.status, reply.code) == (403, "forbidden")
    assert daemon.broker.asked == []


@pytest.mark.parametrize("method_and_path", [("GET", ""), ("POST", "/cancel"), ("POST", "/answered-elsewhere")])
async def test_another_clients_request_does_not_exist(daemon: Bench, method_and_path: tuple[str, str]) -> None:
    await daemon.client.ask()
    method, path = method_and_path
    reply = await daemon.client.call(method, ID + path, token=OTHER_TOKEN)
    assert (reply.status, reply.code) == (404, "not_found")
    unknown = await daemon.client.call(method, "/v1/requests/unknown" + path, token=OTHER_TOKEN)
    assert unknown.json | {"correlation_id": ""} == reply.json | {"correlation_id": ""}
    assert daemon.broker.questions[next(iter(daemon.broker.questions))].is_open


async def test_a_problem_never_shows_another_clients_request(daemon: Bench) -> None:
    """Whatever row a broker's error names by mistake."""
    await daemon.client.ask()
    daemon.broker.failure = errors.RequestClosed(1, "closed")
    reply = await daemon.client.post(f"{ID}/cancel", token=OTHER_TOKEN)
    assert reply.code == "request_closed"
    assert "request" not in reply.json


async def test_a_cancelled_request_is_shown_and_cannot_be_cancelled_again(daemon: Bench) -> None:
    await daemon.client.ask()
    reply = await daemon.client.post(f"{ID}/cancel")
    assert (reply.status, reply.json["status"]) == (200, "cancelled")
    assert reply.json["decision"] == {"outcome": "cancelled", "answered_at": "2026-11-07T10:00:00.001Z", "reason": None}
    again = await daemon.client.post(f"{ID}/cancel", {"ignored": True})
    assert (again.status, again.code, again.json["request"]["status"]) == (409, "request_closed", "cancelled")


async def test_answered_elsewhere_is_shown_as_a_claim_and_never_as_a_decision(daemon: Bench) -> None:
    await daemon.client.ask()
    claim = {"option_id": "allow_once", "by": "@owner:example.org", "meaning": "approve"}
    reply = await daemon.client.post(f"{ID}/answered-elsewhere", claim)
    assert (reply.status, reply.json["status"]) == (200, "answered_elsewhere")
    assert reply.json["decision"] == {
        "outcome": "answered_elsewhere",
        "claimed": {"option_id": "allow_once", "by": "@owner:example.org"},
        "answered_at": "2026-11-07T10:00:00.001Z",
    }
    again = await daemon.client.post(f"{ID}/answered-elsewhere", claim)
    assert (again.status, again.json["request"]["status"]) == (409, "answered_elsewhere")


async def test_answered_elsewhere_needs_no_body_and_refuses_a_wrong_one(daemon: Bench) -> None:
    await daemon.client.ask()
    for wrong in ({"option_id": 1}, {"option_id": "a\u202eb"}, {"by": ""}, {"by": ["x"]}, {"by": "x" * 256}):
        reply = await daemon.client.post(f"{ID}/answered-elsewhere", wrong)
        assert (reply.status, reply.json["errors"][0]["loc"]) == (422, [next(iter(wrong))])
    await daemon.client.post(f"{ID}/answered-elsewhere")
    question = daemon.broker.questions[next(iter(daemon.broker.questions))]
    assert question.closing is not None
    assert question.closing.claim == Claim(None, None)


async def test_progress_is_kept_for_a_decided_request_only(daemon: Bench) -> None:
    await daemon.client.ask()
    steps = {"next_index": 2, "completed": [0, 1], "failed_index": None, "failure_reason": "none", "status": "running"}
    early = await daemon.client.post(f"{ID}/progress", steps)
    assert (early.status, early.code, early.json["request"]["status"]) == (409, "conflict", "pending")
    await daemon.broker.decide(1)
    reply = await daemon.client.post(f"{ID}/progress", steps)
    assert (reply.status, reply.json["status"]) == (200, "decided")
    question = daemon.broker.questions[next(iter(daemon.broker.questions))]
    assert question.progress == Progress(2, (0, 1), None, "none", "running")


@pytest.mark.parametrize(
    ("sent", "loc"),
    [
        ({"next_index": -1}, ["next_index"]),
        ({"next_index": True}, ["next_index"]),
        ({"completed": [0, 1.0]}, ["completed", 1]),
        ({"completed": 1}, ["completed"]),
        ({"failed_index": 1_000}, ["failed_index"]),
        ({"failure_reason": "x" * 2_001}, ["failure_reason"]),
        ({"status": ""}, ["status"]),
        ([], []),
    ],
)
async def test_progress_that_makes_no_sense_is_refused(daemon: Bench, sent: Any, loc: list[object]) -> None:
    reply = await daemon.client.post(f"{ID}/progress", sent)
    assert (reply.status, reply.json["errors"][0]["loc"]) == (422, loc)


async def test_cancelling_a_session_leaves_every_other_alone(daemon: Bench) -> None:
    for session_id, seq in (("one", 1), ("one", 2), ("two", 1)):
        await daemon.client.ask(session_id=session_id, request_seq=seq)
    await daemon.client.ask(session_id="one", request_seq=1, token=OTHER_TOKEN)
    reply = await daemon.client.post("/v1/sessions/one/cancel")
    assert (reply.status, reply.json) == (200, {"cancelled": ["one:1", "one:2"]})
    assert (await daemon.client.post("/v1/sessions/one/cancel")).json == {"cancelled": []}
    assert (await daemon.client.post("/v1/cancel-all")).json == {"cancelled": ["two:1"]}
    assert (await daemon.client.get("/v1/requests/one%3A1", token=OTHER_TOKEN)).json["status"] == "pending"
    assert (await daemon.client.post("/v1/sessions/a%E2%80%AEb/cancel")).status == 422


@pytest.mark.parametrize(
    "opaque", ["a/b", "a%2Fb", "..", "a?b#c", "{x}", "ü 🙂", "100%", "a+b", "cancel", "a;b=c", "//"]
)
async def test_an_id_may_hold_any_character_of_a_url_where_it_is_escaped(daemon: Bench, opaque: str) -> None:
    await daemon.client.ask(request_id=opaque, session_id=opaque)
    path = quote(opaque, safe="").replace(".", "%2E")
    assert (await daemon.client.get(f"/v1/requests/{path}")).json["request_id"] == opaque
    assert (await daemon.client.post(f"/v1/sessions/{path}/cancel")).json == {"cancelled": [opaque]}
    assert (await daemon.client.post(f"/v1/requests/{path}/cancel")).code == "request_closed"


async def test_an_id_that_nothing_can_have_is_not_found(daemon: Bench) -> None:
    for path in ("%00", "a%E2%80%AEb", "%FF", "%ED%A0%80"):
        assert (await daemon.client.get(f"/v1/requests/{path}")).status == 404


async def test_pages_are_newest_first_and_followed_by_their_cursor(daemon: Bench) -> None:
    for seq in range(5):
        await daemon.client.ask(request_seq=seq)
    await daemon.client.ask(token=OTHER_TOKEN)
    first = (await daemon.client.get("/v1/requests?limit=3")).json
    assert [view["request_seq"] for view in first["requests"]] == [4, 3, 2]
    rest = (await daemon.client.get(f"/v1/requests?limit=3&cursor={first['next_cursor']}")).json
    assert [view["request_seq"] for view in rest["requests"]] == [1, 0]
    assert rest["next_cursor"] is None


async def test_a_list_can_be_narrowed(daemon: Bench) -> None:
    await daemon.client.ask()
    await daemon.client.ask(session_id="two/&", request_seq=1)
    await daemon.broker.decide(1)
    decided = (await daemon.client.get("/v1/requests?status=decided&unknown=1")).json["requests"]
    assert [view["request_id"] for view in decided] == ["acps_3f0c:12"]
    of_session = (await daemon.client.get("/v1/requests?session_id=two%2F%26")).json["requests"]
    assert [view["session_id"] for view in of_session] == ["two/&"]
    assert (await daemon.client.get("/v1/requests?status=expired")).json == {"requests": [], "next_cursor": None}


@pytest.mark.parametrize(
    "query",
    [
        "status=open",
        "status=",
        "session_id=",
        "session_id=a%0Ab",
        "limit=0",
        "limit=101",
        "limit=1.0",
        "limit=%2B1",
        "limit=99999999999999999999",
        "cursor=x",
        "cursor=-1",
        "cursor=9999999999999999999",
        "limit=1&limit=2",
    ],
)
async def test_a_query_that_means_nothing_is_refused_with_its_name(daemon: Bench, query: str) -> None:
    reply = await daemon.client.get(f"/v1/requests?{query}")
    assert (reply.status, reply.code) == (422, "invalid")
    assert reply.json["errors"][0]["loc"] == ["query", query.partition("=")[0]]


@pytest.mark.parametrize(
    ("session_id", "says"),
    [("", "must have 1 to 255 characters"), ("x" * 256, "must have 1 to 255"), ("a%0Ab", "must not hold control")],
)
async def test_a_session_that_can_be_none_is_refused_with_the_reason_that_is_true(
    daemon: Bench, session_id: str, says: str
) -> None:
    reply = await daemon.client.get(f"/v1/requests?session_id={session_id}")
    assert says in reply.json["errors"][0]["msg"]
    if session_id:
        reply = await daemon.client.post(f"/v1/sessions/{session_id}/cancel")
        assert reply.json["errors"] == [{"loc": ["path", "session_id"], "msg": reply.json["errors"][0]["msg"]}]
        assert says in reply.json["errors"][0]["msg"]


@pytest.mark.parametrize(
    ("failure", "status", "retry_after"),
    [
        (errors.TooManyPending("session", 10), 429, "10"),
        (errors.TooManyRequests(7), 429, "7"),
        (errors.Unavailable("no sync yet", retry_after_s=7), 503, "7"),
        (errors.NoApprover("nobody"), 503, "10"),
        (errors.ApproverNotInRoom("nobody there"), 503, "10"),
        (errors.NotInRoom("not there"), 503, "10"),
        (errors.RoomEncryptedWithoutCrypto("encrypted"), 503, "10"),
        (errors.RoomReplaced("replaced"), 503, "10"),
        (errors.StoreUnavailable("disk full"), 503, "10"),
        (errors.Forbidden("route not allowed"), 403, None),
        (errors.TooLarge("options", "a label is too long"), 413, None),
        (errors.Invalid(("expires_at",), "must be in the future"), 422, None),
    ],
)
async def test_a_refusal_of_the_broker_keeps_its_code(
    daemon: Bench, failure: errors.AgentpodError, status: int, retry_after: str | None
) -> None:
    daemon.broker.failure = failure
    reply = await daemon.client.ask()
    assert (reply.status, reply.code) == (status, failure.code)
    assert reply.headers.get("Retry-After") == retry_after
    assert reply.json["detail"] == str(failure)


@pytest.mark.parametrize(
    "failure", [RuntimeError("secret"), TimeoutError("secret"), errors.Refused("M_SECRET", "secret")]
)
async def test_what_nobody_expected_is_a_500_that_tells_nothing(daemon: Bench, failure: Exception) -> None:
    daemon.broker.failure = failure
    with capture_logs(processors=[merge_contextvars]) as logged:
        reply = await daemon.client.ask()
    assert (reply.status, reply.code) == (500, "internal_error")
    assert b"secret" not in reply.body.lower()
    (line,) = [line for line in logged if line["event"] == "http_request_failed"]
    assert line["correlation_id"] == reply.json["correlation_id"]
    assert line["exc_info"]
    daemon.broker.failure = None
    assert (await daemon.client.ask()).status == 201


async def test_a_row_that_contradicts_itself_is_an_error_and_never_an_answer(daemon: Bench) -> None:
    await daemon.client.ask()
    await daemon.broker.end(1, Closing(Outcome.SELECTED, 1))
    reply = await daemon.client.get(ID)
    assert (reply.status, reply.code) == (500, "internal_error")
    assert b"allow_once" not in reply.body


async def test_titles_ids_and_tokens_are_never_logged(daemon: Bench) -> None:
    with capture_logs(processors=[merge_contextvars]) as logged:
        await daemon.client.ask(title="Delete everything", session_id="private-session")
        await daemon.client.ask(title=["Delete everything"])
        await daemon.client.get("/v1/requests/private-session%3A12")
        await daemon.client.get("/v1/requests", token="wrong-token-xyz")
    assert [line["event"] for line in logged] == ["http_request_answered"] * 4
    for private in ("Delete", "private-session", TOKEN, "wrong-token"):
        assert private not in repr(logged)


def test_the_example_request_is_plain_json() -> None:
    assert json.loads(json.dumps(ASKED)) == ASKED
