"""What the parts of encryption need of each other and of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import RoomId, TxnId, UserId
    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
    from agentpod_bot.matrix.e2e.to_device import Outgoing


class Requests(Protocol):
    """What is asked of the homeserver; `MatrixClient` fits it."""

    async def call(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the JSON of any answer; raises `HomeserverUnavailable`, `RateLimited`, `TokenRefused`."""
        ...

    async def ask_for(self, method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON of a 200; also raises `Refused`."""
        ...


class OwnDevice(Protocol):
    """The bot's device; `Crypto` fits it."""

    @property
    def own(self) -> DeviceKeys:
        """Its public keys."""
        ...


class Signing(OwnDevice, Protocol):
    """The bot's device, whose signatures make its account's identity stand; `Crypto` fits it."""

    async def sign(self, text: str) -> str:
        """Its signature of a text, in unpadded base64."""
        ...


class Corresponding(OwnDevice, Protocol):
    """The bot's device, what it knows of others, and the way to them; `Crypto` fits it."""

    async def devices_of(self, user_id: UserId) -> tuple[DeviceKeys, ...]:
        """An account's devices as they are now; raises a `MatrixError`."""
        ...

    async def send_to_device(self, outgoing: Outgoing) -> None:
        """Send messages to devices; raises a `MatrixError`."""
        ...


class Speaker(Protocol):
    """Says in rooms what verifications have to say there."""

    async def say(self, room_id: RoomId, kind: str, content: Mapping[str, Any], txn_id: TxnId) -> None:
        """Send one event so that every device there can read it; raises a `MatrixError`."""
        ...
