"""The one thread on which the device's keys are used: what they do blocks, and nothing else may touch them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from agentpod_bot.matrix.e2e.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.matrix.e2e.vault import Vault

T = TypeVar("T")


class Keys:
    """Open keys of a device."""

    def __init__(self, machine: Machine, thread: ThreadPoolExecutor) -> None:
        self._machine = machine
        self._thread = thread
        self._closed = False
        self.own = machine.own

    @classmethod
    async def open(cls, vault: Vault, *, make: bool = False) -> Keys:
        """The keys that are there, or with `make` new ones. Raises `CryptoStoreRefused`."""
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="keys")
        begin = Machine.make if make else Machine.open
        try:
            return cls(await asyncio.get_running_loop().run_in_executor(thread, begin, vault), thread)
        except BaseException:
            thread.shutdown(wait=False)
            raise

    async def run(self, work: Callable[[Machine], T]) -> T:
        """Run `work` on the thread. Where the caller is cancelled meanwhile, it is done all the same."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, self._machine)

    async def close(self) -> None:
        """Finish what the thread does, and close the file; a second call does nothing."""
        if not self._closed:
            self._closed = True
            await self.run(Machine.close)
            await asyncio.to_thread(self._thread.shutdown)
