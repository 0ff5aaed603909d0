"""Public keys of devices, as they are known and named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeGuard

from agentpod_bot.core.ids import UserId
from agentpod_bot.core.room import Device
from agentpod_bot.matrix.e2e.signing import has_form

if TYPE_CHECKING:
    from nio.crypto.device import OlmDevice

OLM: Final = "m.olm.v1.curve25519-aes-sha2"
MEGOLM: Final = "m.megolm.v1.aes-sha2"
LONGEST_KEY: Final = 64
"""Letters of what may be a key, or the id of a session, which is one: more than any in base64 has."""


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
class SenderKeys:
    """Of the device that encrypted a to-device message, in unpadded base64.

    It holds the curve25519 key; the ed25519 key is its own word, until a device with both is known.
    """

    curve25519: str
    ed25519: str


def keys_of(device: OlmDevice) -> DeviceKeys:
    """The keys of a device that nio knows."""
    return DeviceKeys(
        user_id=UserId(device.user_id),
        device_id=device.device_id,
        ed25519=device.ed25519,
        curve25519=device.curve25519,
    )


def is_like_key(value: object) -> TypeGuard[str]:
    """Whether a value can be kept and sent on as a key, whosever it is."""
    return isinstance(value, str) and len(value) <= LONGEST_KEY and has_form(value)
