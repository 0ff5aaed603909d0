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

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from agentpod_bot.demo.person import Person

NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Cast:
    """A room of the test's own, with the bot's account and an approver joined to it."""

    room_id: str
    pod: Account
    owner: Account


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
