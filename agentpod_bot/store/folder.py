"""The folder of a store: for its owner alone, made so or refused."""

from __future__ import annotations

import os
import shlex
import stat
from typing import TYPE_CHECKING

from agentpod_bot.errors import StoreRefused

if TYPE_CHECKING:
    from pathlib import Path

OWNER_ONLY = 0o700
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def prepare(store: Path) -> None:
    """Make the folder of a store's file where it is not there (0700, and those around it that are made too).

    Raises StoreRefused where it cannot be made, or others can use it.
    """
    folder = store.parent
    try:
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(missing):
            place.mkdir(mode=OWNER_ONLY, exist_ok=True)
    except OSError as error:
        raise StoreRefused(f"the folder {folder} of the store cannot be made: {error.strerror}") from error
    check(store)


def check(store: Path) -> None:
    """Refuse a folder that anybody else can use, with what to do; one that is not there is none.

    Whoever can write there can put a file of theirs beside the store's, and SQLite would
    read a `-wal` as part of it: decisions that nobody made. The mode is not changed here,
    because the folder may be `/tmp` or somebody's home.
    """
    folder = store.parent
    try:
        found = folder.stat()
        if not found.st_mode & OTHERS:
            return
        is_its_own = all(place.name.startswith(store.name) for place in folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreRefused(f"the folder {folder} of the store cannot be used: {error.strerror}") from error
    if is_its_own and os.geteuid() in {0, found.st_uid} and not found.st_mode & stat.S_ISVTX:
        remedy = f"run: chmod 700 {shlex.quote(str(folder))}"
    else:
        example = folder / "agentpod-bot" / store.name
        remedy = f"set store.path to a file in a folder of its own, like {example}; it is made with mode 0700"
    mode = f"{stat.S_IMODE(found.st_mode):04o}"
    raise StoreRefused(f"the folder {folder} of the store has mode {mode}, which opens it to others; {remedy}")
