"""The whole way but for HTTP: a real store, the real broker and nio, against the fake homeserver."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.broker.assembly import Parts, assemble
from agentpod_bot.core.ids import RequestId, RoomId, RouteName, UserId
from agentpod_bot.core.policy import Escalation, Trust
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.e2e.crypto import Crypto
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from agentpod_bot.matrix.homeserver import MatrixHomeserver
from agentpod_bot.matrix.sync import SyncLoop
from agentpod_bot.store.database import SqlStore, open_store
from tests.examples import CALLER, OPS_ROUTE, POLICY, ROUTE, request
from tests.fakes import FakeChance, FakeClock, FakeMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agentpod_bot.core.model import Caller, Question
    from agentpod_bot.core.policy import Policy, Reactions
    from tests.matrix.fake_homeserver import FakeHomeserver

PATIENCE_S = 20.0
LEADS = RouteName("leads")
PICKLE_KEY = "a secret of forty characters or more...."


class Pod:
    """One run of the daemon's parts. Several runs may follow each other on one store."""

    def __init__(
        self,
        hs: FakeHomeserver,
        clock: FakeClock,
        store: SqlStore,
        policy: Policy,
        token: str,
        *,
        keys: Keys | None = None,
        identities: Identities | None = None,
    ) -> None:
        self.hs = hs
        self.clock = clock
        self.store = store
        self.meter = FakeMeter()
        self.client = MatrixClient(hs.url, policy.own, token)
        self.keys = keys
        self.identities = identities
        self.crypto = (
            None
            if keys is None or identities is None
            else Crypto(keys, self.client, clock, verdicts=identities, verified_only=self._strict)
        )
        self.outcomes_to_post = asyncio.Event()
        self.parts: Parts = assemble(
            store,
            MatrixHomeserver(self.client, self.crypto),
            policy,
            clock=clock,
            chance=FakeChance(clock.now_ms()),
            meter=self.meter,
            call_back=self.outcomes_to_post.set,
        )
        self.parts.world.trouble = lambda: None
        self.sync = SyncLoop(self.client, self.parts.inbox, clock, jitter=lambda: 0.0, opener=self.crypto)
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self, *, outbox: bool = True, caught_up: bool = True) -> None:
        """Catch up with the rooms, then speak."""
        if self.crypto is not None:
            await self.crypto.publish()
            self._tasks.append(asyncio.create_task(self.crypto.upkeep()))
        await self.parts.upgrades.recover()
        await self.parts.world.recover(self.clock.now_ms())
        await self.parts.rooms.settle()
        await self.parts.holds.recover()
        self._tasks += [asyncio.create_task(self.parts.rooms.run()), asyncio.create_task(self.sync.run())]
        if caught_up:
            await self.sync.first_sync_done.wait()
        if outbox:
            self._tasks.append(asyncio.create_task(self.parts.outbox.run()))
            self._tasks.append(asyncio.create_task(self.parts.holds.run()))

    async def stop(self) -> None:
        """Stop at once, as a kill would: nothing is finished."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.client.close()
        if self.keys is not None:
            await self.keys.close()

    def _strict(self) -> bool:
        return self.parts.world.policy.trust is Trust.VERIFIED

    async def ask(self, caller: Caller = CALLER, **changes: Any) -> Question:
        """Ask a request, each time a new one unless an id is given."""
        asked = request(**({"request_id": None, "request_seq": None} | changes))
        return (await self.parts.broker.submit(asked, caller)).question

    async def pending(self, caller: Caller = CALLER, **changes: Any) -> Question:
        """Ask, and wait until the timeline has shown the question."""
        question = await self.ask(caller, **changes)
        return await self.when(question, lambda now: now.shown_ts is not None)

    async def when(self, question: Question, holds: Callable[[Question], object]) -> Question:
        """The question, once something holds of it."""
        async with asyncio.timeout(PATIENCE_S):
            while not holds(now := await self.parts.broker.question(question.row)):
                await asyncio.sleep(0.002)
        return now

    async def now(self, question: Question) -> Question:
        """The question as it is."""
        return await self.parts.broker.question(question.row)

    async def handled(self, event_id: str) -> None:
        """Return once an event was processed."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.store.run(lambda tx: tx.seen(event_id)):  # type: ignore[arg-type]  # an event id
                await asyncio.sleep(0.002)

    async def quiet(self) -> None:
        """Return once everything that is due was sent."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                due = await self.store.run(lambda tx: tx.rooms_due())
                if not any(at_ms <= self.clock.now_ms() for at_ms in due.values()):
                    return
                await asyncio.sleep(0.002)

    async def audited(self, question: Question) -> list[str]:
        """What the audit says of a question."""
        return [line.what for line in await self.store.run(lambda tx: tuple(tx.audited(question.row)))]


class Rig:
    """A room with the bot and three people, and runs of the bot."""

    def __init__(self, hs: FakeHomeserver, clock: FakeClock, path: Path) -> None:
        self.hs = hs
        self.clock = clock
        self.path = path
        self.pod = UserId(hs.user("pod"))
        self.owner = UserId(hs.user("owner"))
        self.second = UserId(hs.user("second"))
        self.mallory = UserId(hs.user("mallory"))
        self.room = RoomId(hs.room(self.pod, self.owner, self.second, self.mallory))
        self.token = hs.token(self.pod, "POD")
        self.sealed = False
        """Whether the bot's device has keys."""
        self.policy = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, room_id=self.room)})

    def seal(self) -> None:
        """Encrypt the room; the bot's device has keys from now on."""
        self.sealed = True
        self.hs.encrypt(self.room, by=self.owner)

    async def _keys(self) -> tuple[Keys, Identities]:
        folder = self.path.parent / "crypto"
        vault = Vault(folder=folder, pickle_key=PICKLE_KEY, user_id=self.pod, device_id="POD")
        make = not folder.exists()
        keys = await Keys.open(vault, make=make)
        return keys, await Identities.open(vault, make=make)

    def with_reactions(self, reactions: Reactions) -> None:
        """Change what the route does with reactions."""
        self.policy = replace(self.policy, routes={ROUTE: replace(OPS_ROUTE, room_id=self.room, reactions=reactions)})

    def with_route(self, **changes: Any) -> None:
        """Change the route."""
        routes = {**self.policy.routes, ROUTE: replace(self.policy.routes[ROUTE], **changes)}
        self.policy = replace(self.policy, routes=routes)

    def with_second_route(self, *, after_ms: int, **changes: Any) -> RoomId:
        """Add a route, with a room and an approver of its own, on which questions are asked next; returns the room."""
        self.lead = UserId(self.hs.user("lead"))
        self.leads = RoomId(self.hs.room(self.pod, self.lead, self.mallory))
        second = replace(OPS_ROUTE, name=LEADS, room_id=self.leads, approvers=frozenset({self.lead}), **changes)
        first = replace(self.policy.routes[ROUTE], escalation=Escalation(after_ms, LEADS))
        self.policy = replace(self.policy, routes={ROUTE: first, LEADS: second})
        return self.leads

    @asynccontextmanager
    async def run(self, *, outbox: bool = True, caught_up: bool = True) -> AsyncIterator[Pod]:
        """One run of the bot, ended without any farewell."""
        async with AsyncExitStack() as stack:
            store = open_store(self.path)
            stack.push_async_callback(store.close)
            keys, identities = await self._keys() if self.sealed else (None, None)
            pod = Pod(self.hs, self.clock, store, self.policy, self.token, keys=keys, identities=identities)
            stack.push_async_callback(pod.stop)
            await pod.start(outbox=outbox, caught_up=caught_up)
            yield pod

    def sent(self, room_id: str) -> list[dict[str, Any]]:
        """The bot's messages in one room."""
        return [event for event in self.hs.sent_by(self.pod) if self.hs.room_of(event["event_id"]) == room_id]

    def questions(self, room_id: str | None = None) -> list[dict[str, Any]]:
        """Contents of the questions that stand in the rooms, or in one of them."""
        events = self.hs.sent_by(self.pod) if room_id is None else self.sent(room_id)
        contents = [event["content"] for event in events]
        return [content for content in contents if content.get("suite_event_type") == "dev.agentpod.permission.v2"]

    def notices(self) -> list[str]:
        """Bodies of the bot's notices."""
        contents = [event["content"] for event in self.hs.sent_by(self.pod)]
        return [content["body"] for content in contents if content.get("msgtype") == "m.notice"]

    def reminders(self) -> list[dict[str, Any]]:
        """Contents of the bot's messages that say that something is still open."""
        contents = [event["content"] for event in self.hs.sent_by(self.pod)]
        return [content for content in contents if str(content.get("body")).startswith("Still open until")]

    def outcomes(self, question: Question) -> list[dict[str, Any]]:
        """Contents of the edits of a question."""
        return [
            event["content"]
            for event in self.hs.sent_by(self.pod)
            if event["content"].get("m.relates_to", {}).get("rel_type") == "m.replace"
            and event["content"]["m.relates_to"]["event_id"] == question.event_id
        ]

    def say(
        self, body: str, sender: UserId | None = None, *, reply_to: Question | str | None = None, **more: Any
    ) -> str:
        """Somebody (the owner) says something, now."""
        target = reply_to if isinstance(reply_to, str | None) else reply_to.event_id
        return self.hs.say(self.room, sender or self.owner, body, reply_to=target, **more)


def named(request_id: str) -> dict[str, Any]:
    """Changes that give a request its id."""
    return {"request_id": RequestId(request_id)}
