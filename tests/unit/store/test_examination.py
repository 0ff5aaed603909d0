from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from agentpod_bot.store.database import open_store
from agentpod_bot.store.examination import Examined, examine
from agentpod_bot.store.schema import known_schemas
from tests.unit.store.examples import MINUTE, T0, effect, insert_closed, insert_pending
from tests.unit.store.test_integrity import filled, overwrite

if TYPE_CHECKING:
    from pathlib import Path


def look(path: Path) -> Examined:
    return examine(path, within_s=60)


def test_a_store_that_is_not_there_yet_is_no_fault_and_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "later" / "agentpod.db"
    found = look(path)
    assert (found.exists, found.fault, found.folder_fault, found.free_bytes) == (False, None, None, None)
    assert not path.parent.exists()


async def test_a_running_store_is_looked_at_without_disturbing_it(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    store = open_store(path)
    await store.run(lambda tx: (insert_pending(tx, 1), insert_pending(tx, 2), insert_closed(tx, 3)))
    await store.run(lambda tx: tx.enqueue(effect("hint")))
    found = look(path)
    assert (found.open_questions, found.oldest_open_ms, found.unsent) == (2, T0 + MINUTE, 1)
    assert found.schema == found.newest_schema == known_schemas()[0]
    assert found.checked_whole
    assert (found.fault, found.folder_fault, found.file_modes) == (None, None, {})
    assert found.held_by == os.getpid()
    assert found.free_bytes
    await store.run(lambda tx: insert_pending(tx, 4))
    await store.close()
    assert look(path).held_by is None


def test_modes_that_let_others_in_are_named(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    filled(path, 2)
    path.chmod(0o644)
    assert look(path).file_modes == {"agentpod.db": 0o644}
    tmp_path.chmod(0o755)
    assert "has mode 0755" in (look(path).folder_fault or "")
    tmp_path.chmod(0o700)


def test_damage_and_a_newer_schema_and_another_program_are_faults(tmp_path: Path) -> None:
    newer, damaged, other, text = (tmp_path / name for name in ("newer.db", "damaged.db", "other.db", "text.db"))
    filled(newer, 2)
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    filled(damaged)
    overwrite(damaged)
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    text.write_text("plain text, and more than a page header of it. " * 30)
    for path in (newer, other):
        assert "its schema is unknown" in (look(path).fault or "")
    assert look(damaged).fault
    assert "not a database" in (look(text).fault or "")


def test_a_lock_that_a_dead_or_foreign_process_left_holds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "agentpod.db"
    filled(path, 2)
    lock = path.with_name("agentpod.db.lock")
    for note in ("", "{", "[]", '{"pid": 1, "host": "elsewhere"}', '{"pid": 99999999999999999999, "host": "h"}'):
        lock.write_text(note)
        assert look(path).held_by is None
