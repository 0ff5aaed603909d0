"""The bridges for harnesses that speak over standard input and output: an ACP agent, and Codex."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentpod_bot.harness.registry import ADAPTERS
from agentpod_bot.proxy.acp_talk import AcpTalk
from agentpod_bot.proxy.bridge import Agent, Bridge
from agentpod_bot.proxy.client import connected
from agentpod_bot.proxy.codex_talk import CodexTalk
from agentpod_bot.proxy.pipes import Sink, Source
from agentpod_bot.proxy.questions import Questions
from agentpod_bot.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentpod_bot.harness.adapter import Harness
    from agentpod_bot.proxy.door import Timer
    from agentpod_bot.proxy.endpoint import Endpoint
    from agentpod_bot.proxy.pipes import Readable, Writable
    from agentpod_bot.proxy.talk import Talk

STDIN, STDOUT = 0, 1


@dataclass(frozen=True, slots=True)
class Way:
    """How a bridge asks: where the daemon is, which of its routes, and where to complain."""

    endpoint: Endpoint
    say: Callable[[str], None]
    route: str | None = None
    timer: Timer = field(default_factory=SystemClock)

    @property
    def query(self) -> dict[str, str]:
        """What each call says beside its body."""
        return {} if self.route is None else {"route": self.route}


async def acp(way: Way, words: Sequence[str]) -> int:
    """Stand between an editor on standard input and output and an ACP agent; return the agent's exit code."""
    return await carry(ADAPTERS["acp"], AcpTalk(), way, words, (Source(STDIN), Sink(STDOUT)))


async def codex(way: Way, words: Sequence[str]) -> int:
    """Stand between a client on standard input and output and `codex app-server` or `codex mcp-server`."""
    from agentpod_bot.harness.codex import is_human  # noqa: PLC0415 - large, and only this bridge needs it

    return await carry(ADAPTERS["codex"], CodexTalk(is_human), way, words, (Source(STDIN), Sink(STDOUT)))


async def carry(harness: Harness, talk: Talk, way: Way, words: Sequence[str], client: tuple[Readable, Writable]) -> int:
    """Run a program and carry its lines; return its exit code. Raises `Stopped` where it cannot be started.

    `client` is what the client says, and what it hears.
    """
    async with connected(way.endpoint) as daemon:
        agent = await Agent.start(words)
        questions = Questions(daemon, harness, way.query, answer=agent.input.write, say=way.say, timer=way.timer)
        return await Bridge(talk, agent, client, questions, way.say).run()
