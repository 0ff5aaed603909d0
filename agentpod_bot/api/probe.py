"""A check that costs something, behind a call that needs no token."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

T = TypeVar("T")

KEEP_S = 2.0


class Probe(Generic[T]):
    """Runs a check for whoever asks: one at a time, and not again while its last result is fresh."""

    def __init__(self, check: Callable[[], Awaitable[T]], monotonic: Callable[[], float]) -> None:
        self._check = check
        self._monotonic = monotonic
        self._turn = asyncio.Lock()
        self._last: tuple[float, T] | None = None

    async def __call__(self) -> T:
        """What the check found, at most two seconds ago. What it raises is raised, and not kept."""
        async with self._turn:
            if self._last is None or self._monotonic() - self._last[0] >= KEEP_S:
                found = await self._check()
                self._last = (self._monotonic(), found)
            return self._last[1]
