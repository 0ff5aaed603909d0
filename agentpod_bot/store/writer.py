"""The one thread that uses the database, and the commits that works share.

Works that wait together run one after the other, each in a savepoint of one transaction,
and are committed together: one flush of the disk for all of them. Nobody hears of a
success before that commit.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from itertools import zip_longest
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.store.callbacks import Callbacks
from agentpod_bot.store.copies import Copies
from agentpod_bot.store.health import Health
from agentpod_bot.store.journal import Journal, Tail
from agentpod_bot.store.outbox import Outbox
from agentpod_bot.store.successors import Successors
from agentpod_bot.store.timeline import Timeline
from agentpod_bot.store.transaction import unavailable
from agentpod_bot.store.undecrypted import UndecryptedEvents
from agentpod_bot.store.votes import Votes

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Sequence

    from sqlalchemy import Connection, Engine, Transaction

MOST_TOGETHER = 256
"""Works that share one commit at most, so that the first of them is not kept waiting for ever."""


class SqlTx(Successors, Copies, Votes, Outbox, Callbacks, Timeline, UndecryptedEvents, Health, Journal):
    """All of `ports.Tx`."""


@dataclass(frozen=True, slots=True)
class Done:
    """What a work returned."""

    value: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """What a work raised, or why nothing of it was kept."""

    error: BaseException


Ending = Done | Failed


@dataclass(frozen=True, slots=True)
class Job:
    """A work, and the future of the event loop in which somebody awaits its ending."""

    work: Callable[[SqlTx], Any]
    ending: asyncio.Future[Ending]


class Writer:
    """Runs works on a thread of its own until it is closed; `after` runs last on that thread.

    The thread is a daemon: a process that ends without closing must not hang, and what
    was not committed then is what a crash loses too.
    """

    def __init__(self, engine: Engine, *, after: Callable[[], None]) -> None:
        self._engine = engine
        self._after = after
        self._connection: Connection | None = None
        self._tail = Tail()
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._thread.start()

    def hand_over(self, job: Job) -> None:
        """Queue a job, from any thread. Raises StoreUnavailable once the writer is closed."""
        with self._gate:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            self._jobs.put(job)

    def close(self) -> None:
        """Take no more jobs; those that were handed over are still run. Returns at once."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)

    def join(self) -> None:
        """Block until the thread has ended; only after `close`."""
        self._thread.join()

    def _serve(self) -> None:
        try:
            while jobs := self._take():
                _tell(jobs, self._commit_together(jobs))
            self._disconnect()
        finally:
            self._after()

    def _take(self) -> list[Job]:
        """Wait for a job and take all that wait with it; nothing once the writer is closed and done."""
        jobs: list[Job] = []
        job = self._jobs.get()
        while job is not None:
            jobs.append(job)
            if len(jobs) == MOST_TOGETHER:
                return jobs
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return jobs
        if jobs:
            self._jobs.put(None)  # the end is for the next call; nothing is queued behind it
        return jobs

    def _commit_together(self, jobs: Sequence[Job]) -> Sequence[Ending]:
        """One ending for each job, after the commit.

        Where the transaction as a whole is lost, nothing of any job is kept, and each
        that had not failed by itself fails with StoreUnavailable.
        """
        endings: list[Ending] = []
        try:
            connection = self._connect()
            with connection.begin() as whole:
                for job in jobs:
                    part = whole if len(jobs) == 1 else connection.begin_nested()  # alone, it needs no savepoint
                    endings.append(_attempt(connection, self._tail, part, job.work))
                    if part.is_active and part is not whole:
                        part.commit()
        except BaseException as error:  # noqa: BLE001 - whatever it is, nobody may be left waiting
            self._disconnect()
            return [
                ending if isinstance(ending, Failed) else Failed(unavailable(error))
                for ending, _ in zip_longest(endings, jobs)
            ]
        if any(isinstance(ending, Failed) and isinstance(ending.error, StoreUnavailable) for ending in endings):
            self._disconnect()  # the next works begin with a connection that has seen no failure
        return endings

    def _connect(self) -> Connection:
        """The connection; a new one where the last was given up after a failure."""
        if self._connection is None:
            self._connection = self._engine.connect()
        return self._connection

    def _disconnect(self) -> None:
        """Give the connection up, whatever state it is in; the database undoes what was not committed."""
        connection, self._connection = self._connection, None
        self._tail.last = None
        if connection is not None:
            connection.invalidate()
            connection.close()


def _attempt(connection: Connection, tail: Tail, part: Transaction, work: Callable[[SqlTx], Any]) -> Ending:
    """Run one work, and undo its part where it fails. Raises only where the whole transaction is lost."""
    tx = SqlTx(connection, tail)
    before = tail.last
    try:
        value = work(tx)
        tx.check()
    except BaseException as error:  # noqa: BLE001 - it is handed to whoever awaits the work
        tail.last = before
        part.rollback()
        return Failed(error)
    finally:
        tx.end()
    return Done(value)


def _tell(jobs: Sequence[Job], endings: Sequence[Ending]) -> None:
    """Wake every event loop once, with all that its callers await."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Ending], Ending]]] = {}
    for job, ending in zip(jobs, endings, strict=True):
        by_loop.setdefault(job.ending.get_loop(), []).append((job.ending, ending))
    for loop, told in by_loop.items():
        with suppress(RuntimeError):  # that loop is closed: nobody awaits there any more
            loop.call_soon_threadsafe(_settle, told)


def _settle(told: Sequence[tuple[asyncio.Future[Ending], Ending]]) -> None:
    for future, ending in told:
        if not future.done():  # a caller may have been cancelled; the others are not
            future.set_result(ending)
