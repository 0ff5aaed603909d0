"""What is held of the device: nio's Olm, and the file in which it keeps what it knows.

Whatever changes keys is one transaction of their file. Where that fails, what is in
memory is forgotten and read anew, so that memory never knows what the file does not.
"""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
from agentpod_bot.matrix.e2e.olm import BotOlm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentpod_bot.matrix.e2e.keys_store import KeysStore
    from agentpod_bot.matrix.e2e.vault import Vault


class Held:
    """The device's keys, for one thread alone."""

    def __init__(self, vault: Vault, store: KeysStore, olm: BotOlm) -> None:
        self._vault = vault
        self._store = store
        self._olm = olm

    @property
    def own(self) -> DeviceKeys:
        """The device's own public keys."""
        keys = self._olm.account.identity_keys
        return DeviceKeys(
            user_id=self._vault.user_id,
            device_id=self._vault.device_id,
            ed25519=keys["ed25519"],
            curve25519=keys["curve25519"],
        )

    def sign(self, text: str) -> str:
        """The device's signature of a text, in unpadded base64."""
        return self._olm.account.sign(text)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep what changes inside, all of it or nothing. Raises `StoreUnavailable` where it cannot be kept."""
        try:
            with self._store.transaction():
                yield
        except sqlite3.Error as error:
            self._olm = BotOlm(self._vault.user_id, self._vault.device_id, self._store)
            raise StoreUnavailable(f"the keys of the bot's device cannot be kept: {error}") from error
