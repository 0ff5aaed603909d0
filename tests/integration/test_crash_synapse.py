"""The same deaths as in `tests/crash`, at ten of their points, with the real homeserver, in both kinds of rooms."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.crash.dooms import DoomedDaemon, Dooms
from tests.crash.scene import Event, Way
from tests.crash.stage import EVERY, Stage, one_of_each_line
from tests.integration.people import People, give_keys

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account
    from agentpod_bot.demo.person import Person

pytestmark = pytest.mark.synapse

POINTS = 5
"""Of each way, spread evenly over its lines."""
TOGETHER = 2


@dataclass(frozen=True)
class SynapseRoom:
    """A room of its own at the real homeserver, plain or encrypted."""

    person: Person
    homeserver: str
    room_id: str
    account: Account
    owner: str
    sealed: bool

    @property
    def pod(self) -> str:
        return self.account.user_id

    @property
    def bot(self) -> tuple[str, str]:
        return self.account.user_id, self.account.access_token

    async def prepare(self, daemon: DoomedDaemon) -> None:
        if self.sealed:
            await give_keys(daemon, self.account)

    async def answer(self, question_id: str) -> None:
        await self.person.reply(self.room_id, question_id, "1")

    async def events(self) -> list[Event]:
        if self.sealed:  # the keys to what it says come with a sync
            await self.person.sync(wait_ms=0)
        return await self.person.history(self.room_id)


@pytest.fixture
async def stage(people: People, register: Callable[[str], Awaitable[Account]], tmp_path: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as devices, Dooms(tmp_path / "dooms.log") as dooms:

        async def room() -> SynapseRoom:
            pod, owner = await register("pod"), await register("owner")
            room_id = await people.room(owner, pod)
            person = await devices.enter_async_context(people.at(owner))
            return SynapseRoom(person, people.synapse.url, room_id, pod, owner.user_id, people.sealed)

        yield Stage(dooms, tmp_path, room)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name)
async def test_killed_while_it_talks_to_the_real_homeserver_it_asks_once_decides_once_and_tells_once(
    stage: Stage, way: Way, *, sealed: bool
) -> None:
    """What only an encrypted room has it do, it comes to here alone: `make crash` kills it at every line of that."""
    lines = one_of_each_line(await stage.record(way))
    assert any("e2e" in line for line in lines) == sealed
    few = lines[:: len(lines) // POINTS][:POINTS]
    keys = [line for line in lines if "e2e" in line]
    points = [*dict.fromkeys([*few, *keys])] if EVERY else few
    deaths = await stage.survive(way, points, together=TOGETHER)
    assert deaths.all_went_well(), deaths.told()
    assert deaths.survived >= POINTS
