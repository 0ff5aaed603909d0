from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import MAX_OPTIONS, Withhold, offer
from agentpod_bot.core.lifecycle import Cancelled
from agentpod_bot.core.model import FieldPreview, Hold, Meaning, Outcome, Scope
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import acp, naming
from agentpod_bot.harness.adapter import Ask, Close, End, Settled
from agentpod_bot.harness.opaque import fault_of_id
from agentpod_bot.harness.reasons import unasked
from tests.unit.harness.acp_samples import (
    BOTS_NO,
    CAPTURES,
    DENY,
    MANNERS,
    SCHEMAS,
    UNDECIDED,
    Golden,
    answered,
    asked,
    foreign,
    goldens,
    selected,
    shown,
    validator,
)

UNHURRIED = settings(deadline=None)
CANCELLED = {"outcome": {"outcome": "cancelled"}}
ONCE = {"optionId": "allow-once", "name": "Allow once", "kind": "allow_once"}
ALWAYS = {"optionId": "allow-always", "name": "Always allow", "kind": "allow_always"}
REJECT = {"optionId": "reject-once", "name": "Reject", "kind": "reject_once"}
CALL = {"toolCallId": "call_001", "title": "Run the test suite", "kind": "execute", "rawInput": {"command": "bun test"}}
PARAMS: dict[str, Any] = {"sessionId": "sess_1", "toolCall": CALL, "options": [ONCE, ALWAYS, REJECT]}


def message(rpc_id: Any = 5, method: str = "session/request_permission", **changes: Any) -> bytes:
    params = PARAMS | changes if method == "session/request_permission" else changes
    return json.dumps({"jsonrpc": "2.0", "id": rpc_id, "method": method, "params": params}).encode()


def notification(method: str, **params: Any) -> Close:
    call = acp.parse(json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode(), DENY)
    assert isinstance(call, Close)
    return call


def params_alone(**changes: Any) -> bytes:
    return json.dumps(PARAMS | changes).encode()


def result(body: bytes, end: End) -> Any:
    """What the agent is told, out of its JSON-RPC frame."""
    return acp.answer(body, body, end, DENY)["result"]


def faults(body: bytes) -> list[tuple[str | int, ...]]:
    with pytest.raises(Invalid) as refused:
        acp.parse(body, DENY)
    return [refused.value.loc, *(loc for loc, _ in refused.value.more)]


@pytest.mark.parametrize("golden", goldens("acp"), ids=lambda golden: golden.name)
def test_a_known_call_is_asked_and_answered_as_its_golden_file_says(golden: Golden) -> None:
    assert shown(asked(acp, golden.body)) == golden.shown
    assert answered(acp, golden.body) == golden.answers


@pytest.mark.shared
@pytest.mark.skipif(not SCHEMAS.exists(), reason="the specification's files are not beside the project")
@pytest.mark.parametrize("golden", goldens("acp"), ids=lambda golden: golden.name)
def test_every_known_call_and_answer_fits_the_schema_of_its_version(golden: Golden) -> None:
    method = golden.call.get("method", "session/request_permission")
    if "mode" in golden.call:
        method = "elicitation/create"
    name = {"session/request_permission": "RequestPermission", "elicitation/create": "CreateElicitation"}[method]
    version = "v2-draft" if golden.name.startswith("v2") else "v1"
    validator(version, f"{name}Request").validate(golden.call.get("params", golden.call))
    for answer in golden.answers.values():
        for each in ("v1", "v2-draft"):
            validator(each, f"{name}Response").validate(answer.get("result", answer))


@pytest.mark.shared
@pytest.mark.skipif(not CAPTURES.exists(), reason="the recorded calls are not beside the project")
@pytest.mark.parametrize("name", ["acp-claude-agent-0.49.0", "acp-opencode-1.18.33"])
def test_what_real_agents_sent_is_asked_as_they_named_it(name: str) -> None:
    body = (CAPTURES / f"{name}-session-request_permission.json").read_bytes()
    sent = json.loads(body)["params"]
    request = asked(acp, body)
    assert request.title == sent["toolCall"]["title"]
    assert [option.label for option in request.options] == [option["name"] for option in sent["options"]]
    printed = [each.printed for each in offer(request.options, withhold=Withhold.NOTHING)]
    assert printed == [option["name"] for option in sent["options"]]
    for option, own in zip(request.options, sent["options"], strict=True):
        told = result(body, selected(option))
        assert told == {"outcome": {"outcome": "selected", "optionId": own["optionId"]}}
        validator("v1", "RequestPermissionResponse").validate(told)


