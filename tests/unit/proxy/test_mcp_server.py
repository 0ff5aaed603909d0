from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp import Client

from agentpod_bot.proxy.mcp_server import TOOLS, Told, server

CALL = {"tool_name": "Bash", "input": {"command": "npm test"}, "tool_use_id": "toolu_1"}
MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


class FakeDoors:
    """Fits `mcp_server.Doors`."""

    def __init__(self, said: dict[str, Any] | None = None, told: Told | None = None) -> None:
        self.said = said or {"behavior": "deny", "message": "no"}
        self.told = told or Told("Nobody decided.")
        self.asked: list[tuple[str, Any]] = []
        self.open = asyncio.Event()
        self.answered = asyncio.Event()
        self.withdrawn = asyncio.Event()
        self.answered.set()

    async def approve(self, arguments: dict[str, Any]) -> dict[str, Any]:
        await self._waited("approve", arguments)
        return self.said

    async def ask(self, arguments: dict[str, Any]) -> Told:
        await self._waited("ask", arguments)
        return self.told

    async def _waited(self, tool: str, arguments: Any) -> None:
        self.asked.append((tool, arguments))
        self.open.set()
        try:
            await self.answered.wait()
        except asyncio.CancelledError:
            self.withdrawn.set()
            raise


@MODES
async def test_both_tools_are_there_with_their_shapes(mode: str) -> None:
    async with Client(server(FakeDoors()), mode=mode) as client:
        listed = await client.list_tools()
    assert [tool.name for tool in listed.tools] == ["approve", "ask"]
    assert [tool.input_schema["required"] for tool in TOOLS] == [["tool_name", "input"], ["title"]]


@MODES
@pytest.mark.parametrize(
    "said",
    [
        {"behavior": "allow", "updatedInput": {"command": "npm test", "é": "\u202e"}},
        {"behavior": "deny", "message": "nobody answered"},
    ],
)
async def test_approve_answers_one_text_that_is_the_answers_json(mode: str, said: dict[str, Any]) -> None:
    doors = FakeDoors(said)
    async with Client(server(doors), mode=mode) as client:
        result = await client.call_tool("approve", CALL)
    (only,) = result.content
    assert only.type == "text"
    assert json.loads(only.text) == said
    assert not result.is_error
    assert doors.asked == [("approve", CALL)]


async def test_ask_says_what_was_decided_and_is_an_error_only_where_nobody_did() -> None:
    decided = Told("Rejected: Reject, by @owner:example.org: too late", {"meaning": "reject"})
    async with Client(server(FakeDoors(told=decided))) as client:
        result = await client.call_tool("ask", {"title": "Deploy?"})
    assert (result.is_error, result.structured_content) == (False, {"meaning": "reject"})
    assert result.content[0].type == "text"
    assert result.content[0].text == decided.sentence
    async with Client(server(FakeDoors(told=Told("Nobody decided.")))) as client:
        result = await client.call_tool("ask", {"title": "Deploy?"})
    assert (result.is_error, result.structured_content) == (True, None)


async def test_a_tool_that_is_not_there_decides_nothing() -> None:
    async with Client(server(FakeDoors())) as client:
        assert (await client.call_tool("allow_everything", {})).is_error


@MODES
async def test_a_client_that_wants_to_hear_it_hears_that_the_call_still_waits(mode: str) -> None:
    doors, ticks = FakeDoors(), asyncio.Semaphore(2)
    doors.answered.clear()
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:  # noqa: ARG001 - as it is called
        heard.append(progress)
        if len(heard) == 2:
            doors.answered.set()

    async def pause() -> None:
        await ticks.acquire()

    async with Client(server(doors, pause), mode=mode) as client:
        await client.call_tool("approve", CALL, progress_callback=hear)
    assert heard == [1.0, 2.0]


@MODES
async def test_a_cancelled_call_takes_its_question_back(mode: str) -> None:
    doors = FakeDoors()
    doors.answered.clear()
    async with Client(server(doors), mode=mode) as client:
        call = asyncio.create_task(client.call_tool("approve", CALL))
        await doors.open.wait()
        call.cancel()
        await doors.withdrawn.wait()


async def test_a_client_that_goes_away_takes_its_questions_back() -> None:
    doors = FakeDoors()
    doors.answered.clear()
    async with Client(server(doors), mode="legacy") as client:
        call = asyncio.create_task(client.call_tool("approve", CALL))
        await doors.open.wait()
    await doors.withdrawn.wait()
    await asyncio.wait({call})
    assert call.cancelled() or call.exception() is not None


async def test_two_calls_at_once_get_their_own_answers() -> None:
    first, second = asyncio.Event(), asyncio.Event()

    class Doors(FakeDoors):
        async def approve(self, arguments: dict[str, Any]) -> dict[str, Any]:
            await (first if arguments["tool_use_id"] == "1" else second).wait()
            return {"behavior": "deny", "message": arguments["tool_use_id"]}

    async with Client(server(Doors()), mode="legacy") as client:
        calls = [asyncio.create_task(client.call_tool("approve", {**CALL, "tool_use_id": each})) for each in "12"]
        second.set()
        later = await calls[1]
        first.set()
        earlier = await calls[0]
    texts = [each.content[0].text for each in (earlier, later) if each.content[0].type == "text"]
    assert [json.loads(text)["message"] for text in texts] == ["1", "2"]
