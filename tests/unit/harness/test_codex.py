from __future__ import annotations

import json
from typing import Any

import pytest

from agentpod_bot.core.model import Hold, Outcome
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import End
from agentpod_bot.harness.codex_message import failed
from tests.unit.harness.codex_calls import (
    CALLS,
    COMMAND,
    EXEC,
    FILES,
    FORM,
    ITEM,
    MANNER,
    MCP_EXEC,
    NON_DECISIONS,
    OF_ITEMS,
    OLDER,
    PATCH,
    SECRET,
    TOOL_CALL,
    URL,
    USER_INPUT,
    allows,
    answer,
    asked,
    changed,
    ended,
    option,
    permits,
    sent,
    settled,
    took,
    undecided,
    without,
)

Json = dict[str, Any]
NOT_HUMAN = ("item/tool/call", "account/chatgptAuthTokens/refresh", "attestation/generate", "currentTime/read")
UNASKED = End(None, "Nobody was asked, and nothing was allowed: the daemon stops.")

ALL = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())


def faults(call: Json) -> list[tuple[str | int, ...]]:
    with pytest.raises(Invalid) as caught:
        codex.parse(sent(call), MANNER)
    return [caught.value.loc, *(loc for loc, _ in caught.value.more)]


@ALL
def test_every_kind_of_question_is_asked_with_its_body_its_names_and_a_call_that_waits(call: Json) -> None:
    request = asked(call)
    assert request.raw == sent(call)
    assert request.hold == Hold()
    assert request.request_id is not None
    assert request.request_id.startswith("codex:")
    assert request.session_id in {"thr_1", "67e55044-10b1-426f-9247-bb680e5fe0c8"}
    assert request.title.strip()


@ALL
@pytest.mark.parametrize("outcome", NON_DECISIONS)
def test_nothing_is_allowed_where_nobody_decided(call: Json, outcome: Outcome | None) -> None:
    told = answer(call, ended(outcome))
    assert told["id"] == call["id"]
    assert not permits(told)


@ALL
@pytest.mark.parametrize("outcome", NON_DECISIONS)
def test_of_a_command_or_files_alone_codex_gets_an_error_with_the_reason_where_nobody_decided(
    call: Json, outcome: Outcome | None
) -> None:
    for told in (answer(call, ended(outcome)), codex.refuse(sent(call), ended(outcome), MANNER)):
        if call["method"] in OF_ITEMS:
            assert told == undecided(call, "Nobody answered.")
        else:
            assert told.keys() == call.keys() & {"jsonrpc", "id"} | {"result"}


@ALL
@pytest.mark.parametrize("rpc_id", [0, -1, 2**63 - 1, -(2**63), "", "a", "0"])
def test_an_answer_has_the_id_of_the_call_that_waits_in_its_own_type(call: Json, rpc_id: int | str) -> None:
    told = codex.answer(sent(call), sent({**call, "id": rpc_id}), ended(None), MANNER)
    assert (told["id"], type(told["id"])) == (rpc_id, type(rpc_id))
    assert told.keys() == {"id", "error" if call["method"] in OF_ITEMS else "result"} | ({"jsonrpc"} & call.keys())


@ALL
@pytest.mark.parametrize("rpc_id", [{}, {"id": None}])
def test_a_call_without_an_id_gets_the_bare_result(call: Json, rpc_id: Json) -> None:
    bare = {name: value for name, value in call.items() if name != "id"} | rpc_id
    own_no = {"decision": "decline"} if call["method"] in OF_ITEMS else answer(call, ended(None))["result"]
    assert answer(bare, ended(None)) == own_no
    assert codex.refuse(sent(bare), ended(None), MANNER) == own_no


@ALL
@pytest.mark.parametrize("rpc_id", [True, 1.5, [], {}, 2**63, -(2**63) - 1])
def test_an_id_that_could_not_come_back_as_it_was_is_refused(call: Json, rpc_id: Any) -> None:
    assert faults({**call, "id": rpc_id}) == [("id",)]


def test_only_a_message_with_a_version_is_answered_with_one() -> None:
    assert answer(MCP_EXEC, ended(None))["jsonrpc"] == "2.0"
    assert "jsonrpc" not in answer(EXEC, ended(None))
    assert answer({**COMMAND, "jsonrpc": "2.0"}, ended(None)) == {"jsonrpc": "2.0"} | undecided(COMMAND)


