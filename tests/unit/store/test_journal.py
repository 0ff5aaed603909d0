from __future__ import annotations

import asyncio
import sqlite3
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from agentpod_bot.core.journal import Broken, Whole, examine
from agentpod_bot.errors import StoreRefused, StoreUnavailable
from agentpod_bot.store.database import open_store
from agentpod_bot.store.reading import stored_audit
from tests.unit.store.examples import T0, audit_line
from tests.unit.store.test_writer import held_up

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.ports import Tx
    from agentpod_bot.store.database import SqlStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agentpod.db"


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SqlStore]:
    store = open_store(path)
    try:
        yield store
    finally:
        await store.close()


async def write(store: SqlStore, *names: str) -> None:
    """Write these lines, in one transaction."""

    def work(tx: Tx) -> None:
        for name in names:
            tx.audit(audit_line(name))

    await store.run(work)


def checked(path: Path) -> tuple[list[str], Whole | Broken]:
    """What the lines of a store are, and what comes of following them."""
    with stored_audit(path) as kept:
        names = [fields["what"] for fields, _ in kept.lines()]
        return names, examine(kept.anchor, kept.lines(), wanted=None)


def is_whole(path: Path, *names: str) -> bool:
    found, result = checked(path)
    return found == list(names) and isinstance(result, Whole)


async def test_the_chain_goes_on_over_restarts_and_is_read_while_the_store_is_in_use_or_not(path: Path) -> None:
    for run in range(3):
        async with opened(path) as store:
            await write(store, "asked", "shown")
            assert is_whole(path, *["asked", "shown"] * (run + 1))
        assert is_whole(path, *["asked", "shown"] * (run + 1))


async def test_works_that_fail_between_others_leave_no_gap_in_the_chain(path: Path) -> None:
    def fails(tx: Tx) -> None:
        tx.audit(audit_line("lost"))
        raise LookupError("no such thing")

    async with opened(path) as store:
        async with held_up(store):
            works: list[Any] = [write(store, "one"), store.run(fails), write(store, "two"), store.run(fails)]
            calls = [asyncio.ensure_future(work) for work in works]
            await asyncio.sleep(0)  # each has handed its work over
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [type(None), LookupError, type(None), LookupError]
        with pytest.raises(LookupError):
            await store.run(fails)
        await write(store, "three")
    assert is_whole(path, "one", "two", "three")


async def test_a_commit_that_fails_takes_its_lines_out_of_the_chain(path: Path) -> None:
    async with opened(path) as store:
        await write(store, "one")
        engine = store._writer._engine

        def fail(_connection: Any) -> None:
            raise OperationalError("COMMIT", None, Exception("database or disk is full"))

        event.listen(engine, "commit", fail)
        with pytest.raises(StoreUnavailable):
            await write(store, "lost")
        event.remove(engine, "commit", fail)
        await write(store, "two")
    assert is_whole(path, "one", "two")


async def test_a_line_that_the_disk_does_not_take_is_no_part_of_the_chain(path: Path) -> None:
    async with opened(path) as store:
        await write(store, "one")
        engine = store._writer._engine

        def fail(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith("INSERT INTO audit"):
                raise OperationalError(statement, None, Exception("disk I/O error"))

        event.listen(engine, "before_cursor_execute", fail)
        with pytest.raises(StoreUnavailable):
            await write(store, "lost")
        event.remove(engine, "before_cursor_execute", fail)
        await write(store, "two")
    assert is_whole(path, "one", "two")


async def test_a_line_costs_one_statement(path: Path) -> None:
    async with opened(path) as store:
        await write(store, "one")  # the first of a connection looks where the chain ends
        statements: list[str] = []

        def heard(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            statements.append(statement)

        event.listen(store._writer._engine, "before_cursor_execute", heard)
        await write(store, "two", "three")
    assert [statement.split()[0] for statement in statements if statement != "BEGIN IMMEDIATE"] == ["INSERT", "INSERT"]


async def test_pruning_keeps_the_chain_of_what_stays(path: Path) -> None:
    async with opened(path) as store:

        def work(tx: Tx) -> None:
            for at in range(6):
                tx.audit(audit_line(f"line{at}", at_ms=T0 + at))

        await store.run(work)
        assert await store.run(lambda tx: tx.prune_audit(T0 + 4)) == 4
        await write(store, "later")
    assert is_whole(path, "line4", "line5", "later")
    async with opened(path) as store:
        assert await store.run(lambda tx: tx.prune_audit(T0 + 99)) == 3
    async with opened(path) as store:
        await write(store, "last")
    assert is_whole(path, "last")
    with stored_audit(path) as kept:
        assert kept.anchor.seq == 7


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        ("UPDATE audit SET what = 'selected' WHERE seq = 3", 3),
        ("UPDATE audit SET sender = '@owner:example.org' WHERE seq = 1", 1),
        ("UPDATE audit SET at_ms = at_ms + 1 WHERE seq = 5", 5),
        ("UPDATE audit SET hash = upper(hash) WHERE seq = 2", 2),
        ("UPDATE audit SET what = CAST(what AS BLOB) WHERE seq = 2", 2),
        ("UPDATE audit SET what = CAST(x'ff' AS TEXT) WHERE seq = 2", 2),
        ("UPDATE audit SET revision = 1.5 WHERE seq = 4", 4),
        ("DELETE FROM audit WHERE seq = 1", 1),
        ("DELETE FROM audit WHERE seq IN (3, 4)", 3),
        ("INSERT INTO audit (seq, at_ms, what, hash) VALUES (7, 1, 'selected', '00')", 7),
        ("UPDATE audit SET seq = CASE seq WHEN 2 THEN -3 WHEN 3 THEN -2 ELSE seq END", 1),
        ("INSERT INTO audit_anchor VALUES (1, 2, '00')", 3),
    ],
)
async def test_whatever_is_changed_in_the_file_is_found_and_the_first_such_line_is_named(
    path: Path, change: str, seq: int
) -> None:
    async with opened(path) as store:
        await write(store, "one", "two", "three", "four", "five", "six")
    with sqlite3.connect(path) as other:
        other.execute(change)
    other.close()
    _, result = checked(path)
    assert isinstance(result, Broken)
    assert result.seq == seq


async def test_reading_changes_nothing_and_refuses_what_is_no_store(path: Path, tmp_path: Path) -> None:
    async with opened(path) as store:
        await write(store, "one")
    before = await asyncio.to_thread(path.read_bytes)
    checked(path)
    assert await asyncio.to_thread(path.read_bytes) == before
    with pytest.raises(StoreRefused, match="there is no store"), stored_audit(tmp_path / "elsewhere.db"):
        pass
    other = tmp_path / "other #1?.db"
    with sqlite3.connect(other) as made:
        made.execute("CREATE TABLE notes (text)")
    made.close()
    with pytest.raises(StoreRefused, match="cannot be read"), stored_audit(other):
        pass
    (tmp_path / "text.db").write_text("no database at all, however long it may be " * 9)
    with pytest.raises(StoreRefused, match="cannot be read"), stored_audit(tmp_path / "text.db"):
        pass
