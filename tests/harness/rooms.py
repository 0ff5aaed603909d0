"""The person in the room, and how our own commands reach the daemon that asks there."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.integration import said
from tests.integration.daemons import ran

if TYPE_CHECKING:
    from agentpod_bot.demo.person import Person
    from tests.integration.daemons import Daemon, Event

PATIENCE_S = 60.0
"""How long a program may take until it asks."""
FENCED = re.compile(r"^(?P<where>[^\n]*):\n\n```(?P<language>\w+)\n(?P<text>.*?)\n```$", re.DOTALL | re.MULTILINE)


@dataclass(slots=True)
class Room:
    """One room, its daemon, and the only approver."""

    daemon: Daemon
    owner: Person
    room_id: str
    _seen: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        """Where the daemon listens, or will."""
        return f"http://127.0.0.1:{self.daemon.port}"

    @property
    def token_file(self) -> str:
        """The file with the client's token."""
        path: str = self.daemon.config["clients"]["laptop"]["token_file"]
        return path

    def command(self, *words: str) -> list[str]:
        """One of our commands that call the daemon."""
        program = Path(sys.executable).with_name("agentpod-bot")
        return [str(program), *words, "--url", self.url, "--token-file", self.token_file]

    async def question(self, *, within_s: float = PATIENCE_S) -> Event:
        """The next question that nobody was given yet."""
        event = await self.owner.until(self.room_id, self._is_new, within_s=within_s)
        self._seen.add(event["event_id"])
        return event

    async def answer(self, question: Event, text: str) -> None:
        """Answer a question as a person does."""
        await self.owner.reply(self.room_id, question["event_id"], text)

    async def outcome(self, question: Event) -> Event:
        """The edit that closes a question."""
        return await said.outcome(self.owner, self.room_id, question["event_id"])

    async def closed(self, question: Event) -> str:
        """What the room shows instead of a question once it is closed."""
        body: str = (await self.outcome(question))["content"]["m.new_content"]["body"]
        return body

    async def asked(self) -> int:
        """How many questions stand in the room."""
        return len(said.questions(await self.owner.history(self.room_id)))

    def _is_new(self, event: Event) -> bool:
        return bool(said.questions([event])) and event["event_id"] not in self._seen


async def connected(room: Room, harness: str, *options: str) -> list[tuple[str, str, str]]:
    """What `agentpod-bot connect` prints to write where: where it goes, its language, and the text."""
    printed = await ran(room.command("connect", harness, *options))
    assert printed.code == 0, printed
    return pieces(printed.out)


def pieces(printed: str) -> list[tuple[str, str, str]]:
    """The texts in what `connect` printed."""
    return [(found["where"], found["language"], found["text"]) for found in FENCED.finditer(printed)]
