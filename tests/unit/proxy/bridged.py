"""An agent that says what a test wants, and tells what it hears; and the client that hears it."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from agentpod_bot.proxy.bridging import Way, carry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.harness.adapter import Harness
    from agentpod_bot.proxy.endpoint import Endpoint
    from agentpod_bot.proxy.talk import Talk

AGENT = """
import json, sys
for line in json.loads(sys.argv[1]):
    sys.stdout.write(line + "\\n")
sys.stdout.flush()
for line in sys.stdin.buffer:
    if line == b'{"do": "die"}\\n':
        break
    if line.startswith(b'{"say": '):
        sys.stdout.write(json.loads(line)["say"] + "\\n")
        sys.stdout.flush()
        continue
    sys.stdout.write(json.dumps({"heard": line.decode()}) + "\\n")
    sys.stdout.flush()
sys.exit(int(sys.argv[2]))
"""


def agent(*says: Any, code: int = 0) -> list[str]:
    """A program that says these messages, then tells every line that it hears, and exits at the end of them."""
    return [sys.executable, "-c", AGENT, json.dumps([json.dumps(each) for each in says]), str(code)]


class Timer:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


class Bridged:
    """A running bridge, seen from its client."""

    def __init__(self, harness: Harness, talk: Talk, endpoint: Endpoint, words: Sequence[str]) -> None:
        self.says = asyncio.StreamReader()
        self.said: list[str] = []
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        way = Way(endpoint, self.said.append, "ops", Timer())
        self.running = asyncio.create_task(carry(harness, talk, way, words, (self.says, self)))

    async def write(self, line: bytes) -> None:
        self._lines.put_nowait(line)

    def say(self, message: Any) -> None:
        """Say a message to the agent."""
        self.says.feed_data(json.dumps(message).encode() + b"\n")

    def let_say(self, message: Any) -> None:
        """Have the agent say a message now."""
        self.let_say_line(json.dumps(message))

    def let_say_line(self, line: str) -> None:
        """Have the agent say a line now."""
        self.say({"say": line})

    async def line(self) -> bytes:
        """The next line that the client hears."""
        return await asyncio.wait_for(self._lines.get(), 20)

    async def heard(self) -> Any:
        """The next message that the agent heard."""
        return json.loads(json.loads(await self.line())["heard"])

    async def ended(self) -> int:
        """The bridge's exit code, after its client went away."""
        if not self.says.at_eof():
            self.says.feed_eof()
        return await asyncio.wait_for(self.running, 30)

    def rest(self) -> list[bytes]:
        """What the client heard and no test asked for."""
        left = []
        while not self._lines.empty():
            left.append(self._lines.get_nowait())
        return left
