"""Sessions with single devices, and what is said in them: room keys, requests for them, verifications."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog
import vodozemac
from nio.events import ToDeviceEvent
from nio.exceptions import EncryptionError
from nio.responses import KeysClaimResponse

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.e2e.device_keys import is_like_key, keys_of
from agentpod_bot.matrix.e2e.held import Held
from agentpod_bot.matrix.e2e.olm import KeyCame, Told
from agentpod_bot.matrix.e2e.to_device import Outgoing
from agentpod_bot.matrix.events import ENCRYPTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from nio.crypto.sessions import Session

    from agentpod_bot.core.ids import TxnId
    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
    from agentpod_bot.matrix.e2e.keys_store import KeysStore
    from agentpod_bot.matrix.e2e.olm import BotOlm
    from agentpod_bot.matrix.e2e.vault import Vault

UNREADABLE: Final = (
    vodozemac.OlmDecryptionException,
    vodozemac.SessionCreationException,
    vodozemac.DecodeException,
    vodozemac.KeyException,
    EncryptionError,
    KeyError,
    TypeError,
    ValueError,
    AttributeError,
    AssertionError,
    RecursionError,
)
"""What is raised of a message that is not as it should be. Anybody can send one, of any depth."""

MOST_OF_STRANGERS: Final = 2_000
"""So many room keys, and sessions, of devices that are not known are kept; the newest.

Anybody can send any number of them, under a new key each. Those of whoever is in a room are
known once they were spoken to or heard; a key that went is asked for again.
"""

RoomKey = tuple[RoomId, str]
"""A room and the id of a session in it."""

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Received:
    """What a response's to-device events brought."""

    room_keys: set[RoomKey] = field(default_factory=set)
    others: list[Told] = field(default_factory=list)
    """Those that are not about keys of rooms."""


class OlmSessions(Held):
    """The sessions with devices."""

    def __init__(self, vault: Vault, store: KeysStore, olm: BotOlm) -> None:
        super().__init__(vault, store, olm)
        self._from_before = {key for key, sessions in olm.session_store.items() if sessions}
        """Keys of devices whose sessions are of an earlier run. They may be older than the other side knows:

        a vault that was brought back from a backup would go on with what was used up since.
        """
        self._renewed: set[DeviceKeys] = set()
        """Devices that were asked for a key to begin anew with since."""
        self._begun_for: dict[str, DeviceKeys] = {}
        """By a session's id: the device with whose one-time key this run began it.

        Sessions go by the curve25519 key alone, which another device can name as its own:
        what was begun with its keys the true one could not read.
        """
        self._waiting: dict[TxnId, Outgoing] = {}
        """Messages that keep sessions alive, and were not sent yet."""

    def without_session(self, devices: Iterable[DeviceKeys]) -> tuple[DeviceKeys, ...]:
        """Those of the devices to which nothing can be encrypted yet."""
        return tuple(device for device in devices if self._session_with(device) is None)

    def from_before(self, devices: Iterable[DeviceKeys]) -> tuple[DeviceKeys, ...]:
        """Those of the devices with which a session of an earlier run is used, until `renewed`."""
        before = (device for device in devices if device.curve25519 in self._from_before)
        return tuple(device for device in before if device not in self._renewed)

    def renewed(self, devices: Iterable[DeviceKeys]) -> None:
        """They were asked for a key to begin anew with; one that had none goes on with the session of before."""
        self._renewed.update(devices)

    def wedged(self) -> tuple[DeviceKeys, ...]:
        """Devices whose messages could not be read: they need a new session."""
        return tuple(keys_of(device) for device in self._olm.wedged_devices)

    def claimed(self, answer: Mapping[str, Any]) -> None:
        """Take over an answer to a claim of one-time keys. Raises `HomeserverUnavailable` where it cannot be read."""
        found = answer.get("one_time_keys")
        if not isinstance(found, dict):
            raise HomeserverUnavailable("an answer to keys/claim that cannot be read", status=200)
        for user_id, devices in found.items():
            for device_id, keys in devices.items() if isinstance(devices, dict) else ():
                one = KeysClaimResponse({user_id: {device_id: keys}}, {})
                device = self._olm.device_store[user_id].get(device_id)
                sessions = () if device is None else self._olm.session_store[device.curve25519]
                before = {session.id for session in sessions}
                try:
                    with self._kept():
                        self._olm.handle_response(one)
                except (*UNREADABLE, StopIteration) as error:
                    log.warning("one_time_key_unusable", user_id=user_id, device_id=device_id, why=type(error).__name__)
                else:
                    self._queue()
                    begun = (session.id for session in sessions if session.id not in before)
                    self._begun_for |= {} if device is None else dict.fromkeys(begun, keys_of(device))

    def _session_with(self, device: DeviceKeys) -> Session | None:
        """The session in which a device is written to: not one that was begun with another's keys."""
        sessions = self._olm.session_store[device.curve25519]
        return next((each for each in sessions if self._begun_for.get(each.id, device) == device), None)

    def _queue(self) -> None:
        """Keep what nio wants to be sent where a failure of the file does not lose it: what it belongs to is kept."""
        for message in self._olm.outgoing_to_device_messages:
            outgoing = Outgoing(message.type, {message.recipient: {message.recipient_device: message.content}})
            self._waiting[outgoing.txn_id] = outgoing
        self._olm.outgoing_to_device_messages.clear()

    def receive(self, events: Iterable[object]) -> Received:
        """Read the to-device events of a response, in order; one that cannot be read changes nothing."""
        received = Received()
        has_encrypted = False
        with self._kept():
            for raw in events:
                if not isinstance(raw, dict):
                    continue
                sender, kind, content = raw.get("sender"), raw.get("type"), raw.get("content")
                if not isinstance(sender, str) or not isinstance(kind, str) or not isinstance(content, dict):
                    continue
                if kind != ENCRYPTED:
                    received.others.append(Told(sender=UserId(sender), kind=kind, content=content, keys=None))
                elif is_like_key(content.get("sender_key")):
                    has_encrypted = True
                    self._receive(raw, sender, received)
            if has_encrypted:
                self._cut_strangers()
        return received

    def _cut_strangers(self) -> None:
        room_keys, sessions = self._store.cut_strangers(self.own.curve25519, at_most=MOST_OF_STRANGERS)
        for room_id, sender_key, session_id in room_keys:
            of_room = self._olm.inbound_group_store[room_id]
            of_room[sender_key].pop(session_id, None)
            if not of_room[sender_key]:
                del of_room[sender_key]
        for sender_key, session_id in sessions:
            kept = self._olm.session_store[sender_key]
            kept[:] = [session for session in kept if session.id != session_id]
        entries = self._olm.session_store._entries  # noqa: SLF001 - nio forgets no session, and makes a list for each key that it looks for
        for sender_key in [key for key, kept in entries.items() if not kept]:
            del entries[sender_key]

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
                session = self._session_with(keys)
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
