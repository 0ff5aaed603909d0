from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.proxy import acp_talk, pipes
from agentpod_bot.proxy.acp_talk import AcpTalk
from agentpod_bot.proxy.pipes import Sink, Source, lines
from agentpod_bot.proxy.talk import Asked, Memory, Replied, key_of, message_of, shallow


class Chunks:
    def __init__(self, chunks: list[bytes]) -> None:
        self.left = [chunk for chunk in chunks if chunk]

    async def read(self, _n: int = -1, /) -> bytes:
        return self.left.pop(0) if self.left else b""


@given(st.lists(st.binary(max_size=20) | st.sampled_from([b"\n", b"a\nb", b"\r\n"])))
def test_lines_together_are_what_came_in_and_each_but_the_last_ends_a_line(chunks: list[bytes]) -> None:
    async def read() -> list[bytes]:
        return [line async for line in lines(Chunks(chunks))]

    found = asyncio.run(read())
    assert b"".join(found) == b"".join(chunks)
    assert all(line.endswith(b"\n") and line.count(b"\n") == 1 for line in found[:-1])


async def test_a_line_is_only_held_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipes, "LONGEST_LINE", 10)
    with pytest.raises(pipes.LineTooLong):
        [line async for line in lines(Chunks([b"x" * 6, b"x" * 6]))]


async def test_file_descriptors_are_read_and_written_whole() -> None:
    reading, writing = os.pipe()
    source, sink = Source(reading), Sink(writing)
    sent = b"x" * 1_000_000
    done = asyncio.create_task(sink.write(sent))
    got = b""
    while len(got) < len(sent):
        got += await source.read()
    await done
    assert got == sent
    os.close(writing)
    assert await source.read() == b""
    os.close(reading)


async def test_nobody_reading_any_longer_is_an_error_of_the_system() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        await Sink(writing).write(b"x")
    os.close(writing)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50))))
def test_a_memory_never_holds_more_than_it_may_and_keeps_the_newest(kept: list[tuple[int, int]]) -> None:
    memory = Memory(3, 100)
    for key, size in kept:
        memory.keep(key, (key, size), size)
        assert memory.get(key) == (key, size)
        known = [memory.get(each) for each in range(6) if memory.get(each) is not None]
        assert len(known) == len(memory) <= 3
        assert sum(size for _, size in known) <= 100


@pytest.mark.parametrize("several", [[1, 1.0, True, "1", None, "null", [1]]])
def test_no_two_ids_are_one(several: list[Any]) -> None:
    assert len({key_of(each) for each in several}) == len(several)


def update(session: str, call: str, **fields: Any) -> bytes:
    inner = {"sessionUpdate": "tool_call", "toolCallId": call, **fields}
    return json.dumps({"method": "session/update", "params": {"sessionId": session, "update": inner}}).encode()


def ask(session: str, call: str) -> bytes:
    params = {"sessionId": session, "toolCall": {"toolCallId": call}, "options": []}
    return json.dumps({"id": 1, "method": "session/request_permission", "params": params}).encode()


def title(talk: AcpTalk, session: str, call: str) -> Any:
    body = getattr(talk.from_agent(ask(session, call)), "body", b"{}")
    return json.loads(body)["params"]["toolCall"].get("title")


def test_a_tool_call_is_remembered_for_its_own_session_until_its_prompt_ends() -> None:
    talk = AcpTalk()
    talk.from_client(b'{"id":9,"method":"session/prompt","params":{"sessionId":"a"}}')
    talk.from_agent(update("a", "c", title="of a"))
    talk.from_agent(update("b", "c", title="of b"))
    assert (title(talk, "a", "c"), title(talk, "b", "c")) == ("of a", "of b")
    talk.from_agent(b'{"id":8,"result":{}}')
    assert title(talk, "a", "c") == "of a"
    talk.from_agent(b'{"id":9,"result":{"stopReason":"end_turn"}}')
    assert (title(talk, "a", "c"), title(talk, "b", "c")) == (None, "of b")


def test_only_the_newest_tool_calls_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acp_talk, "MOST_CALLS", 2)
    talk = AcpTalk()
    for call in "abc":
        talk.from_agent(update("s", call, title=call))
    assert [title(talk, "s", call) for call in "abc"] == [None, "b", "c"]


