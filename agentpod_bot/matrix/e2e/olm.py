"""nio's Olm machine, with what it does not do as this bot needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from nio.crypto.olm_machine import Olm
from nio.crypto.sessions import InboundGroupSession
from nio.events import RoomKeyEvent

from agentpod_bot.core.ids import UserId
from agentpod_bot.matrix.e2e.device_keys import MEGOLM, SenderKeys
from agentpod_bot.matrix.e2e.key_requests import KeyRequests
from agentpod_bot.matrix.events import identifier

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.matrix.e2e.keys_store import KeysStore

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class KeyCame:
    """A to-device message that brought a room key."""

    room_id: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A to-device message that is not about keys of rooms."""

    sender: UserId
    """Where it came encrypted, who meant it for this device; else the homeserver's word."""
    kind: str
    content: Mapping[str, Any]
    keys: SenderKeys | None
    """None for one that came in clear."""


class BotOlm(Olm):
    """`Olm` that never replaces a room key by a lesser one, and takes a forwarded one from its owner alone."""

    def __init__(self, user_id: str, device_id: str, store: KeysStore) -> None:
        self._keys = store
        super().__init__(user_id, device_id, store)  # type: ignore[arg-type]  # fits what Olm calls of MatrixStore

    def load(self) -> None:
        """Read everything that is kept; nio asks nobody for keys, so what it would keep of that is not there."""
        self.session_store = self._keys.load_sessions()
        self.inbound_group_store = self._keys.load_inbound_group_sessions()
        self.device_store = self._keys.load_device_keys()
        self.key_requests = KeyRequests(self._keys)

    def create_group_session(
        self, sender_key: str, sender_fp_key: str, room_id: str, session_id: str, session_key: str
    ) -> None:
        """Take a room key, unless the same one is there from an earlier message on."""
        known = self.inbound_group_store.get(room_id, sender_key, session_id)
        super().create_group_session(sender_key, sender_fp_key, room_id, session_id, session_key)
        now = self.inbound_group_store.get(room_id, sender_key, session_id)
        if known is not None and now is not None and known.first_known_index < now.first_known_index:
            self.inbound_group_store[room_id][sender_key][session_id] = known
            self.save_inbound_group_session(known)

    def _handle_olm_event(  # type: ignore[override]  # what comes of it goes to `Machine` alone
        self, sender: str, sender_key: str, payload: dict[Any, Any]
    ) -> KeyCame | Told | None:
        """Take what was decrypted, and say what came of it.

        Its sender meant it for this device: nio looked at who is named inside, and that they sent it.
        https://spec.matrix.org/v1.14/client-server-api/#molmv1curve25519-aes-sha2
        """
        match payload["type"]:
            case "m.room_key":
                return self._take_key(sender, sender_key, payload)
            case "m.forwarded_room_key":
                return self._take_forwarded(sender, sender_key, payload)
            case "m.dummy":
                return None
            case kind:
                ed25519 = payload["keys"].get("ed25519")
                if not isinstance(ed25519, str):
                    return None
                keys = SenderKeys(curve25519=sender_key, ed25519=ed25519)
                return Told(sender=UserId(sender), kind=kind, content=payload["content"], keys=keys)

    def _take_key(self, sender: str, sender_key: str, payload: dict[Any, Any]) -> KeyCame | None:
        """Take a room key, and wait for it no longer where it reads more than what was there."""
        content = payload["content"]
        if identifier(content.get("room_id")) is None:
            return None
        before = self._first_index(content.get("room_id"), sender_key, content.get("session_id"))
        event = self._handle_room_key_event(sender, sender_key, payload)
        if not isinstance(event, RoomKeyEvent):
            return None
        now = self._first_index(event.room_id, sender_key, event.session_id)
        if now is not None and (before is None or now < before):
            self.key_requests.came((event.room_id, event.session_id, sender))
        return KeyCame(event.room_id, event.session_id)

    def _first_index(self, room_id: str, sender_key: str, session_id: str) -> int | None:
        """The first message that a known room key reads, from 0; None for one that is not known."""
        known = self.inbound_group_store.get(room_id, sender_key, session_id)
        return None if known is None else known.first_known_index

    def _take_forwarded(self, sender: str, sender_key: str, payload: dict[Any, Any]) -> KeyCame | None:
        """Take a forwarded room key only if it was asked for, and the device that made it is the one that sends it.

        nio would take one from any verified device of the bot's account, whose word for
        the key's owner nobody can check.
        """
        content = payload["content"]
        room_id, session_id = content.get("room_id"), content.get("session_id")
        is_text = isinstance(room_id, str) and isinstance(session_id, str)
        wanted = self.key_requests.open((room_id, session_id, sender)) if is_text else None
        is_owners = (
            content.get("sender_key") == sender_key
            and content.get("sender_claimed_ed25519_key") == payload["keys"].get("ed25519")
            and content.get("algorithm") == MEGOLM
            and content.get("forwarding_curve25519_key_chain", []) == []
        )
        if wanted is None or not is_owners:
            log.warning("forwarded_key_refused", sender=sender, room_id=room_id if wanted else None)
            return None
        session = self._import_group_session(
            content.get("session_key"), payload["keys"]["ed25519"], sender_key, room_id, []
        )
        if not isinstance(session, InboundGroupSession) or session.id != session_id:
            log.warning("forwarded_key_unreadable", sender=sender, room_id=room_id)
            return None
        known = self.inbound_group_store.get(room_id, sender_key, session_id)
        if known is None or session.first_known_index < known.first_known_index:
            self.inbound_group_store[room_id][sender_key][session_id] = session
            self.save_inbound_group_session(session)
        self.key_requests.came(wanted.key)
        return KeyCame(wanted.room_id, wanted.session_id)
