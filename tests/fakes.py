"""A clock and randomness that a test controls, and a meter that remembers."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from tests.examples import START

if TYPE_CHECKING:
    from agentpod_bot.core.ids import ClientName
    from agentpod_bot.core.model import Question


class FakeClock:
    """Stands still until it is told; who sleeps wakes as it passes."""

    def __init__(self, now_ms: int = START) -> None:
        self._now_ms = now_ms
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic(self) -> float:
        return self._now_ms / 1000

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now_ms + int(seconds * 1000), future))
        await future

    def advance(self, ms: int) -> None:
        self._now_ms += ms
        for at_ms, future in tuple(self._sleepers):
            if at_ms <= self._now_ms:
                self._sleepers.remove((at_ms, future))
                if not future.done():
                    future.set_result(None)


class FakeChance:
    """Repeatable randomness."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def hex(self, bits: int) -> str:
        return f"{self._random.getrandbits(bits):0{bits // 4}x}"

    def choose(self, candidates: str) -> str:
        return self._random.choice(candidates)


class FakeMeter:
    """Fits `ports.Meter`."""

    def __init__(self) -> None:
        self.asked_questions: list[Question] = []
        self.unasked: list[tuple[ClientName, str]] = []
        self.closed_questions: list[Question] = []
        self.refusals: list[str] = []
        self.unread_events = 0
        self.sent_kinds: list[str] = []
        self.failures: list[tuple[str, str]] = []

    def asked(self, question: Question) -> None:
        self.asked_questions.append(question)

    def not_asked(self, client: ClientName, why: str) -> None:
        self.unasked.append((client, why))

    def closed(self, question: Question) -> None:
        self.closed_questions.append(question)

    def answer_refused(self, why: str) -> None:
        self.refusals.append(why)

    def unread(self, count: int) -> None:
        self.unread_events += count

    def sent(self, kind: str) -> None:
        self.sent_kinds.append(kind)

    def send_failed(self, kind: str, why: str) -> None:
        self.failures.append((kind, why))
