"""Unix sockets on which only the daemon's own user can connect, and the files that they leave."""

from __future__ import annotations

import os
import socket
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

LONGEST_PATH: Final = 107
"""Longest path of a Unix socket on Linux (`sun_path` less its final NUL)."""
OWNER_ONLY: Final = 0o600
NOT_FOR_OTHERS: Final = 0o177


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound socket. `identity` is that of its file (device and inode)."""

    socket: socket.socket
    path: Path
    identity: tuple[int, int]

    def remove(self) -> None:
        """Remove the socket's file, unless another stands in its place by now."""
        try:
            ours = _identity(self.path) == self.identity
        except FileNotFoundError:
            return
        if ours:
            self.path.unlink(missing_ok=True)


def is_short(path: Path) -> bool:
    """Whether a Unix socket can have this path."""
    return len(str(path).encode()) <= LONGEST_PATH


def bind(path: Path, *, setting: str) -> Bound:
    """Bind a Unix socket of mode 0600, in the place of one that was left behind.

    Raises `ConfigurationError`, which names the setting that the path comes from.
    """
    if not is_short(path):
        raise ConfigurationError(
            f"{setting}: {path} is longer than the {LONGEST_PATH} bytes that a Unix socket's path may have"
        )
    _make_way(path, setting)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # The mode must be right before anyone can connect, so the umask makes it and not a later chmod.
    umask = os.umask(NOT_FOR_OTHERS)
    try:
        bound.settimeout(0)
        bound.bind(str(path))
    except OSError as fault:
        bound.close()
        raise ConfigurationError(f"{setting}: cannot listen on {path}: {fault.strerror or fault}") from fault
    finally:
        os.umask(umask)
    path.chmod(OWNER_ONLY)
    return Bound(bound, path, _identity(path))


def _identity(path: Path) -> tuple[int, int]:
    status = path.lstat()
    return status.st_dev, status.st_ino


def _make_way(path: Path, setting: str) -> None:
    """Remove a socket file that a process left behind; one on which somebody listens is refused."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as fault:
        raise ConfigurationError(f"{setting}: cannot look at {path}: {fault.strerror}") from fault
    if not stat.S_ISSOCK(mode):
        raise ConfigurationError(f"{setting}: {path} exists and is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
        except OSError as fault:  # a full backlog, or not our file: either way somebody's
            raise ConfigurationError(f"{setting}: {path} is in use: {fault.strerror}") from fault
    raise ConfigurationError(f"{setting}: another process listens on {path}")
