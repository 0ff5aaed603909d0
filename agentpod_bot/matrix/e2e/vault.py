"""The folder in which the keys of the bot's device are kept, and what opens it.

It is made once, at `login`, together with the device. A vault that is lost, or that is
another device's, stops the start: whoever got new keys silently would be a new, unknown
device to everybody, and could read nothing that was said before.
"""

from __future__ import annotations

import os
import secrets
import shlex
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from agentpod_bot.errors import CryptoStoreRefused

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.core.ids import UserId

KEYS: Final = "keys.db"
FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
PICKLE_KEY_BYTES: Final = 32
ANEW: Final = "make a new device with `agentpod-bot login`, which makes its keys as well"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vault:
    """Where the keys of one device are, and the secret that everything in there is encrypted with."""

    folder: Path
    pickle_key: str = field(repr=False)
    user_id: UserId
    device_id: str

    @property
    def keys(self) -> Path:
        """The file with the device's keys and all that it got from others."""
        return self.folder / KEYS


def prepare(vault: Vault) -> None:
    """Make the folder of a new vault and an empty file for its keys, both for the owner alone; blocks.

    Raises `CryptoStoreRefused` where keys are there already, or the folder is open to others.
    """
    try:
        vault.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        must_be_private(vault)
        os.close(os.open(vault.keys, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
    except FileExistsError as error:
        raise CryptoStoreRefused(
            f"{vault.folder} holds the keys of a device already; name another one for the new device, or move it away"
        ) from error
    except OSError as error:
        raise CryptoStoreRefused(f"{vault.folder} cannot be used: {error.strerror}") from error


def must_be_there(vault: Vault) -> None:
    """Raise `CryptoStoreRefused`, with what to do, where there are no keys or others can use the folder; blocks."""
    try:
        is_there = vault.keys.stat().st_size > 0
    except FileNotFoundError:
        is_there = False
    except OSError as error:
        raise CryptoStoreRefused(f"{vault.keys} cannot be read: {error.strerror}") from error
    if not is_there:
        raise CryptoStoreRefused(
            f"the keys of device {vault.device_id} are not in {vault.folder}: bring the folder back from a backup, "
            f"or {ANEW}"
        )
    must_be_private(vault)


def must_be_private(vault: Vault) -> None:
    """Raise `CryptoStoreRefused` where anybody but its owner can use the folder; blocks."""
    mode = stat.S_IMODE(vault.folder.stat().st_mode)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise CryptoStoreRefused(
            f"the folder {vault.folder} has mode {mode:04o}, which opens it to others; "
            f"run: chmod 700 {shlex.quote(str(vault.folder))}"
        )


def new_pickle_key() -> str:
    """A secret for a new vault, as it is kept in a file."""
    return secrets.token_urlsafe(PICKLE_KEY_BYTES)
