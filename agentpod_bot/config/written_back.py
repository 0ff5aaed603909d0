"""Secrets that the daemon got itself, written into the file that a `*_file` key names."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

PRIVATE = 0o600


def write_back(path: Path, secret: str) -> None:
    """Put a secret into its file, whole or not at all: mode 0600, on the disk before this returns.

    A link is followed, so that it stays one. Raises `OSError`; the file is then as it was.
    """
    target = Path(os.path.realpath(path))
    new = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            os.fchmod(file, PRIVATE)
            raw = secret.encode() + b"\n"
            while raw:
                raw = raw[os.write(file, raw) :]
            os.fsync(file)
        finally:
            os.close(file)
        new.replace(target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
