"""The keys that a verification is about: fixed at its beginning, and kept at its end if they still are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from agentpod_bot.core.ids import UserId
from agentpod_bot.errors import MatrixError, StoreUnavailable
from agentpod_bot.matrix.e2e.exchange import Terms
from agentpod_bot.matrix.e2e.incoming import may_be_of
from agentpod_bot.matrix.e2e.sas import Side

if TYPE_CHECKING:
    from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
    from agentpod_bot.matrix.e2e.delivery import Delivery
    from agentpod_bot.matrix.e2e.exchange import Trust
    from agentpod_bot.matrix.e2e.identities import Identities
    from agentpod_bot.matrix.e2e.incoming import Message
    from agentpod_bot.matrix.e2e.ongoing import Open
    from agentpod_bot.matrix.e2e.ports import Corresponding

SIGNING_S: Final = 60.0

log = structlog.get_logger(__name__)


class ComparedKeys:
    """The keys of both sides, as the homeserver shows them and as they are kept."""

    def __init__(
        self, device: Corresponding, delivery: Delivery, identities: Identities, cross_signing: CrossSigning
    ) -> None:
        self._device = device
        self._delivery = delivery
        self._identities = identities
        self._cross_signing = cross_signing

    async def terms(self, message: Message, other: Side) -> Terms | None:
        """The keys of both sides as they are now; None where the other one's are not what they have to be."""
        keys = await self._delivery.until(lambda: self._device.devices_of(UserId(other.user_id)))
        ed25519 = next((each.ed25519 for each in keys if each.device_id == other.device_id), None)
        identity = self._identities.identity(other.user_id)
        master = None if identity is None else identity.master
        if ed25519 is None or any(each.device_id == master for each in keys):
            return None  # no such device, or one that is called like a key, to be taken for it
        if not may_be_of(message, other.device_id, keys):
            return None  # another device asks in its name
        own = self._device.own
        return Terms(
            transaction_id=message.place.transaction_id,
            own=Side(user_id=own.user_id, device_id=own.device_id),
            own_ed25519=own.ed25519,
            own_master=self._cross_signing.master,
            other=other,
            ed25519=ed25519,
            master=master,
        )

    async def is_of(self, message: Message, other: Side) -> bool:
        """Whether a message comes from this device, by the keys that it has now."""
        if message.keys is None:
            return True
        keys = await self._delivery.until(lambda: self._device.devices_of(message.sender))
        if may_be_of(message, other.device_id, keys):
            return True
        log.warning("verification_message_of_another_device", user_id=message.sender)
        return False

    async def keep(self, one: Open, trust: Trust) -> bool:
        """Keep what was verified, if those still are the keys that the account shows."""
        user_id, device_id = UserId(one.other.user_id), one.other.device_id
        try:
            keys = await self._delivery.until(lambda: self._device.devices_of(user_id))
            device = None if trust.ed25519 is None else (device_id, trust.ed25519)
            if device is not None and device not in {(each.device_id, each.ed25519) for each in keys}:
                kept = False
            else:
                kept = await self._delivery.until(
                    lambda: self._identities.verify(user_id, device=device, master=trust.master)
                )
        except (MatrixError, StoreUnavailable) as error:
            log.warning("verification_not_kept", user_id=user_id, error=error.code)
            return False
        if kept:
            one.trusted = trust
            log.info(
                "verified",
                user_id=user_id,
                device_id=None if trust.ed25519 is None else device_id,
                identity=trust.master is not None,
            )
        else:
            log.warning("keys_changed_meanwhile", user_id=user_id)
        return kept

    async def sign(self, one: Open) -> None:
        """Let the bot's own identity vouch for the one that was verified; what was verified stays so without it."""
        identity = self._identities.identity(one.other.user_id)
        if one.trusted is None or one.trusted.master is None or identity is None:
            return
        if identity.master != one.trusted.master:
            return
        try:
            await self._delivery.until(lambda: self._cross_signing.sign_identity(identity), within_s=SIGNING_S)
        except MatrixError as error:
            log.warning("identity_not_signed", user_id=identity.user_id, error=error.code, reason=str(error))
