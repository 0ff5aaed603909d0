"""The homeserver, the pairs of accounts on it, and one round of a pair with its times."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import aiohttp
from yarl import URL

from agentpod_bot.demo.daemon import Daemon
from agentpod_bot.demo.person import Person
from benchmarks.arms import Answerer, Bare, NioBot, RawBot, Sample, ThroughDaemon, nio_client
from benchmarks.figures import Round
from benchmarks.report import DAEMON, NIO, RAW, SEALED_DAEMON, SEALED_NIO
from benchmarks.wire import Wire
from tests.e2e_person import E2EPerson, Login, switch_on

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AsyncExitStack
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account, PrivateSynapse
    from benchmarks.arms import Answered, Asker, Bot
    from benchmarks.wire import Exchange

T = TypeVar("T")

SETTLE_S = 0.1
"""Before each round, so that every sync waits at the homeserver when it begins."""
ROUND_S = 30.0


@dataclass(frozen=True, slots=True)
class Pair:
    """A bot and a person in a room of their own."""

    arm: str
    person: Answerer
    asker: Asker
    wire: Wire

    async def play(self) -> Round:
        """Play one round to its end, the edit included. Raises TimeoutError where it does not come to one."""
        async with asyncio.timeout(ROUND_S), asyncio.TaskGroup() as tasks:
            answering = tasks.create_task(self.person.answer())
            await asyncio.sleep(SETTLE_S)
            self.wire.forget()
            began = perf_counter()
            await self.asker.ask()
            ended = perf_counter()
            answered = await answering
            await self.asker.close(answered.question_id)
            await self.person.see_closed(answered.question_id)
        return self._measured(began, ended, answered)

    def sample(self) -> Sample:
        """Return what the last round sent."""
        return Sample(self.person.question["content"], self.person.edit["content"])

    def _measured(self, began: float, ended: float, answered: Answered) -> Round:
        answer_id = answered.answer_id.encode()
        question = self.wire.first(_sends)
        sync = self.wire.first(lambda passed: answer_id in passed.answer and b"/sync?" in passed.line)
        late = max(0.0, sync.asked_at - answered.sent_at)
        return Round(
            total=ended - began,
            before=question.asked_at - began,
            away=sync.answered_at - question.asked_at - late,
            late=late,
            after=ended - sync.answered_at,
        )


def _sends(passed: Exchange) -> bool:
    return passed.line.startswith(b"PUT ") and b"/send/" in passed.line


@dataclass(frozen=True, slots=True)
class Cast:
    """What a pair is made of, before it is known how the bot speaks."""

    bot: Account
    owner: Account
    room_id: str
    wire: Wire
    person: Answerer


class Stage:
    """Sets pairs up on one homeserver; they end with `stack`."""

    def __init__(self, stack: AsyncExitStack[Any], synapse: PrivateSynapse, folder: Path) -> None:
        self._stack = stack
        self._synapse = synapse
        self._folder = folder

    async def daemon(self, number: int, *, sealed: bool = False) -> Pair:
        """Return a pair whose bot is the real daemon, as a process of its own; `sealed` in an encrypted room."""
        arm = SEALED_DAEMON if sealed else DAEMON
        cast = await self._cast(arm, number, sealed=sealed)
        folder = self._new_folder(f"{arm}{number}")
        daemon = Daemon(folder, homeserver=cast.wire.url, bot=cast.bot, approver=cast.owner, room_id=cast.room_id)
        if sealed:
            await daemon.make_keys()
        await self._enter(daemon.running())
        session = await self._enter(aiohttp.ClientSession())
        return Pair(arm, cast.person, ThroughDaemon(daemon, session), cast.wire)

    async def raw(self, number: int, sample: Sample) -> Pair:
        """Return a pair whose bot makes plain calls."""
        cast = await self._cast(RAW, number)
        client = Person(cast.wire.url, cast.bot.user_id, cast.bot.access_token)
        return await self._bare(RAW, cast, RawBot(await self._enter(client), cast.room_id), sample)

    async def nio(self, number: int, sample: Sample, *, sealed: bool = False) -> Pair:
        """Return a pair whose bot is bare nio; `sealed` in an encrypted room."""
        arm = SEALED_NIO if sealed else NIO
        cast = await self._cast(arm, number, sealed=sealed)
        client = nio_client(cast.wire.url, cast.bot, self._new_folder(f"{arm}{number}") if sealed else None)
        return await self._bare(arm, cast, NioBot(await self._enter(client), cast.room_id), sample)

    async def _bare(self, arm: str, cast: Cast, bot: Bot, sample: Sample) -> Pair:
        asker = Bare(bot, cast.owner.user_id, sample)
        await self._enter(asker.listening())
        return Pair(arm, cast.person, asker, cast.wire)

    async def _cast(self, arm: str, number: int, *, sealed: bool = False) -> Cast:
        bot = await self._synapse.register(f"{arm}-pod{number}")
        owner = await self._synapse.register(f"{arm}-owner{number}")
        room_id = await self._synapse.room(owner, bot, name=f"{arm} {number}")
        wire = await self._enter(Wire(URL(self._synapse.url).port or 0))
        eyes = self._synapse.person(owner)
        if sealed:
            login = Login(owner.user_id, owner.device_id, owner.access_token)
            eyes = E2EPerson(self._synapse.url, login, self._new_folder(f"{arm}-owner{number}"))
        person = await self._enter(eyes)
        if sealed:
            await switch_on(person, room_id)
        answerer = Answerer(person, room_id, bot.user_id)
        await answerer.arrive()
        return Cast(bot, owner, room_id, wire, answerer)

    def _new_folder(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir()
        return folder

    async def _enter(self, context: AbstractAsyncContextManager[T]) -> T:
        return await self._stack.enter_async_context(context)
