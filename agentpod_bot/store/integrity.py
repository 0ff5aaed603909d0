"""Whether the file of a store is sound, by SQLite's own check."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from threading import Event, Thread
from typing import TYPE_CHECKING

from agentpod_bot.errors import StoreRefused

if TYPE_CHECKING:
    from pathlib import Path

PRIMARY = 0xFF
"""The bits of an error's code that are not its finer points: https://sqlite.org/rescode.html."""
START_CHECK_S = 5.0
"""A store of a few gigabytes takes longer; a start must not."""
AGAIN_S = 0.05


def check(path: Path, *, within_s: float) -> bool:
    """Look through the whole file; False where the time ran out first, and nothing was found until then.

    Raises StoreRefused, with what to do, where it is damaged or cannot be read.
    """
    try:
        with closing(sqlite3.connect(path)) as connection:
            damage = first_damage(connection, within_s=within_s)
    except TimeoutError:
        return False
    except sqlite3.Error as error:
        if error.sqlite_errorcode & PRIMARY != sqlite3.SQLITE_CORRUPT:
            raise StoreRefused(f"the store {path} cannot be opened: {error}") from error
        damage = str(error)
    if damage is not None:
        raise StoreRefused(f"the store {path} is damaged ({damage}); {REMEDY}")
    return True


REMEDY = (
    "keep it, with its -wal, for whoever may mend it; then put a backup in its place, "
    "or move it away and begin with an empty store, in which no question is open"
)


def first_damage(connection: sqlite3.Connection, *, within_s: float, whole: bool = False) -> str | None:
    """What SQLite finds first; None where the file is sound. Raises TimeoutError where it takes too long.

    With `whole`, indexes are compared with their tables too, and references with what they name.
    """
    done = Event()

    def end() -> None:
        done.wait(within_s)
        while not done.is_set():  # one that comes before the statement began says nothing to it
            connection.interrupt()
            done.wait(AGAIN_S)

    clock = Thread(target=end, daemon=True)
    clock.start()
    try:
        [found] = connection.execute(f"PRAGMA {'integrity_check' if whole else 'quick_check'}(1)").fetchone()
        if found == "ok" and whole and (broken := connection.execute("PRAGMA foreign_key_check").fetchone()):
            found = f"a row of {broken[0]} belongs to nothing"
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            raise TimeoutError("the file is too large to be checked in time") from error
        raise
    finally:
        done.set()
        clock.join()  # the connection must not be interrupted once it is closed
    return None if found == "ok" else str(found).strip().splitlines()[-1]
