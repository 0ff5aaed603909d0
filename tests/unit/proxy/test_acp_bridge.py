from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.harness import acp
from agentpod_bot.harness.adapter import Ask, Manner
from agentpod_bot.proxy import pipes, questions
from agentpod_bot.proxy.acp_talk import AcpTalk
from agentpod_bot.proxy.bridging import Way, carry
from agentpod_bot.proxy.endpoint import Endpoint
from agentpod_bot.proxy.stopped import ExitCode, Stopped
from tests.unit.proxy.bridged import Bridged, agent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.proxy.conftest import Call, Room

OPTIONS = [
    {"optionId": "yes", "name": "Allow once", "kind": "allow_once"},
    {"optionId": "no", "name": "Reject", "kind": "reject_once"},
]
CANCELLED = {"outcome": {"outcome": "cancelled"}}


def question(rpc_id: Any = 5, session: str = "s1", call: str = "c1", **more: Any) -> dict[str, Any]:
    params = {"sessionId": session, "toolCall": {"toolCallId": call, **more}, "options": OPTIONS}
    return {"jsonrpc": "2.0", "id": rpc_id, "method": "session/request_permission", "params": params}


def selected(rpc_id: Any = 5, option: str = "yes") -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": rpc_id, "result": {"outcome": {"outcome": "selected", "optionId": option}}}


def bridged(room: Room, *says: Any, code: int = 0) -> Bridged:
    return Bridged(acp, AcpTalk(), room.endpoint, agent(*says, code=code))


async def test_a_question_is_answered_by_the_room_and_never_reaches_the_client(room: Room) -> None:
    bridge = bridged(room, question(), {"jsonrpc": "2.0", "method": "after"})
    call = await room.next()
    assert call.request.path == "/v1/harness/acp"
    assert dict(call.request.query) == {"route": "ops"}
    assert call.request.headers["Authorization"] == "Bearer made-up"
    assert call.message == question()
    assert json.loads(await bridge.line()) == {"jsonrpc": "2.0", "method": "after"}
    call.answer(selected())
    assert await bridge.heard() == selected()
    assert await bridge.ended() == 0
    assert bridge.rest() == []
    assert bridge.said == []


@pytest.mark.parametrize("rpc_id", [0, -1, 2**53 + 1, "5", ""])
async def test_an_id_keeps_its_type(room: Room, rpc_id: Any) -> None:
    bridge = bridged(room, question(rpc_id))
    (await room.next()).answer(selected(rpc_id))
    heard = await bridge.heard()
    assert heard["id"] == rpc_id
    assert type(heard["id"]) is type(rpc_id)
    await bridge.ended()


async def test_what_was_said_before_about_a_tool_call_goes_with_its_question(room: Room) -> None:
    def update(what: str, **fields: Any) -> dict[str, Any]:
        inner = {"sessionUpdate": what, "toolCallId": "c1", **fields}
        return {"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s1", "update": inner}}

    bridge = bridged(
        room,
        update("tool_call", title="Run", kind="execute", rawInput={"command": "ls"}),
        update("tool_call_update", title="Run ls", rawInput=None),
        question(kind="other", title=None),
    )
    call = await room.next()
    assert call.message["params"]["toolCall"] == {
        "toolCallId": "c1",
        "title": "Run ls",
        "kind": "other",
        "rawInput": {"command": "ls"},
    }
    assert call.message["params"]["options"] == OPTIONS
    call.answer(selected())
    assert [json.loads(await bridge.line())["method"] for _ in range(2)] == ["session/update"] * 2
    await bridge.ended()


async def test_two_questions_are_answered_in_any_order(room: Room) -> None:
    bridge = bridged(room, question(1, call="a"), question(2, call="b"))
    calls = [await room.next(), await room.next()]
    first, second = sorted(calls, key=lambda call: int(call.message["id"]))
    second.answer(selected(2, "no"))
    assert await bridge.heard() == selected(2, "no")
    first.answer(selected(1))
    assert await bridge.heard() == selected(1)
    await bridge.ended()


