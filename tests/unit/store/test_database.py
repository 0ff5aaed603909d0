from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from agentpod_bot.errors import StoreRefused
from agentpod_bot.store.database import open_store
from agentpod_bot.store.engine import sqlite_engine
from tests.unit.store.examples import question

if TYPE_CHECKING:
    from pathlib import Path

WRITER = """
import asyncio, sys
from pathlib import Path
from agentpod_bot.log import configure
from agentpod_bot.store.database import open_store
from tests.unit.store.examples import question

async def main() -> None:
    configure("warning", "json", sys.stderr)
    store = open_store(Path(sys.argv[1]))

    async def insert(number: int) -> None:
        await store.run(lambda tx: tx.insert(question(number)))
        print(number, flush=True)

    for first in range(1, 1_000_000, 4):
        await asyncio.gather(*(insert(number) for number in range(first, first + 4)))

asyncio.run(main())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agentpod.db"


def writing_child(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)


def modes_in(folder: Path) -> dict[str, int]:
    return {file.name: mode(file) for file in folder.iterdir()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_the_files_are_for_the_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "agentpod.db"
    before = os.umask(0)
    try:
        store = open_store(path)
        await store.run(lambda tx: tx.insert(question()))
        modes = modes_in(path.parent)
        await store.close()
    finally:
        os.umask(before)
    names = {"agentpod.db", "agentpod.db-wal", "agentpod.db-shm", "agentpod.db.lock"}
    assert modes == dict.fromkeys(names, 0o600)
    assert mode(path.parent) == mode(path.parent.parent) == 0o700


def test_a_file_that_was_too_open_is_closed_up(path: Path) -> None:
    asyncio.run(open_store(path).close())
    path.chmod(0o644)
    asyncio.run(open_store(path).close())
    assert mode(path) == 0o600


@pytest.mark.parametrize("others", [0o710, 0o750, 0o755, 0o770, 0o777, 0o701])
def test_a_folder_that_others_can_use_is_refused_with_the_command_that_helps(path: Path, others: int) -> None:
    asyncio.run(open_store(path).close())
    path.parent.chmod(others)
    with pytest.raises(StoreRefused) as refused:
        open_store(path)
    assert f"has mode 0{others:o}" in str(refused.value)
    assert str(refused.value).endswith(f"run: chmod 700 {path.parent}")
    assert mode(path.parent) == others
    path.parent.chmod(0o700)
    asyncio.run(open_store(path).close())


@pytest.mark.parametrize(("folder_mode", "beside"), [(0o755, "config.yaml"), (0o1777, None), (0o777, "somebodys")])
def test_of_a_folder_that_is_not_the_stores_alone_no_mode_is_to_be_changed(
    path: Path, folder_mode: int, beside: str | None
) -> None:
    """`chmod 700 /tmp`, or of somebody's home, is no advice."""
    if beside is not None:
        (path.parent / beside).touch()
    path.parent.chmod(folder_mode)
    with pytest.raises(StoreRefused, match=r"set store\.path to a file in a folder of its own") as refused:
        open_store(path)
    assert "chmod" not in str(refused.value)
    assert not path.exists()
    its_own = path.parent / "agentpod-bot" / path.name
    assert str(its_own) in str(refused.value)
    asyncio.run(open_store(its_own).close())
    assert mode(its_own.parent) == 0o700


async def test_what_was_stored_is_there_after_opening_again(path: Path) -> None:
    store = open_store(path)
    stored = await store.run(lambda tx: tx.insert(question()))
    await store.close()
    store = open_store(path)
    assert await store.run(lambda tx: tx.open_questions()) == (stored,)
    await store.close()


async def test_a_commit_is_flushed_to_the_disk_and_keys_are_checked(path: Path) -> None:
    engine = sqlite_engine(path)
    with engine.connect() as connection:
        pragmas = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        values = [connection.execute(text(f"PRAGMA {name}")).scalar_one() for name in pragmas]
        driver: Any = connection.connection.driver_connection
        assert driver.isolation_level is None  # or the driver would begin and commit on its own
    assert values == ["wal", 2, 1, 5000]


async def test_a_second_opener_is_refused_and_told_who_holds_the_store(path: Path) -> None:
    store = open_store(path)
    with pytest.raises(StoreRefused, match=rf"process {os.getpid()} on .+, running since .+ stop that process"):
        open_store(path)
    await store.run(lambda tx: tx.insert(question()))
    await store.close()
    await open_store(path).close()


async def test_a_link_to_the_store_is_the_same_store(path: Path, tmp_path: Path) -> None:
    store = open_store(path)
    link = tmp_path / "link.db"
    link.symlink_to(path)
    with pytest.raises(StoreRefused, match="in use"):
        open_store(link)
    await store.close()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": 1}', b"\xff"])
async def test_who_holds_the_store_may_be_unreadable(path: Path, note: bytes) -> None:
    store = open_store(path)
    path.with_name("agentpod.db.lock").write_bytes(note)
    with pytest.raises(StoreRefused, match="in use by another process"):
        open_store(path)
    await store.close()


async def test_the_lock_names_its_holder_and_nobody_once_it_is_released(path: Path) -> None:
    store = open_store(path)
    lock = path.with_name("agentpod.db.lock")
    note = json.loads(lock.read_bytes())
    assert note["pid"] == os.getpid()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", note["started_at"])
    await store.close()
    assert lock.read_bytes() == b""


async def test_kill_9_in_the_middle_of_writing_loses_nothing_that_was_resolved(path: Path) -> None:
    child = writing_child(path)
    assert child.stdout is not None
    resolved = [int(child.stdout.readline()) for _ in range(120)]
    with pytest.raises(StoreRefused, match=f"process {child.pid} "):
        open_store(path)
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    resolved += [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    store = open_store(path)
    kept = {stored.asked.request_seq for stored in await store.run(lambda tx: tx.open_questions())}
    await store.run(lambda tx: tx.insert(question(2_000_000)))
    await store.close()
    assert set(resolved) <= kept
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


async def test_a_newer_schema_is_refused_with_what_to_do_and_left_as_it_is(path: Path) -> None:
    await open_store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(StoreRefused, match=r"newer version .* 9999, .* install that version again"):
        open_store(path)
    assert connection.execute("SELECT version_num FROM alembic_version").fetchall() == [("9999",)]
    connection.close()
    with pytest.raises(StoreRefused, match="newer version"):
        open_store(path)  # the lock was let go


def test_a_database_of_another_program_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(StoreRefused, match="another program"):
        open_store(path)


def test_a_file_that_is_no_database_is_refused(path: Path) -> None:
    path.write_bytes(b"plain text, and more than a page header of it. " * 30)
    with pytest.raises(StoreRefused, match="not a database"):
        open_store(path)


def test_a_folder_in_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreRefused, match="Is a directory"):
        open_store(path)


def test_a_file_in_place_of_the_folder_is_refused(path: Path) -> None:
    path.write_bytes(b"")
    with pytest.raises(StoreRefused, match=r"Not a directory|cannot be made"):
        open_store(path / "deeper" / "agentpod.db")


def test_a_lock_file_that_cannot_be_opened_is_refused(path: Path) -> None:
    path.with_name("agentpod.db.lock").mkdir()
    with pytest.raises(StoreRefused, match="lock file"):
        open_store(path)
