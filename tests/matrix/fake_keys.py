"""What the fake homeserver keeps of devices for encryption: their keys, and what is sent to them.

No sockets and no waiting here. Everything is numbered by the log of the rooms, so that one
position says what a device has been shown of both. Formats: client-server API, "End-to-end
encryption" and "Send-to-Device messaging".
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import vodozemac

from tests.matrix.fake_accounts import SERVER, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Json = dict[str, Any]
Of = tuple[str, str]
"""A device: its account and its id."""

SIGNING = ("master_key", "self_signing_key", "user_signing_key")


@dataclass
class Device:
    """The keys of one device."""

    identity: Json | None = None
    one_time: dict[str, Any] = field(default_factory=dict)
    """By `algorithm:id`, in the order in which they are given out."""
    fallback: dict[str, Any] = field(default_factory=dict)
    """By algorithm: the key by its id."""
    unused: set[str] = field(default_factory=set)
    """Algorithms whose fallback key was not given out yet."""

    def counts(self) -> dict[str, int]:
        """How many one-time keys are left."""
        left = {"signed_curve25519": 0}
        for name in self.one_time:
            algorithm = name.partition(":")[0]
            left[algorithm] = left.get(algorithm, 0) + 1
        return left

    def claim(self, algorithm: str) -> Json | None:
        """One key for a session: a one-time key, which is then gone, else the fallback key, else nothing."""
        for name in self.one_time:
            if name.startswith(f"{algorithm}:"):
                return {name: self.one_time.pop(name)}
        self.unused.discard(algorithm)
        return self.fallback.get(algorithm)


@dataclass(frozen=True)
class Message:
    """Something sent to one device, to be shown by a sync from before `number`."""

    number: int
    to: Of
    event: Json


@dataclass(frozen=True)
class Move:
    """An account came into a room with another one, or went out of one, at a number of the log."""

    number: int
    user_id: str
    came: bool


class Keys:
    """Keys by account and device, who changed theirs when, and the messages that wait for devices.

    `tick` gives each change a number of the rooms' log.
    """

    def __init__(self, tick: Callable[[], int]) -> None:
        self._tick = tick
        self._devices: dict[Of, Device] = {}
        self._signing: dict[str, dict[str, Json]] = {}
        self._changes: list[tuple[int, str]] = []
        self._messages: list[Message] = []
        self._dropping: dict[Of, int] = {}
        self.lost_servers: set[str] = set()
        self.taken: list[Message] = []
        """Every message that was taken to be passed on, dropped ones too, in order."""

    # devices
    def device(self, of: Of) -> Device:
        return self._devices.setdefault(of, Device())

    def change(self, user_id: str) -> None:
        """Let everybody who shares a room with an account know that its devices changed."""
        self._changes.append((self._tick(), user_id))

    def forget(self, of: Of) -> None:
        """A device is gone: so are its keys, and what waits for it."""
        self._messages = [message for message in self._messages if message.to != of]
        if self._devices.pop(of, Device()).identity is not None:
            self.change(of[0])

    def upload(self, of: Of, asked: Mapping[str, Any]) -> Json:
        """`POST /keys/upload`."""
        device = self.device(of)
        one_time: Json = asked.get("one_time_keys", {})
        if any(device.one_time.get(name, key) != key for name, key in one_time.items()):
            raise Refusal(400, "M_INVALID_PARAM")
        identity = asked.get("device_keys")
        if identity is not None:
            if (identity["user_id"], identity["device_id"]) != of:
                raise Refusal(400, "M_INVALID_PARAM")
            if device.identity is None or unsigned(device.identity) != unsigned(identity):
                device.identity = copy.deepcopy(identity)
                self.change(of[0])
        device.one_time |= one_time
        for name, key in asked.get("fallback_keys", {}).items():
            algorithm = name.partition(":")[0]
            if device.fallback.get(algorithm) != {name: key}:
                device.fallback[algorithm] = {name: key}
                device.unused.add(algorithm)
        return {"one_time_key_counts": device.counts()}

    def query(self, asker: str, wanted: Mapping[str, list[str]]) -> Json:
        """`POST /keys/query`."""
        told: Json = {"device_keys": {}, "failures": self._failures(wanted)}
        told |= {f"{kind}s": {} for kind in SIGNING}
        for user_id, devices in wanted.items():
            if server_of(user_id) in self.lost_servers:
                continue
            told["device_keys"][user_id] = {
                device_id: copy.deepcopy(device.identity)
                for (owner, device_id), device in self._devices.items()
                if owner == user_id and device.identity is not None and (not devices or device_id in devices)
            }
            for kind, key in self._signing.get(user_id, {}).items():
                if kind != "user_signing_key" or user_id == asker:
                    told[f"{kind}s"][user_id] = copy.deepcopy(key)
        return told

    def claim(self, wanted: Mapping[str, Mapping[str, str]]) -> Json:
        """`POST /keys/claim`."""
        given: Json = {}
        for user_id, devices in wanted.items():
            if server_of(user_id) in self.lost_servers:
                continue
            for device_id, algorithm in devices.items():
                device = self._devices.get((user_id, device_id))
                key = None if device is None else device.claim(algorithm)
                if key is not None:
                    given.setdefault(user_id, {})[device_id] = copy.deepcopy(key)
        return {"one_time_keys": given, "failures": self._failures(wanted)}

    def _failures(self, user_ids: Iterable[str]) -> Json:
        lost = {server_of(user_id) for user_id in user_ids} & self.lost_servers
        return {server: {"status": 503, "message": "Failed to send request"} for server in sorted(lost)}

    # cross-signing
    def has_identity(self, user_id: str) -> bool:
        """Whether an account has a master key."""
        return "master_key" in self._signing.get(user_id, {})

    def is_new_identity(self, user_id: str, asked: Mapping[str, Any]) -> bool:
        """Whether an upload of signing keys would replace one that is there."""
        there = self._signing.get(user_id, {})
        return any(kind in asked and kind in there and asked[kind]["keys"] != there[kind]["keys"] for kind in SIGNING)

    def upload_signing(self, user_id: str, asked: Mapping[str, Any]) -> Json:
        """`POST /keys/device_signing/upload`; raises a refusal where a signature is missing or wrong."""
        there = self._signing.get(user_id, {})
        new = {kind: copy.deepcopy(asked[kind]) for kind in SIGNING if kind in asked}
        if "master_key" not in there | new:
            raise Refusal(400, "M_INVALID_PARAM")
        (master,) = (there | new)["master_key"]["keys"].values()
        for kind, key in new.items():
            if key["user_id"] != user_id or key["usage"] != [kind.removesuffix("_key")]:
                raise Refusal(400, "M_INVALID_PARAM")
            if kind != "master_key" and not is_signed(key, user_id, f"ed25519:{master}", master):
                raise Refusal(400, "M_INVALID_SIGNATURE")
        if new.get("master_key", there.get("master_key")) != there.get("master_key"):
            there = {}
        self._signing[user_id] = there | new
        self.change(user_id)
        return {}

    def upload_signatures(self, signer: str, asked: Mapping[str, Mapping[str, Json]]) -> Json:
        """`POST /keys/signatures/upload`: each signature is checked, and stands from now on with what it signs."""
        failures: Json = {}
        for user_id, signed_objects in asked.items():
            for name, signed in signed_objects.items():
                target = self._signed(user_id, name)
                by = signed.get("signatures", {}).get(signer, {})
                if target is None:
                    code = "M_NOT_FOUND"
                elif unsigned(target) != unsigned(signed) or not by or not self._all_right(signer, signed, by):
                    code = "M_INVALID_SIGNATURE"
                else:
                    target.setdefault("signatures", {}).setdefault(signer, {}).update(by)
                    self.change(user_id)
                    continue
                failures.setdefault(user_id, {})[name] = {"errcode": code, "error": f"fake: {code}"}
        return {"failures": failures}

    def _signed(self, user_id: str, name: str) -> Json | None:
        """What an upload of signatures means: a device by its id, or a signing key by the key itself."""
        device = self._devices.get((user_id, name))
        if device is not None:
            return device.identity
        keys = self._signing.get(user_id, {}).values()
        return next((key for key in keys if f"ed25519:{name}" in key["keys"]), None)

    def _all_right(self, signer: str, signed: Json, by: Mapping[str, str]) -> bool:
        """Whether each signature is by a key that the signer has published."""
        known: dict[str, str] = {}
        for (owner, _), device in self._devices.items():
            if owner == signer and device.identity is not None:
                known |= device.identity["keys"]
        for key in self._signing.get(signer, {}).values():
            known |= key["keys"]
        return all(name in known and is_signed(signed, signer, name, known[name]) for name in by)

    # messages to devices
    def send(self, sender: str, kind: str, messages: Mapping[str, Mapping[str, Any]], devices: Iterable[Of]) -> None:
        """Take messages for devices (of `devices`, all that are logged in); others are dropped in silence."""
        everybody = list(devices)
        for user_id, contents in messages.items():
            for name, content in contents.items():
                for of in everybody:
                    if of[0] == user_id and name in ("*", of[1]):
                        event = {"sender": sender, "type": kind, "content": copy.deepcopy(content)}
                        self._take(Message(self._tick(), of, event))

    def _take(self, message: Message) -> None:
        self.taken.append(message)
        left = self._dropping.get(message.to, 0)
        if left:
            self._dropping[message.to] = left - 1
        else:
            self._messages.append(message)

    def drop(self, of: Of, times: int) -> None:
        """Lose the next so many messages to a device, though their senders are told that they were taken."""
        self._dropping[of] = times

    # syncing
    def part(self, of: Of, since: int | None, shares: Callable[[str], bool], moves: Iterable[Move]) -> Json:
        """What a sync response says of keys and messages; only news of those two make it worth sending.

        `shares` says whether an account is in a room with this one. What is older than `since`
        has been received, and is no longer kept.
        """
        after = since or 0
        self._messages = [message for message in self._messages if message.to != of or message.number > after]
        device = self._devices.get(of, Device())
        told: Json = {
            "device_one_time_keys_count": device.counts(),
            "device_unused_fallback_key_types": sorted(device.unused),
        }
        waiting = [copy.deepcopy(message.event) for message in self._messages if message.to == of]
        if waiting:
            told["to_device"] = {"events": waiting}
        if since is not None:
            new = [move for move in moves if move.number > since]
            touched = {user_id for number, user_id in self._changes if number > since}
            touched |= {move.user_id for move in new if move.came}
            changed = sorted(user_id for user_id in touched if shares(user_id))
            left = sorted({move.user_id for move in new if not move.came and not shares(move.user_id)})
            if changed or left:
                told["device_lists"] = {"changed": changed, "left": left}
        return told


def server_of(user_id: str) -> str:
    return user_id.partition(":")[2] or SERVER


def unsigned(signed: Mapping[str, Any]) -> Json:
    """An object without what is not signed."""
    return {key: value for key, value in signed.items() if key not in ("signatures", "unsigned")}


def canonical(signed: Mapping[str, Any]) -> bytes:
    """The bytes that a signature of an object is over."""
    return json.dumps(unsigned(signed), ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


def is_signed(signed: Mapping[str, Any], user_id: str, name: str, key: str) -> bool:
    """Whether an object bears this signature by this key (base64)."""
    signature = signed.get("signatures", {}).get(user_id, {}).get(name)
    if signature is None:
        return False
    try:
        vodozemac.Ed25519PublicKey.from_base64(key).verify_signature(
            canonical(signed), vodozemac.Ed25519Signature.from_base64(signature)
        )
    except (vodozemac.SignatureException, vodozemac.KeyException):
        return False
    return True
