from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot.errors import StoreRefused
from agentpod_bot.store.database import open_store
from agentpod_bot.store.integrity import check, first_damage
from tests.unit.store.examples import insert_pending

if TYPE_CHECKING:
    from pathlib import Path


def filled(path: Path, count: int = 200) -> None:
    """A store with questions in it, closed."""

    async def fill() -> None:
        store = open_store(path)
        await store.run(lambda tx: [insert_pending(tx, number) for number in range(1, count)])
        await store.close()

    asyncio.run(fill())


def overwrite(path: Path) -> None:
    """Spoil a page in the middle of the file."""
    raw = bytearray(path.read_bytes())
    middle = len(raw) // 2 // 4096 * 4096
    raw[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(raw)


def test_a_sound_store_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    filled(path)
    assert check(path, within_s=60)


def test_a_damaged_store_is_refused_with_what_to_do_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    filled(path)
    overwrite(path)
    before = path.read_bytes()
    with pytest.raises(StoreRefused, match=r"is damaged \(.+\); keep it, .+ put a backup in its place") as refused:
        open_store(path)
    assert refused.value.exit_code == 78
    assert path.read_bytes() == before
    with pytest.raises(StoreRefused, match="is damaged"):
        open_store(path)  # the lock was let go


def test_a_file_that_takes_too_long_to_check_is_opened_and_the_log_says_so(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    filled(path)

    async def open_at_once() -> None:
        await open_store(path, check_within_s=0).close()

    with capture_logs() as lines:
        asyncio.run(open_at_once())
    assert [line["event"] for line in lines if line["event"] == "store_check_cut_short"] in (
        [],  # a fast machine may be through before the clock is
        ["store_check_cut_short"],
    )


def test_a_check_ends_in_time(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "large.db")) as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE)")
        numbers = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)"
        connection.execute(f"{numbers} INSERT INTO t SELECT i, hex(i) || '{'x' * 80}' FROM n")  # noqa: S608 - our own
        connection.commit()
        with pytest.raises(TimeoutError):
            first_damage(connection, within_s=0.001, whole=True)
        assert first_damage(connection, within_s=60, whole=True) is None


def test_a_whole_check_finds_what_belongs_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO decisions (question_row, outcome, at_ms) VALUES (100000, 'expired', 1)")
        connection.commit()
        assert first_damage(connection, within_s=60) is None
        assert first_damage(connection, within_s=60, whole=True) == "a row of decisions belongs to nothing"
