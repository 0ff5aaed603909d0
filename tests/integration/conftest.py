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
from tests.integration.people import People, give_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path

    from agentpod_bot.demo.person import Person

NUMBERS = itertools.count(1)
PLACES = 13
"""Rooms of each kind of the shared daemon: one for each test that takes a `place`."""


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
class Shared:
    """What the shared daemon has of one kind of rooms, plain or encrypted.

    Its client `laptop` may use the route `elsewhere`, into whose room the stranger has not
    invited the bot.
    """

    people: People
    places: Iterator[tuple[str, str, Account]]
    """Client, room id and approver, for one test each."""
    route: str
    elsewhere: str


@dataclass(frozen=True, slots=True)
class House:
    """The shared daemon and its rooms of both kinds."""

    daemon: Daemon
    pod: Account
    of: dict[bool, Shared]
    tokens: dict[str, str]
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


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def sealed(request: pytest.FixtureRequest) -> bool:
    """Whether the rooms are encrypted: every test of a daemon in a room runs with both kinds.

    Modules whose tests are not about rooms override this.
    """
    is_sealed: bool = request.param
    return is_sealed


@pytest.fixture
def people(synapse: PrivateSynapse, tmp_path: Path, *, sealed: bool) -> People:
    """Accounts as somebody who reads and writes in rooms of this kind."""
    return People(synapse, new_folder(tmp_path / "devices"), sealed)


@pytest.fixture
async def cast(people: People, register: Callable[[str], Awaitable[Account]]) -> Cast:
    """A bot's account and an approver, alone in a room of their own."""
    pod, owner = await register("pod"), await register("owner")
    return Cast(await people.room(owner, pod), pod, owner)


@pytest.fixture
async def owner(people: People, cast: Cast) -> AsyncIterator[Person]:
    """The approver, reading and writing."""
    async with people.at(cast.owner) as person:
        yield person


@pytest.fixture
async def daemon(
    synapse: PrivateSynapse, cast: Cast, owner: Person, tmp_path: Path, *, sealed: bool
) -> AsyncIterator[Daemon]:
    """A daemon for the room, not started yet; the owner is its approver."""
    del owner  # whose device is there before the first question is encrypted for it
    bot = (cast.pod.user_id, cast.pod.access_token)
    made = Daemon(tmp_path / "daemon", homeserver=synapse.url, bot=bot, rooms={"ops": cast.room_id})
    if sealed:
        await give_keys(made, cast.pod)
    try:
        yield made.approve(cast.owner.user_id)
    finally:
        await made.stop()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def house(synapse: PrivateSynapse, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """One running daemon with a route, a client and an approver for each of its rooms."""
    folder = tmp_path_factory.mktemp("house")
    pod, stranger, approver = [await synapse.register(f"{name}{next(NUMBERS)}") for name in ("pod", "eve", "owner")]
    devices = new_folder(folder / "devices")
    shared, owners, rooms = {}, {}, {}
    for sealed, kind in ((False, "plain"), (True, "sealed")):
        people = People(synapse, devices, sealed)
        places = []
        for number in range(PLACES):
            client, owner = f"{kind}{number}", await synapse.register(f"owner{next(NUMBERS)}")
            rooms[client], owners[client] = await people.room(owner, pod), owner
            places.append((client, rooms[client], owner))
        elsewhere = f"{kind}-elsewhere"
        rooms[elsewhere] = await people.room(stranger, approver)
        shared[sealed] = Shared(people, iter(places), elsewhere, rooms[elsewhere])
        for account in (*(owner for _, _, owner in places), stranger, approver):
            async with people.at(account):  # their devices are there before the first question
                pass
    daemon = Daemon(
        folder / "daemon", homeserver=synapse.url, bot=(pod.user_id, pod.access_token), rooms=rooms
    ).approve(approver.user_id)
    await give_keys(daemon, pod)
    tokens = {}
    for client, owner in owners.items():
        tokens[client] = daemon.client(client)
        daemon.config["clients"][client]["routes"] = [client]
        daemon.config["routes"][client]["approvers"] = [owner.user_id]
    daemon.config["clients"]["laptop"]["routes"] = [each.route for each in shared.values()]
    try:
        await daemon.start()
        yield House(daemon, pod, shared, tokens, stranger, approver)
    finally:
        await daemon.stop()


@pytest.fixture
async def place(house: House, *, sealed: bool) -> AsyncIterator[Place]:
    """A place at the shared daemon that no test used before."""
    shared = house.of[sealed]
    client, room_id, account = next(shared.places, None) or pytest.fail("PLACES is less than the tests that take one")
    async with house.daemon.harness(house.tokens[client]) as harness, shared.people.at(account) as owner:
        yield Place(house.daemon, client, room_id, house.pod, account, owner, harness)


@pytest.fixture
async def harness(daemon: Daemon) -> AsyncIterator[Harness]:
    """A harness of the daemon, which runs and is ready."""
    await daemon.start()
    async with daemon.harness() as calling:
        yield calling


def new_folder(path: Path) -> Path:
    """A folder that was not there."""
    path.mkdir()
    return path