def html(call: Call) -> None:
    call.answer_raw(b"<html>it is broken</html>", "text/html", 500)


def problem(status: int, code: str) -> Callable[[Call], None]:
    return lambda call: call.answer({"code": code, "detail": "why it is so"}, status)


@pytest.mark.parametrize(
    "answer",
    [
        problem(401, "unauthorized"),
        problem(403, "forbidden"),
        problem(503, "no_approver"),
        problem(409, "request_closed"),
        html,
        lambda call: call.answer_raw(json.dumps(selected()).encode(), "text/plain"),
        lambda call: call.answer_raw(b"[]", "application/json"),
        lambda call: call.answer_raw(b'{"jsonrpc":"2.0","id":5,"id":5,"result":{}}', "application/json"),
        lambda call: call.answer(selected(6)),
        lambda call: call.answer(selected("5")),
        lambda call: call.answer(selected(5.0)),
        lambda call: call.answer({"result": selected()["result"]}),
        lambda call: call.answer({"jsonrpc": "2.0", "id": 5}),
        lambda call: call.answer({"jsonrpc": "2.0", "id": 5, "method": "x", "result": {}}),
        lambda call: call.answer(selected(), 201),
        lambda call: call.answer(selected(), 302),
    ],
)
async def test_anything_but_an_answer_to_this_call_is_a_cancellation_and_stderr_says_why(
    room: Room, answer: Callable[[Call], None]
) -> None:
    bridge = bridged(room, question())
    answer(await room.next())
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}
    assert len(bridge.said) == 1
    assert "nothing was allowed" in bridge.said[0]
    assert "reject" not in bridge.said[0]
    await bridge.ended()


async def test_a_daemon_that_is_not_there_is_a_cancellation(unused_tcp_port: int) -> None:
    bridge = Bridged(acp, AcpTalk(), Endpoint(f"http://127.0.0.1:{unused_tcp_port}", None, "x"), agent(question()))
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}
    assert "could not be reached" in bridge.said[0]
    await bridge.ended()


async def test_a_call_that_is_cut_is_made_again_and_its_answer_is_not_lost(room: Room) -> None:
    bridge = bridged(room, question())
    (await room.next()).cut()
    problem(503, "shutting_down")(await room.next())
    again = await room.next()
    assert again.message == question()
    again.answer(selected())
    assert await bridge.heard() == selected()
    await bridge.ended()


async def test_a_cancelled_turn_cancels_the_questions_of_its_session_alone(room: Room) -> None:
    bridge = bridged(room, question(1), question(2, session="s2"))
    calls = {call.message["id"]: call for call in [await room.next(), await room.next()]}
    cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}}
    bridge.say(cancel)
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 1, "result": CANCELLED}
    assert await bridge.heard() == cancel
    await asyncio.wait_for(calls[1].gone.wait(), 20)
    request = acp.parse(calls[1].body, Manner())
    assert isinstance(request, Ask)
    assert await asyncio.wait_for(room.cancelled.get(), 20) == request.request.request_id
    calls[2].answer(selected(2))
    assert await bridge.heard() == selected(2)
    await bridge.ended()


async def test_a_prompt_that_its_client_takes_back_cancels_the_questions_of_its_session(room: Room) -> None:
    bridge = bridged(room)
    prompt = {"jsonrpc": "2.0", "id": 9, "method": "session/prompt", "params": {"sessionId": "s1", "prompt": []}}
    talk = AcpTalk()
    talk.from_client(json.dumps(prompt).encode())
    over = talk.from_client(b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":9}}')
    assert getattr(over, "session", None) == "s1"
    await bridge.ended()


async def test_a_question_that_the_agent_takes_back_is_cancelled(room: Room) -> None:
    take_back = {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 5}}
    bridge = bridged(room, question(), take_back)
    assert json.loads(await bridge.line()) == take_back
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}
    await bridge.ended()


