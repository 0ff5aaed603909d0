"""The two homeservers that a run can have: a real Synapse that is killed, and a fake one in this process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from agentpod_bot.demo.homeserver import Account, PrivateSynapse
from agentpod_bot.demo.process import Leashed
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from chaos.weather import Weather

DARK_S = 3.0


@dataclass(frozen=True, slots=True)
class Citizen:
    """One account, logged in."""

    user_id: str
    token: str
    device_id: str = ""
    password: str = field(default="", repr=False)
    """Where encryption needs them."""


class Town(Protocol):
    """A homeserver with accounts and rooms."""

    @property
    def url(self) -> str:
        """Its base URL."""
        ...

    async def account(self, name: str) -> Citizen:
        """A new account."""
        ...

    async def room(self, owner: Citizen, *others: Citizen) -> str:
        """A room that all of them have joined; its id."""
        ...

    async def enter(self, room_id: str, owner: Citizen, newcomer: Citizen) -> None:
        """Have `owner` invite somebody, who joins."""
        ...

    async def fall(self, weather: Weather) -> None:
        """Be gone at once, and come back after a while."""
        ...


class MortalSynapse(PrivateSynapse):
    """A private Synapse that can be killed, and goes on from its own files."""

    async def die(self) -> None:
        """End as a power cut does."""
        if self._running is not None and self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)  # its leash, and it dies with that
            await self._running.stop()

    async def rise(self) -> None:
        """Start again, on the same port."""
        command = [sys.executable, "-m", "synapse.app.homeserver", "-c", str(self.folder / "homeserver.json")]
        while True:
            self._running = Leashed(command, output=self.folder / "synapse.out")
            if await self._answers(self._running, time.monotonic()):
                return
            await asyncio.sleep(0.5)  # the port was not free yet


class RealTown:
    """A real Synapse."""

    def __init__(self, synapse: MortalSynapse) -> None:
        self._synapse = synapse
        self._accounts: dict[str, Account] = {}

    @property
    def url(self) -> str:
        """See `Town`."""
        return self._synapse.url

    async def account(self, name: str) -> Citizen:
        """See `Town`."""
        account = await self._synapse.register(name)
        self._accounts[account.user_id] = account
        return Citizen(account.user_id, account.access_token, account.device_id, account.password)

    async def room(self, owner: Citizen, *others: Citizen) -> str:
        """See `Town`."""
        return await self._synapse.room(self._of(owner), *map(self._of, others))

    async def enter(self, room_id: str, owner: Citizen, newcomer: Citizen) -> None:
        """See `Town`."""
        async with self._synapse.person(self._of(owner)) as inviting, self._synapse.person(self._of(newcomer)) as joins:
            await inviting.invite(room_id, newcomer.user_id)
            await joins.join(room_id)

    async def fall(self, weather: Weather) -> None:  # noqa: ARG002 - the fake one needs it
        """See `Town`."""
        await self._synapse.die()
        await self._synapse.rise()

    def _of(self, citizen: Citizen) -> Account:
        return self._accounts[citizen.user_id]


class Unkept(list[Any]):
    """A list that forgets at once: what a long run would collect is not looked at."""

    def append(self, _item: Any) -> None:
        """Keep nothing."""


class FakeTown:
    """The fake homeserver of the tests. It cannot die, but it can be out of reach."""

    def __init__(self, homeserver: FakeHomeserver) -> None:
        self._homeserver = homeserver
        homeserver.calls = Unkept()

    @property
    def url(self) -> str:
        """See `Town`."""
        return self._homeserver.url

    async def account(self, name: str) -> Citizen:
        """See `Town`."""
        user_id = self._homeserver.user(name)
        return Citizen(user_id, self._homeserver.token(user_id))

    async def room(self, owner: Citizen, *others: Citizen) -> str:
        """See `Town`."""
        return self._homeserver.room(owner.user_id, *(other.user_id for other in others))

    async def enter(self, room_id: str, owner: Citizen, newcomer: Citizen) -> None:
        """See `Town`."""
        self._homeserver.invite(room_id, newcomer.user_id, by=owner.user_id)
        self._homeserver.join(room_id, newcomer.user_id)

    async def fall(self, weather: Weather) -> None:
        """See `Town`."""
        weather.dark = True
        await asyncio.sleep(DARK_S)
        weather.dark = False


@asynccontextmanager
async def real_town() -> AsyncIterator[Town]:
    """Run a Synapse of its own. Raises `HomeserverUnreachable` where there is none."""
    async with MortalSynapse() as synapse:
        yield RealTown(synapse)


@asynccontextmanager
async def fake_town() -> AsyncIterator[Town]:
    """Run the fake homeserver."""
    async with FakeHomeserver(now_ms=lambda: time.time_ns() // 1_000_000) as homeserver:
        yield FakeTown(homeserver)
