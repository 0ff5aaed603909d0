"""Signed JSON, as Matrix has it: https://spec.matrix.org/v1.14/appendices/#signing-json."""

from __future__ import annotations

import base64
import json
import secrets
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import vodozemac
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

if TYPE_CHECKING:
    from collections.abc import Mapping

SEED_BYTES: Final = 32
UNSIGNED: Final = frozenset({"signatures", "unsigned"})


class Signer:
    """An Ed25519 key pair, made of its seed."""

    __slots__ = ("_key", "public")

    def __init__(self, seed: bytes) -> None:
        """`public` is the public key in unpadded base64, which is also what its id ends with."""
        self._key = ECC.construct(curve="Ed25519", seed=seed)
        self.public = unpadded(self._key.public_key().export_key(format="raw"))

    @property
    def key_id(self) -> str:
        """As keys of identities are called: by themselves."""
        return f"ed25519:{self.public}"

    def sign(self, value: Mapping[str, Any]) -> str:
        """The signature of an object, in unpadded base64."""
        return unpadded(eddsa.new(self._key, "rfc8032").sign(canonical(signable(value))))


def new_seed() -> bytes:
    """What a new key pair is made of."""
    return secrets.token_bytes(SEED_BYTES)


def is_signed(value: Mapping[str, Any], user_id: str, key_id: str, public: str) -> bool:
    """Whether an object carries a signature of this account's key of this name, and the key made it."""
    signatures = value.get("signatures")
    own = signatures.get(user_id) if isinstance(signatures, dict) else None
    signature = own.get(key_id) if isinstance(own, dict) else None
    if not isinstance(signature, str):
        return False
    try:
        key = vodozemac.Ed25519PublicKey.from_base64(public)
        key.verify_signature(canonical(signable(value)), vodozemac.Ed25519Signature.from_base64(signature))
    except (ValueError, RecursionError):  # all that vodozemac raises is a ValueError
        return False
    return True


def signable(value: Mapping[str, Any]) -> dict[str, Any]:
    """What a signature of an object is over."""
    return {key: part for key, part in value.items() if key not in UNSIGNED}


def canonical(value: object) -> bytes:
    """The one way in which all write a value: https://spec.matrix.org/v1.14/appendices/#canonical-json.

    Raises `ValueError` for what has no such form, `RecursionError` for what is too deep.
    """
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True).encode()


def has_form(value: object) -> bool:
    """Whether a value has a canonical form: JSON may hold half a character, which UTF-8 does not know.

    What has none was signed by nobody, and can neither be kept nor sent on.
    """
    try:
        canonical(value)
    except (ValueError, RecursionError):
        return False
    return True


def unpadded(raw: bytes) -> str:
    """Base64 without padding."""
    return base64.b64encode(raw).decode().rstrip("=")


def is_public_key(value: object) -> TypeGuard[str]:
    """Whether a value is an Ed25519 public key, written in its one form."""
    if not isinstance(value, str):
        return False
    try:
        return vodozemac.Ed25519PublicKey.from_base64(value).to_base64() == value
    except ValueError:
        return False