async def test_an_answer_and_a_cancellation_at_the_same_moment_are_one_answer(room: Room) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    call.answer(selected())
    bridge.say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s1"}})
    await bridge.ended()
    lines = [json.loads(json.loads(line)["heard"]) for line in bridge.rest()]
    answers = [line for line in lines if line.get("id") == 5]
    assert len(answers) == 1
    assert answers[0] in (selected(), {"jsonrpc": "2.0", "id": 5, "result": CANCELLED})


async def test_the_client_cannot_answer_in_the_place_of_the_room(room: Room) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    bridge.say(selected())
    bridge.say({"jsonrpc": "2.0", "id": 6, "result": {}})
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 6, "result": {}}
    call.answer(selected(5, "no"))
    assert await bridge.heard() == selected(5, "no")
    await bridge.ended()


@pytest.mark.parametrize("rpc_id", ["5.0", "5e0"])
async def test_a_reply_of_the_client_does_not_pass_by_writing_the_id_in_another_way(room: Room, rpc_id: str) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    deep = "[" * 3_000 + "]" * 3_000
    result = json.dumps(selected()["result"])
    for more in ('""', deep):
        line = f'{{"jsonrpc":"2.0","id":{rpc_id},"result":{result},"more":{more}}}\n'
        bridge.says.feed_data(line.encode())
        bridge.says.feed_data(line.replace("more", "m\ud800").encode("utf-8", "surrogatepass"))
    bridge.say({"jsonrpc": "2.0", "id": 6, "result": {}})
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 6, "result": {}}
    call.answer(selected(5, "no"))
    assert await bridge.heard() == selected(5, "no")
    await bridge.ended()


REPLY = json.dumps(selected())


@pytest.mark.parametrize(
    "line",
    [
        f"[{REPLY}]",
        f" [ {REPLY} , {REPLY}]\r",
        f'{{"method":"x"}}\r{REPLY}',
        f'{{"method":"x"}}{REPLY}',
        f"no JSON\r{REPLY}\r",
        f'{{"a":1,\r{REPLY}\r"b":2}}',
        f"{REPLY}]",
        REPLY.replace("}", ",}"),
        "[" * 5_000 + REPLY + "]" * 5_000,
    ],
)
async def test_the_client_cannot_answer_on_a_line_that_is_not_one_message(room: Room, line: str) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    bridge.says.feed_data(line.encode() + b"\n")
    bridge.say({"jsonrpc": "2.0", "id": 6, "result": {}})
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 6, "result": {}}
    assert bridge.said == ["a line of the client was dropped: it is not one message, and a question is open"]
    call.answer(selected(5, "no"))
    assert await bridge.heard() == selected(5, "no")
    bridge.says.feed_data(line.encode() + b"\n")
    assert json.loads(await bridge.line())["heard"] == f"{line}\n"
    await bridge.ended()


async def test_a_message_of_the_client_passes_while_a_question_is_open_however_it_is_spaced(room: Room) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    for line in (' {"method": "x\u2028"}\t\r\n', "\r\n", '{"a": "\\r"}\n'):
        bridge.says.feed_data(line.encode())
        assert json.loads(await bridge.line())["heard"] == line
    assert bridge.said == []
    call.answer(selected())
    await bridge.heard()
    await bridge.ended()


TOLD = {"jsonrpc": "2.0", "method": "session/update", "params": {"x": 1}}


def batch(*messages: Any) -> str:
    return json.dumps(messages)


def in_lines(*messages: Any) -> str:
    return "\r".join(json.dumps(message) for message in messages)


def run_on(*messages: Any) -> str:
    return "".join(json.dumps(message) for message in messages)