@pytest.mark.parametrize("method", NOT_HUMAN)
def test_what_the_client_program_is_asked_no_person_is(method: str) -> None:
    assert not codex.is_human(method)
    assert faults({"id": 1, "method": method, "params": ITEM}) == [("method",)]
    assert codex.request_id_of({"id": 1, "method": method, "params": ITEM}) is None


@ALL
def test_what_a_person_is_asked_is_known_by_its_method(call: Json) -> None:
    assert codex.is_human(call["method"])


@pytest.mark.parametrize("method", ["tool/requestUserInput", "item/tool/requestUserInput", "x/tool/requestUserInput"])
def test_a_question_of_the_model_is_known_by_the_end_of_its_method(method: str) -> None:
    assert codex.is_human(method)
    assert asked({**USER_INPUT, "method": method}).options


@pytest.mark.parametrize(
    "method", ["item/commandExecution/requestapproval", "mytool/requestUserInput", "", "elicitation"]
)
def test_a_method_is_spelled_exactly(method: str) -> None:
    assert not codex.is_human(method)
    assert faults({**COMMAND, "method": method}) == [("method",)]


def test_an_elicitation_of_another_mcp_server_is_not_codexs_to_ask() -> None:
    assert faults(without(MCP_EXEC, "codex_elicitation")) == [("params", "codex_elicitation")]


@ALL
def test_the_bridge_knows_the_id_of_a_question_before_it_is_asked(call: Json) -> None:
    assert codex.request_id_of(call) == asked(call).request_id


@pytest.mark.parametrize(
    "call", [URL, changed(USER_INPUT, questions=[SECRET]), {"method": 1}, {}, {**FILES, "params": {}}]
)
def test_what_is_not_asked_has_no_id(call: Json) -> None:
    assert codex.request_id_of(call) is None


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (EXEC, ["conversationId", "callId", "approvalId"]),
        (PATCH, ["conversationId", "callId"]),
        (COMMAND, ["threadId", "turnId", "itemId", "approvalId"]),
        (FILES, ["threadId", "turnId", "itemId"]),
        (MCP_EXEC, ["threadId", "codex_event_id", "codex_mcp_tool_call_id", "codex_call_id"]),
        (FORM, ["threadId", "message"]),
    ],
)
def test_each_name_that_codex_gives_a_call_tells_it_from_another(call: Json, names: list[str]) -> None:
    ids = {asked(changed(call, **{name: "another"})).request_id for name in names}
    assert len(ids | {asked(call).request_id}) == len(names) + 1


def test_two_kinds_of_question_about_one_item_are_two_questions() -> None:
    assert asked(COMMAND).request_id != asked(changed(FILES, itemId="item_1")).request_id


@pytest.mark.parametrize("call", [EXEC, PATCH, COMMAND, FILES, USER_INPUT])
def test_a_call_that_is_sent_again_is_the_same_question_under_another_number(call: Json) -> None:
    again = asked({**call, "id": 99})
    assert again.request_id == asked(call).request_id
    assert again.supersede, "a replay may hold less than the first call, and then takes its place"


@pytest.mark.parametrize("call", [MCP_EXEC, TOOL_CALL, FORM])
def test_a_call_that_has_no_name_but_its_number_is_known_by_that(call: Json) -> None:
    assert asked({**call, "id": 99}).request_id != asked(call).request_id


def test_an_elicitation_without_a_number_joins_only_its_like() -> None:
    bare = {name: value for name, value in TOOL_CALL.items() if name != "id"}
    one, like, other = asked(bare), asked(bare), asked(changed(bare, message="Allow docs to run tool drop?"))
    assert one.request_id is None
    assert one.hold is not None
    assert one.hold.twin is not None
    assert one.hold == like.hold != other.hold
    assert not one.supersede


@ALL
def test_what_is_asked_is_read_though_members_are_there_that_nobody_knows(call: Json) -> None:
    more = {**changed(call, somethingNew={"deep": [1]}), "trace": {"id": 1}, "userAgent": 5, "codex_version": []}
    request = asked(more)
    assert [each.option_id for each in request.options] == [each.option_id for each in asked(call).options]
    assert "somethingNew" in {getattr(each, "label", None) for each in request.preview}, "but it is shown"
    assert request.agent is None


