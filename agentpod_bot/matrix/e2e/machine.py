"""The device's cryptography: nio's Olm and its keys, for one thread alone. Nothing here talks to anybody.

Whatever changes keys is one transaction of their file. Where that fails, what is in
memory is forgotten and read anew, so that memory never knows what the file does not.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import structlog
import vodozemac
from nio.api import Api
from nio.events import ToDeviceEvent
from nio.exceptions import EncryptionError
from nio.responses import KeysClaimResponse, KeysQueryResponse

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.core.room import Device
from agentpod_bot.errors import CryptoStoreRefused, HomeserverUnavailable, StoreUnavailable
from agentpod_bot.matrix.e2e import vault as vaults
from agentpod_bot.matrix.e2e.key_requests import KEPT_MS, MEGOLM, KeyRequest, Rate, Stage
from agentpod_bot.matrix.e2e.keys_store import VERSION, KeysStore
from agentpod_bot.matrix.e2e.olm import BotOlm, KeyCame, Told
from agentpod_bot.matrix.e2e.signing import has_form, signable
from agentpod_bot.matrix.e2e.to_device import Outgoing
from agentpod_bot.matrix.opened import NoKey, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nio.crypto.device import OlmDevice
    from nio.crypto.sessions import InboundGroupSession

    from agentpod_bot.core.ids import TxnId
    from agentpod_bot.core.room import Encryption
    from agentpod_bot.matrix.e2e.vault import Vault

ALGORITHMS: Final = ("m.olm.v1.curve25519-aes-sha2", MEGOLM)
ENCRYPTED: Final = "m.room.encrypted"
LONGEST_KEY: Final = 64
"""Letters of what may be a key, or the id of a session, which is one: more than any in base64 has."""
SHORTEST_ROTATION_MS: Final = 60_000
"""A room may want new sessions so often that none is ever in use; not that often."""
OLM_FAULTS: Final = (
    vodozemac.OlmDecryptionException,
    vodozemac.SessionCreationException,
    vodozemac.DecodeException,
    vodozemac.KeyException,
)
UNREADABLE: Final = (
    *OLM_FAULTS,
    EncryptionError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    RecursionError,
)
"""What is raised of a message that is not as it should be. Anybody can send one, of any depth."""

log = structlog.get_logger(__name__)

RoomKey = tuple[RoomId, str]
"""A room and the id of a session in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceKeys:
    """The public keys of somebody's device, in unpadded base64."""

    user_id: UserId
    device_id: str
    ed25519: str
    curve25519: str

    @property
    def named(self) -> Device:
        """The device as it is named beside what it said."""
        return Device(self.user_id, self.device_id, self.ed25519)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """What an encrypted event holds, and the device that vouches for it (None: none of its sender's)."""

    kind: str
    content: Mapping[str, Any]
    device: DeviceKeys | None
    ciphertext: str


@dataclass(slots=True)
class Received:
    """What a response's to-device events brought."""

    room_keys: set[RoomKey] = field(default_factory=set)
    others: list[Told] = field(default_factory=list)
    """Those that are not about keys of rooms."""


