"""The other side of a verification, written anew from the specification: it shares no cryptography with the bot."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from Crypto.Hash import SHA256
from Crypto.Protocol import DH
from Crypto.Protocol.KDF import HKDF
from Crypto.PublicKey import ECC
from Crypto.Signature import eddsa

from agentpod_bot.core.ids import UserId
from agentpod_bot.matrix.e2e.device_keys import DeviceKeys

if TYPE_CHECKING:
    from collections.abc import Mapping

OWNER = UserId("@owner:example.org")
POD = UserId("@pod:example.org")


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")


def unb64(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4))


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


class Pair:
    """An Ed25519 key pair."""

    def __init__(self, number: int) -> None:
        self._key = ECC.construct(curve="Ed25519", seed=bytes([number]) * 32)
        self.public = b64(self._key.public_key().export_key(format="raw"))

    def signed(self, value: Mapping[str, Any], user_id: str, key_id: str | None = None) -> dict[str, Any]:
        """The object with one more signature."""
        bare = {key: part for key, part in value.items() if key not in {"signatures", "unsigned"}}
        signature = b64(eddsa.new(self._key, "rfc8032").sign(canonical(bare)))
        signatures = {who: dict(what) for who, what in value.get("signatures", {}).items()}
        signatures.setdefault(user_id, {})[key_id or f"ed25519:{self.public}"] = signature
        return {**value, "signatures": signatures}


@dataclass
class Person:
    """An account with one device and an identity, as it publishes them."""

    user_id: UserId = OWNER
    device_id: str = "PHONE"
    number: int = 1
    device: Pair = field(init=False)
    master: Pair = field(init=False)
    self_signing: Pair = field(init=False)
    curve25519: str = field(init=False)

    def __post_init__(self) -> None:
        """Make the keys of the number."""
        self.device, self.master, self.self_signing = (Pair(self.number + ten) for ten in (0, 10, 20))
        self.curve25519 = b64(bytes([self.number + 30]) * 32)

    @property
    def keys(self) -> DeviceKeys:
        return DeviceKeys(
            user_id=self.user_id,
            device_id=self.device_id,
            ed25519=self.device.public,
            curve25519=self.curve25519,
        )

    def device_keys(self, *, is_signed: bool = True) -> dict[str, Any]:
        made = self.device.signed(
            {
                "user_id": self.user_id,
                "device_id": self.device_id,
                "algorithms": ["m.olm.v1.curve25519-aes-sha2", "m.megolm.v1.aes-sha2"],
                "keys": {
                    f"ed25519:{self.device_id}": self.device.public,
                    f"curve25519:{self.device_id}": self.curve25519,
                },
            },
            self.user_id,
            f"ed25519:{self.device_id}",
        )
        return self.self_signing.signed(made, self.user_id) if is_signed else made

    def key(self, pair: Pair, usage: str) -> dict[str, Any]:
        return {"user_id": self.user_id, "usage": [usage], "keys": {f"ed25519:{pair.public}": pair.public}}

    def answer(self, *, is_signed: bool = True) -> dict[str, Any]:
        """What the homeserver says of the account when it is asked for its keys."""
        lesser = self.master.signed(self.key(self.self_signing, "self_signing"), self.user_id)
        return {
            "device_keys": {self.user_id: {self.device_id: self.device_keys(is_signed=is_signed)}},
            "master_keys": {self.user_id: self.key(self.master, "master")},
            "self_signing_keys": {self.user_id: lesser},
            "failures": {},
        }


class Requester:
    """Starts a verification of the bot's device, and answers as a client does. `said` is what it was told."""

    def __init__(self, person: Person, bot: DeviceKeys, transaction_id: str, *, in_room: bool = False) -> None:
        self.person, self.bot, self.transaction_id = person, bot, transaction_id
        self._in_room = in_room
        self._key = ECC.generate(curve="Curve25519")
        self.public = b64(self._key.public_key().export_key(format="raw"))
        self.start_content: dict[str, Any] = {}
        self._secret = b""
        self._theirs = ""
        self._mac_method = ""
        self._commitment = ""

    def content(self, content: Mapping[str, Any]) -> dict[str, Any]:
        if self._in_room:
            return {**content, "m.relates_to": {"rel_type": "m.reference", "event_id": self.transaction_id}}
        return {**content, "transaction_id": self.transaction_id}

    def request(self, timestamp: int) -> dict[str, Any]:
        content = {"from_device": self.person.device_id, "methods": ["m.sas.v1", "m.qr_code.show.v1"]}
        if self._in_room:
            return {**content, "msgtype": "m.key.verification.request", "to": self.bot.user_id, "body": "verify"}
        return {**content, "timestamp": timestamp, "transaction_id": self.transaction_id}

    def start(self, **changes: Any) -> dict[str, Any]:
        self.start_content = self.content(
            {
                "from_device": self.person.device_id,
                "method": "m.sas.v1",
                "key_agreement_protocols": ["curve25519-hkdf-sha256"],
                "hashes": ["sha256"],
                "message_authentication_codes": ["hkdf-hmac-sha256.v2", "hkdf-hmac-sha256"],
                "short_authentication_string": ["decimal", "emoji"],
            }
            | changes
        )
        return self.start_content

    def accepted(self, content: Mapping[str, Any]) -> None:
        assert content["key_agreement_protocol"] == "curve25519-hkdf-sha256"
        assert content["hash"] == "sha256"
        self._mac_method = content["message_authentication_code"]
        self._commitment = content["commitment"]

    def key(self) -> dict[str, Any]:
        return self.content({"key": self.public})

    def keyed(self, content: Mapping[str, Any]) -> None:
        self._theirs = content["key"]
        bound = hashlib.sha256(self._theirs.encode() + canonical(self.start_content)).digest()
        assert self._commitment == b64(bound)
        public = DH.import_x25519_public_key(unb64(self._theirs))
        self._secret = DH.key_agreement(static_priv=self._key, static_pub=public, kdf=lambda shared: shared)

    @property
    def sas(self) -> bytes:
        theirs = (self.person.user_id, self.person.device_id, self.public)
        ours = (self.bot.user_id, self.bot.device_id, self._theirs)
        info = "|".join(("MATRIX_KEY_VERIFICATION_SAS", *theirs, *ours, self.transaction_id))
        return HKDF(self._secret, 6, b"", SHA256, context=info.encode())

    @property
    def emoji_numbers(self) -> list[int]:
        bits = int.from_bytes(self.sas, "big") >> 6
        return [bits >> 6 * place & 63 for place in reversed(range(7))]

    @property
    def numbers(self) -> tuple[int, ...]:
        bits = int.from_bytes(self.sas[:5], "big") >> 1
        return tuple((bits >> 13 * place & 8191) + 1000 for place in reversed(range(3)))

    def mac(self, keys: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The vouching for these keys; by default for the device and the identity."""
        if keys is None:
            keys = {
                f"ed25519:{self.person.device_id}": self.person.device.public,
                f"ed25519:{self.person.master.public}": self.person.master.public,
            }
        mine = (self.person.user_id, self.person.device_id, self.bot.user_id, self.bot.device_id)
        return self.content(
            {
                "mac": {key_id: self._mac(mine, key, key_id) for key_id, key in keys.items()},
                "keys": self._mac(mine, ",".join(sorted(keys)), "KEY_IDS"),
            }
        )

    def vouched(self, content: Mapping[str, Any], keys: Mapping[str, str]) -> bool:
        """Whether the bot vouched for exactly these keys of its own."""
        theirs = (self.bot.user_id, self.bot.device_id, self.person.user_id, self.person.device_id)
        return content["mac"] == {key_id: self._mac(theirs, key, key_id) for key_id, key in keys.items()} and content[
            "keys"
        ] == self._mac(theirs, ",".join(sorted(keys)), "KEY_IDS")

    def _mac(self, sides: tuple[str, ...], text: str, what: str) -> str:
        info = "MATRIX_KEY_VERIFICATION_MAC" + "".join(sides) + self.transaction_id + what
        key = HKDF(self._secret, 32, b"", SHA256, context=info.encode())
        mac = hmac.digest(key, text.encode(), "sha256")
        if self._mac_method == "hkdf-hmac-sha256.v2":
            return b64(mac)
        return as_libolm(mac)


def as_libolm(mac: bytes) -> str:
    """Base64 as an old library made it: it wrote over the bytes that it was still to read."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    buffer = bytearray(mac) + bytearray(43 - len(mac))
    # It encodes from the front into the very buffer that it reads from.
    at, out = 0, 0
    while at + 3 <= len(mac):
        bits = int.from_bytes(buffer[at : at + 3], "big")
        buffer[out : out + 4] = bytes(ord(alphabet[bits >> shift & 63]) for shift in (18, 12, 6, 0))
        at, out = at + 3, out + 4
    bits = int.from_bytes(buffer[at : at + 2], "big") << 2
    buffer[out : out + 3] = bytes(ord(alphabet[bits >> shift & 63]) for shift in (12, 6, 0))
    return buffer.decode()
