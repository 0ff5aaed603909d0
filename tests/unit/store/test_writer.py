from __future__ import annotations

import asyncio
import resource
import sqlite3
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from agentpod_bot.core.model import OPEN
from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.store.database import open_store
from agentpod_bot.store.writer import MOST_TOGETHER
from tests.unit.store.examples import ROOM, T0, effect, ended, insert_pending, question

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from agentpod_bot.ports import Tx
    from agentpod_bot.store.database import SqlStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agentpod.db"


@asynccontextmanager
async def opened(path: Path, busy_timeout_ms: int = 50) -> AsyncIterator[SqlStore]:
    store = open_store(path, busy_timeout_ms=busy_timeout_ms)
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqlStore]:
    async with opened(path) as store:
        yield store


def stored_numbers(tx: Tx) -> set[int]:
    return {stored.asked.request_seq for stored in tx.open_questions()}


def insert(tx: Tx, number: int) -> int:
    return tx.insert(question(number)).row


@asynccontextmanager
async def held_up(store: SqlStore) -> AsyncIterator[None]:
    """Keep the writer busy, so that what is handed over in the body waits together."""
    started, go_on = threading.Event(), threading.Event()

    def work(_tx: Tx) -> None:
        started.set()
        assert go_on.wait(10)

    busy = asyncio.ensure_future(store.run(work))
    await asyncio.to_thread(started.wait)
    try:
        yield
    finally:
        go_on.set()
    await busy


@contextmanager
def commits(store: SqlStore) -> Iterator[list[str]]:
    """The commits, savepoints and rollbacks of the writer's engine, as they happen."""
    seen: list[str] = []
    engine = store._writer._engine
    names = ("commit", "rollback", "savepoint", "rollback_savepoint")

    def listener(name: str) -> Any:
        return lambda *_: seen.append(name)

    listeners = {name: listener(name) for name in names}
    for name, heard in listeners.items():
        event.listen(engine, name, heard)
    try:
        yield seen
    finally:
        for name, heard in listeners.items():
            event.remove(engine, name, heard)


async def test_run_returns_what_the_work_returned_and_it_is_there_for_the_next(store: SqlStore) -> None:
    row = await store.run(lambda tx: insert(tx, 1))
    found = await store.run(lambda tx: tx.open_questions())
    assert [stored.row for stored in found] == [row]


async def test_what_run_returned_is_on_the_disk(store: SqlStore, path: Path) -> None:
    await store.run(lambda tx: insert(tx, 1))
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT request_seq FROM questions").fetchall() == [(1,)]
    other.close()


async def test_what_a_work_raises_is_raised_to_its_caller_and_nothing_of_it_is_kept(store: SqlStore) -> None:
    def fails(tx: Tx) -> None:
        insert(tx, 1)
        raise LookupError("no such thing")

    with pytest.raises(LookupError, match="no such thing"):
        await store.run(fails)
    assert await store.run(stored_numbers) == set()


@pytest.mark.parametrize("error", [StopIteration(), GeneratorExit(), SystemExit(3), asyncio.CancelledError()])
async def test_whatever_a_work_raises_the_writer_goes_on(store: SqlStore, error: BaseException) -> None:
    def fails(tx: Tx) -> None:
        insert(tx, 1)
        raise error

    with pytest.raises((type(error), RuntimeError)) as caught:  # StopIteration becomes a RuntimeError
        await store.run(fails)
    assert error in {caught.value, caught.value.__cause__}
    assert await store.run(stored_numbers) == set()


async def test_works_that_wait_together_commit_together(store: SqlStore) -> None:
    with commits(store) as seen:
        rows = await asyncio.gather(*(store.run(lambda tx, n=n: insert(tx, n)) for n in range(1, 201)))
        assert len(set(rows)) == 200
        assert seen.count("commit") <= 20
    assert await store.run(stored_numbers) == set(range(1, 201))


