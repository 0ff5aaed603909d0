"""A copy of a vault, made while the daemon uses it or not."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from agentpod_bot.matrix.e2e.identities import FILE
from agentpod_bot.matrix.e2e.vault import FILE_MODE, FOLDER_MODE, KEYS

if TYPE_CHECKING:
    from pathlib import Path


def copy_vault(folder: Path, target: Path) -> None:
    """Copy the keys as they are at one moment, and the identities, into a new folder; blocks.

    Everything in it is encrypted with the pickle key, which is not copied. Raises `OSError`
    (`FileExistsError` where the target is there) or `sqlite3.Error`; then no folder is left.
    """
    if not (folder / KEYS).is_file():
        raise FileNotFoundError(2, "there are no keys", str(folder))
    target.mkdir(mode=FOLDER_MODE)
    try:
        os.close(os.open(target / KEYS, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
        with closing(sqlite3.connect(folder / KEYS)) as keys, closing(sqlite3.connect(target / KEYS)) as copy:
            keys.backup(copy)
            _must_be_sound(copy)
        shutil.copyfile(folder / FILE, target / FILE)
        (target / FILE).chmod(FILE_MODE)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _must_be_sound(copy: sqlite3.Connection) -> None:
    if copy.execute("PRAGMA integrity_check").fetchone() != ("ok",):
        raise sqlite3.DatabaseError("the copy is not sound")
