"""What the homeserver has of the device: its public keys, and those with which others begin sessions."""

from __future__ import annotations

from typing import Any

from nio.api import Api

from agentpod_bot.matrix.e2e.device_keys import MEGOLM, OLM
from agentpod_bot.matrix.e2e.held import Held
from agentpod_bot.matrix.e2e.signing import signable


class Publishing(Held):
    """The keys that are published."""

    @property
    def is_published(self) -> bool:
        """Whether the homeserver was given the device's keys."""
        return bool(self._olm.account.shared)

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
            lacking = account.max_one_time_keys - max(0, one_time_keys or 0)  # a homeserver may say anything
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
                "algorithms": [OLM, MEGOLM],
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