def test_a_whole_message_is_answered_with_its_own_id_and_parameters_with_the_result_alone() -> None:
    end = selected(asked(acp, message()).options[0])
    told = {"outcome": {"outcome": "selected", "optionId": "allow-once"}}
    for rpc_id in (0, -3, 2**63 - 1, "five", ""):
        assert acp.answer(message(), message(rpc_id), end, DENY) == {"jsonrpc": "2.0", "id": rpc_id, "result": told}
    assert acp.answer(params_alone(), params_alone(), end, DENY) == told


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("end", UNDECIDED)
def test_what_nobody_decided_is_cancelled_and_never_selects(end: End, manner: Any) -> None:
    assert acp.answer(message(), message(), end, manner)["result"] == CANCELLED
    assert acp.refuse(message(), end, manner)["result"] == CANCELLED


@pytest.mark.parametrize("call", [None, b"{", b"[]", b"{}", params_alone()])
def test_a_call_that_cannot_be_read_is_refused_as_cancelled(call: bytes | None) -> None:
    assert acp.refuse(call, unasked("it could not be read"), DENY) == CANCELLED


def test_a_refused_message_keeps_its_frame_even_where_it_could_not_be_asked() -> None:
    body = b'{"jsonrpc":"2.0","id":4,"method":"session/request_permission"}'
    assert acp.refuse(body, unasked("no"), DENY) == {"jsonrpc": "2.0", "id": 4, "result": CANCELLED}
    body = b'{"jsonrpc":"2.0","id":true,"method":"elicitation/create"}'
    assert acp.refuse(body, unasked("no"), DENY) == {"jsonrpc": "2.0", "id": None, "result": {"action": "cancel"}}


def test_an_option_that_the_agent_did_not_offer_is_never_selected() -> None:
    for option in asked(acp, message()).options:
        assert result(message(), selected(foreign(option))) == CANCELLED


def test_an_id_whose_meaning_is_not_the_one_that_was_decided_is_never_selected() -> None:
    once = asked(acp, message()).options[0]
    for meaning, scope in ((Meaning.REJECT, Scope.ONCE), (Meaning.CHOOSE, None), (Meaning.APPROVE, Scope.ALWAYS)):
        assert result(message(), selected(replace(once, meaning=meaning, scope=scope))) == CANCELLED


def test_an_end_that_is_no_decision_selects_nothing_whatever_option_it_carries() -> None:
    once = asked(acp, message()).options[0]
    for end in UNDECIDED:
        assert result(message(), replace(end, option=once)) == CANCELLED


def test_two_options_of_one_kind_are_told_apart_by_their_ids() -> None:
    first, second = ALWAYS | {"optionId": "a"}, ALWAYS | {"optionId": "b"}
    body = message(options=[first, second, REJECT])
    told = [result(body, selected(option))["outcome"].get("optionId") for option in asked(acp, body).options]
    assert told == ["a", "b", "reject-once"]


@pytest.mark.parametrize("name", ["", "agentpod.reject", "a\nb", "\u202eid", "x" * 201])
def test_an_option_id_that_no_room_can_carry_comes_back_as_it_was(name: str) -> None:
    body = message(options=[ONCE | {"optionId": name}, REJECT])
    request = asked(acp, body)
    assert request.options[0].option_id == "option:0"
    assert result(body, selected(request.options[0])) == {"outcome": {"outcome": "selected", "optionId": name}}
    assert result(body, selected(BOTS_NO)) == CANCELLED


def test_the_bots_own_rejection_is_a_cancellation_with_the_persons_reason_beside_it() -> None:
    body = message(options=[ONCE])
    assert result(body, selected(BOTS_NO)) == CANCELLED
    assert result(body, selected(BOTS_NO, "too early")) == CANCELLED | {"_meta": {"dev.agentpod.comment": "too early"}}


def test_an_unknown_kind_is_a_choice_and_never_an_approval() -> None:
    body = message(options=[ONCE, {"optionId": "x", "name": "Allow once", "kind": "_allow"}, REJECT])
    choice = asked(acp, body).options[1]
    assert (choice.meaning, choice.scope) == (Meaning.CHOOSE, None)
    assert result(body, selected(choice))["outcome"]["optionId"] == "x"
    assert result(body, selected(replace(choice, meaning=Meaning.APPROVE, scope=Scope.ONCE))) == CANCELLED