@pytest.mark.parametrize("together", [batch, in_lines, run_on])
async def test_questions_that_do_not_stand_alone_are_each_refused_and_the_rest_goes_to_the_client(
    room: Room, together: Callable[..., str]
) -> None:
    bridge = bridged(room)
    bridge.let_say_line(together(question(1), TOLD, question(2)))
    heard = [json.loads(await bridge.line()) for _ in range(3)]
    assert TOLD in heard
    answers = [json.loads(each["heard"]) for each in heard if "heard" in each]
    assert answers == [{"jsonrpc": "2.0", "id": rpc_id, "result": CANCELLED} for rpc_id in (1, 2)]
    assert len(bridge.said) == 2
    assert all("it does not stand alone on its line" in said for said in bridge.said)
    await bridge.ended()
    assert bridge.rest() == []
    assert room.calls.empty()


@pytest.mark.parametrize("together", [batch, in_lines, run_on])
async def test_messages_together_that_ask_nothing_pass_byte_for_byte(room: Room, together: Callable[..., str]) -> None:
    bridge = bridged(room)
    line = together(TOLD, {"id": 1, "result": {}})
    bridge.let_say_line(line)
    assert await bridge.line() == f"{line}\n".encode()
    await bridge.ended()
    assert bridge.said == []


async def test_a_question_in_a_batch_of_any_depth_does_not_reach_the_client(room: Room) -> None:
    bridge = bridged(room)
    bridge.let_say_line(f'[{json.dumps(question())},{{"x":{"[" * 5_000}{"]" * 5_000}}}]')
    heard = [json.loads(await bridge.line()) for _ in range(2)]
    assert [json.loads(each["heard"]) for each in heard if "heard" in each] == [
        {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}
    ]
    await bridge.ended()


async def test_what_is_cancelled_in_a_batch_is_over(room: Room) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    bridge.let_say_line(batch({"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 5}}))
    await asyncio.wait_for(call.gone.wait(), 20)
    await bridge.ended()


async def test_two_calls_under_one_id_are_never_allowed(room: Room) -> None:
    bridge = bridged(room, question(call="harmless"), question(call="harmful"))
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}
    await bridge.ended()
    assert "same id" in bridge.said[0]


async def test_the_same_call_twice_is_one_question(room: Room) -> None:
    bridge = bridged(room, question(), question(), {"method": "after"})
    call = await room.next()
    assert json.loads(await bridge.line()) == {"method": "after"}
    call.answer(selected())
    assert await bridge.heard() == selected()
    await bridge.ended()
    assert room.calls.empty()


async def test_more_questions_than_anyone_can_answer_are_refused(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "MOST_OPEN", 1)
    bridge = bridged(room, question(1), question(2))
    await room.next()
    assert await bridge.heard() == {"jsonrpc": "2.0", "id": 2, "result": CANCELLED}
    await bridge.ended()


@pytest.mark.parametrize("line", [b'{"id":5,"id":5,"method":"session/request_permission","params":{}}'])
async def test_a_question_that_two_readers_would_read_differently_is_asked_nobody(room: Room, line: bytes) -> None:
    words = [sys.executable, "-c", f"import sys; print({line.decode()!r}, flush=True); print(sys.stdin.readline())"]
    bridge = Bridged(acp, AcpTalk(), room.endpoint, words)
    assert json.loads(await bridge.line())["id"] == 5
    assert "could not be read" in bridge.said[0]
    await bridge.ended()


@pytest.mark.parametrize("depth", [300, 1_000, 3_000])
async def test_a_question_that_is_nested_too_deeply_is_a_no_and_does_not_reach_the_client(
    room: Room, depth: int
) -> None:
    program = """
import sys
deep = "[" * int(sys.argv[1]) + "]" * int(sys.argv[1])
call = '{"toolCallId":"c","title":"Look","rawInput":{"x":%s}}' % deep
print('{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":%s,'
      '"options":[{"optionId":"ok","name":"Allow","kind":"allow_once"}]}}' % call, flush=True)
print(sys.stdin.readline())
"""
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", program, str(depth)])
    assert json.loads(await bridge.line()) == {"jsonrpc": "2.0", "id": 5, "result": CANCELLED}
    assert "nested too deeply" in bridge.said[0]
    await bridge.ended()
    assert room.calls.empty()


def elicitation(schema: dict[str, Any]) -> dict[str, Any]:
    params = {"sessionId": "s1", "mode": "form", "message": "How?", "requestedSchema": schema}
    return {"jsonrpc": "2.0", "id": 7, "method": "elicitation/create", "params": params}


async def test_an_elicitation_with_one_choice_is_asked_in_the_room(room: Room) -> None:
    asked = elicitation(
        {"type": "object", "properties": {"way": {"type": "string", "enum": ["slow", "fast"]}}, "required": ["way"]}
    )
    bridge = bridged(room, asked)
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"action": "accept", "content": {"way": "slow"}}}
    (await room.next()).answer(answer)
    assert await bridge.heard() == answer
    await bridge.ended()


