"""Reading the audit of a store without writing to it, also while a daemon runs on it."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy import NullPool, create_engine, select
from sqlalchemy.exc import DBAPIError

from agentpod_bot.core.journal import COLUMNS, START, Link
from agentpod_bot.errors import StoreRefused
from agentpod_bot.store.journal import ANCHOR, LINE_COLUMNS
from agentpod_bot.store.tables import audit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection

TOGETHER = 500
"""Lines that are read at a time."""
BUSY_TIMEOUT_S = 5.0

_HASHED = select(*LINE_COLUMNS, audit.c.hash).order_by(audit.c.seq)


@dataclass(frozen=True, slots=True)
class StoredAudit:
    """The audit as one moment shows it."""

    connection: Connection
    anchor: Link
    """What the oldest kept line follows."""

    def before(self, since_ms: int) -> Link:
        """What the first line follows that was written since then."""
        first = select(audit.c.seq).where(audit.c.at_ms >= since_ms).order_by(audit.c.seq).limit(1)
        seq = self.connection.execute(first).scalar()
        earlier = select(audit.c.seq, audit.c.hash).order_by(audit.c.seq.desc()).limit(1)
        found = self.connection.execute(earlier if seq is None else earlier.where(audit.c.seq < seq)).first()
        return self.anchor if found is None else Link(*found)

    def lines(self, after: Link | None = None) -> Iterator[tuple[dict[str, Any], object]]:
        """Every line (after that one) as it stands there, with the hash that stands beside it, by their numbers."""
        wanted = _HASHED if after is None else _HASHED.where(audit.c.seq > after.seq)
        found = self.connection.execute(wanted).yield_per(TOGETHER)
        for *values, stored in found:
            yield dict(zip(COLUMNS, values, strict=True)), stored


@contextmanager
def stored_audit(path: Path) -> Iterator[StoredAudit]:
    """Open the audit of a store's file for the body. Raises StoreRefused where there is none that can be read."""
    path = path.resolve()
    if not path.is_file():
        raise StoreRefused(f"there is no store at {path}")

    def connect() -> sqlite3.Connection:
        opened = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_TIMEOUT_S
        )
        opened.text_factory = _text
        return opened

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool, hide_parameters=True)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("BEGIN")  # from here to the end it is one moment
            anchor = connection.execute(ANCHOR).first()
            yield StoredAudit(connection, START if anchor is None else Link(*anchor))
    except DBAPIError as error:
        raise StoreRefused(f"the audit of the store {path} cannot be read: {error.orig}") from error


def _text(raw: bytes) -> str:
    # What is no UTF-8 was not written by us. It must be found, and not end the search.
    return raw.decode("utf-8", "surrogateescape")
