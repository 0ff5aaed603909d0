"""Comparing keys by emoji: what both sides compute, and nothing of who says what when.

https://spec.matrix.org/v1.14/client-server-api/#short-authentication-string-sas-verification
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import vodozemac

from agentpod_bot.matrix.e2e.emoji import EMOJI
from agentpod_bot.matrix.e2e.signing import canonical, unpadded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

METHOD: Final = "m.sas.v1"
AGREEMENT: Final = "curve25519-hkdf-sha256"
HASH: Final = "sha256"
DECIMAL: Final = "decimal"
STRINGS: Final = ("emoji", DECIMAL)


class MacMethod(StrEnum):
    """How keys are vouched for, the better one first."""

    V2 = "hkdf-hmac-sha256.v2"
    V1 = "hkdf-hmac-sha256"
    """The same with a base64 that is none; for clients that know nothing else."""


@dataclass(frozen=True, slots=True)
class Agreed:
    """What we chose of what the other side offered."""

    mac: MacMethod
    strings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two devices."""

    user_id: str
    device_id: str


@dataclass(frozen=True, slots=True)
class Short:
    """What both people have to see: seven emoji with their names, and the same as three numbers."""

    emoji: tuple[tuple[str, str], ...]
    decimals: tuple[int, int, int]


def agree(start: Mapping[str, Any]) -> Agreed | None:
    """What an `m.key.verification.start` leaves us to choose; None where there is nothing that both know."""
    macs, strings = (texts(start, key) for key in ("message_authentication_codes", "short_authentication_string"))
    mac = next((method for method in MacMethod if method in macs), None)
    common = tuple(string for string in STRINGS if string in strings)
    is_known = (
        start.get("method") == METHOD
        and AGREEMENT in texts(start, "key_agreement_protocols")
        and HASH in texts(start, "hashes")
    )
    if not is_known or mac is None or not common:
        return None
    return Agreed(mac, common)


def commitment(public_key: str, start: Mapping[str, Any]) -> str:
    """What binds us to our key before we saw theirs. Raises `ValueError`, `RecursionError` as `canonical` does."""
    return unpadded(hashlib.sha256(public_key.encode() + canonical(dict(start))).digest())


def establish(own: vodozemac.Sas, theirs: str) -> tuple[vodozemac.EstablishedSas, str]:
    """The shared secret with the owner of a public key, and that key in its one form.

    Spends `own`. Raises `ValueError` where it is no key, or none from which a secret can come.
    """
    key = vodozemac.Curve25519PublicKey.from_base64(theirs)
    own_key = own.public_key.to_base64()
    if key.to_base64() == own_key:
        raise ValueError("the other side gave our own key back")
    return own.diffie_hellman(key), key.to_base64()


def short(
    secret: vodozemac.EstablishedSas, *, starter: tuple[Side, str], accepter: tuple[Side, str], transaction_id: str
) -> Short:
    """What both people compare. Each side comes with the public key that it sent."""
    parts = [
        "MATRIX_KEY_VERIFICATION_SAS",
        *(part for side, key in (starter, accepter) for part in (side.user_id, side.device_id, key)),
        transaction_id,
    ]
    derived = secret.bytes("|".join(parts))
    return Short(tuple(EMOJI[index] for index in derived.emoji_indices), derived.decimals)


class Macs:
    """The vouching of one device, to another one, for its keys."""

    def __init__(
        self, secret: vodozemac.EstablishedSas, method: MacMethod, *, by: Side, to: Side, transaction_id: str
    ) -> None:
        self._secret = secret
        self._method = method
        self._base = f"MATRIX_KEY_VERIFICATION_MAC{by.user_id}{by.device_id}{to.user_id}{to.device_id}{transaction_id}"

    def content(self, keys: Mapping[str, str]) -> dict[str, Any]:
        """The content of the `m.key.verification.mac` that vouches for these keys, by id."""
        return {
            "mac": {key_id: self._mac(key, key_id) for key_id, key in keys.items()},
            "keys": self._mac(_listed(keys), "KEY_IDS"),
        }

    def covered(self, content: Mapping[str, Any], known: Mapping[str, str]) -> frozenset[str]:
        """The ids of those of the `known` keys for which a message vouches.

        Raises `ValueError` where anything in it is wrong: then it vouches for nothing.
        Keys that we do not know cannot be checked, and count for nothing.
        """
        macs, of_ids = content.get("mac"), content.get("keys")
        if not isinstance(macs, dict) or not isinstance(of_ids, str):
            raise ValueError("no vouching")  # noqa: TRY004 - what came is wrong, not what called
        if not all(isinstance(mac, str) for mac in macs.values()):
            raise ValueError("no vouching")
        if not _same(of_ids, self._mac(_listed(macs), "KEY_IDS")):
            raise ValueError("the list of keys is not the one that was vouched for")
        covered = frozenset(known) & frozenset(macs)
        if not all(_same(macs[key_id], self._mac(known[key_id], key_id)) for key_id in covered):
            raise ValueError("a key is not the one that was vouched for")
        return covered

    def _mac(self, text: str, what: str) -> str:
        calculate = (
            self._secret.calculate_mac if self._method is MacMethod.V2 else self._secret.calculate_mac_invalid_base64
        )
        return calculate(text, self._base + what)


def _listed(key_ids: Iterable[str]) -> str:
    return ",".join(sorted(key_ids))


def _same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


def texts(content: Mapping[str, Any], key: str) -> frozenset[str]:
    """The texts in a list that a message has under a key."""
    given = content.get(key)
    return frozenset(each for each in given if isinstance(each, str)) if isinstance(given, list) else frozenset()
