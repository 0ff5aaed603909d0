"""The device's cryptography: nio's Olm and its keys, for one thread alone. Nothing here talks to anybody."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import vodozemac

from agentpod_bot.errors import CryptoStoreRefused
from agentpod_bot.matrix.e2e import vault as vaults
from agentpod_bot.matrix.e2e.keys_store import VERSION, KeysStore
from agentpod_bot.matrix.e2e.known_devices import KnownDevices
from agentpod_bot.matrix.e2e.olm import BotOlm
from agentpod_bot.matrix.e2e.olm_sessions import OlmSessions
from agentpod_bot.matrix.e2e.publishing import Publishing
from agentpod_bot.matrix.e2e.room_sessions import RoomSessions

if TYPE_CHECKING:
    from agentpod_bot.matrix.e2e.vault import Vault


class Machine(Publishing, KnownDevices, OlmSessions, RoomSessions):
    """Everything that needs the device's private keys."""

    @classmethod
    def make(cls, vault: Vault) -> Machine:
        """New keys for a new device, in a vault where there are none; blocks. Raises `CryptoStoreRefused`."""
        vaults.prepare(vault)
        store = KeysStore(vault)
        with store.transaction():
            store.make()
            olm = BotOlm(vault.user_id, vault.device_id, store)
        return cls(vault, store, olm)

    @classmethod
    def open(cls, vault: Vault) -> Machine:
        """The keys of the vault's device; blocks. Raises `CryptoStoreRefused`, with what to do."""
        vaults.must_be_there(vault)
        try:
            store = KeysStore(vault)
        except sqlite3.Error as error:
            raise CryptoStoreRefused(f"{vault.keys} cannot be read ({error}); {vaults.ANEW}") from error
        try:
            cls._must_fit(vault, store)
            return cls(vault, store, BotOlm(vault.user_id, vault.device_id, store))
        except sqlite3.Error as error:
            store.close()
            raise CryptoStoreRefused(f"{vault.keys} cannot be read ({error}); {vaults.ANEW}") from error
        except BaseException:
            store.close()
            raise

    @staticmethod
    def _must_fit(vault: Vault, store: KeysStore) -> None:
        if store.version not in {1, VERSION}:
            raise CryptoStoreRefused(f"{vault.keys} was not written by this version of the program")
        owner = store.owner()
        if owner != (vault.user_id, vault.device_id):
            whose = "of no device" if owner is None else f"those of device {owner[1]} of {owner[0]}"
            raise CryptoStoreRefused(
                f"the keys in {vault.folder} are {whose}, but homeserver.device_id is {vault.device_id}: "
                f"configure that device's token and id, or {vaults.ANEW}"
            )
        try:
            store.load_account()
        except (vodozemac.PickleException, vodozemac.LibolmPickleException) as error:
            raise CryptoStoreRefused(
                f"the secret in e2e.pickle_key_file does not open {vault.folder}: give the one that it was made with"
            ) from error
        if store.version != VERSION:
            store.upgrade()
