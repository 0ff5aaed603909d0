"""A person whose device encrypts, for the demo in an encrypted room."""

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Self

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.demo.person import Event, Person
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.homeserver import MatrixHomeserver
from agentpod_bot.matrix.opened import Opened
from agentpod_bot.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import TracebackType

    from agentpod_bot.demo.homeserver import Account
    from agentpod_bot.matrix.e2e.crypto import Crypto


class Unverified:
    """Nobody's device was verified."""

    def is_verified(self, _user_id: str, _device_id: str, _ed25519: str) -> bool:
        """No."""
        return False

    async def learn(self, answer: Mapping[str, Any]) -> None:
        """Nothing."""


class SealedPerson(Person):
    """One account's eyes and hands in encrypted rooms; `folder` keeps the device's keys."""

    def __init__(self, url: str, account: Account, folder: Path) -> None:
        super().__init__(url, account.user_id, account.access_token)
        self._account = account
        self._folder = folder
        self._client = MatrixClient(url, UserId(account.user_id), account.access_token, device_id=account.device_id)
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Make the device's keys, and publish them."""
        from agentpod_bot.matrix.e2e.crypto import Crypto  # noqa: PLC0415 - needs the extra
        from agentpod_bot.matrix.e2e.thread import Keys  # noqa: PLC0415 - likewise
        from agentpod_bot.matrix.e2e.vault import Vault, new_pickle_key  # noqa: PLC0415 - likewise

        await super().__aenter__()
        self._open.push_async_callback(self._client.close)
        vault = Vault(
            folder=self._folder,
            pickle_key=new_pickle_key(),
            user_id=UserId(self.user_id),
            device_id=self._account.device_id,
        )
        keys = await Keys.open(vault, make=True)
        self._open.push_async_callback(keys.close)
        self._crypto: Crypto = Crypto(keys, self._client, SystemClock(), verdicts=Unverified())
        await self._crypto.publish()
        self._rooms = MatrixHomeserver(self._client, self._crypto)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all of it."""
        await self._open.aclose()
        await super().__aexit__(kind, error, trace)

    async def create_room(self, name: str, *, invite: Sequence[str] = (), alias: str | None = None) -> str:
        """Make an encrypted room; return its id."""
        room_id = await super().create_room(name, invite=invite, alias=alias)
        await self.call("PUT", f"rooms/{room_id}/state/m.room.encryption", {"algorithm": "m.megolm.v1.aes-sha2"})
        return room_id

    async def send(self, room_id: str, content: str | Mapping[str, Any], *, event_type: str = "m.room.message") -> str:
        """Send a text, or any content, encrypted; return the event's id."""
        if isinstance(content, str):
            content = {"msgtype": "m.text", "body": content}
        room = await self._rooms.room_state(RoomId(room_id))
        return await self._rooms.send(room, event_type, content, TxnId(uuid.uuid4().hex))

    async def history(self, room_id: str) -> list[Event]:
        """Every event of the room, decrypted where this device can."""
        return [await self.opened(room_id, event) for event in await super().history(room_id)]

    async def arrived(self, told: Mapping[str, Any]) -> None:
        """Take over the keys that a sync brought, before its events are read."""
        await self._crypto.take(told)

    async def opened(self, room_id: str, event: Event) -> Event:
        """An event as a client shows it."""
        opening = await self._crypto.read(RoomId(room_id), event)
        return dict(opening.event) if isinstance(opening, Opened) else event
