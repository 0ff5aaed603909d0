"""Models that live on loopback and do as they are told: they make a real program ask for permission.

A stand-in has a list of tool calls. Each answer of it is the next one of which the
conversation holds no result yet, and after the last one a closing word.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

Json = dict[str, Any]

DONE = "That is all."
MOST_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants to do."""

    tool: str
    arguments: Json


class StandIn(ABC):
    """One model at `url` inside `async with`."""

    PATH: str

    def __init__(self, calls: Sequence[ToolCall] = ()) -> None:
        self.calls = list(calls)
        self.url = ""
        self.results: list[str] = []
        """What the model was told about each of its calls, in their order, as text."""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Self:
        """Listen on a free port."""
        app = web.Application(client_max_size=MOST_BYTES)
        app.router.add_post(self.PATH, self._answer)
        app.router.add_route("*", "/{rest:.*}", _anything)
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Listen no more."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        call = None
        if self._has_tools(asked):  # a program also lets the model name a session, and so on
            results = self._results_in(asked)
            if len(results) >= len(self.results):
                self.results = results
            call = self.calls[len(results)] if len(results) < len(self.calls) else None
        if not asked.get("stream"):
            return web.json_response(self._at_once(asked, call))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # a program whose turn was cancelled hears no more
            await response.prepare(request)
            for event in self._streamed(asked, call):
                await response.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
            await response.write_eof()
        return response

    @abstractmethod
    def _has_tools(self, asked: Json) -> bool:
        """Whether the model may call the tools that it is to call."""

    @abstractmethod
    def _results_in(self, asked: Json) -> list[str]:
        """The results of tool calls in a request, oldest first."""

    @abstractmethod
    def _at_once(self, asked: Json, call: ToolCall | None) -> Json:
        """The answer in one piece."""

    @abstractmethod
    def _streamed(self, asked: Json, call: ToolCall | None) -> list[Json]:
        """The answer as events."""


class Anthropic(StandIn):
    """The Messages API."""

    PATH = "/v1/messages"

    def _has_tools(self, asked: Json) -> bool:
        names = {tool.get("name") for tool in asked.get("tools") or []}
        return all(call.tool in names for call in self.calls) and bool(names)

    def _results_in(self, asked: Json) -> list[str]:
        contents = [message["content"] for message in asked["messages"] if isinstance(message["content"], list)]
        blocks = [block for content in contents for block in content]
        return [text_of(block.get("content")) for block in blocks if block.get("type") == "tool_result"]

    def _block(self, asked: Json, call: ToolCall | None) -> Json:
        if call is None:
            return {"type": "text", "text": DONE}
        number = len(self._results_in(asked))
        return {"type": "tool_use", "id": f"toolu_standin{number:04}", "name": call.tool, "input": call.arguments}

    def _message(self, asked: Json, content: list[Json], stop: str | None) -> Json:
        return {
            "id": "msg_standin",
            "type": "message",
            "role": "assistant",
            "model": asked.get("model"),
            "content": content,
            "stop_reason": stop,
            "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }

    def _at_once(self, asked: Json, call: ToolCall | None) -> Json:
        return self._message(asked, [self._block(asked, call)], "end_turn" if call is None else "tool_use")

    def _streamed(self, asked: Json, call: ToolCall | None) -> list[Json]:
        block = self._block(asked, call)
        if call is None:
            empty, delta = block | {"text": ""}, {"type": "text_delta", "text": DONE}
        else:
            empty = block | {"input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments)}
        stop = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
        return [
            {"type": "message_start", "message": self._message(asked, [], None)},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 1}},
            {"type": "message_stop"},
        ]


class OpenAIResponses(StandIn):
    """The Responses API."""

    PATH = "/v1/responses"

    def _has_tools(self, asked: Json) -> bool:
        return any(tool.get("name") == "exec_command" for tool in asked.get("tools") or [])

    def _results_in(self, asked: Json) -> list[str]:
        items = asked["input"] if isinstance(asked["input"], list) else []
        return [text_of(item.get("output")) for item in items if item.get("type") == "function_call_output"]

    def _item(self, asked: Json, call: ToolCall | None) -> Json:
        if call is None:
            text = {"type": "output_text", "text": DONE, "annotations": []}
            return {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [text]}
        number = len(self._results_in(asked))
        return {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": f"call_standin{number:04}",
            "name": call.tool,
            "arguments": json.dumps(call.arguments),
            "status": "completed",
        }

    def _at_once(self, asked: Json, call: ToolCall | None) -> Json:
        return self._response([self._item(asked, call)], "completed")

    def _streamed(self, asked: Json, call: ToolCall | None) -> list[Json]:
        item = self._item(asked, call)
        return [
            {"type": "response.created", "response": self._response([], "in_progress")},
            {"type": "response.output_item.added", "output_index": 0, "item": item},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": self._response([item], "completed")},
        ]

    def _response(self, output: list[Json], status: str) -> Json:
        usage = {
            "input_tokens": 1,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 2,
        }
        return {"id": "resp_1", "object": "response", "status": status, "output": output, "usage": usage}


def text_of(content: Any) -> str:
    """A result's content as text, whatever it is made of."""
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


async def _anything(_request: web.Request) -> web.Response:
    """What else a program asks of its model's server; nothing of it matters here."""
    return web.json_response({"input_tokens": 1, "data": [], "models": []})
