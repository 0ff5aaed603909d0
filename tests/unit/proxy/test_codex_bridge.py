from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import Ask, Manner
from agentpod_bot.proxy.codex_talk import FILE_CHANGE, CodexTalk
from agentpod_bot.proxy.endpoint import Endpoint
from agentpod_bot.proxy.talk import Asked, Passed
from tests.unit.proxy.bridged import Bridged, agent

if TYPE_CHECKING:
    from tests.unit.proxy.conftest import Room

PLACE = {"threadId": "thr", "turnId": "turn", "itemId": "item"}


def command(rpc_id: Any = 0, **more: Any) -> dict[str, Any]:
    params = {**PLACE, "startedAtMs": 1, "command": "npm test", "cwd": "/repo", **more}
    return {"id": rpc_id, "method": "item/commandExecution/requestApproval", "params": params}


def accepted(rpc_id: Any = 0) -> dict[str, Any]:
    return {"id": rpc_id, "result": {"decision": "accept"}}


def assert_undecided(answer: dict[str, Any]) -> str:
    """The reason in the error that says that nobody decided, and says nothing else."""
    reason = answer["error"]["message"]
    assert answer == {"id": 0, "error": {"code": -32_000, "message": reason}}
    assert isinstance(reason, str)
    return reason


def bridged(room: Room, *says: Any, code: int = 0) -> Bridged:
    return Bridged(codex, CodexTalk(codex.is_human), room.endpoint, agent(*says, code=code))


@pytest.mark.parametrize("rpc_id", [0, 7, "7"])
async def test_an_approval_is_answered_by_the_room_and_never_reaches_the_client(room: Room, rpc_id: Any) -> None:
    bridge = bridged(room, command(rpc_id), {"method": "after"})
    call = await room.next()
    assert call.request.path == "/v1/harness/codex"
    assert call.message == command(rpc_id)
    assert json.loads(await bridge.line()) == {"method": "after"}
    call.answer(accepted(rpc_id))
    assert await bridge.heard() == accepted(rpc_id)
    await bridge.ended()


@pytest.mark.parametrize(
    "method", ["item/tool/call", "account/chatgptAuthTokens/refresh", "attestation/generate", "currentTime/read"]
)
async def test_what_codex_asks_its_client_program_goes_to_the_client(room: Room, method: str) -> None:
    asked = {"id": 1, "method": method, "params": {}}
    bridge = bridged(room, asked)
    assert json.loads(await bridge.line()) == asked
    bridge.say({"id": 1, "result": {}})
    assert await bridge.heard() == {"id": 1, "result": {}}
    await bridge.ended()
    assert room.calls.empty()


async def test_an_id_of_the_client_and_the_same_of_the_server_are_two(room: Room) -> None:
    bridge = bridged(room, command(1))
    call = await room.next()
    bridge.say({"id": 1, "method": "turn/interrupt", "params": {}})
    assert await bridge.heard() == {"id": 1, "method": "turn/interrupt", "params": {}}
    call.answer(accepted(1))
    assert await bridge.heard() == accepted(1)
    await bridge.ended()
    assert bridge.rest() == []


def test_a_change_of_files_is_asked_with_its_diffs_and_the_servers_name() -> None:
    changes = [{"path": "a.txt", "kind": {"type": "update"}, "diff": "@@ -1 +1 @@\n-a\n+b\n"}]
    item = {"type": "fileChange", "id": "item", "changes": changes, "status": "inProgress"}
    asked = {"id": 2, "method": "item/fileChange/requestApproval", "params": {**PLACE, "startedAtMs": 1}}
    talk = CodexTalk(codex.is_human)
    talk.from_client(b'{"id":0,"method":"initialize","params":{}}')
    talk.from_agent(b'{"id":0,"result":{"userAgent":"codex_cli_rs/0.171.0 (Linux)"}}')
    talk.from_agent(json.dumps({"method": "item/started", "params": {**PLACE, "item": item}}).encode())
    turn = talk.from_agent(json.dumps(asked).encode())
    sent = json.loads(getattr(turn, "body", b"{}"))
    assert sent["params"] == {**PLACE, "startedAtMs": 1, "changes": changes}
    assert sent["userAgent"] == "codex_cli_rs/0.171.0 (Linux)"
    assert {"id": sent["id"], "method": sent["method"]} == {"id": 2, "method": asked["method"]}


def about_files(*changes: Any, line: bytes | None = None) -> Asked:
    """The question about an item that began with these changes."""
    talk = CodexTalk(codex.is_human)
    item = {"type": "fileChange", "id": "item", "changes": list(changes), "status": "inProgress"}
    talk.from_agent(line or json.dumps({"method": "item/started", "params": {**PLACE, "item": item}}).encode())
    asked = talk.from_agent(json.dumps({"id": 2, "method": FILE_CHANGE, "params": PLACE}).encode())
    assert isinstance(asked, Asked)
    return asked


