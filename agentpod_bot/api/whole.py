"""Work that a caller who hangs up must not cut in two."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

import structlog

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine
    from contextlib import AbstractAsyncContextManager
    from typing import Any

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """Run `work` to its end, even where the caller is cancelled meanwhile; then be cancelled.

    A lost connection cancels its handler. Between a transaction and what follows from it
    (waiters to release, a room to tell) that would leave half of a change. `work` must
    not wait for a person.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        if not task.cancelled() and (fault := task.exception()) is not None:
            log.warning("abandoned_call_failed", error=type(fault).__name__)
        raise


@asynccontextmanager
async def left_whole(manager: AbstractAsyncContextManager[T]) -> AsyncIterator[T]:
    """Enter `manager` as usual, and leave it undisturbed when its body has succeeded.

    A client that closes its connection the moment it has its answer must not undo the
    note that it got it.
    """
    value = await manager.__aenter__()  # not `async with`: leaving differs
    try:
        yield value
    except BaseException as fault:
        if not await manager.__aexit__(type(fault), fault, fault.__traceback__):
            raise
    else:
        await whole(_leave(manager))


async def _leave(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