class Machine:
    """Everything that needs the device's private keys."""

    def __init__(self, vault: Vault, store: KeysStore, olm: BotOlm) -> None:
        self._vault = vault
        self._store = store
        self._olm = olm
        self._from_before = {key for key, sessions in olm.session_store.items() if sessions}
        """Keys of devices whose sessions are of an earlier run. They may be older than the other side knows:

        a vault that was brought back from a backup would go on with what was used up since.
        """
        self._key_rate = Rate()
        self._waiting: dict[TxnId, Outgoing] = {}
        """Messages that keep sessions alive, and were not sent yet."""

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

    @property
    def is_published(self) -> bool:
        """Whether the homeserver was given the device's keys."""
        return bool(self._olm.account.shared)

    def sign(self, text: str) -> str:
        """The device's signature of a text, in unpadded base64."""
        return self._olm.account.sign(text)

    def close(self) -> None:
        """Close the file."""
        self._store.close()

    # what the homeserver has of us

    def to_upload(self, one_time_keys: int | None, *, has_fallback_key: bool | None) -> dict[str, Any] | None:
        """What to publish now; None for nothing.

        `one_time_keys` is how many the homeserver has, None where it did not say. What
        is to be published is kept first: a key that others use is never unknown here.
        """
        account = self._olm.account
        body: dict[str, Any] = {}
        with self._kept():
            if not account.shared:
                body["device_keys"] = self.signed_device_keys()
            waiting = account.one_time_keys["curve25519"]
            lacking = account.max_one_time_keys - (0 if one_time_keys is None else one_time_keys)
            counted = one_time_keys is not None or not account.shared
            if not waiting and counted and lacking * 2 > account.max_one_time_keys:
                account.generate_one_time_keys(lacking)
                waiting = account.one_time_keys["curve25519"]
            if waiting:
                body["one_time_keys"] = {
                    f"signed_curve25519:{key_id}": self._signed({"key": key}) for key_id, key in waiting.items()
                }
            if has_fallback_key is False or not account.shared:
                body["fallback_keys"] = self._fallback_keys()
            self._olm.save_account()
        return body or None

    def uploaded(self) -> None:
        """The homeserver took it."""
        with self._kept():
            self._olm.account.shared = True
            self._olm.mark_keys_as_published()
            self._olm.save_account()

    def signed_device_keys(self) -> dict[str, Any]:
        """The device's public keys as they are published.

        https://spec.matrix.org/v1.14/client-server-api/#post_matrixclientv3keysupload
        """
        own = self.own
        return self._signed(
            {
                "algorithms": list(ALGORITHMS),
                "device_id": own.device_id,
                "user_id": own.user_id,
                "keys": {f"curve25519:{own.device_id}": own.curve25519, f"ed25519:{own.device_id}": own.ed25519},
            }
        )

    def _signed(self, value: dict[str, Any]) -> dict[str, Any]:
        signature = self.sign(Api.to_canonical_json(signable(value)))
        return value | {"signatures": {self._vault.user_id: {f"ed25519:{self._vault.device_id}": signature}}}

    def _fallback_keys(self) -> dict[str, Any]:
        account: Any = self._olm.account._account  # noqa: SLF001 - nio knows no fallback keys, nor do vodozemac's stubs
        if not account.fallback_key:
            account.generate_fallback_key()
        return {
            f"signed_curve25519:{key_id}": self._signed({"key": key.to_base64(), "fallback": True})
            for key_id, key in account.fallback_key.items()
        }

    # others' devices

    def learn(self, answer: Mapping[str, Any]) -> None:
        """Take over an answer to a query of device keys. Raises `HomeserverUnavailable` where it cannot be read."""
        found = answer.get("device_keys")
        if not isinstance(found, dict):
            raise HomeserverUnavailable("an answer to keys/query that cannot be read", status=200)
        for user_id, devices in found.items():
            if not isinstance(devices, dict):
                continue
            signed = {device_id: _as_signed(keys) for device_id, keys in devices.items()}
            usable = {device_id: keys for device_id, keys in signed.items() if _is_device(user_id, device_id, keys)}
            for device_id in devices.keys() - usable.keys():
                log.warning("device_unusable", user_id=user_id, device_id=device_id)
            with self._kept():
                self._olm.handle_response(KeysQueryResponse({user_id: usable}, {}))
                self._bring_back(user_id, usable)

    def _bring_back(self, user_id: str, published: Mapping[str, Mapping[str, Any]]) -> None:
        """Count devices that are there again: nio takes one that was missing once for deleted for ever.

        Only with the keys that are known of it, which it signed.
        """
        known = self._olm.device_store[user_id]
        again = {
            device_id: device
            for device_id, value in published.items()
            if (device := known.get(device_id)) is not None
            and device.deleted
            and device.ed25519 == value["keys"][f"ed25519:{device_id}"]
            and device.curve25519 == value["keys"][f"curve25519:{device_id}"]
        }
        for device in again.values():
            device.deleted = False
        self._store.save_device_keys({user_id: again})

    def devices(self, user_ids: Iterable[str]) -> tuple[DeviceKeys, ...]:
        """The known devices of some users that were not deleted."""
        return tuple(
            _keys_of(device)
            for user_id in user_ids
            for device in self._olm.device_store.active_user_devices(user_id)
            if (user_id, device.id) != (self._vault.user_id, self._vault.device_id)
        )

    def without_session(self, devices: Iterable[DeviceKeys]) -> tuple[DeviceKeys, ...]:
        """Those of the devices to which nothing can be encrypted yet."""
        return tuple(device for device in devices if self._olm.session_store.get(device.curve25519) is None)

    def from_before(self, devices: Iterable[DeviceKeys]) -> tuple[DeviceKeys, ...]:
        """Those of the devices with which a session of an earlier run is used, until `renewed`."""
        return tuple(device for device in devices if device.curve25519 in self._from_before)

    def renewed(self, devices: Iterable[DeviceKeys]) -> None:
        """They were asked for a key to begin anew with; one that had none goes on with the session of before."""
        self._from_before -= {device.curve25519 for device in devices}

    def wedged(self) -> tuple[DeviceKeys, ...]:
        """Devices whose messages could not be read: they need a new session."""
        return tuple(_keys_of(device) for device in self._olm.wedged_devices)

    def claimed(self, answer: Mapping[str, Any]) -> None:
        """Take over an answer to a claim of one-time keys. Raises `HomeserverUnavailable` where it cannot be read."""
        found = answer.get("one_time_keys")
        if not isinstance(found, dict):
            raise HomeserverUnavailable("an answer to keys/claim that cannot be read", status=200)
        for user_id, devices in found.items():
            for device_id, keys in devices.items() if isinstance(devices, dict) else ():
                one = KeysClaimResponse({user_id: {device_id: keys}}, {})
                try:
                    with self._kept():
                        self._olm.handle_response(one)
                except (*UNREADABLE, StopIteration) as error:
                    log.warning("one_time_key_unusable", user_id=user_id, device_id=device_id, why=type(error).__name__)
                else:
                    self._queue()

    def _queue(self) -> None:
        """Keep what nio wants to be sent where a failure of the file does not lose it: what it belongs to is kept."""
        for message in self._olm.outgoing_to_device_messages:
            outgoing = Outgoing(message.type, {message.recipient: {message.recipient_device: message.content}})
            self._waiting[outgoing.txn_id] = outgoing
        self._olm.outgoing_to_device_messages.clear()

    # messages to devices

    def receive(self, events: Iterable[object]) -> Received:
        """Read the to-device events of a response, in order; one that cannot be read changes nothing."""
        received = Received()
        with self._kept():
            for raw in events:
                if not isinstance(raw, dict):
                    continue
                sender, kind, content = raw.get("sender"), raw.get("type"), raw.get("content")
                if not isinstance(sender, str) or not isinstance(kind, str) or not isinstance(content, dict):
                    continue
                if kind == ENCRYPTED:
                    self._receive(raw, sender, received)
                else:
                    received.others.append(Told(sender=UserId(sender), kind=kind, content=content, keys=None))
        return received

    def _receive(self, raw: dict[str, Any], sender: str, received: Received) -> None:
        try:
            event = ToDeviceEvent.parse_event(raw)
            decrypted = self._olm.handle_to_device_event(event)
        except UNREADABLE as error:
            log.warning("to_device_unreadable", sender=sender, why=type(error).__name__)
            return
        if isinstance(decrypted, KeyCame):
            received.room_keys.add((RoomId(decrypted.room_id), decrypted.session_id))
        elif isinstance(decrypted, Told):
            received.others.append(decrypted)

    def encrypt_for(self, devices: Iterable[DeviceKeys], kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """A to-device message for each of the devices, by user and device; a session with each must be there."""
        messages: dict[str, dict[str, Any]] = {}
        with self._kept():
            for keys in devices:
                device = self._olm.device_store[keys.user_id].get(keys.device_id)
                session = self._olm.session_store.get(keys.curve25519)
                if device is None or session is None or device.curve25519 != keys.curve25519:
                    continue  # it changed meanwhile; whoever asked sees that it is not among the messages
                messages.setdefault(keys.user_id, {})[keys.device_id] = self._olm._olm_encrypt(  # noqa: SLF001 - nio offers no other way to encrypt for one device
                    session, device, kind, dict(content)
                )
        return messages

    def outgoing(self) -> tuple[Outgoing, ...]:
        """What is to be sent to devices; the same again until it is `sent`."""
        own = self._vault.device_id
        return (*self._waiting.values(), *(each.outgoing(own) for each in self._olm.key_requests.unsaid()))

    def sent(self, txn_id: TxnId) -> None:
        """The homeserver took it, or never will."""
        if self._waiting.pop(txn_id, None) is None:
            with self._kept():
                self._olm.key_requests.said(txn_id)

    # rooms

    def new_outbound(self, room_id: RoomId, encryption: Encryption) -> str:
        """Begin a new session for what we say in a room; returns its id."""
        with self._kept():
            self._olm.create_outbound_group_session(room_id)
        session = self._olm.outbound_group_sessions[room_id]
        session.max_messages = max(1, encryption.rotation_messages)
        session.max_age = timedelta(milliseconds=max(SHORTEST_ROTATION_MS, encryption.rotation_ms))
        return session.id

    def outbound(self, room_id: RoomId) -> str | None:
        """The id of the session with which we speak in a room; None where a new one is due."""
        session = self._olm.outbound_group_sessions.get(room_id)
        return None if session is None or session.expired else session.id

    def room_key(self, room_id: RoomId) -> dict[str, Any]:
        """The content of an `m.room_key` with which a device can read what we say there from now on."""
        session = self._olm.outbound_group_sessions[room_id]
        return {
            "algorithm": MEGOLM,
            "room_id": room_id,
            "session_id": session.id,
            "session_key": session.session_key,
        }

    def next_index(self, room_id: RoomId) -> int:
        """Which message of its session the next one in a room is, from 0."""
        return self._olm.outbound_group_sessions[room_id].message_index

    def forwarded(self, room_id: RoomId, session_id: str, index: int) -> dict[str, Any] | None:
        """The content of an `m.forwarded_room_key` that reads what we say from a message on; None if it is gone."""
        own = self.own
        session = self._olm.inbound_group_store.get(room_id, own.curve25519, session_id)
        if session is None:
            return None
        return {
            "algorithm": MEGOLM,
            "room_id": room_id,
            "session_id": session_id,
            "session_key": session.export_session(max(index, session.first_known_index)),
            "sender_key": own.curve25519,
            "sender_claimed_ed25519_key": own.ed25519,
            "forwarding_curve25519_key_chain": [],
        }

    def encrypt(self, room_id: RoomId, session_id: str, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content of the `m.room.encrypted` event that says it; relations stay outside, as Matrix wants them.

        Raises `HomeserverUnavailable` where the session is not the one that was shared.
        """
        session = self._olm.outbound_group_sessions.get(room_id)
        if session is None or session.id != session_id:
            raise HomeserverUnavailable("the room's session changed meanwhile; its key has to be sent first")
        session.mark_as_shared()
        inside = dict(content)
        relation = inside.pop("m.relates_to", None)
        try:
            encrypted: dict[str, Any] = self._olm.group_encrypt(room_id, {"type": kind, "content": inside})
        except EncryptionError as error:
            raise HomeserverUnavailable("the room's session ended meanwhile; a new key has to be sent first") from error
        return encrypted if relation is None else encrypted | {"m.relates_to": relation}

    def decrypt(self, room_id: RoomId, sender: UserId, content: Mapping[str, Any]) -> Clear | NoKey | Unreadable:
        """Read the content of an `m.room.encrypted` event of a room."""
        session_id, ciphertext = content.get("session_id"), content.get("ciphertext")
        if content.get("algorithm") != MEGOLM or not _is_like_key(session_id) or not isinstance(ciphertext, str):
            return Unreadable()
        found = self._room_key_for(room_id, session_id, sender)
        if found is None:
            return NoKey(session_id)
        session, device = found
        try:
            plaintext, index = session.decrypt(ciphertext)
        except vodozemac.MegolmDecryptionException:
            return NoKey(session_id)  # from before the first message that this key can read, perhaps
        except (vodozemac.DecodeException, ValueError):
            return Unreadable()
        try:
            inside = json.loads(plaintext)
        except (ValueError, RecursionError):
            return Unreadable()
        if not isinstance(inside, dict) or inside.get("room_id") != room_id:
            return Unreadable()  # said in another room
        kind, said = inside.get("type"), inside.get("content")
        if not isinstance(kind, str) or not isinstance(said, dict):
            return Unreadable()
        what = hashlib.sha256(f"{session_id} {index}".encode()).hexdigest()
        return Clear(kind=kind, content=said, device=device, ciphertext=what)

    def request_key(self, room_id: RoomId, sender: UserId, content: Mapping[str, Any], now_ms: int) -> bool:
        """Have the devices of an event's sender asked for its key; False where that was done, or is too much of it."""
        session_id, sender_key = content.get("session_id"), content.get("sender_key")
        if not isinstance(session_id, str) or not self._key_rate.allows(sender, room_id, now_ms):
            return False
        request = KeyRequest(
            request_id=secrets.token_hex(16),
            room_id=room_id,
            session_id=session_id,
            user_id=sender,
            sender_key=sender_key if _is_like_key(sender_key) else None,
            asked_at_ms=now_ms,
            stage=Stage.WANTED,
        )
        before = self._olm.key_requests.open(request.key)
        if before is not None and abs(now_ms - before.asked_at_ms) < KEPT_MS:
            return False
        self._key_rate.count(sender, room_id, now_ms)
        with self._kept():
            self._olm.key_requests.add(request)
        return True

    def _room_key_for(
        self, room_id: RoomId, session_id: str, sender: UserId
    ) -> tuple[InboundGroupSession, DeviceKeys | None] | None:
        """The key of a session, and the device of `sender` that made it; None for the device where none did."""
        first: InboundGroupSession | None = None
        for sessions in self._olm.inbound_group_store[room_id].values():
            session = sessions.get(session_id)
            if session is None:
                continue
            if (device := self._maker(session, sender)) is not None:
                return session, device
            first = first or session
        return None if first is None else (first, None)

    def _maker(self, session: InboundGroupSession, sender: UserId) -> DeviceKeys | None:
        own = self.own
        devices = [own] if sender == own.user_id else []
        devices += [_keys_of(device) for device in self._olm.device_store.active_user_devices(sender)]
        for device in devices:
            if device.curve25519 == session.sender_key and device.ed25519 == session.ed25519:
                return device
        return None

    @contextmanager
    def _kept(self) -> Iterator[None]:
        """Keep what changes inside, all of it or nothing. Raises `StoreUnavailable` where it cannot be kept."""
        try:
            with self._store.transaction():
                yield
        except sqlite3.Error as error:
            self._olm = BotOlm(self._vault.user_id, self._vault.device_id, self._store)
            raise StoreUnavailable(f"the keys of the bot's device cannot be kept: {error}") from error


def _keys_of(device: OlmDevice) -> DeviceKeys:
    return DeviceKeys(
        user_id=UserId(device.user_id),
        device_id=device.device_id,
        ed25519=device.ed25519,
        curve25519=device.curve25519,
    )


def _is_like_key(value: object) -> TypeGuard[str]:
    """Whether a value can be kept and sent on as a key, whosever it is."""
    return isinstance(value, str) and len(value) <= LONGEST_KEY and has_form(value)


def _as_signed(value: Any) -> Any:
    """A device's published keys without what homeservers add to them, which may have any form."""
    return {key: part for key, part in value.items() if key != "unsigned"} if isinstance(value, dict) else value


def _is_device(user_id: str, device_id: str, value: object) -> bool:
    """Whether a device's published keys have their form; nio looks at whose they are and who signed them."""
    parsed = KeysQueryResponse.from_dict({"device_keys": {user_id: {device_id: value}}, "failures": {}})
    if not isinstance(parsed, KeysQueryResponse) or not isinstance(value, dict):
        return False
    if not has_form([user_id, device_id, value]):
        return False  # what has no canonical form was signed by nobody, and not even its name could be kept
    keys = value.get("keys", {})
    try:
        vodozemac.Ed25519PublicKey.from_base64(keys[f"ed25519:{device_id}"])
        vodozemac.Curve25519PublicKey.from_base64(keys[f"curve25519:{device_id}"])
    except (vodozemac.KeyException, KeyError, TypeError, ValueError):
        return False
    return True
