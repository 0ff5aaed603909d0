"""The device's keys in one SQLite file, as nio's `Olm` wants to load and save them.

Not nio's own store: that commits each row by itself, so that a kill between two of them
loses a key for good; binds its tables to one database for the whole process; and keeps
a session under its id alone, so that whoever claims the id first keeps its owner out.
Secrets are pickled with the vault's key before they come here.
"""

from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from nio.crypto.device import DeviceStore, OlmDevice
from nio.crypto.memorystores import GroupSessionStore, SessionStore
from nio.crypto.sessions import InboundGroupSession, OlmAccount, Session

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.matrix.e2e.key_requests import KeyRequest, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agentpod_bot.matrix.e2e.vault import Vault

VERSION: Final = 2
BUSY_S: Final = 5.0
SCHEMA: Final = """
CREATE TABLE account (
    user_id TEXT, device_id TEXT, shared INTEGER NOT NULL, pickle BLOB NOT NULL, PRIMARY KEY (user_id, device_id)
);
CREATE TABLE olm_session (
    session_id TEXT PRIMARY KEY, sender_key TEXT NOT NULL, created TEXT NOT NULL, used TEXT NOT NULL,
    pickle BLOB NOT NULL
);
CREATE TABLE room_key (
    room_id TEXT, sender_key TEXT, session_id TEXT, ed25519 TEXT NOT NULL, pickle BLOB NOT NULL,
    PRIMARY KEY (room_id, sender_key, session_id)
);
CREATE TABLE device (
    user_id TEXT, device_id TEXT, ed25519 TEXT NOT NULL, curve25519 TEXT NOT NULL, display_name TEXT NOT NULL,
    deleted INTEGER NOT NULL, PRIMARY KEY (user_id, device_id)
);
"""
STRANGERS: Final = """
SELECT rowid, {columns} FROM {table} WHERE sender_key != ? AND sender_key NOT IN (SELECT curve25519 FROM device)
    ORDER BY rowid DESC LIMIT -1 OFFSET ?
"""
"""Beyond so many, the oldest that came from devices of which nobody told, not from this one's own."""
KEY_REQUESTS: Final = """
CREATE TABLE key_request (
    request_id TEXT PRIMARY KEY, room_id TEXT NOT NULL, session_id TEXT NOT NULL, user_id TEXT NOT NULL,
    sender_key TEXT, asked_at_ms INTEGER NOT NULL, stage TEXT NOT NULL
)
"""


