"""How a store is, looked at from outside, beside a running daemon too. Nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agentpod_bot.errors import StoreRefused
from agentpod_bot.store import folder
from agentpod_bot.store.backup import read_only, schema_of
from agentpod_bot.store.integrity import first_damage
from agentpod_bot.store.schema import known_schemas

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What was found. Where there is no file yet, or it cannot be read, the rest says nothing."""

    exists: bool
    folder_fault: str | None
    """Why the folder would be refused at the start."""
    file_modes: dict[str, int]
    """Files of the store that others can read or write, and their modes."""
    free_bytes: int | None
    """Space on the disk, for the daemon's user; None where the folder is not there yet."""
    fault: str | None = None
    """Why the store cannot be opened: it is damaged, no database, of a newer version."""
    schema: str | None = None
    newest_schema: str = ""
    checked_whole: bool = False
    """False where the check for damage was cut short."""
    open_questions: int = 0
    oldest_open_ms: int | None = None
    unsent: int = 0
    held_by: int | None = None
    """The process that has it open, as far as can be told."""


def examine(path: Path, *, within_s: float) -> Examined:
    """Look at everything about a store's file; its check for damage takes at most `within_s`."""
    path = path.resolve()
    try:
        folder.check(path)
        folder_fault = None
    except StoreRefused as refused:
        folder_fault = str(refused)
    files = [path.with_name(f"{path.name}{suffix}") for suffix in ("", "-wal", "-shm", ".lock")]
    modes = {file.name: file.stat().st_mode & 0o777 for file in files if file.exists()}
    outside = Examined(
        exists=path.exists(),
        folder_fault=folder_fault,
        file_modes={name: mode for name, mode in modes.items() if mode & folder.OTHERS},
        free_bytes=shutil.disk_usage(path.parent).free if path.parent.is_dir() else None,
        newest_schema=known_schemas()[0],
        held_by=_holder(path),
    )
    if not outside.exists:
        return outside
    try:
        with closing(read_only(path)) as connection:
            return _inside(connection, outside, within_s)
    except (StoreRefused, sqlite3.Error) as error:
        return replace(outside, fault=str(error))


def _inside(connection: sqlite3.Connection, outside: Examined, within_s: float) -> Examined:
    try:
        fault, whole = first_damage(connection, within_s=within_s, whole=True), True
    except TimeoutError:
        fault, whole = None, False
    schema = schema_of(connection)
    if fault is None and schema not in known_schemas():
        fault = "its schema is unknown: it is another program's, or of a newer version"
    if fault is not None:
        return replace(outside, fault=fault, schema=schema)
    open_questions, oldest_open_ms = connection.execute(
        "SELECT count(*), min(created_at_ms) FROM questions WHERE closed_at_ms IS NULL"
    ).fetchone()
    [unsent] = connection.execute("SELECT count(*) FROM outbox WHERE state = 'unsent'").fetchone()
    return replace(
        outside,
        schema=schema,
        checked_whole=whole,
        open_questions=open_questions,
        oldest_open_ms=oldest_open_ms,
        unsent=unsent,
    )


def _holder(path: Path) -> int | None:
    """The process that the lock file names, if it is one of this machine and still there."""
    try:
        note = json.loads(path.with_name(f"{path.name}.lock").read_bytes())
        if note["host"] != socket.gethostname():
            return None
        os.kill(note["pid"], 0)
    except PermissionError:
        return int(note["pid"])  # there, and somebody else's
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
    return int(note["pid"])
