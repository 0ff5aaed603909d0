"""The questions of one bridge that people have not answered yet."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import Outcome
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness.adapter import Ask, End, Manner, Settled
from agentpod_bot.harness.reasons import unasked
from agentpod_bot.proxy.client import Unreached
from agentpod_bot.proxy.door import Unanswered, ask
from agentpod_bot.proxy.ends import unanswered
from agentpod_bot.proxy.talk import key_of, message_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from agentpod_bot.core.ids import RequestId
    from agentpod_bot.harness.adapter import Harness
    from agentpod_bot.proxy.client import Daemon
    from agentpod_bot.proxy.door import Answer, Timer
    from agentpod_bot.proxy.talk import Asked, Over

MOST_OPEN = 64
FAREWELL_S = 5.0
"""How long the end of a bridge waits for the daemon to hear that questions are needed no longer."""
ANSWER_S = 1.0
"""How long an agent that is about to end may take to read that its question was cancelled."""
INTERNAL_ERROR = -32603
"""JSON-RPC's code."""


@dataclass(slots=True)
class _Open:
    """One question; `settled` as soon as its answer is fixed, or nobody wants one."""

    asked: Asked
    request_id: RequestId | None
    settled: bool = False
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class Questions:
    """Puts an agent's questions to the daemon; each has one answer, and every failure is the harness's own no."""

    def __init__(
        self,
        daemon: Daemon,
        harness: Harness,
        query: Mapping[str, str],
        *,
        answer: Callable[[bytes], Awaitable[None]],
        say: Callable[[str], None],
        timer: Timer,
    ) -> None:
        self._daemon, self._harness, self._query = daemon, harness, query
        self._answer, self._say, self._timer = answer, say, timer
        self._open: dict[str, _Open] = {}
        self._farewells: set[asyncio.Task[None]] = set()
        self._ended: str | None = None

    @property
    def any_open(self) -> bool:
        """Whether any call waits for the room."""
        return bool(self._open)

    def has(self, key: str) -> bool:
        """Whether the call with this id waits for the room."""
        return key in self._open

    async def put(self, asked: Asked) -> bool:
        """Ask people; return at once, the answer comes later. False where a client may have it instead."""
        if (earlier := self._open.get(asked.key)) is not None:
            if earlier.asked != asked:
                await self._two_under_one_id(earlier, asked)
            return True
        try:
            request_id = self._request_id(asked)
        except _NotAsked as why:
            if asked.elsewhere and why.settled is not None:
                return False
            self._say(f"not asked in the room: {why}")
            await self._tell(why.settled or self._no(asked, unasked(str(why))))
            return True
        question = _Open(asked, request_id)
        self._open[asked.key] = question
        question.task = asyncio.create_task(self._ask(question))
        return True

    async def end(self, over: Over) -> None:
        """Close the questions that fit, here and at the daemon."""
        for question in list(self._open.values()):
            if _fits(over, question.asked):
                await self._close(question, over.why, answered=over.answered)

    async def farewell(self, why: str, *, answered: bool) -> None:
        """Close every question, take no more, and give the daemon a few seconds to hear of it."""
        self._ended = why
        for question in list(self._open.values()):
            with suppress(TimeoutError):  # an agent that reads nothing; the daemon has to hear of it all the same
                async with asyncio.timeout(ANSWER_S):
                    await self._close(question, why, answered=answered)
        if self._farewells:
            await asyncio.wait(self._farewells, timeout=FAREWELL_S)
        for late in self._farewells:
            late.cancel()

    async def _two_under_one_id(self, earlier: _Open, asked: Asked) -> None:
        # Nobody could say for which of the two an allow would be.
        await self._close(earlier, "another call of the agent has the same id", answered=False)
        self._say("not asked in the room: two calls of the agent have the same id")
        await self._tell(self._no(asked, unasked("two calls had the same id")))

    def _request_id(self, asked: Asked) -> RequestId | None:
        """The question's id at the daemon. Raises `_NotAsked` where it is no question for a room."""
        if asked.fault is not None:
            raise _NotAsked(f"the call could not be read: {asked.fault}")
        if self._ended is not None:
            raise _NotAsked(self._ended)
        if len(self._open) >= MOST_OPEN:
            raise _NotAsked(f"{MOST_OPEN} questions of this agent are open already")
        try:
            call = self._harness.parse(asked.body, Manner())
        except (MalformedJson, Invalid) as fault:
            raise _NotAsked(f"the call could not be read: {fault}") from fault
        match call:
            case Ask(request=request):
                return request.request_id
            case Settled(answer=answer, why=why):
                raise _NotAsked(why, json.dumps(answer).encode() + b"\n")
            case _:
                raise _NotAsked("the call is no question")

    async def _ask(self, question: _Open) -> None:
        try:
            line = await self._from_room(question.asked)
        except Unanswered as why:
            self._say(f"{why}. The agent is told that nothing was allowed.")
            line = self._no(question.asked, unanswered(str(why), unreached=why.unreached))
        except Exception as bug:  # noqa: BLE001 - whatever it is, the agent is owed its no
            self._say(f"bug: {type(bug).__name__}: {bug}. The agent is told that nothing was allowed.")
            line = self._no(question.asked, unanswered("the bridge of agentpod-bot failed", unreached=False))
        if self._settle(question):
            await self._tell(line)

    async def _from_room(self, asked: Asked) -> bytes:
        answer = await ask(self._daemon, self._harness.NAME, asked.body, self._query, self._timer)
        if not _answers(answer, asked):
            raise Unanswered(f"what answers at {self._daemon.endpoint} gave an answer to another call")
        return answer.line + b"\n"

    async def _tell(self, line: bytes) -> None:
        with suppress(OSError):  # the agent is gone; the bridge ends by that
            await self._answer(line)

    def _settle(self, question: _Open) -> bool:
        """Whether this is the moment that fixes the answer; it comes once."""
        if question.settled:
            return False
        question.settled = True
        del self._open[question.asked.key]
        return True

    async def _close(self, question: _Open, why: str, *, answered: bool) -> None:
        if not self._settle(question):
            return
        if question.task is not None:
            question.task.cancel()
        farewell = asyncio.create_task(self._withdraw(question.request_id))
        self._farewells.add(farewell)
        farewell.add_done_callback(self._farewells.discard)
        if answered:
            end = End(Outcome.CANCELLED, f"The question was cancelled ({why}). Nothing was allowed.")
            await self._tell(self._no(question.asked, end))

    async def _withdraw(self, request_id: RequestId | None) -> None:
        # Without an id the dropped connection says it: the daemon cancels such a question after a few seconds.
        if request_id is not None:
            with suppress(Unreached):
                await self._daemon.cancel(request_id)

    def _no(self, asked: Asked, end: End) -> bytes:
        """The harness's explicit no, on one line."""
        try:
            refused = self._harness.refuse(asked.body, end, Manner())
            answer = refused if isinstance(refused, dict) else {}
        except Exception as bug:  # noqa: BLE001 - an error in answer to the call allows nothing either
            self._say(f"bug: {type(bug).__name__}: {bug}")
            answer = {}
        if "id" not in answer or key_of(answer["id"]) != asked.key:
            call = message_of(asked.body)
            named: dict[str, Any] = {name: call[name] for name in ("jsonrpc", "id") if name in call}
            answer = {**named, "error": {"code": INTERNAL_ERROR, "message": end.reason}}
        return json.dumps(answer).encode() + b"\n"


class _NotAsked(Exception):
    """Nobody is asked; `settled` is the harness's own answer to such a call, where there is one."""

    def __init__(self, msg: str, settled: bytes | None = None) -> None:
        super().__init__(msg)
        self.settled = settled


def _fits(over: Over, asked: Asked) -> bool:
    return over.key in {None, asked.key} and over.session in {None, asked.session} and over.turn in {None, asked.turn}


def _answers(answer: Answer, asked: Asked) -> bool:
    """Whether this is an answer to this very call, and not a call of its own."""
    content: dict[str, Any] = answer.content
    return (
        "id" in content
        and key_of(content["id"]) == asked.key
        and "method" not in content
        and isinstance(content.get("result"), dict) != isinstance(content.get("error"), dict)
    )
