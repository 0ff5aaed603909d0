"""What an answer to a query of keys says of an account's identity: pure, and believed only as far as it is signed.

https://spec.matrix.org/v1.14/client-server-api/#cross-signing
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from agentpod_bot.matrix.e2e.signing import has_form, is_public_key, is_signed, signable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Usage = Literal["master", "self_signing", "user_signing"]
FIELDS: Final[Mapping[Usage, str]] = {
    "master": "master_keys",
    "self_signing": "self_signing_keys",
    "user_signing": "user_signing_keys",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An account's cross-signing, as far as its signatures hold."""

    user_id: str
    master: str
    """The public key that is the identity."""
    devices: Mapping[str, str]
    """The ed25519 keys of the devices for which it vouches, by device id."""
    published: Mapping[str, Any]
    """The master key as it was published, without its signatures: what others sign."""

    def vouches_for(self, device_id: str, ed25519: str) -> bool:
        """Whether a device with this key is the account's own, by its own word."""
        return self.devices.get(device_id) == ed25519


def accounts_in(answer: Mapping[str, Any]) -> frozenset[str]:
    """The accounts of which an answer says what there is; those whose homeserver did not answer are none."""
    return frozenset(_object(answer, "device_keys")) | frozenset(_object(answer, "master_keys"))


def identity_in(answer: Mapping[str, Any], user_id: str) -> Identity | None:
    """The identity of an account; None where it has none that can be read."""
    master = public_key(answer, user_id, "master")
    published = signable(_object(_object(answer, FIELDS["master"]), user_id))
    if master is None or not has_form(published):
        return None
    self_signing = public_key(answer, user_id, "self_signing")
    signer = _object(_object(answer, FIELDS["self_signing"]), user_id)
    devices: dict[str, str] = {}
    if self_signing is not None and is_signed(signer, user_id, f"ed25519:{master}", master):
        # A device that is called like a key could be taken for it.
        taken = {master, self_signing}
        devices = {
            device_id: ed25519
            for device_id, ed25519, device in devices_in(answer, user_id)
            if device_id not in taken and is_signed(device, user_id, f"ed25519:{self_signing}", self_signing)
        }
    return Identity(user_id=user_id, master=master, devices=devices, published=published)


def public_key(answer: Mapping[str, Any], user_id: str, usage: Usage) -> str | None:
    """The public key of this usage that an account published; None where it is not what it has to be."""
    published = _object(_object(answer, FIELDS[usage]), user_id)
    usages, keys = published.get("usage"), published.get("keys")
    if published.get("user_id") != user_id or not isinstance(usages, list) or usage not in usages:
        return None
    if not isinstance(keys, dict) or len(keys) != 1:
        return None
    [(key_id, key)] = keys.items()
    return key if is_public_key(key) and key_id == f"ed25519:{key}" else None


def devices_in(answer: Mapping[str, Any], user_id: str) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Id, ed25519 key and published object of each device of an account that signed itself."""
    for device_id, published in _object(_object(answer, "device_keys"), user_id).items():
        if not isinstance(published, dict):
            continue
        keys = published.get("keys")
        ed25519 = keys.get(f"ed25519:{device_id}") if isinstance(keys, dict) else None
        if (
            published.get("user_id") == user_id
            and published.get("device_id") == device_id
            and is_public_key(ed25519)
            and is_signed(published, user_id, f"ed25519:{device_id}", ed25519)
        ):
            yield device_id, ed25519, published


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}
