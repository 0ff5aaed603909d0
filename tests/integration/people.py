"""People in rooms of one kind, plain or encrypted, and the bot's keys for the encrypted ones."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentpod_bot.core.ids import UserId
from agentpod_bot.matrix.e2e.identities import Identities
from agentpod_bot.matrix.e2e.machine import Machine
from agentpod_bot.matrix.e2e.vault import Vault, new_pickle_key
from tests.e2e_person import E2EPerson, Login, logged_in, switch_on

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account, PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.daemons import Daemon


@dataclass(frozen=True, slots=True)
class People:
    """Who talks in rooms of one kind. `folder` keeps the keys of devices; each device has them for as long as it."""

    synapse: PrivateSynapse
    folder: Path
    sealed: bool

    def at(self, account: Account) -> Person:
        """Somebody at the device of their account's first login; to be used with `async with`."""
        if not self.sealed:
            return self.synapse.person(account)
        return self.on(Login(account.user_id, account.device_id, account.access_token))

    def on(self, login: Login) -> E2EPerson:
        """Somebody at a device that encrypts."""
        return E2EPerson(self.synapse.url, login, self.folder / login.device_id)

    async def new_device(self, account: Account) -> E2EPerson:
        """The same person at a device that nobody has seen yet; to be used with `async with`."""
        return self.on(await logged_in(self.synapse.url, account.user_id, account.password))

    async def room(self, owner: Account, *others: Account) -> str:
        """A room of this kind that all of them have joined; returns its id."""
        room_id = await self.synapse.room(owner, *others)
        if self.sealed:
            async with self.synapse.person(owner) as person:
                await switch_on(person, room_id)
        return room_id


async def give_keys(daemon: Daemon, account: Account) -> None:
    """Let the bot encrypt: keys for the device of its access token, as `login` makes them."""
    pickle_key = new_pickle_key()
    folder = daemon.folder / "crypto"
    vault = Vault(folder=folder, pickle_key=pickle_key, user_id=UserId(account.user_id), device_id=account.device_id)
    await asyncio.to_thread(lambda: Machine.make(vault).close())
    await Identities.open(vault, make=True)
    daemon.config["homeserver"]["device_id"] = account.device_id
    daemon.config["e2e"] = {"store": str(folder), "pickle_key_file": daemon.secret("pickle_key", pickle_key)}
