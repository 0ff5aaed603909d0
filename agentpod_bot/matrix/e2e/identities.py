"""Whose keys were compared with the bot's, and what follows from that for other devices.

What was compared is kept in the vault; what accounts say of their own devices is only
remembered, and learned anew with every query. An older copy of the file is as good as
the newest: whoever can write the vault's folder could bring back what was forgotten.
"""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import structlog

from agentpod_bot.errors import CryptoStoreRefused, StoreUnavailable
from agentpod_bot.matrix.e2e.published import accounts_in, identity_in
from agentpod_bot.matrix.e2e.sealed import Sealed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentpod_bot.matrix.e2e.published import Identity
    from agentpod_bot.matrix.e2e.vault import Vault

FILE: Final = "identities"
VERSION: Final = 1

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Seeds:
    """What the three keys of the bot's own identity are made of."""

    master: bytes = field(repr=False)
    self_signing: bytes = field(repr=False)
    user_signing: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """Everything that is kept."""

    masters: Mapping[str, str] = field(default_factory=dict)
    """Verified identities: their master key, by account."""
    devices: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Verified devices: their ed25519 key, by account and device id."""
    changed: Mapping[str, str] = field(default_factory=dict)
    """Accounts that were verified and then showed another identity, with the master key that was verified."""
    seeds: Seeds | None = None
    """Of the bot's own identity, once the homeserver has it."""
    next_seeds: Seeds | None = None
    """Of the one that is being made the bot's, kept before the homeserver is asked to take it."""


class Identities:
    """Fits `crypto.Verdicts`. For one event loop, but for `is_verified`."""

    def __init__(self, file: Sealed, known: Known) -> None:
        self._file = file
        self._known = known
        self._shown: dict[str, Identity] = {}
        self._changing = asyncio.Lock()

    @classmethod
    async def open(cls, vault: Vault, *, make: bool = False) -> Identities:
        """What the vault holds; with `make`, for a new device, nothing yet.

        Raises `CryptoStoreRefused` where it is lost, damaged, or another device's.
        """
        file = Sealed(vault.folder / FILE, vault.pickle_key, user_id=vault.user_id, device_id=vault.device_id)
        raw = await asyncio.to_thread(file.read)
        if make:
            if raw is not None:
                raise CryptoStoreRefused(f"{file.path} is there already, so the device is not new")
            try:
                await _write(file, Known())
            except StoreUnavailable as error:
                raise CryptoStoreRefused(str(error)) from error
            return cls(file, Known())
        if raw is None:
            raise CryptoStoreRefused(
                f"{file.path}, which says whose keys were compared, is not there: bring it back from a backup, "
                "or make a new device with `agentpod-bot login`"
            )
        return cls(file, _read(file.path, raw))

    @property
    def known(self) -> Known:
        """Everything that is kept, as it is now."""
        return self._known

    def identity(self, user_id: str) -> Identity | None:
        """The identity that an account showed last; None where it showed none, or was not asked for yet."""
        return self._shown.get(user_id)

    def is_verified(self, user_id: str, device_id: str, ed25519: str) -> bool:
        """Whether this key was compared, or is vouched for by an identity that was.

        Other threads ask, too: what is kept is replaced as a whole, and read once.
        """
        known = self._known
        if known.devices.get((user_id, device_id)) == ed25519:
            return True
        shown = self._shown.get(user_id)
        return (
            shown is not None and known.masters.get(user_id) == shown.master and shown.vouches_for(device_id, ed25519)
        )

    async def learn(self, answer: Mapping[str, Any]) -> None:
        """Take over what an answer to a query of keys says of identities.

        Who was verified and shows another identity now is not verified any more, nor is any
        device of theirs; it takes effect at once. Raises `StoreUnavailable` where that
        cannot be kept: the same answer may come again.
        """
        async with self._changing:
            for user_id in accounts_in(answer):
                shown = identity_in(answer, user_id)
                if shown is None:
                    self._shown.pop(user_id, None)
                else:
                    self._shown[user_id] = shown
            changed = {
                user_id: master
                for user_id, master in self._known.masters.items()
                if (now := self._shown.get(user_id)) is not None and now.master != master
            }
            if not changed:
                return
            known = self._known
            for user_id in changed:
                log.warning("verified_identity_changed", user_id=user_id)
                known = _without(known, user_id)
            self._known = replace(known, changed={**known.changed, **changed})
            await _write(self._file, self._known)

    async def verify(self, user_id: str, *, device: tuple[str, str] | None, master: str | None) -> bool:
        """Keep that these keys were compared: a device's id and ed25519 key, and the identity's master key.

        False, and nothing is kept, where the account's identity is another one by now.
        Raises `StoreUnavailable` where it cannot be kept: then nobody is verified by it.
        """
        async with self._changing:
            known, shown = self._known, self._shown.get(user_id)
            if master is not None:
                if shown is None or shown.master != master:
                    return False
                known = replace(
                    known,
                    masters={**known.masters, user_id: master},
                    changed={changed: was for changed, was in known.changed.items() if changed != user_id},
                )
            if device is not None:
                device_id, ed25519 = device
                known = replace(known, devices={**known.devices, (user_id, device_id): ed25519})
            await self._keep(known)
            return True

    async def forget(self, user_id: str) -> bool:
        """Nothing of an account is verified any more. False where nothing was. Raises `StoreUnavailable`."""
        async with self._changing:
            known = _without(self._known, user_id)
            known = replace(known, changed={u: was for u, was in known.changed.items() if u != user_id})
            if known == self._known:
                return False
            self._known = known  # at once, whether or not it can be kept
            await _write(self._file, known)
            return True

    async def plan(self, seeds: Seeds) -> None:
        """Keep what a new identity of the bot is made of, before the homeserver is asked to take it."""
        async with self._changing:
            await self._keep(replace(self._known, next_seeds=seeds))

    async def adopt(self, seeds: Seeds) -> None:
        """The homeserver has the bot's identity that these make."""
        async with self._changing:
            known = replace(self._known, seeds=seeds, next_seeds=None)
            if known != self._known:
                await self._keep(known)

    async def _keep(self, known: Known) -> None:
        await _write(self._file, known)
        self._known = known


