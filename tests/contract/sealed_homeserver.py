"""A homeserver in memory that takes what it is given at once, and a bot over a real store that talks to it.

What a sync would show is handed to the inbox as values: how an event came is said, and not decrypted.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from agentpod_bot.broker.assembly import Parts, assemble
from agentpod_bot.core.ids import EventId, RoomId, TxnId, UserId
from agentpod_bot.core.room import Batch, Device, Encryption, EncryptionOn, OwnQuestion, RoomBatch, RoomEvent, Said
from agentpod_bot.core.trust import BY_A_DEVICE
from agentpod_bot.store.database import open_store
from tests.examples import CALLER, OPS, OWNER, POD, POLICY, ROOM, request
from tests.fakes import FakeChance, FakeMeter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.ports import Chance, Store
    from tests.fakes import FakeClock

PATIENCE_S = 20.0


@dataclass(frozen=True)
class Sent:
    """One event, as it was handed over: `room` is what was known of the room then."""

    room: RoomState
    event_type: str
    content: Mapping[str, Any]
    event_id: EventId
    uploads: int
    """How many files had been uploaded by then."""


class SealedHomeserver:
    """Fits `ports.Homeserver`; what it says of the room is `state`."""

    can_encrypt = True
    user_id = POD

    def __init__(self, state: RoomState) -> None:
        self.state = state
        self.sent: list[Sent] = []
        self.uploads: list[RoomState] = []
        self.after_upload: Callable[[], object] = lambda: None
        self.encrypted: dict[RoomId, bool] = {}
        """Where rooms differ: which are encrypted."""
        self.revoked: set[Device] = set()
        """Devices that were verified, and are so no longer."""
        self.known: list[frozenset[UserId]] = []
        """Those whose devices had to be known, each time."""
        self.unknown: list[Exception] = []
        """What is raised, one by one, where devices have to be known."""
        self.failures: list[Exception] = []
        """What is raised, one by one, in place of taking an event."""
        self._numbers = count(1)

    async def know_devices(self, user_ids: Collection[UserId]) -> None:
        self.known.append(frozenset(user_ids))
        if self.unknown:
            raise self.unknown.pop(0)

    def vouches(self, device: Device) -> bool:
        return device not in self.revoked

    async def send(self, room: RoomState, event_type: str, content: Mapping[str, Any], txn_id: TxnId) -> EventId:
        assert txn_id
        if self.failures:
            raise self.failures.pop(0)
        event_id = EventId(f"$sent{next(self._numbers)}")
        self.sent.append(Sent(room, event_type, dict(content), event_id, len(self.uploads)))
        return event_id

    async def upload(self, room: RoomState, filename: str, content_type: str, content: bytes) -> Mapping[str, Any]:
        assert filename
        assert content_type
        assert content
        self.uploads.append(room)
        url = f"mxc://hs.example/{len(self.uploads)}"
        self.after_upload()
        return {"file": {"url": url, "key": {"k": "secret"}}} if room.encrypted else {"url": url}

    async def join(self, room_id: RoomId) -> None:
        raise AssertionError(room_id)

    async def room_state(self, room_id: RoomId) -> RoomState:
        encrypted = self.encrypted.get(room_id, self.state.encrypted)
        return replace(self.state, room_id=room_id, encrypted=encrypted)


class Pod:
    """One run of the bot's parts."""

    def __init__(self, parts: Parts, store: Store, hs: SealedHomeserver, meter: FakeMeter, clock: FakeClock) -> None:
        self.parts = parts
        self.store = store
        self.hs = hs
        self.meter = meter
        self.clock = clock

    async def shown(self, **changes: Any) -> Question:
        """A question that the timeline has shown."""
        asked = request(**({"request_id": None, "request_seq": None} | changes))
        question = (await self.parts.broker.submit(asked, CALLER)).question
        question = await self.when(question, lambda now: now.event_id is not None)
        assert question.event_id is not None
        own = OwnQuestion(
            event_id=question.event_id,
            sender=POD,
            ts=self.clock.now_ms(),
            request_id=question.key.request_id,
            digest=question.asked.digest,
            revision=question.key.revision,
            code=question.asked.code,
            txn_id=None,
        )
        await self.handle(own)
        self.clock.advance(1_000)
        return await self.now(question)

    async def handle(self, *timeline: RoomEvent, recovered: tuple[RoomEvent, ...] = (), state: Any = ()) -> None:
        """Handle a sync response."""
        part = RoomBatch(room_id=OPS, timeline=timeline, recovered=recovered, state=state)
        await self.parts.inbox.handle(Batch(next_batch="s", rooms=(part,)))

    async def now(self, question: Question) -> Question:
        return await self.parts.broker.question(question.row)

    async def when(self, question: Question, holds: Callable[[Question], object]) -> Question:
        async with asyncio.timeout(PATIENCE_S):
            while not holds(now := await self.now(question)):
                await asyncio.sleep(0.002)
        return now

    async def quiet(self) -> None:
        """Return once everything that is due was sent."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                due = await self.store.run(lambda tx: tx.rooms_due())
                if not any(at_ms <= self.clock.now_ms() for at_ms in due.values()):
                    return
                await asyncio.sleep(0.002)

    async def later(self, ms: int) -> None:
        """Let time pass, and what is due then be sent."""
        self.clock.advance(ms)
        self.parts.commit._bell.ring()
        await self.quiet()

    async def replied_to(self) -> list[str]:
        """What the notices that were sent reply to."""
        await self.quiet()
        said = [sent.content for sent in self.hs.sent if sent.content.get("msgtype") == "m.notice"]
        return [content["m.relates_to"]["m.in_reply_to"]["event_id"] for content in said]

    async def notices(self) -> list[str]:
        """Bodies of the notices that were sent."""
        await self.quiet()
        return [sent.content["body"] for sent in self.hs.sent if sent.content.get("msgtype") == "m.notice"]

    async def audited(self, question: Question) -> list[tuple[str, str | None]]:
        """What the audit says of a question, and in which detail."""
        lines = await self.store.run(lambda tx: tuple(tx.audited(question.row)))
        return [(line.what, line.detail) for line in lines]


@asynccontextmanager
async def running(
    path: Path, hs: SealedHomeserver, clock: FakeClock, policy: Policy = POLICY, *, chance: Chance | None = None
) -> AsyncIterator[Pod]:
    """The parts over the store of a file, caught up and sending."""
    store, meter = open_store(path), FakeMeter()
    parts = assemble(store, hs, policy, clock=clock, chance=chance or FakeChance(clock.now_ms()), meter=meter)
    parts.world.trouble = lambda: None
    outbox = asyncio.create_task(parts.outbox.run())
    try:
        await parts.rooms.settle()
        yield Pod(parts, store, hs, meter, clock)
    finally:
        outbox.cancel()
        await asyncio.gather(outbox, return_exceptions=True)
        await store.close()


ENCRYPTED = replace(ROOM, encrypted=True)
_events = count(1)


def said(body: str, clock: FakeClock, *, sender: UserId = OWNER, **changes: Any) -> Said:
    """A text message, sent now; where a device encrypted it, by the sender's phone."""
    if changes.get("origin") in BY_A_DEVICE:
        changes = {"device": phone(sender), **changes}
    return Said(event_id=EventId(f"$said{next(_events)}"), sender=sender, ts=clock.now_ms(), body=body, **changes)


def phone(user_id: UserId) -> Device:
    """The device of somebody."""
    return Device(user_id, "PHONE", f"key of {user_id}")


def switched_on(clock: FakeClock) -> EncryptionOn:
    """Encryption is switched on, now."""
    event_id = EventId(f"$on{next(_events)}")
    return EncryptionOn(event_id=event_id, sender=OWNER, ts=clock.now_ms(), encryption=Encryption())