def test_a_question_of_which_nothing_more_is_known_goes_byte_for_byte() -> None:
    line = b' { "id":1.50, "method":"session/request_permission","params":{"sessionId":"s"} }\r\n'
    assert getattr(AcpTalk().from_agent(line), "body", None) == line.strip()


def test_the_tool_call_of_version_two_is_completed_too() -> None:
    talk = AcpTalk()
    talk.from_agent(update("s", "c", rawInput={"command": "ls"}))
    subject = {"type": "tool_call", "toolCall": {"toolCallId": "c", "title": "mine"}}
    message = {"id": 1, "method": "session/request_permission", "params": {"sessionId": "s", "subject": subject}}
    sent = json.loads(getattr(talk.from_agent(json.dumps(message).encode()), "body", b"{}"))
    assert sent["params"]["subject"]["toolCall"] == {
        "toolCallId": "c",
        "title": "mine",
        "rawInput": {"command": "ls"},
    }


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
METHODS = st.sampled_from(
    ["session/request_permission", "session/update", "session/prompt", "session/cancel", "$/cancel_request", "x"]
)


@given(st.fixed_dictionaries({"method": METHODS | JSON}, optional={"id": JSON, "params": JSON}) | JSON)
def test_no_message_of_any_shape_stops_a_bridge(message: Any) -> None:
    line = json.dumps(message).encode() + b"\n"
    talk = AcpTalk()
    talk.from_client(line)
    talk.from_agent(line)
    talk.from_agent(update("s", "c"))
    talk.from_agent(line)


QUESTION = '{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"s","x":%s}}'
DEPTHS = (64, 300, 940, 960, 970, 975, 980, 985, 990, 1_000, 5_000, 100_000)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")], ids=["lists", "objects"])
def test_a_question_goes_to_the_room_however_deep_it_is_nested(depth: int, brackets: tuple[str, str]) -> None:
    opening, closing = brackets
    line = (QUESTION % (opening * depth + "1" + closing * depth)).encode()
    asked = AcpTalk().from_agent(line)
    assert isinstance(asked, Asked)
    assert (asked.key, asked.session) == ("5", "s")


@pytest.mark.parametrize(
    "odd", [b'"\xff"', b'"\xed\xa0\x80"', b"1" * 10_000, b'"\\ud800"', b"NaN", b'{"a":1,"a":2}'], ids=len
)
def test_a_question_that_could_be_read_in_two_ways_does_not_reach_the_client(odd: bytes) -> None:
    asked = AcpTalk().from_agent(QUESTION.encode().replace(b"%s", odd))
    assert isinstance(asked, Asked)
    assert asked.fault


@pytest.mark.parametrize("odd", ['{"command":"rm","command":"ls"}', "[" * 2_000 + "]" * 2_000], ids=len)
def test_a_question_about_a_tool_call_that_could_be_read_in_two_ways_is_asked_nobody(odd: str) -> None:
    talk = AcpTalk()
    talk.from_agent(update("s", "c", title="Run", rawInput="?").replace(b'"?"', odd.encode()))
    talk.from_agent(update("s", "c", title="List"))
    asked = talk.from_agent(ask("s", "c"))
    assert isinstance(asked, Asked)
    assert asked.fault
    other = talk.from_agent(ask("s", "other"))
    assert isinstance(other, Asked)
    assert other.fault is None


@pytest.mark.parametrize("rpc_id", ["5", "5.0", "5e0", "0.5e1"])
def test_a_reply_of_the_client_is_known_as_one_however_it_writes_the_id(rpc_id: str) -> None:
    deep = "[" * 5_000 + "]" * 5_000
    for line in (f'{{"id":{rpc_id},"result":{{}}}}', f'{{"id":{rpc_id},"result":{deep}}}'):
        assert AcpTalk().from_client(line.encode()) == Replied("5")
        assert AcpTalk().from_client(line.encode().replace(b"result", b"\xff")) == Replied("5")


@given(JSON)
def test_what_is_not_deep_is_read_unchanged(value: Any) -> None:
    text = json.dumps({"a": value})
    assert shallow(text) == text
    assert message_of(text.encode()) == {"a": value}


def test_of_what_is_deep_the_rest_is_read_unchanged() -> None:
    deep = "[" * 2_000 + '"]}"' + "]" * 2_000
    found = message_of(f'{{"a":"[{{\\"","b":{deep},"c":{{"d":{deep}}},"e":5}}'.encode())
    assert (found["a"], found["c"].keys(), found["e"]) == ('[{"', {"d"}, 5)