@pytest.mark.parametrize("size", [2**19, 2**20, 17 * 2**20], ids=str)
def test_of_a_change_too_large_to_show_it_is_told_which_file_it_is_and_nothing_allows_it_for_always(size: int) -> None:
    small = {"path": "ci.sh", "kind": {"type": "update", "move_path": None}, "diff": "@@ -1 +1 @@\n-a\n+b\n"}
    large = {"path": "big.csv", "kind": {"type": "delete"}, "diff": "x" * size}
    asked = about_files(small, large)
    assert asked.fault is None
    assert len(asked.body) < 2**20
    call = codex.parse(asked.body, Manner())
    assert isinstance(call, Ask)
    assert call.request.title == "Change files: ci.sh, big.csv"
    assert call.request.preview == (
        TextPreview("Changes to ci.sh", small["diff"], "diff"),
        FieldPreview("Deleted file", "big.csv"),
        FieldPreview("Content", f"too large to show: {size} bytes"),
    )
    assert not call.request.preview_complete


def test_changes_that_fit_go_as_they_came_and_where_all_together_are_too_many_each_says_its_size() -> None:
    many = [{"path": f"{number}.txt", "kind": {"type": "add"}, "diff": "x" * 1_000} for number in range(1_000)]
    assert json.loads(about_files(*many[:400]).body)["params"]["changes"] == many[:400]
    changes = json.loads(about_files(*many, "odd").body)["params"]["changes"]
    assert changes[7] == {"path": "7.txt", "kind": {"type": "add"}, "diffBytes": 1_000}
    assert changes[1_000] is None


def test_more_changes_than_can_be_told_are_asked_nobody() -> None:
    many = [{"path": f"{number}.txt", "kind": {"type": "add"}, "diff": "x"} for number in range(20_000)]
    assert about_files(*many).fault == "it changes more files than can be shown"


def test_changes_that_could_be_read_in_two_ways_are_asked_nobody() -> None:
    item = '{"id":"item","changes":[{"path":"a","kind":"add","diff":"x","diff":"y"}]}'
    line = f'{{"method":"item/started","params":{{"threadId":"thr","turnId":"turn","item":{item}}}}}'
    assert about_files(line=line.encode()).fault == "a key stands twice in one object"


def test_changes_of_any_size_take_no_more_memory_than_they_may() -> None:
    talk = CodexTalk(codex.is_human)
    for number in range(3):
        item = {"id": str(number), "changes": [{"path": "a", "kind": "add", "diff": "x" * 2**23}]}
        talk.from_agent(json.dumps({"method": "item/started", "params": {**PLACE, "item": item}}).encode())
    for number in range(3):
        params = {**PLACE, "itemId": str(number)}
        asked = talk.from_agent(json.dumps({"id": 2, "method": FILE_CHANGE, "params": params}).encode())
        assert isinstance(asked, Asked)
        assert json.loads(asked.body)["params"]["changes"] == [{"path": "a", "kind": "add", "diffBytes": 2**23}]


@pytest.mark.parametrize(
    "method", ["item/newThing/requestApproval", "ITEM/NEWTHING/REQUESTAPPROVAL", "approveThing", "item/askPermission"]
)
async def test_an_approval_of_a_kind_that_is_not_known_is_an_error_and_never_reaches_the_client(
    room: Room, method: str
) -> None:
    bridge = bridged(room, {"id": 0, "method": method, "params": PLACE}, {"method": "after"})
    told = [json.loads(await bridge.line()) for _ in range(2)]
    assert {"method": "after"} in told
    [heard] = [json.loads(each["heard"]) for each in told if "heard" in each]
    assert heard["id"] == 0
    assert "an approval of a kind that is not known here" in heard["error"]["message"]
    assert "not known here" in bridge.said[0]
    await bridge.ended()
    assert room.calls.empty()


async def test_an_approval_in_a_batch_is_an_error_and_never_reaches_the_client(room: Room) -> None:
    bridge = bridged(room)
    bridge.let_say_line(json.dumps([command(0)]))
    assert "does not stand alone" in assert_undecided(await bridge.heard())
    await bridge.ended()
    assert bridge.rest() == []


def test_what_only_tells_of_an_approval_goes_to_the_client() -> None:
    assert CodexTalk(codex.is_human).from_agent(b'{"method":"item/autoApprovalReview/started"}') == Passed()


@pytest.mark.parametrize(
    "end",
    [
        {"method": "item/completed", "params": {"threadId": "thr", "turnId": "turn", "item": {"id": "item"}}},
        {"method": "turn/completed", "params": {"threadId": "thr", "turn": {"id": "turn", "status": "interrupted"}}},
    ],
)
def test_changes_are_forgotten_when_their_item_or_turn_is_over(end: dict[str, Any]) -> None:
    talk = CodexTalk(codex.is_human)
    item = {"id": "item", "changes": [{"path": "a"}]}
    talk.from_agent(json.dumps({"method": "item/started", "params": {**PLACE, "item": item}}).encode())
    talk.from_agent(json.dumps(end).encode())
    asked = {"id": 2, "method": "item/fileChange/requestApproval", "params": PLACE}
    assert json.loads(getattr(talk.from_agent(json.dumps(asked).encode()), "body", b"")) == asked