class KeysStore:
    """One open file, used on one thread. Its methods are those of nio's `MatrixStore` that `Olm` calls."""

    def __init__(self, vault: Vault) -> None:
        self._vault = vault
        self._connection = sqlite3.connect(vault.keys, isolation_level=None, timeout=BUSY_S)
        self._depth = 0
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
            self._connection.execute(f"PRAGMA {pragma}")

    def make(self) -> None:
        """Make the tables of a new file."""
        with self.transaction():
            for statement in (*SCHEMA.strip().split(";"), KEY_REQUESTS):
                self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version={VERSION}")

    def upgrade(self) -> None:
        """Bring a file of version 1 to this one. Its requests for keys did not say of whom; they are made again."""
        with self.transaction():
            self._connection.execute("DROP TABLE key_request")
            self._connection.execute(KEY_REQUESTS)
            self._connection.execute(f"PRAGMA user_version={VERSION}")

    @property
    def version(self) -> int:
        """Which version of this program's tables the file has; 0 where it has none."""
        found: int = self._connection.execute("PRAGMA user_version").fetchone()[0]
        return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything saved inside is kept together, or none of it. May be nested: the outermost counts."""
        if self._depth == 0:
            self._connection.execute("BEGIN IMMEDIATE")
        self._depth += 1
        try:
            yield
        except BaseException:
            self._depth -= 1
            if self._depth == 0 and self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise
        self._depth -= 1
        if self._depth == 0:
            self._connection.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def load_account(self) -> OlmAccount | None:
        """The device's own account; None where the file is another device's."""
        found = self._connection.execute(
            "SELECT pickle, shared FROM account WHERE user_id = ? AND device_id = ?",
            (self._vault.user_id, self._vault.device_id),
        ).fetchone()
        if found is None:
            return None
        return OlmAccount.from_pickle(found[0], self._vault.pickle_key, bool(found[1]))

    def save_account(self, account: OlmAccount) -> None:
        """Keep the account as it is now."""
        values = (self._vault.user_id, self._vault.device_id, account.shared, account.pickle(self._vault.pickle_key))
        self._change("INSERT OR REPLACE INTO account VALUES (?, ?, ?, ?)", values)

    def owner(self) -> tuple[str, str] | None:
        """Whose keys the file holds, user and device; None for an empty one."""
        found: tuple[str, str] | None = self._connection.execute("SELECT user_id, device_id FROM account").fetchone()
        return found

    def load_sessions(self) -> SessionStore:
        """Every Olm session."""
        store = SessionStore()
        for sender_key, created, used, pickle in self._connection.execute(
            "SELECT sender_key, created, used, pickle FROM olm_session"
        ):
            session = Session.from_pickle(pickle, _read(created), self._vault.pickle_key, _read(used))
            store.add(sender_key, session)
        return store

    def save_session(self, curve_key: str, session: Session) -> None:
        """Keep one Olm session as it is now."""
        values = (
            session.id,
            curve_key,
            _written(session.creation_time),
            _written(session.use_time),
            session.pickle(self._vault.pickle_key),
        )
        self._change("INSERT OR REPLACE INTO olm_session VALUES (?, ?, ?, ?, ?)", values)

    def load_inbound_group_sessions(self) -> GroupSessionStore:
        """Every room key."""
        store = GroupSessionStore()
        for room_id, sender_key, ed25519, pickle in self._connection.execute(
            "SELECT room_id, sender_key, ed25519, pickle FROM room_key"
        ):
            store.add(InboundGroupSession.from_pickle(pickle, ed25519, sender_key, room_id, self._vault.pickle_key))
        return store

    def save_inbound_group_session(self, session: InboundGroupSession) -> None:
        """Keep one room key."""
        values = (
            session.room_id,
            session.sender_key,
            session.id,
            session.ed25519,
            session.pickle(self._vault.pickle_key),
        )
        self._change("INSERT OR REPLACE INTO room_key VALUES (?, ?, ?, ?, ?)", values)

    def cut_strangers(self, own_key: str, *, at_most: int) -> tuple[list[tuple[str, str, str]], list[tuple[str, str]]]:
        """Of devices that are not known, forget all but the newest room keys and Olm sessions.

        Returns those that went: room, sender's key and session id; sender's key and session id.
        """
        room_keys = self._cut("room_key", "room_id, sender_key, session_id", own_key, at_most)
        return room_keys, self._cut("olm_session", "sender_key, session_id", own_key, at_most)

    def _cut(self, table: str, columns: str, own_key: str, at_most: int) -> list[Any]:
        found = self._connection.execute(STRANGERS.format(columns=columns, table=table), (own_key, at_most)).fetchall()
        for rowid, *_ in found:
            self._change(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))  # noqa: S608 - a table's name
        return [tuple(each) for _, *each in found]

    def load_device_keys(self) -> DeviceStore:
        """Every device that is known, also those that are gone."""
        store = DeviceStore()
        for user_id, device_id, ed25519, curve25519, display_name, deleted in self._connection.execute(
            "SELECT user_id, device_id, ed25519, curve25519, display_name, deleted FROM device"
        ):
            keys = {"ed25519": ed25519, "curve25519": curve25519}
            store.add(OlmDevice(user_id, device_id, keys, display_name=display_name, deleted=bool(deleted)))
        return store

    def save_device_keys(self, device_keys: Mapping[str, Mapping[str, OlmDevice]]) -> None:
        """Keep devices by user and device id."""
        with self.transaction():
            for user_id, devices in device_keys.items():
                for device_id, device in devices.items():
                    keys = (device.ed25519, device.curve25519, device.display_name or "", device.deleted)
                    self._change("INSERT OR REPLACE INTO device VALUES (?, ?, ?, ?, ?, ?)", (user_id, device_id, *keys))

    def load_key_requests(self) -> tuple[KeyRequest, ...]:
        """Every room key that was asked for, the oldest request first."""
        rows = self._connection.execute(
            "SELECT request_id, room_id, session_id, user_id, sender_key, asked_at_ms, stage FROM key_request"
            " ORDER BY asked_at_ms, rowid"
        )
        return tuple(
            KeyRequest(
                request_id=request_id,
                room_id=RoomId(room_id),
                session_id=session_id,
                user_id=UserId(user_id),
                sender_key=sender_key,
                asked_at_ms=asked_at_ms,
                stage=Stage(stage),
            )
            for request_id, room_id, session_id, user_id, sender_key, asked_at_ms, stage in rows
        )

    def save_key_request(self, request: KeyRequest) -> None:
        """Keep one request as it is now."""
        self._change("INSERT OR REPLACE INTO key_request VALUES (?, ?, ?, ?, ?, ?, ?)", dataclasses.astuple(request))

    def remove_key_request(self, request_id: str) -> None:
        """Nothing more is to be said of it."""
        self._change("DELETE FROM key_request WHERE request_id = ?", (request_id,))

    def _change(self, statement: str, values: tuple[Any, ...]) -> None:
        self._connection.execute(statement, values)


def _written(at: datetime) -> str:
    return at.astimezone(UTC).isoformat()


def _read(at: str) -> datetime:
    """As nio compares it: local time without a zone."""
    return datetime.fromisoformat(at).astimezone().replace(tzinfo=None)
