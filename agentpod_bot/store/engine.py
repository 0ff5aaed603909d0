"""SQLite as this store uses it: transactions that we begin ourselves, and durable commits."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, NullPool, create_engine, event

if TYPE_CHECKING:
    from pathlib import Path
    from sqlite3 import Connection as SqliteConnection

    from sqlalchemy import Connection, Engine

BUSY_TIMEOUT_MS = 5_000
"""How long a statement waits for a lock of another program (a backup, a shell)."""


def sqlite_engine(path: Path, *, busy_timeout_ms: int = BUSY_TIMEOUT_MS) -> Engine:
    """Engine over one file. Each `connect()` is a new connection for the thread that asks for it.

    WAL with `synchronous=FULL`: a commit that returned survives a power cut. The driver's
    own transaction handling is off, because with it savepoints and DDL are not part of
    the transaction; every transaction begins with BEGIN IMMEDIATE, so that none fails
    half-way for want of the write lock. Parameters never appear in error texts.
    """
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        poolclass=NullPool,
        connect_args={"isolation_level": None, "check_same_thread": True},
        hide_parameters=True,
        json_serializer=partial(json.dumps, separators=(",", ":"), allow_nan=False),
    )

    def configure(connection: SqliteConnection, _record: Any) -> None:
        connection.execute(f"PRAGMA busy_timeout={busy_timeout_ms}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")

    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", begin)
    return engine
