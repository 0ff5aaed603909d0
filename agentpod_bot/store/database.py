"""The store: a SQLite file that one process holds, with one writer thread."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

import structlog
from sqlalchemy.exc import DBAPIError

from agentpod_bot.errors import StoreRefused
from agentpod_bot.ports import Store
from agentpod_bot.store import folder
from agentpod_bot.store.engine import BUSY_TIMEOUT_MS, sqlite_engine
from agentpod_bot.store.integrity import START_CHECK_S, check
from agentpod_bot.store.lock import StoreLock
from agentpod_bot.store.schema import migrate
from agentpod_bot.store.writer import Done, Failed, Job, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agentpod_bot.ports import T, Tx

log = structlog.get_logger(__name__)

_OWNER_ONLY = 0o600


class SqlStore(Store):
    """An open store. Works may be handed over from any event loop."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def run(self, work: Callable[[Tx], T]) -> T:
        """Run `work` on the writer thread; return what it returned, after the commit.

        What it raises is raised here, and nothing of it is kept. Raises StoreUnavailable
        where the database fails or is closed. Where the caller is cancelled meanwhile,
        the work may be committed all the same.
        """
        job = Job(work, asyncio.get_running_loop().create_future())
        self._writer.hand_over(job)
        match await job.ending:
            case Done(value):
                result: T = value
                return result
            case Failed(error):
                raise error

    async def close(self) -> None:
        """Run what was handed over, then let go of the file and its lock; a second call only waits too."""
        self._writer.close()
        await asyncio.to_thread(self._writer.join)


def open_store(
    path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS, check_within_s: float = START_CHECK_S
) -> SqlStore:
    """Lock, check, make or migrate the store of a file, and start its writer thread; blocks meanwhile.

    The file, its -wal, its -shm and its lock are for the owner alone (0600), and so is the
    folder, which is made where it is not there (0700).
    Raises StoreRefused, with a sentence that says what to do, where others can use the
    folder, another process holds the store, a newer version wrote it, it is damaged, or it
    cannot be read as a store. A file that cannot be checked in `check_within_s` is opened.
    """
    path = path.resolve()  # one lock for one file, whatever link leads to it
    with ExitStack() as undo:
        folder.prepare(path)
        lock = StoreLock.acquire(path)
        undo.callback(lock.release)
        _prepare_file(path)
        if not check(path, within_s=check_within_s):
            log.warning("store_check_cut_short", after_s=check_within_s, bytes=path.stat().st_size)
        engine = sqlite_engine(path, busy_timeout_ms=busy_timeout_ms)
        try:
            migrate(engine)
        except DBAPIError as error:
            raise StoreRefused(f"the store {path} cannot be opened: {error.orig}") from error
        undo.pop_all()
    return SqlStore(Writer(engine, after=lock.release))


def _prepare_file(path: Path) -> None:
    """Make the file before SQLite does: its -wal and -shm get the mode of it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _OWNER_ONLY))
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            file = path.with_name(name)
            if file.exists() and file.stat().st_mode & 0o777 != _OWNER_ONLY:
                file.chmod(_OWNER_ONLY)
    except OSError as error:
        raise StoreRefused(f"the store {path} cannot be opened: {error.strerror}") from error
