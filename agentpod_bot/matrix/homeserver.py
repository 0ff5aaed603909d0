"""The homeserver as the broker sees it: what goes into a room goes there as the room wants it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.events import ENCRYPTED, REACTION
from agentpod_bot.matrix.files import encrypted_file

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from agentpod_bot.core.ids import EventId, RoomId, TxnId, UserId
    from agentpod_bot.core.room import Device, RoomState
    from agentpod_bot.core.upgrades import Origin, Successor
    from agentpod_bot.matrix.client import MatrixClient
    from agentpod_bot.matrix.e2e.crypto import Crypto

OPAQUE: Final = "application/octet-stream"
"""What the media repository is told of a file that it cannot read."""


class MatrixHomeserver:
    """Fits `ports.Homeserver`. The last place where something is encrypted, or held back."""

    def __init__(self, client: MatrixClient, crypto: Crypto | None = None) -> None:
        self._client = client
        self._crypto = crypto

    @property
    def user_id(self) -> UserId:
        """The bot's own account."""
        return self._client.user_id

    @property
    def can_encrypt(self) -> bool:
        """Whether there are keys to encrypt with."""
        return self._crypto is not None

    async def know_devices(self, user_ids: Collection[UserId]) -> None:
        """Have the devices of these accounts known as they are now."""
        if self._crypto is not None:
            await self._crypto.know(user_ids)

    def vouches(self, device: Device) -> bool:
        """Whether a device is one that its account has now, and verified."""
        return self._crypto is not None and self._crypto.vouches(device)

    async def send(self, room: RoomState, event_type: str, content: Mapping[str, Any], txn_id: TxnId) -> EventId:
        """Send one event, encrypted where the room is; the same transaction id is the same event.

        Reactions go in clear text everywhere: servers count them, and clients look for them there.
        """
        if event_type == REACTION or not self._must_encrypt(room):
            return await self._client.send(room.room_id, event_type, content, txn_id)
        crypto = self._able(room)
        encrypted = await crypto.encrypted(room, event_type, content)
        return await self._client.send(room.room_id, ENCRYPTED, encrypted, txn_id)

    async def upload(self, room: RoomState, filename: str, content_type: str, content: bytes) -> Mapping[str, Any]:
        """Upload a file for a room; of an encrypted room's file not even the name is told."""
        if not self._must_encrypt(room):
            return {"url": await self._client.upload(filename, content_type, content)}
        self._able(room)
        ciphertext, keys = encrypted_file(content)
        return {"file": keys | {"url": await self._client.upload("", OPAQUE, ciphertext)}}

    async def join(self, room_id: RoomId, servers: Sequence[str] = ()) -> None:
        """Accept an invitation, or join over one of these servers."""
        await self._client.join(room_id, servers)

    async def successor(self, room_id: RoomId) -> Successor | None:
        """The room that a joined room's tombstone names."""
        return await self._client.successor(room_id)

    async def origin(self, room_id: RoomId) -> Origin:
        """What a joined room says of its beginning, and whether the bot may send messages there."""
        return await self._client.origin(room_id)

    async def room_state(self, room_id: RoomId) -> RoomState:
        """Who is joined, and whether the room is encrypted or replaced, asked anew."""
        return await self._client.room_state(room_id)

    @staticmethod
    def _must_encrypt(room: RoomState) -> bool:
        if room.encrypted is None:
            raise HomeserverUnavailable("whether the room is encrypted is not known")
        return room.encrypted

    def _able(self, room: RoomState) -> Crypto:
        if self._crypto is None or not room.encryption.is_megolm:
            raise HomeserverUnavailable("the room is encrypted in a way that this bot cannot")
        return self._crypto
