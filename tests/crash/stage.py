"""Makes a fresh room and a fresh daemon for each death, and says what did not hold."""

from __future__ import annotations

import asyncio
import os
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.dooms import DoomedDaemon, Dooms
from tests.crash.scene import Form, Room, Scene, Unreached, Way

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

EVERY = os.environ.get("CRASH") == "all"
"""Die at every point (`make crash`); otherwise at one of each line of source."""
TRIES = 3
"""A point that a run did not come to is tried again: which of two tasks goes first is not always the same."""
MOST_UNREACHED = 0.1


@dataclass
class Deaths:
    """What became of them."""

    survived: int = 0
    broken: list[str] = field(default_factory=list)
    unreached: list[str] = field(default_factory=list)

    def all_went_well(self) -> bool:
        """Every promise was held, and next to all points were come to."""
        tried = self.survived + len(self.broken) + len(self.unreached)
        return not self.broken and len(self.unreached) <= MOST_UNREACHED * tried

    def told(self) -> str:
        """All of it for a person, a point a line."""
        lost = [f"not come to in {TRIES} runs: {point}" for point in self.unreached]
        return "\n".join([f"{self.survived} survived", *self.broken, *lost])


class Stage:
    """Where scenes are played."""

    def __init__(
        self, dooms: Dooms, folder: Path, room: Callable[[], Awaitable[Room]], form: Form = Form.NATIVE
    ) -> None:
        """`room` makes a room that nobody used before."""
        self._dooms = dooms
        self._folder = folder
        self._room = room
        self.form = form
        self._made = 0

    async def record(self, way: Way) -> list[str]:
        """Every point of a way, in the order in which it is come to."""
        scene, path = await self._scene()
        return await scene.record(way, path)

    async def survive(self, way: Way, points: Iterable[str], *, together: int) -> Deaths:
        """Die at each of these points, so many processes side by side."""
        deaths = Deaths()
        turns = asyncio.Semaphore(together)

        async def die_at(point: str) -> None:
            async with turns:
                await self._die(way, point, deaths)

        async with asyncio.TaskGroup() as tasks:
            for point in points:
                tasks.create_task(die_at(point))
        return deaths

    async def _die(self, way: Way, point: str, deaths: Deaths) -> None:
        for _ in range(TRIES):
            scene, path = await self._scene()
            try:
                await scene.survive(way, point, path)
            except Unreached:
                continue
            except (
                AssertionError,
                TimeoutError,
                ValueError,
                OSError,
            ) as error:  # the other points are tried all the same
                deaths.broken.append(f"{point}: {error!r}")
                return
            deaths.survived += 1
            return
        deaths.unreached.append(point)

    async def _scene(self) -> tuple[Scene, Path]:
        self._made += 1
        folder = self._folder / str(self._made)
        room = await self._room()
        daemon = DoomedDaemon(
            self._dooms, folder, homeserver=room.homeserver, bot=room.bot, rooms={"ops": room.room_id}
        ).approve(room.owner)
        await room.prepare(daemon)
        return Scene(daemon, room, self.form), folder / "points"


def lines_of(points: Iterable[str]) -> dict[str, list[str]]:
    """The points of each line of source."""
    lines: dict[str, list[str]] = {}
    for point in points:
        lines.setdefault(":".join(point.split(":")[:2]), []).append(point)
    return lines


def one_of_each_line(points: Iterable[str]) -> list[str]:
    """One point of each line of source, always the same of the same points."""
    return [found[zlib.crc32(line.encode()) % len(found)] for line, found in lines_of(points).items()]