async def test_one_that_fails_takes_none_of_those_with_it_that_wait_beside_it(store: SqlStore) -> None:
    def work(tx: Tx, number: int) -> int:
        insert(tx, number)
        if number % 3 == 0:
            raise ValueError(number)
        return number

    with commits(store) as seen:
        async with held_up(store):
            calls = [asyncio.ensure_future(store.run(lambda tx, n=n: work(tx, n))) for n in range(1, 10)]
            await asyncio.sleep(0)
        results = await asyncio.gather(*calls, return_exceptions=True)
    assert [repr(result) for result in results] == [
        repr(number if number % 3 else ValueError(number)) for number in range(1, 10)
    ]
    assert seen.count("rollback_savepoint") == 3
    assert seen.count("commit") == 2
    assert await store.run(stored_numbers) == {1, 2, 4, 5, 7, 8}


async def test_nobody_hears_of_a_success_before_the_commit(store: SqlStore) -> None:
    heard: list[str] = []
    engine = store._writer._engine
    event.listen(engine, "commit", lambda _: heard.append("commit"))
    async with held_up(store):
        calls = [asyncio.ensure_future(store.run(lambda tx, n=n: insert(tx, n))) for n in (1, 2, 3)]
        for call in calls:
            call.add_done_callback(lambda _: heard.append("told"))
        await asyncio.sleep(0)
    await asyncio.gather(*calls)
    await asyncio.sleep(0)
    assert heard == ["commit", "commit", "told", "told", "told"]


async def test_where_the_commit_fails_all_of_them_fail_and_nothing_is_kept(store: SqlStore) -> None:
    engine = store._writer._engine

    commits_so_far: list[None] = []

    def refuse(_: Any) -> None:
        commits_so_far.append(None)
        if len(commits_so_far) == 2:  # the first is that of the work that holds the writer up
            raise OperationalError("COMMIT", None, sqlite3.OperationalError("disk I/O error"))

    def own_failure(_tx: Tx) -> None:
        raise LookupError("its own")

    event.listen(engine, "commit", refuse)
    async with held_up(store):
        calls = [asyncio.ensure_future(store.run(lambda tx, n=n: insert(tx, n))) for n in (1, 2)]
        calls.append(asyncio.ensure_future(store.run(own_failure)))
        await asyncio.sleep(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable, LookupError]
    assert results[0] is not results[1]
    assert "disk I/O error" in str(results[0])
    await store.run(lambda tx: insert(tx, 3))
    assert await store.run(stored_numbers) == {3}


async def test_a_disk_that_takes_no_more_is_unavailable_and_the_store_recovers(store: SqlStore, path: Path) -> None:
    """The limit on file sizes makes the real write of the real commit fail."""
    await store.run(lambda tx: insert(tx, 1))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    wal = path.with_name(f"{path.name}-wal")
    resource.setrlimit(resource.RLIMIT_FSIZE, (wal.stat().st_size, hard))
    try:
        async with held_up(store):
            calls = [asyncio.ensure_future(store.run(lambda tx, n=n: insert(tx, n))) for n in (2, 3)]
            await asyncio.sleep(0)
        results = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [type(result) for result in results] == [StoreUnavailable, StoreUnavailable]
    await store.run(lambda tx: insert(tx, 4))
    assert await store.run(stored_numbers) == {1, 4}


async def test_a_full_database_is_unavailable_and_the_store_recovers(store: SqlStore) -> None:
    engine = store._writer._engine
    bound = ["PRAGMA max_page_count=1"]

    def limit(connection: Any) -> None:
        connection.exec_driver_sql(bound[0])

    event.listen(engine, "begin", limit)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.run(lambda tx: tx.insert(question(1, raw=b"x" * 1_000_000)))
    bound[0] = "PRAGMA max_page_count=1000000"
    await store.run(lambda tx: insert(tx, 2))
    assert await store.run(stored_numbers) == {2}


