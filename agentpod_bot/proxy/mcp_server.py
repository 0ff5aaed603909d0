"""The MCP server of `agentpod-bot mcp`: one tool for `--permission-prompt-tool`, one to ask a person anything.

Both tools only ever hand on what a person decided. A call that is cancelled, or whose
client goes away, takes its question back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import anyio
import mcp_types as types
from mcp.server.lowlevel import Server

from agentpod_bot import __version__

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from mcp.server.context import ServerRequestContext

    from agentpod_bot.harness.adapter import Json

NAME = "agentpod"
APPROVE = "approve"
ASK = "ask"
PROGRESS_S = 10.0
"""How often a client that wants progress hears of it; the shortest usual time-out of a client is 60 seconds."""
WAITING = "Waiting for a person's answer in Matrix"
MOST_CHOICES = 19

TOOLS = (
    types.Tool(
        name=APPROVE,
        description="Asks a person in a Matrix room whether a tool may run. For --permission-prompt-tool.",
        input_schema={
            "type": "object",
            "properties": {
                "tool_name": {"type": "string", "description": "The tool that wants to run"},
                "input": {"type": "object", "description": "What it is called with"},
                "tool_use_id": {"type": "string", "description": "The id of the call"},
            },
            "required": ["tool_name", "input"],
        },
    ),
    types.Tool(
        name=ASK,
        description="Asks a person in a Matrix room a question, waits, and says what was chosen and by whom. "
        "Without options the person may approve or reject. The person can always reject, with a reason.",
        input_schema={
            "type": "object",
            "properties": {
                "title": {"type": "string", "minLength": 1, "description": "The question, in one line"},
                "details": {"type": "string", "description": "What the person must know to decide"},
                "options": {
                    "type": "array",
                    "items": {"type": "string", "minLength": 1},
                    "minItems": 1,
                    "maxItems": MOST_CHOICES,
                    "uniqueItems": True,
                    "description": "What the person may choose from",
                },
            },
            "required": ["title"],
        },
    ),
)


@dataclass(frozen=True, slots=True)
class Told:
    """What `ask` tells: a sentence, and where a person decided, the decision."""

    sentence: str
    decision: Json | None = None


class Doors(Protocol):
    """How the tools reach people. Neither call raises for what can go wrong on the way; both may be cancelled."""

    async def approve(self, arguments: Json) -> Json:
        """What the permission prompt is told: an allowance that a person gave, else a denial."""
        ...

    async def ask(self, arguments: Json) -> Told:
        """What a person decided, or why nobody did."""
        ...


async def ten_seconds() -> None:
    """The usual pause between two reports."""
    await anyio.sleep(PROGRESS_S)


def server(doors: Doors, pause: Callable[[], Awaitable[None]] = ten_seconds) -> Server[Any]:
    """An MCP server with both tools; `pause` is how long it is from one report of progress to the next."""

    async def tools(_: ServerRequestContext[Any], __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(TOOLS))

    async def call(ctx: ServerRequestContext[Any], params: types.CallToolRequestParams) -> types.CallToolResult:
        arguments = params.arguments or {}
        if params.name == APPROVE:
            answer = await reporting(ctx, doors.approve(arguments), pause)
            return types.CallToolResult(content=[text(json.dumps(answer, ensure_ascii=False))])
        if params.name == ASK:
            told = await reporting(ctx, doors.ask(arguments), pause)
            return types.CallToolResult(
                content=[text(told.sentence)], structured_content=told.decision, is_error=told.decision is None
            )
        return types.CallToolResult(content=[text("There is no such tool.")], is_error=True)

    return Server(NAME, version=__version__, on_list_tools=tools, on_call_tool=call)


async def reporting(ctx: ServerRequestContext[Any], work: Awaitable[Any], pause: Callable[[], Awaitable[None]]) -> Any:
    """Return what `work` gives; meanwhile tell a client that wants to hear it that the call still waits."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(report, ctx, pause)
        result = await work
        tasks.cancel_scope.cancel()
    return result


async def report(ctx: ServerRequestContext[Any], pause: Callable[[], Awaitable[None]]) -> None:
    """Report progress until cancelled; a client that takes none is left alone."""
    done = 0
    while True:
        await pause()
        done += 1
        try:
            await ctx.session.report_progress(float(done), message=WAITING)
        except (anyio.ClosedResourceError, anyio.BrokenResourceError):
            return


def text(content: str) -> types.TextContent:
    """A text as MCP writes it."""
    return types.TextContent(type="text", text=content)
