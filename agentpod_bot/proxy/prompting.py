"""An ACP client without an editor: prompts go to the agent, what it says comes out, people in the room answer it."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import acp
from acp import schema

from agentpod_bot import __version__
from agentpod_bot.harness.registry import ADAPTERS
from agentpod_bot.proxy.acp_talk import AcpTalk
from agentpod_bot.proxy.bridging import carry
from agentpod_bot.proxy.pipes import LONGEST_LINE, Stream
from agentpod_bot.proxy.stopped import ExitCode
from agentpod_bot.proxy.talk import message_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from acp.core import ClientSideConnection

    from agentpod_bot.proxy.bridging import Way

ENDED = "end_turn"


class Listener:
    """What the agent may call; a bridge stands before it and takes the questions, so it never decides anything."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard

    async def session_update(self, session_id: str, update: Any, **_more: Any) -> None:  # noqa: ARG002 - the SDK's names
        """Hand on the text of the agent's messages."""
        if isinstance(update, schema.AgentMessageChunk) and isinstance(update.content, schema.TextContentBlock):
            self._heard(update.content.text)

    async def request_permission(self, **_asked: Any) -> acp.RequestPermissionResponse:
        """Allow nothing."""
        return acp.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))


class Messages(Stream):
    """What the SDK hears: messages alone, for it complains at length about anything else that an agent prints."""

    async def write(self, line: bytes) -> None:
        """Hand a message on, and drop any other line."""
        if message_of(line):
            await super().write(line)


async def acp_alone(
    way: Way, words: Sequence[str], *, cwd: str, prompts: AsyncIterator[str], heard: Callable[[str], None]
) -> int:
    """Start an agent, give it the prompts one after the other; return its exit code, or 1 where a turn failed."""
    ours, theirs = socket.socketpair()
    bridge_in, bridge_out = await asyncio.open_connection(sock=ours)
    client_in, client_out = await asyncio.open_connection(sock=theirs, limit=LONGEST_LINE)
    carrying = asyncio.create_task(
        carry(ADAPTERS["acp"], AcpTalk(alone=True), way, words, (bridge_in, Messages(bridge_out)))
    )
    agent = acp.connect_to_agent(cast("acp.Client", Listener(heard)), client_out, client_in)
    talking = asyncio.create_task(_talk(agent, cwd, prompts, way.say, heard))
    try:
        either: set[asyncio.Future[Any]] = {carrying, talking}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        client_out.close()  # the agent's client is gone, and so is the agent soon
        code = await carrying
        talking.cancel()
        await asyncio.wait({talking})
    finally:
        for writer in (client_out, bridge_out):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
    if talking.cancelled():
        return code
    return code if talking.result() else ExitCode.NO


async def _talk(
    agent: ClientSideConnection,
    cwd: str,
    prompts: AsyncIterator[str],
    say: Callable[[str], None],
    heard: Callable[[str], None],
) -> bool:
    """Whether every turn came to its own end."""
    capabilities = schema.ClientCapabilities(
        elicitation=schema.ElicitationCapabilities(form=schema.ElicitationFormCapabilities())
    )
    try:
        await agent.initialize(
            acp.PROTOCOL_VERSION, capabilities, schema.Implementation(name="agentpod-bot", version=__version__)
        )
        session = await agent.new_session(cwd, mcp_servers=[])
        good = True
        async for prompt in prompts:
            turn = await agent.prompt(session.session_id, [acp.text_block(prompt)])
            heard("\n")
            if turn.stop_reason != ENDED:
                say(f"the agent stopped: {turn.stop_reason}")
                good = False
    except acp.RequestError as fault:
        say(f"the agent refuses: {fault}")
        return False
    except ConnectionError:
        return False
    else:
        return good
    finally:
        await agent.close()