@pytest.mark.parametrize("options", [[ONCE, ONCE], [ONCE | {"optionId": ""}, REJECT | {"optionId": "option:0"}]])
def test_two_options_that_come_to_one_id_are_refused(options: list[Any]) -> None:
    assert faults(message(options=options)) == [("params", "options")]


def test_a_request_without_options_is_settled_as_cancelled() -> None:
    call = acp.parse(message(options=[]), DENY)
    assert isinstance(call, Settled)
    assert call.answer == {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}


@pytest.mark.parametrize("rejecting", [0, 1, 3, 25])
def test_more_options_than_a_room_offers_lose_none_that_reject(rejecting: int) -> None:
    many = [ALWAYS | {"optionId": f"a{number}"} for number in range(30)]
    many += [REJECT | {"optionId": f"r{number}"} for number in range(rejecting)]
    request = asked(acp, message(options=many))
    offered = offer(request.options, withhold=Withhold.NOTHING)
    assert len(offered) == MAX_OPTIONS
    kept = sum(option.meaning is Meaning.REJECT for option in request.options)
    assert kept == min(rejecting, MAX_OPTIONS)
    left_out = 30 + rejecting - len(request.options)
    assert request.preview[-1] == FieldPreview("Options left out", str(left_out))
    end = selected(replace(request.options[0], option_id=OptionId("a29")))
    assert result(message(options=many), end) == CANCELLED


def test_an_option_with_a_long_name_is_shortened_and_named_whole_in_the_preview() -> None:
    name = "Always allow " + "word " * 60
    request = asked(acp, message(options=[ALWAYS | {"name": name}, REJECT]))
    assert request.options[0].label.endswith("…")
    assert request.preview[-1] == FieldPreview("Option allow-always", name)
    assert offer(request.options, withhold=Withhold.NOTHING)


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"sessionId": None}, [("params", "sessionId")]),
        ({"toolCall": None}, [("params", "toolCall", "toolCallId")]),
        ({"toolCall": {"title": "x"}}, [("params", "toolCall", "toolCallId")]),
        ({"options": None}, [("params", "options")]),
        ({"options": [{"optionId": "a", "name": "A"}]}, [("params", "options", 0)]),
        ({"options": ["allow"], "sessionId": 3}, [("params", "sessionId"), ("params", "options", 0)]),
        ({"title": "x", "subject": {"type": "command", "command": "ls"}}, [("params", "subject")]),
    ],
)
def test_what_is_required_and_missing_is_named(changes: dict[str, Any], at: list[Any]) -> None:
    assert faults(message(**changes)) == at


@pytest.mark.parametrize(
    ("body", "at"),
    [
        ({"jsonrpc": "2.0", "id": 1}, ("method",)),
        ({"jsonrpc": "2.0", "id": 1, "method": "fs/write_text_file", "params": {}}, ("method",)),
        ({"method": "session/request_permission", "params": PARAMS}, ("id",)),
        ({"method": "session/request_permission", "id": 1.5, "params": PARAMS}, ("id",)),
        ({"method": "session/request_permission", "id": True, "params": PARAMS}, ("id",)),
        ({"method": "session/request_permission", "id": 2**63, "params": PARAMS}, ("id",)),
        ({"method": "session/request_permission", "id": 1, "params": []}, ("params",)),
        ({"method": "session/cancel", "params": {}}, ("params", "sessionId")),
        ({"method": "$/cancel_request", "params": {"requestId": None}}, ("params", "requestId")),
    ],
)
def test_a_message_that_cannot_be_a_call_of_ours_is_refused_at_its_place(body: Any, at: tuple[str, ...]) -> None:
    assert faults(json.dumps(body).encode()) == [at]


def test_a_body_that_two_readers_could_read_differently_is_no_call() -> None:
    with pytest.raises(MalformedJson):
        acp.parse(b'{"sessionId":"a","sessionId":"b"}', DENY)


def test_one_message_has_one_id_and_any_other_name_in_it_another() -> None:
    other_call = CALL | {"toolCallId": "call_002"}
    bodies = [message(), message(6), message("5"), message(sessionId="sess_2"), message(toolCall=other_call)]
    ids = [asked(acp, body).request_id for body in bodies]
    assert len(set(ids)) == len(ids)
    assert ids[0] == asked(acp, message()).request_id
    assert all(each is not None and fault_of_id(each) is None for each in ids)
    assert asked(acp, message()).hold == Hold()


