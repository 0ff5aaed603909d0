"""Others' devices, as far as the homeserver told of them and they signed themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
import vodozemac
from nio.responses import KeysQueryResponse

from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.e2e.device_keys import keys_of
from agentpod_bot.matrix.e2e.held import Held
from agentpod_bot.matrix.e2e.signing import has_form

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys

log = structlog.get_logger(__name__)


class KnownDevices(Held):
    """The devices that are known."""

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
            keys_of(device)
            for user_id in user_ids
            for device in self._olm.device_store.active_user_devices(user_id)
            if (user_id, device.id) != (self._vault.user_id, self._vault.device_id)
        )


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
