from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.errors import StoreRefused
from agentpod_bot.store.backup import back_up, read_only
from agentpod_bot.store.database import open_store
from tests.unit.store.examples import insert_closed, insert_pending, question
from tests.unit.store.test_integrity import filled, overwrite

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.ports import Tx


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir(mode=0o700)
    return folder / "agentpod.db"


def in_folder(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


async def test_a_backup_of_a_running_store_holds_what_was_committed_and_is_one_private_file(
    path: Path, tmp_path: Path
) -> None:
    store = open_store(path)
    asked = await store.run(lambda tx: (insert_pending(tx, 1), insert_closed(tx, 2), tx.insert(question(3))))
    target = tmp_path / "backup.db"
    before = os.umask(0)
    try:
        copied = await asyncio.to_thread(back_up, path, target)
    finally:
        os.umask(before)
    await store.run(lambda tx: insert_pending(tx, 4))
    await store.close()
    assert (copied.questions, copied.open_questions, copied.size) == (3, 2, target.stat().st_size)
    assert target.stat().st_mode & 0o777 == 0o600
    assert in_folder(tmp_path) == {"store", "backup.db"}
    target.rename(tmp_path / "store" / "restored.db")
    restored = open_store(tmp_path / "store" / "restored.db")
    assert await restored.run(lambda tx: tuple(tx.question(each.row) for each in asked)) == asked
    assert await restored.run(lambda tx: len(tx.open_questions())) == 2
    await restored.close()


def insert_two(tx: Tx, number: int) -> None:
    for each in (number, number + 1):
        tx.insert(question(each))


async def test_a_backup_is_of_one_moment_however_much_is_written_meanwhile(path: Path, tmp_path: Path) -> None:
    """Questions come in pairs here; no copy may hold one without the other."""
    store = open_store(path)
    stop = asyncio.Event()

    async def write() -> None:
        number = 1
        while not stop.is_set():
            await store.run(partial(insert_two, number=number))
            number += 2

    writing = asyncio.create_task(write())
    counts = [
        (await asyncio.to_thread(back_up, path, tmp_path / f"backup{number}.db")).questions for number in range(8)
    ]
    stop.set()
    await writing
    await store.close()
    assert all(count % 2 == 0 for count in counts)
    assert counts == sorted(counts)


def test_nothing_is_overwritten(path: Path, tmp_path: Path) -> None:
    filled(path, 2)
    target = tmp_path / "backup.db"
    target.write_text("precious")
    link = tmp_path / "link.db"
    link.symlink_to(tmp_path / "nowhere")
    for taken in (target, link, path):
        with pytest.raises(FileExistsError):
            back_up(path, taken)
    assert target.read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_damaged_store_gives_no_backup(path: Path, tmp_path: Path) -> None:
    filled(path)
    overwrite(path)
    with pytest.raises(StoreRefused, match=r"damaged|malformed"):
        back_up(path, tmp_path / "backup.db")
    assert in_folder(tmp_path) == {"store"}


def test_what_is_no_store_gives_no_backup(path: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreRefused, match="there is no store"):
        back_up(path, tmp_path / "backup.db")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    with pytest.raises(StoreRefused, match="is no store of this version"):
        back_up(path, tmp_path / "backup.db")
    assert in_folder(tmp_path) == {"store"}


def test_a_disk_that_takes_no_more_leaves_nothing_behind(path: Path, tmp_path: Path) -> None:
    import resource  # noqa: PLC0415 - only here

    filled(path)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    try:
        with pytest.raises(OSError, match="No space left"):
            back_up(path, tmp_path / "backup.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert in_folder(tmp_path) == {"store"}


def test_a_connection_that_only_reads_can_change_nothing(path: Path) -> None:
    filled(path, 3)
    with closing(read_only(path)) as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM questions")