async def test_an_elicitation_that_no_room_can_take_goes_to_the_client(room: Room) -> None:
    asked = elicitation({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}})
    bridge = bridged(room, asked)
    assert json.loads(await bridge.line()) == asked
    answer = {"jsonrpc": "2.0", "id": 7, "result": {"action": "accept", "content": {"a": "x", "b": "y"}}}
    bridge.say(answer)
    assert await bridge.heard() == answer
    await bridge.ended()
    assert room.calls.empty()


ECHO = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\n\n",
        b"no JSON at all\r\n",
        b"\x00\xff\xfe\n",
        b'{ "id" : 1 , "method":"x" }\n',
        b'{"a":1e400,"b":NaN}\n',
        b'[{"id":5}]\n',
        b"[" * 100_000 + b"\n",
        b'"' + b"x" * 3_000_000 + b'"\n',
        b"no newline at the end",
        '{"method":"ä\u2028"}\n'.encode(),
    ],
)
async def test_everything_else_passes_byte_for_byte_both_ways(room: Room, said: bytes) -> None:
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", ECHO])
    bridge.says.feed_data(said)
    assert await bridge.ended() == 0
    assert b"".join(bridge.rest()) == said


async def test_a_line_that_is_too_long_to_be_read_ends_the_bridge(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "LONGEST_LINE", 1_000)
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", "print('x' * 100_000); input()"])
    with pytest.raises(Stopped, match="longer than") as stopped:
        await bridge.ended()
    assert stopped.value.exit_code is ExitCode.NO_ANSWER


async def test_an_agent_that_dies_takes_its_question_with_it_and_its_code_is_ours(room: Room) -> None:
    bridge = bridged(room, question(), code=7)
    call = await room.next()
    bridge.say({"do": "die"})
    assert await asyncio.wait_for(bridge.running, 20) == 7
    await asyncio.wait_for(call.gone.wait(), 20)
    assert not room.cancelled.empty()


async def test_a_client_that_goes_away_cancels_and_ends_the_agent(room: Room) -> None:
    bridge = bridged(room, question())
    call = await room.next()
    assert await bridge.ended() == 0
    await asyncio.wait_for(call.gone.wait(), 20)
    assert not room.cancelled.empty()
    assert [json.loads(json.loads(line)["heard"])["result"] for line in bridge.rest()] == [CANCELLED]


LAST_WISH = """
import json, sys
sys.stdin.read()
print(sys.argv[1], flush=True)
"""


async def test_a_question_after_the_client_went_away_is_asked_nobody(room: Room) -> None:
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", LAST_WISH, json.dumps(question())])
    assert await bridge.ended() == 0
    assert room.calls.empty()
    assert bridge.rest() == []


FAMILY = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
sys.stdin.read()
"""


def is_running(process_id: int) -> bool:
    """Whether a process is there and not only waits to be forgotten."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


async def test_whatever_the_agent_started_dies_with_the_bridge(room: Room) -> None:
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", FAMILY])
    child = int(await bridge.line())
    assert await bridge.ended() == 0
    while is_running(child):
        await asyncio.sleep(0.01)


STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), sys.exit(3)))
print("up", flush=True)
signal.pause()
"""


async def test_a_signal_is_handed_on_and_the_agents_code_is_ours(room: Room) -> None:
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", STUBBORN])
    assert await bridge.line() == b"up\n"
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(bridge.running, 20) == 3
    assert bridge.rest() == [b"told\n"]


async def test_an_agent_that_cannot_be_started_is_said(room: Room) -> None:
    bridge = Bridged(acp, AcpTalk(), room.endpoint, ["/no/such/agent"])
    with pytest.raises(Stopped, match="cannot start /no/such/agent"):
        await bridge.ended()


DEAF = """
import json, sys, time
for number in range(2000):
    print(json.dumps({"method": "noise", "params": "x" * 1000}), flush=True)
print(json.dumps({"method": "done"}), flush=True)
sys.stdin.read()
"""


async def test_an_agent_that_does_not_read_can_still_speak(room: Room) -> None:
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", DEAF])
    for _ in range(500):
        bridge.say({"method": "noise", "params": "x" * 1000})
    lines = [await bridge.line() for _ in range(2001)]
    assert json.loads(lines[-1]) == {"method": "done"}
    assert await bridge.ended() == 0


class Slow:
    """A client that reads nothing until it is told to."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.lines: list[bytes] = []

    async def write(self, line: bytes) -> None:
        await self.reads.wait()
        self.lines.append(line)


LOUD = """
import json, sys, threading
print(sys.argv[1], flush=True)
def speak():
    for number in range(500):
        print(json.dumps({"method": "noise", "params": "x" * 1000}), flush=True)
speaking = threading.Thread(target=speak)
speaking.start()
heard = json.loads(sys.stdin.readline())
open(sys.argv[2], "w").write(heard["result"]["outcome"]["optionId"])
speaking.join()
sys.exit(4)
"""


async def test_a_client_that_does_not_read_keeps_no_answer_from_the_agent(room: Room, tmp_path: Path) -> None:
    client, says = Slow(), asyncio.StreamReader()
    words = [sys.executable, "-c", LOUD, json.dumps(question()), str(tmp_path / "heard")]
    way = Way(room.endpoint, lambda _: None)
    running = asyncio.create_task(carry(acp, AcpTalk(), way, words, (says, client)))
    (await room.next()).answer(selected())
    while not (tmp_path / "heard").exists():
        await asyncio.sleep(0.01)
    assert client.lines == []
    client.reads.set()
    assert await asyncio.wait_for(running, 30) == 4
    assert len(client.lines) == 500


DEAF_TO_SIGNALS = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    signal.pause()
"""


async def test_an_agent_that_will_not_end_is_killed(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentpod_bot.proxy.bridge.GRACE_S", 0.05)
    bridge = Bridged(acp, AcpTalk(), room.endpoint, [sys.executable, "-c", DEAF_TO_SIGNALS])
    assert await bridge.line() == b"up\n"
    assert await bridge.ended() == 128 + signal.SIGKILL


async def test_a_client_that_reads_no_more_ends_the_agent_and_cancels(room: Room) -> None:
    class Gone:
        async def write(self, _line: bytes) -> None:
            raise BrokenPipeError

    says = asyncio.StreamReader()
    way = Way(room.endpoint, lambda _: None)
    words = agent(question(), {"method": "noise"})
    assert await asyncio.wait_for(carry(acp, AcpTalk(), way, words, (says, Gone())), 30) == 0
    assert room.calls.empty() or (await room.next()).body


class Broken:
    """An adapter with a bug in it."""

    NAME = "acp"
    HOOK = False
    PATIENCE_S: int | None = None
    parse = staticmethod(acp.parse)
    answer = staticmethod(acp.answer)

    def refuse(self, *_: object) -> Any:
        raise RuntimeError("a bug")


async def test_a_bug_where_the_no_is_made_is_an_error_in_answer_to_the_call(room: Room) -> None:
    bridge = Bridged(Broken(), AcpTalk(), room.endpoint, agent(question()))
    problem(503, "no_approver")(await room.next())
    answer = await bridge.heard()
    assert answer["id"] == 5
    assert "result" not in answer
    assert answer["error"]["code"] == -32603
    await bridge.ended()