def _without(known: Known, user_id: str) -> Known:
    """Without anything that was verified of an account."""
    return replace(
        known,
        masters={other: master for other, master in known.masters.items() if other != user_id},
        devices={whose: ed25519 for whose, ed25519 in known.devices.items() if whose[0] != user_id},
    )


async def _write(file: Sealed, known: Known) -> None:
    # Shielded: a write that was begun ends, so that no later one overtakes it.
    writing = asyncio.ensure_future(asyncio.to_thread(file.write, _written(known)))
    try:
        await asyncio.shield(writing)
    except asyncio.CancelledError:
        await asyncio.wait({writing})
        raise
    except OSError as error:
        raise StoreUnavailable(f"{file.path} cannot be written: {error.strerror}") from error


def _written(known: Known) -> bytes:
    return json.dumps(
        {
            "version": VERSION,
            "masters": dict(known.masters),
            "devices": [[*whose, ed25519] for whose, ed25519 in known.devices.items()],
            "changed": dict(known.changed),
            "seeds": _seeds_written(known.seeds),
            "next_seeds": _seeds_written(known.next_seeds),
        }
    ).encode()


def _read(path: Path, raw: bytes) -> Known:
    """What was written. It was authenticated, so it is ours; another version's may still have another shape."""
    said = json.loads(raw)
    if said["version"] != VERSION:
        raise CryptoStoreRefused(f"{path} was not written by this version of the program")
    return Known(
        masters=said["masters"],
        devices={(user_id, device_id): ed25519 for user_id, device_id, ed25519 in said["devices"]},
        changed=said["changed"],
        seeds=_seeds_read(said["seeds"]),
        next_seeds=_seeds_read(said["next_seeds"]),
    )


def _seeds_written(seeds: Seeds | None) -> list[str] | None:
    if seeds is None:
        return None
    return [base64.b64encode(seed).decode() for seed in (seeds.master, seeds.self_signing, seeds.user_signing)]


def _seeds_read(written: list[str] | None) -> Seeds | None:
    return None if written is None else Seeds(*map(base64.b64decode, written))
