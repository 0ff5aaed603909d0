"""Copying a store while its daemon runs, and looking at it from outside. Nothing here writes into the store."""

from __future__ import annotations

import errno
import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkstemp

from agentpod_bot.errors import StoreRefused
from agentpod_bot.store.integrity import first_damage
from agentpod_bot.store.schema import known_schemas

LONGEST_CHECK_S = 3600.0


@dataclass(frozen=True, slots=True)
class Copied:
    """What a backup holds."""

    size: int
    """In bytes."""
    open_questions: int
    questions: int


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that can change nothing, beside a running daemon too. Raises StoreRefused where there is none."""
    if not path.is_file():
        raise StoreRefused(f"there is no store at {path}")
    try:
        return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise StoreRefused(f"the store {path} cannot be opened: {error}") from error


def back_up(store: Path, target: Path) -> Copied:
    """Copy a store as it is at one moment into a new file of mode 0600, and check the copy.

    Nothing stands at `target` before the copy is whole, sound and on the disk. Raises
    FileExistsError where something stands there already, OSError where the disk takes no
    more, and StoreRefused where the store cannot be read or is damaged.
    """
    if target.exists() or target.is_symlink():
        raise FileExistsError(errno.EEXIST, "exists already", str(target))
    descriptor, name = mkstemp(prefix=f".{target.name}.", suffix=".partial", dir=target.parent)  # of mode 0600
    os.close(descriptor)
    partial = Path(name)
    try:
        copied = _copy(store, partial)
        for place in (partial, target.parent):
            _flush(place)
        partial.replace(target)
        _flush(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return copied


def _copy(store: Path, partial: Path) -> Copied:
    try:
        with closing(read_only(store)) as source, closing(sqlite3.connect(partial, isolation_level=None)) as copy:
            copy.execute("PRAGMA journal_mode=MEMORY")
            source.backup(copy)  # in one step: what is written meanwhile belongs to a later moment
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, whatever the store itself uses
            damage = first_damage(copy, within_s=LONGEST_CHECK_S, whole=True)
            if damage is not None:
                raise StoreRefused(f"the store {store} is damaged ({damage}); nothing was backed up")
            if (schema := schema_of(copy)) not in known_schemas():
                raise StoreRefused(
                    f"{store} is no store of this version (its schema is {schema}); nothing was backed up"
                )
            [questions, open_questions] = copy.execute(
                "SELECT count(*), count(*) FILTER (WHERE closed_at_ms IS NULL) FROM questions"
            ).fetchone()
    except sqlite3.Error as error:
        if error.sqlite_errorcode in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE}:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(partial)) from error
        raise StoreRefused(f"the store {store} cannot be backed up: {error}") from error
    return Copied(size=partial.stat().st_size, open_questions=open_questions, questions=questions)


def schema_of(connection: sqlite3.Connection) -> str | None:
    """The schema that a store has; None where it has none."""
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError:
        return None
    return None if found is None else str(found[0])


def _flush(place: Path) -> None:
    descriptor = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
