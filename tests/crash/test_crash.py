"""The real process dies by SIGKILL at every await of asking and of answering; nothing is lost or doubled."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.crash.dooms import DoomedDaemon, Dooms
from tests.crash.scene import Event, Form, Way
from tests.crash.stage import EVERY, Stage, lines_of, one_of_each_line
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

TOGETHER = 4
LEAST_POINTS = {Way.ASK: 140, Way.ANSWER: 184}
LEAST_LINES = {Way.ASK: 47, Way.ANSWER: 50}
LEAST_OWN_LINES = {Way.ASK: 5, Way.ANSWER: 3}
"""Of a held call, beside those that a native one comes to as well."""


@dataclass(frozen=True)
class FakeRoom:
    """A room of its own at the fake homeserver."""

    hs: FakeHomeserver
    homeserver: str
    room_id: str
    pod: str
    owner: str
    bot: tuple[str, str]

    async def prepare(self, daemon: DoomedDaemon) -> None:
        """It needs nothing."""

    async def answer(self, question_id: str) -> None:
        self.hs.say(self.room_id, self.owner, "1", reply_to=question_id)

    async def events(self) -> list[Event]:
        return self.hs.timeline(self.room_id)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    numbers = itertools.count(1)
    async with FakeHomeserver() as hs, Dooms(tmp_path / "dooms.log") as dooms:

        async def room() -> FakeRoom:
            number = next(numbers)
            pod, owner = hs.user(f"pod{number}"), hs.user(f"owner{number}")
            token = hs.token(pod, f"POD{number}")
            return FakeRoom(hs, hs.url, hs.room(pod, owner), pod, owner, (pod, token))

        yield Stage(dooms, tmp_path, room)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name)
async def test_killed_at_any_await_it_asks_once_decides_once_and_tells_once(stage: Stage, way: Way) -> None:
    points = await stage.record(way)
    assert len(points) >= LEAST_POINTS[way]
    assert len(lines_of(points)) >= LEAST_LINES[way]
    deaths = await stage.survive(way, points if EVERY else one_of_each_line(points), together=TOGETHER)
    assert deaths.all_went_well(), deaths.told()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", list(Way), ids=lambda way: way.name)
async def test_killed_while_a_call_is_held_it_gives_the_same_call_the_answer_once_it_comes_again(
    stage: Stage, way: Way
) -> None:
    native = lines_of(await stage.record(way))
    stage.form = Form.HOOK
    points = await stage.record(way)
    own = [point for line, found in lines_of(points).items() if line not in native for point in found]
    assert len(lines_of(own)) >= LEAST_OWN_LINES[way]
    deaths = await stage.survive(way, own, together=TOGETHER)
    assert deaths.all_went_well(), deaths.told()
