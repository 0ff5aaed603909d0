"""One real homeserver for the whole run; fresh accounts and rooms for each test.

A send costs this homeserver about 40 ms of CPU, an account about 30 ms and a room about
300 ms: tests that need no fresh room share one of their own making.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from agentpod_bot.demo.homeserver import Account, PrivateSynapse
from tests.integration.daemons import Daemon, Harness

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from agentpod_bot.demo.person import Person

NUMBERS = itertools.count(1)
PLACES = 13
"""Rooms of the shared daemon: one for each test that takes a `place`."""


@dataclass(frozen=True, slots=True)
class Cast:
    """A room of the test's own, with the bot's account and an approver joined to it."""

    room_id: str
    pod: Account
    owner: Account


@dataclass(frozen=True, slots=True)
class Place:
    """A room, an approver and a harness of the test's own, at the daemon that such tests share."""

    daemon: Daemon
    client: str
    room_id: str
    pod: Account
    account: Account
    owner: Person
    harness: Harness


@dataclass(frozen=True, slots=True)
class House:
    """The shared daemon and its rooms.

    Its client `laptop` may use two further routes: `elsewhere`, into whose room the
    stranger has not invited the bot, and `sealed`, whose room is encrypted.
    """

    daemon: Daemon
    pod: Account
    rooms: Iterator[tuple[str, str, Account]]
    """Client, room id and approver, for one test each."""
    tokens: dict[str, str]
    elsewhere: str
    stranger: Account
    approver: Account


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def synapse() -> AsyncIterator[PrivateSynapse]:
    """The homeserver; it is bound to no event loop, so each test may use its own."""
    if importlib.util.find_spec("synapse") is None:
        pytest.skip("needs the extra `demo`")
    async with PrivateSynapse() as running:
        yield running


@pytest.fixture
def register(synapse: PrivateSynapse) -> Callable[[str], Awaitable[Account]]:
    """Registers an account whose name begins so and that nobody used before."""

    async def fresh(name: str) -> Account:
        return await synapse.register(f"{name}{next(NUMBERS)}")

    return fresh


@pytest.fixture
async def cast(synapse: PrivateSynapse, register: Callable[[str], Awaitable[Account]]) -> Cast:
    """A bot's account and an approver, alone in a room of their own."""
    pod, owner = await register("pod"), await register("owner")
    return Cast(await synapse.room(owner, pod), pod, owner)


@pytest.fixture
async def owner(synapse: PrivateSynapse, cast: Cast) -> AsyncIterator[Person]:
    """The approver, reading and writing."""
    async with synapse.person(cast.owner) as person:
        yield person


@pytest.fixture
async def daemon(synapse: PrivateSynapse, cast: Cast, tmp_path: Path) -> AsyncIterator[Daemon]:
    """A daemon for the room, not started yet; the owner is its approver."""
    bot = (cast.pod.user_id, cast.pod.access_token)
    made = Daemon(tmp_path / "daemon", homeserver=synapse.url, bot=bot, rooms={"ops": cast.room_id})
    try:
        yield made.approve(cast.owner.user_id)
    finally:
        await made.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(synapse: PrivateSynapse, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """One running daemon with a route, a client and an approver for each of its rooms."""
    pod, stranger, approver = [await synapse.register(f"{name}{next(NUMBERS)}") for name in ("pod", "eve", "owner")]
    elsewhere, sealed = await synapse.room(stranger, approver), await synapse.room(approver, pod)
    async with synapse.person(approver) as person:
        await person.call("PUT", f"rooms/{sealed}/state/m.room.encryption", {"algorithm": "m.megolm.v1.aes-sha2"})
    owners = {f"laptop{number}": await synapse.register(f"owner{next(NUMBERS)}") for number in range(PLACES)}
    rooms = {client: await synapse.room(owner, pod) for client, owner in owners.items()}
    folder = tmp_path_factory.mktemp("house") / "daemon"
    daemon = Daemon(
        folder,
        homeserver=synapse.url,
        bot=(pod.user_id, pod.access_token),
        rooms=rooms | {"elsewhere": elsewhere, "sealed": sealed},
    )
    daemon.approve(approver.user_id)
    tokens = {}
    for client, owner in owners.items():
        tokens[client] = daemon.client(client)
        daemon.config["clients"][client]["routes"] = [client]
        daemon.config["routes"][client]["approvers"] = [owner.user_id]
    daemon.config["clients"]["laptop"]["routes"] = ["elsewhere", "sealed"]
    try:
        await daemon.start()
        places = iter([(client, rooms[client], owner) for client, owner in owners.items()])
        yield House(daemon, pod, places, tokens, elsewhere, stranger, approver)
    finally:
        await daemon.stop()


@pytest.fixture
async def place(synapse: PrivateSynapse, house: House) -> AsyncIterator[Place]:
    """A place at the shared daemon that no test used before."""
    client, room_id, account = next(house.rooms, None) or pytest.fail("PLACES is less than the tests that take one")
    async with house.daemon.harness(house.tokens[client]) as harness, synapse.person(account) as owner:
        yield Place(house.daemon, client, room_id, house.pod, account, owner, harness)


@pytest.fixture
async def harness(daemon: Daemon) -> AsyncIterator[Harness]:
    """A harness of the daemon, which runs and is ready."""
    await daemon.start()
    async with daemon.harness() as calling:
        yield calling
