"""One process for each store: an advisory lock on `<store>.lock` that goes with its process."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Self

from agentpod_bot.errors import StoreRefused

if TYPE_CHECKING:
    from pathlib import Path

_HOLDER_BYTES = 4096


class StoreLock:
    """The held lock. The file stays after the release: removing it would race with the next holder."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def acquire(cls, store: Path) -> Self:
        """Take the lock at once, or raise StoreRefused that says who holds it."""
        path = store.with_name(f"{store.name}.lock")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreRefused(f"the lock file {path} cannot be opened: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = _holder(os.pread(descriptor, _HOLDER_BYTES, 0))
            os.close(descriptor)
            raise StoreRefused(
                f"the store {store} is in use by {holder}; stop that process, or set another store.path"
            ) from error
        except OSError as error:
            os.close(descriptor)
            raise StoreRefused(f"the lock file {path} cannot be locked: {error.strerror}") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _note(), 0)
        return cls(descriptor)

    def release(self) -> None:
        """Let the next process in."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)


def _note() -> bytes:
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started_at": started_at}).encode()


def _holder(note: bytes) -> str:
    """Who wrote the note, in words. It may be half-written: its writer may have just begun."""
    try:
        read = json.loads(note)
        return f"process {read['pid']} on {read['host']}, running since {read['started_at']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