async def test_a_file_that_another_program_has_locked_is_unavailable_until_it_lets_go(
    store: SqlStore, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    calls = [store.run(lambda tx, n=n: insert(tx, n)) for n in (1, 2, 3)]
    for result in await asyncio.gather(*calls, return_exceptions=True):
        assert isinstance(result, StoreUnavailable)
        assert "locked" in str(result)
    other.execute("ROLLBACK")
    other.close()
    await store.run(lambda tx: insert(tx, 4))
    assert await store.run(stored_numbers) == {4}


async def test_a_work_that_hides_the_databases_failure_fails_all_the_same(store: SqlStore) -> None:
    """SQLite may have undone everything by then; what follows would be committed alone."""
    engine = store._writer._engine

    def forbid(connection: Any) -> None:
        connection.exec_driver_sql("PRAGMA query_only=ON")

    event.listen(engine, "begin", forbid)
    hidden: list[type] = []

    def hides(tx: Tx) -> str:
        for attempt in (lambda: insert(tx, 1), lambda: tx.savepoint(lambda: insert(tx, 2)), tx.next_deadline):
            try:
                attempt()
            except StoreUnavailable as error:
                hidden.append(type(error))
        return "all is well"

    with pytest.raises(StoreUnavailable, match="readonly"):
        await store.run(hides)
    assert hidden == [StoreUnavailable] * 3
    event.remove(engine, "begin", forbid)
    assert await store.run(stored_numbers) == set()


async def test_no_failure_repeats_what_was_to_be_written(store: SqlStore) -> None:
    engine = store._writer._engine
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("PRAGMA query_only=ON"))
    with pytest.raises(StoreUnavailable) as caught:
        await store.run(lambda tx: tx.insert(question(title="hunter2", raw=b"hunter2")))
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error)
        error = error.__cause__


async def test_a_cancelled_caller_disturbs_neither_the_writer_nor_the_others(store: SqlStore) -> None:
    async with held_up(store):
        calls = [asyncio.ensure_future(store.run(lambda tx, n=n: insert(tx, n))) for n in (1, 2, 3)]
        await asyncio.sleep(0)
        calls[1].cancel()
        await asyncio.sleep(0)
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(results[1], asyncio.CancelledError)
    assert {1, 3} <= await store.run(stored_numbers)


async def test_a_caller_whose_event_loop_is_gone_disturbs_nobody(store: SqlStore) -> None:
    def elsewhere() -> None:
        async def hand_over_and_leave() -> None:
            call = asyncio.ensure_future(store.run(lambda tx: insert(tx, 1)))
            await asyncio.sleep(0)
            call.cancel()

        asyncio.run(hand_over_and_leave())

    async with held_up(store):
        await asyncio.to_thread(elsewhere)
    assert await store.run(stored_numbers) == {1}


async def test_works_come_from_several_event_loops(store: SqlStore) -> None:
    def elsewhere(number: int) -> int:
        return asyncio.run(store.run(lambda tx: insert(tx, number)))

    await asyncio.gather(*(asyncio.to_thread(elsewhere, number) for number in (1, 2, 3)))
    assert await store.run(stored_numbers) == {1, 2, 3}


async def test_closing_runs_what_was_handed_over_and_takes_no_more(path: Path) -> None:
    store = open_store(path)
    async with held_up(store):
        calls = [asyncio.ensure_future(store.run(lambda tx, n=n: insert(tx, n))) for n in range(1, 6)]
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.run(stored_numbers)
    await closing
    assert len(await asyncio.gather(*calls)) == 5
    await store.close()
    async with opened(path) as again:
        assert await again.run(stored_numbers) == {1, 2, 3, 4, 5}


async def test_no_commit_is_kept_waiting_for_more_works_than_its_bound(store: SqlStore) -> None:
    number = MOST_TOGETHER + 1
    with commits(store) as seen:
        async with held_up(store):
            calls = [asyncio.ensure_future(store.run(lambda tx: tx.next_deadline())) for _ in range(number)]
            await asyncio.sleep(0)
        await asyncio.gather(*calls)
    assert seen.count("savepoint") == MOST_TOGETHER
    assert seen.count("commit") == 3


async def test_a_transaction_cannot_be_used_after_its_work(store: SqlStore) -> None:
    kept: list[Tx] = []
    await store.run(kept.append)
    with pytest.raises(RuntimeError, match="ended"):
        await store.run(lambda _: kept[0].next_deadline())


async def test_a_decision_its_effect_and_the_position_are_kept_together_or_not_at_all(store: SqlStore) -> None:
    row = await store.run(lambda tx: insert_pending(tx).row)

    def decides(tx: Tx) -> None:
        assert tx.close(row, ended(), from_status=OPEN, revision=1, now_ms=T0)
        assert tx.enqueue(effect("outcome", row=row))
        raise ConnectionError("killed before the position moved")

    with pytest.raises(ConnectionError):
        await store.run(decides)
    assert await store.run(stored_numbers) == {1}
    assert await store.run(lambda tx: tx.begin(ROOM, T0)) is None
