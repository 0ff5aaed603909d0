"""A bot that can be verified, with everything real but the homeserver, and the person who verifies it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
from agentpod_bot.matrix.e2e.delivery import Delivery
from agentpod_bot.matrix.e2e.device_keys import SenderKeys
from agentpod_bot.matrix.e2e.exchange import CANCEL, DONE, KEY, MAC, READY, REQUEST, START
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.vault import Vault
from agentpod_bot.matrix.e2e.verification import Verification
from tests.fakes import FakeClock
from tests.unit.matrix.e2e.persons import OWNER, POD, Person, Requester
from tests.unit.matrix.e2e.test_cross_signing import Device, Homeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
    from agentpod_bot.matrix.e2e.ongoing import Open
    from agentpod_bot.matrix.e2e.to_device import Outgoing

ROOM = RoomId("!room:example.org")


class World(Device):
    """The bot's device, the devices of others, and all that was sent. Fits `Corresponding`, `Signing` and `Speaker`."""

    def __init__(self) -> None:
        super().__init__()
        self.persons: dict[str, Person] = {OWNER: Person()}
        self.more: tuple[DeviceKeys, ...] = ()
        """Devices that any account has besides."""
        self.sent: list[tuple[str, str, str, dict[str, Any]]] = []
        """User, device (or the room and ""), type and content of each message."""
        self.txn_ids: list[TxnId] = []
        """Of each message to devices that was to be sent, in order."""
        self.faults: list[Exception] = []
        """What the next sends end in."""
        self.identities: Identities | None = None

    async def devices_of(self, user_id: UserId) -> tuple[DeviceKeys, ...]:
        person = self.persons.get(user_id)
        if person is None:
            return ()
        assert self.identities is not None
        await self.identities.learn(person.answer())
        return (person.keys, *self.more)

    async def send_to_device(self, outgoing: Outgoing) -> None:
        self.txn_ids.append(outgoing.txn_id)
        if self.faults:
            raise self.faults.pop(0)
        for user_id, devices in outgoing.messages.items():
            for device_id, content in devices.items():
                self.sent.append((user_id, device_id, outgoing.kind, dict(content)))

    async def say(self, room_id: RoomId, kind: str, content: Mapping[str, Any], _txn_id: TxnId) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.sent.append((room_id, "", kind, dict(content)))

    def take(self) -> list[tuple[str, dict[str, Any]]]:
        """Types and contents of what was sent since this was last called."""
        sent, self.sent = self.sent, []
        return [(kind, content) for _, _, kind, content in sent]


class Bot:
    """The bot, one thing at a time: what it is given is done when a method returns."""

    def __init__(self, world: World, homeserver: Homeserver, identities: Identities, vault: Vault) -> None:
        self.world, self.homeserver, self.identities, self.vault = world, homeserver, identities, vault
        self.clock = FakeClock()
        self.cross_signing = CrossSigning(world, homeserver, identities)
        self.approvers = {OWNER}
        self.verification = Verification(
            world,
            Delivery(world, world, self.clock),
            identities,
            self.cross_signing,
            self.clock,
            is_approver=lambda user_id: user_id in self.approvers,
        )
        self._events = 0

    @classmethod
    async def make(cls, folder: Path) -> Bot:
        vault = Vault(folder=folder, pickle_key="a pickle key", user_id=POD, device_id="POD")
        identities = await Identities.open(vault, make=True)
        world = World()
        world.identities = identities
        homeserver = Homeserver(device=await world.published())
        bot = cls(world, homeserver, identities, vault)
        await bot.cross_signing.ensure()
        homeserver.signed.clear()
        return bot

    async def hear(
        self,
        kind: str,
        content: Mapping[str, Any],
        *,
        sender: UserId = OWNER,
        by: DeviceKeys | None = None,
    ) -> list[tuple[str, Any]]:
        """A message to the device, in clear or encrypted `by` a device; returns what the bot sent then."""
        keys = None if by is None else SenderKeys(curve25519=by.curve25519, ed25519=by.ed25519)
        self.verification.hear(sender, kind, content, keys)
        await self.settle()
        return self.world.take()

    async def hear_in_room(
        self, kind: str, said: Mapping[str, Any], *, sender: UserId = OWNER, **changes: Any
    ) -> list[tuple[str, Any]]:
        """An event of the room; returns what the bot sent then."""
        self._events += 1
        event = {
            "event_id": f"${self._events}",
            "type": kind,
            "sender": sender,
            "content": said,
            "origin_server_ts": self.clock.now_ms(),
        }
        self.verification.hear_in_room(ROOM, event | changes)
        await self.settle()
        return self.world.take()

    async def settle(self) -> None:
        """Do what waits, in a task as the daemon has it, for as long as the clock stands still."""
        while not self.verification._waiting.empty():
            await self.verification.work(self.verification._waiting.get_nowait())

    async def word(self, call: Any) -> bool:
        """The person at the bot's machine says something."""
        saying = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        await self.settle()
        return bool(await saying)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """As the daemon runs it."""
        task = asyncio.create_task(self.verification.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait({task})

    @property
    def one(self) -> Open:
        [one] = self.verification.all()
        return one

    def is_verified(self, person: Person | None = None) -> bool:
        person = person or self.world.persons[OWNER]
        return self.identities.is_verified(person.user_id, person.device_id, person.device.public)

    def requester(
        self, transaction_id: str = "t1", person: Person | None = None, *, in_room: bool = False
    ) -> Requester:
        return Requester(person or self.world.persons[OWNER], self.world.own, transaction_id, in_room=in_room)

    async def until_shown(self, requester: Requester) -> None:
        """From the request to the emoji."""
        [(kind, content)] = await self.hear(REQUEST, requester.request(self.clock.now_ms()))
        assert kind == READY
        assert content == {"from_device": "POD", "methods": ["m.sas.v1"], "transaction_id": requester.transaction_id}
        await self.until_shown_from_start(requester)

    async def until_shown_from_start(self, requester: Requester) -> None:
        [(_, accept)] = await self.hear(START, requester.start())
        requester.accepted(accept)
        [(_, key)] = await self.hear(KEY, requester.key())
        requester.keyed(key)


__all__ = ["CANCEL", "DONE", "KEY", "MAC", "OWNER", "POD", "READY", "REQUEST", "ROOM", "START", "Bot"]