ENDS = [
    {"method": "serverRequest/resolved", "params": {"threadId": "thr", "requestId": 0}},
    {"method": "turn/completed", "params": {"threadId": "thr", "turn": {"id": "turn", "status": "interrupted"}}},
    {"method": "turn/completed", "params": {"threadId": "thr", "turn": {"id": "turn", "status": "completed"}}},
    {"id": 0, "error": {"code": -1, "message": "turn changed", "data": {"reason": "turnTransition"}}},
]


@pytest.mark.parametrize("end", ENDS)
async def test_what_codex_needs_no_longer_is_cancelled_and_not_answered(room: Room, end: dict[str, Any]) -> None:
    bridge = bridged(room, command(0))
    call = await room.next()
    bridge.let_say(end)
    assert json.loads(await bridge.line()) == end
    await asyncio.wait_for(call.gone.wait(), 20)
    assert await asyncio.wait_for(room.cancelled.get(), 20) == codex.request_id_of(command(0))
    assert await bridge.ended() == 0
    assert bridge.rest() == []


OTHERS = [
    {"method": "serverRequest/resolved", "params": {"threadId": "thr", "requestId": "0"}},
    {"method": "serverRequest/resolved", "params": {"threadId": "thr", "requestId": False}},
    {"method": "turn/completed", "params": {"threadId": "other", "turn": {"id": "turn", "status": "completed"}}},
    {"method": "turn/completed", "params": {"threadId": "thr", "turn": {"id": "other", "status": "completed"}}},
    {"id": 0, "error": {"code": -1, "message": "failed", "data": {"reason": "other"}}},
]


@pytest.mark.parametrize("end", OTHERS)
async def test_the_end_of_something_else_ends_no_question(room: Room, end: dict[str, Any]) -> None:
    bridge = bridged(room, command(0))
    call = await room.next()
    bridge.let_say(end)
    assert json.loads(await bridge.line()) == end
    call.answer(accepted(0))
    assert await bridge.heard() == accepted(0)
    await bridge.ended()


def test_a_failed_call_of_the_client_is_no_end_of_a_question_with_the_same_id() -> None:
    talk = CodexTalk(codex.is_human)
    talk.from_client(b'{"id":0,"method":"turn/start","params":{}}')
    assert talk.from_agent(json.dumps(ENDS[-1]).encode()) == Passed()


@pytest.mark.parametrize("status", [401, 429, 500, 503])
async def test_a_daemon_that_refuses_is_codexs_own_no(room: Room, status: int) -> None:
    bridge = bridged(room, command(0))
    (await room.next()).answer({"code": "some_code", "detail": "it is so"}, status)
    reason = assert_undecided(await bridge.heard())
    assert "it is so" in reason
    assert "it is so" in bridge.said[0]
    await bridge.ended()


async def test_a_daemon_that_is_not_there_is_codexs_own_no(unused_tcp_port: int) -> None:
    endpoint = Endpoint(f"http://127.0.0.1:{unused_tcp_port}", None, "x")
    bridge = Bridged(codex, CodexTalk(codex.is_human), endpoint, agent(command(0)))
    assert "could not be reached" in assert_undecided(await bridge.heard())
    await bridge.ended()


async def test_that_nobody_decided_reaches_codex_as_the_daemon_said_it(room: Room) -> None:
    undecided = {"id": 0, "error": {"code": -32_000, "message": "Nobody answered in time."}}
    bridge = bridged(room, command(0))
    (await room.next()).answer(undecided)
    assert await bridge.heard() == undecided
    await bridge.ended()
    assert bridge.said == []


MCP = {
    "message": "Allow?",
    "requestedSchema": {"type": "object", "properties": {}},
    "threadId": "thr",
    "codex_elicitation": "exec-approval",
    "codex_mcp_tool_call_id": "1",
    "codex_event_id": "e",
    "codex_call_id": "call",
    "codex_command": ["ls"],
    "codex_cwd": "/repo",
    "codex_parsed_cmd": [],
}


async def test_the_mcp_server_of_codex_is_answered_with_a_decision(room: Room) -> None:
    asked = {"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params": MCP}
    bridge = bridged(room, asked)
    call = await room.next()
    assert call.message == asked
    call.answer({"jsonrpc": "2.0", "id": 3, "result": {"decision": "approved"}})
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 3, "result": {"decision": "approved"}}
    await bridge.ended()


async def test_what_another_mcp_server_elicits_goes_to_the_client(room: Room) -> None:
    params = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {}}}
    asked = {"jsonrpc": "2.0", "id": 3, "method": "elicitation/create", "params": params}
    bridge = bridged(room, asked)
    assert json.loads(await bridge.line()) == asked
    await bridge.ended()
    assert room.calls.empty()


async def test_a_question_that_no_room_can_take_is_answered_at_once_and_said(room: Room) -> None:
    params = {**PLACE, "isBlocking": True, "questions": [{"id": "q", "question": "Token?", "isSecret": True}]}
    bridge = bridged(room, {"id": 6, "method": "item/tool/requestUserInput", "params": params})
    assert await bridge.heard() == {"id": 6, "result": {"answers": {}}}
    assert "not asked in the room" in bridge.said[0]
    await bridge.ended()
    assert room.calls.empty()
