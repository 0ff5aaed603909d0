"""Sessions of rooms: those with which the bot speaks, and those with which it reads others."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import vodozemac
from nio.exceptions import EncryptionError

from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.e2e.device_keys import MEGOLM, is_like_key, keys_of
from agentpod_bot.matrix.e2e.held import Held
from agentpod_bot.matrix.e2e.key_requests import KEPT_MS, KeyRequest, Rate, Stage
from agentpod_bot.matrix.opened import NoKey, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from nio.crypto.sessions import InboundGroupSession

    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.core.room import Encryption
    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
    from agentpod_bot.matrix.e2e.keys_store import KeysStore
    from agentpod_bot.matrix.e2e.olm import BotOlm
    from agentpod_bot.matrix.e2e.vault import Vault

SHORTEST_ROTATION_MS: Final = 60_000
"""A room may want new sessions so often that none is ever in use; not that often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clear:
    """What an encrypted event holds, and the device that vouches for it (None: none of its sender's)."""

    kind: str
    content: Mapping[str, Any]
    device: DeviceKeys | None
    ciphertext: str


class RoomSessions(Held):
    """The sessions of rooms."""

    def __init__(self, vault: Vault, store: KeysStore, olm: BotOlm) -> None:
        super().__init__(vault, store, olm)
        self._key_rate = Rate()

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

    def decrypt(
        self, room_id: RoomId, sender: UserId, content: Mapping[str, Any], *, is_verified: Callable[[DeviceKeys], bool]
    ) -> Clear | NoKey | Unreadable:
        """Read the content of an `m.room.encrypted` event of a room.

        Several devices may have given the same key, each as its own. Those of the sender go
        before all others, and verified ones before the rest: no other one's key is used then.
        """
        session_id, ciphertext = content.get("session_id"), content.get("ciphertext")
        if content.get("algorithm") != MEGOLM or not is_like_key(session_id) or not isinstance(ciphertext, str):
            return Unreadable()
        found = tuple(self._room_keys_for(room_id, session_id, sender))
        of_sender = tuple((session, device) for session, device in found if device is not None)
        verified = tuple((session, device) for session, device in of_sender if is_verified(device))
        for session, device in verified or of_sender or found:
            try:
                plaintext, index = session.decrypt(ciphertext)
            except vodozemac.MegolmDecryptionException:
                continue  # from before the first message that this key can read, perhaps
            except (vodozemac.DecodeException, ValueError):
                return Unreadable()
            return self._read(room_id, sender, plaintext, device=device, of=f"{session_id} {index}")
        return NoKey(session_id)

    def _read(
        self, room_id: RoomId, sender: UserId, plaintext: str, *, device: DeviceKeys | None, of: str
    ) -> Clear | Unreadable:
        try:
            inside = json.loads(plaintext)
        except (ValueError, RecursionError):
            return Unreadable()
        if not isinstance(inside, dict) or inside.get("room_id") != room_id:
            return Unreadable()  # said in another room
        kind, said = inside.get("type"), inside.get("content")
        if not isinstance(kind, str) or not isinstance(said, dict):
            return Unreadable()
        # Whoever says once more what somebody else said uses up nothing of theirs.
        what = hashlib.sha256(f"{of} {sender}".encode("utf-8", "surrogatepass")).hexdigest()
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
            sender_key=sender_key if is_like_key(sender_key) else None,
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

    def _room_keys_for(
        self, room_id: RoomId, session_id: str, sender: UserId
    ) -> Iterator[tuple[InboundGroupSession, DeviceKeys | None]]:
        """Each key of a session, and the device of `sender` that gave it as its own; None where none did."""
        for sessions in self._olm.inbound_group_store[room_id].values():
            if (session := sessions.get(session_id)) is not None:
                yield session, self._maker(session, sender)

    def _maker(self, session: InboundGroupSession, sender: UserId) -> DeviceKeys | None:
        own = self.own
        devices = [own] if sender == own.user_id else []
        devices += [keys_of(device) for device in self._olm.device_store.active_user_devices(sender)]
        for device in devices:
            if device.curve25519 == session.sender_key and device.ed25519 == session.ed25519:
                return device
        return None