def test_the_user_agent_is_whom_the_agent_calls_itself() -> None:
    agent = "codex_cli_rs/0.171.0 (Ubuntu 24.04; x86_64)"
    assert asked({**COMMAND, "userAgent": agent}).agent == agent


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"", MalformedJson),
        (b"{", MalformedJson),
        (b'{"id": 1, "id": 2}', MalformedJson),
        (b"[]", Invalid),
        (b"{}", Invalid),
        (b'{"method": "execCommandApproval"}', Invalid),
        (b'{"method": "execCommandApproval", "params": []}', Invalid),
        (b'{"method": 1, "params": {}}', Invalid),
        (b'{"id": 1, "result": {"decision": "approved"}}', Invalid),
    ],
)
def test_what_is_no_request_is_not_asked_and_answered_with_an_error(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        codex.parse(body, MANNER)
    assert codex.refuse(body, UNASKED, MANNER)["error"] == {"code": -32_600, "message": UNASKED.reason}


REQUIRED = [
    (EXEC, ["conversationId", "callId", "command", "cwd"]),
    (PATCH, ["conversationId", "callId", "fileChanges"]),
    (MCP_EXEC, ["codex_call_id", "codex_command", "codex_cwd"]),
    (COMMAND, ["threadId", "turnId", "itemId"]),
    (FILES, ["threadId", "turnId", "itemId"]),
    (CALLS["permissions"], ["threadId", "turnId", "itemId", "cwd", "permissions"]),
    (TOOL_CALL, ["threadId", "serverName", "mode"]),
    (TOOL_CALL, ["message", "requestedSchema"]),
    (USER_INPUT, ["threadId", "turnId", "itemId", "questions"]),
]


@pytest.mark.parametrize(("call", "name"), [(call, name) for call, names in REQUIRED for name in names])
@pytest.mark.parametrize("value", [None, 5])
def test_what_a_question_must_say_is_named_where_it_is_missing(call: Json, name: str, value: Any) -> None:
    assert faults(without(call, name)) == [("params", name)]
    assert faults(changed(call, **{name: value})) == [("params", name)]


@ALL
def test_a_call_that_nobody_can_be_asked_about_gets_the_answer_of_its_own_method(call: Json) -> None:
    refused = codex.refuse(sent(call), UNASKED, MANNER)
    assert refused == answer(call, UNASKED)


@ALL
def test_a_call_that_cannot_be_read_whole_is_still_refused_in_its_own_shape(call: Json) -> None:
    broken = {**call, "params": {"codex_elicitation": "exec-approval"} if "jsonrpc" in call else {}}
    told = codex.refuse(sent(broken), UNASKED, OLDER)
    assert told["id"] == call["id"]
    assert not permits(told)
    assert told == undecided(call, UNASKED.reason) or "result" in told


@pytest.mark.parametrize("method", [*NOT_HUMAN, "elicitation/create", "session/request_permission"])
def test_a_call_that_is_not_for_people_is_refused_with_an_error_under_its_id(method: str) -> None:
    body = sent({"jsonrpc": "2.0", "id": "a", "method": method, "params": {}})
    assert codex.refuse(body, UNASKED, MANNER) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -32_600, "message": UNASKED.reason},
    }


def test_nothing_at_all_is_refused_with_an_error_without_an_id() -> None:
    assert (
        codex.refuse(None, UNASKED, MANNER)
        == failed(None, UNASKED.reason)
        == {"error": {"code": -32_600, "message": UNASKED.reason}}
    )


def test_what_was_offered_is_echoed_from_the_question_and_not_from_the_call_that_repeats_it() -> None:
    other = changed(COMMAND, proposedExecpolicyAmendment=["rm"])
    told = codex.answer(sent(COMMAND), sent(other), took(option(COMMAND, "amendment:1")), MANNER)
    assert told["result"] == {"decision": {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["npm", "test"]}}}


def test_what_cannot_be_asked_is_settled_without_allowing_anything() -> None:
    assert not allows(settled(URL)["result"])
    assert json.dumps(settled(URL))