@pytest.mark.parametrize("body", [params_alone(), message(None)])
def test_a_call_without_a_name_is_a_twin_of_one_that_says_the_same(body: bytes) -> None:
    request = asked(acp, body)
    assert request.request_id is None
    assert request.hold is not None
    assert request.hold.twin is not None
    assert fault_of_id(request.hold.twin) is None
    assert request.hold == asked(acp, params_alone()).hold
    assert request.hold != asked(acp, params_alone(sessionId="sess_2")).hold


def test_a_cancelled_turn_closes_all_that_its_session_asks() -> None:
    close = notification("session/cancel", sessionId="sess_1")
    assert isinstance(close.event, Cancelled)
    assert (close.session_id, close.prefixes, close.every) == (naming.session_id("sess_1"), ("",), True)
    assert close.answer == {}


def test_a_cancelled_request_closes_the_question_of_that_message_alone() -> None:
    close = notification("$/cancel_request", requestId=5)
    assert isinstance(close.event, Cancelled)
    assert close.session_id is None
    own, others = asked(acp, message(5)), [asked(acp, message(rpc_id)) for rpc_id in (6, 55, "5")]
    assert str(own.request_id).startswith(close.prefixes)
    assert not any(str(other.request_id).startswith(close.prefixes) for other in others)
    assert notification("$/cancel_request", requestId=5, sessionId="sess_1").session_id == "sess_1"


def test_a_stored_body_that_this_version_cannot_read_is_answered_as_cancelled() -> None:
    end = selected(asked(acp, message()).options[0])
    for stored in (b"", b"{}", b'{"options":[1]}', b'{"method":"other","id":1}'):
        assert acp.answer(stored, message(), end, DENY)["result"] == CANCELLED


TEXT = st.text(max_size=12)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KIND = st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always", "_other"])
OPTION = st.fixed_dictionaries({"optionId": TEXT, "name": TEXT, "kind": KIND})
CONTENT = st.fixed_dictionaries(
    {"type": st.sampled_from(["content", "diff", "terminal", "new"])},
    optional={
        "content": ANYTHING,
        "path": ANYTHING,
        "newText": ANYTHING,
        "oldText": ANYTHING,
        "changes": ANYTHING,
        "patch": ANYTHING,
    },
)
TOOL_CALL = st.fixed_dictionaries(
    {"toolCallId": TEXT},
    optional={
        "title": ANYTHING,
        "kind": ANYTHING | st.sampled_from(["edit", "execute"]),
        "content": ANYTHING | st.lists(CONTENT | ANYTHING, max_size=3),
        "locations": ANYTHING,
        "rawInput": ANYTHING,
        "_meta": ANYTHING,
    },
)
OPTIONS = st.lists(OPTION, max_size=5, unique_by=lambda option: option["optionId"])
REQUIRED: dict[str, st.SearchStrategy[Any]] = {"sessionId": TEXT, "options": OPTIONS}
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "toolCall": TOOL_CALL,
    "title": ANYTHING,
    "description": ANYTHING,
    "subject": ANYTHING,
    "_meta": ANYTHING,
}
PERMISSION = st.fixed_dictionaries(REQUIRED, optional=OPTIONAL)


@given(params=PERMISSION, whole=st.booleans(), data=st.data())
@UNHURRIED
def test_whatever_was_asked_only_the_option_that_a_person_selected_goes_back(
    params: dict[str, Any], whole: bool, data: st.DataObject
) -> None:
    frame = {"jsonrpc": "2.0", "id": 1, "method": "session/request_permission", "params": params}
    body = json.dumps(frame if whole else params).encode()
    try:
        call = acp.parse(body, DENY)
    except Invalid:
        return
    if isinstance(call, Settled):
        assert not params["options"]
        return
    assert isinstance(call, Ask)
    assert call.request.title.strip()
    offered = offer(call.request.options, withhold=Withhold.NOTHING)
    option = data.draw(st.sampled_from([each.option for each in offered]))
    ends = [*UNDECIDED, *(replace(end, option=option) for end in UNDECIDED), selected(option), selected(BOTS_NO, "no")]
    kinds = {sent["optionId"]: sent["kind"] for sent in params["options"]}
    for end in ends:
        told = acp.answer(body, body, end, DENY)
        outcome = (told["result"] if whole else told)["outcome"]
        if outcome["outcome"] == "selected":
            assert end.outcome is Outcome.SELECTED
            assert kinds[outcome["optionId"]].startswith("allow") == end.approves
            assert kinds[outcome["optionId"]].startswith("reject") == end.rejects
        else:
            assert outcome == {"outcome": "cancelled"}
            assert end.outcome is not Outcome.SELECTED or end.option == BOTS_NO
