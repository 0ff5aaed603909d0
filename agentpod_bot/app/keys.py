"""The keys of the bot's device: opened at the start, where the configuration says that there are any."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import UserId
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.broker.world import World
    from agentpod_bot.config.model import Settings
    from agentpod_bot.core.ids import RoomId, TxnId
    from agentpod_bot.matrix.client import MatrixClient
    from agentpod_bot.matrix.e2e.control import Control
    from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
    from agentpod_bot.matrix.e2e.crypto import Crypto
    from agentpod_bot.matrix.e2e.direct import DirectChats
    from agentpod_bot.matrix.e2e.identities import Identities
    from agentpod_bot.matrix.e2e.thread import Keys
    from agentpod_bot.matrix.e2e.vault import Vault
    from agentpod_bot.matrix.e2e.verification import Verification
    from agentpod_bot.matrix.homeserver import MatrixHomeserver
    from agentpod_bot.ports import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying:
    """What makes devices sure of each other."""

    cross_signing: CrossSigning
    verification: Verification
    direct_chats: DirectChats
    control: Control


class OpenKeys:
    """The device's keys, and what is known of others' identities."""

    def __init__(self, vault: Vault, keys: Keys, identities: Identities) -> None:
        self._vault = vault
        self._keys = keys
        self._identities = identities

    def crypto(self, client: MatrixClient, clock: Clock, *, verified_only: Callable[[], bool]) -> Crypto:
        """What the keys are used with."""
        from agentpod_bot.matrix.e2e.crypto import Crypto  # noqa: PLC0415 - needs the extra

        return Crypto(self._keys, client, clock, verdicts=self._identities, verified_only=verified_only)

    def cross_signing(self, crypto: Crypto, client: MatrixClient) -> CrossSigning:
        """The account's identity, which vouches for the device."""
        from agentpod_bot.matrix.e2e.cross_signing import CrossSigning  # noqa: PLC0415 - needs the extra

        return CrossSigning(crypto, client, self._identities)

    @property
    def changed(self) -> tuple[UserId, ...]:
        """Accounts that were verified, and show another identity since then."""
        return tuple(UserId(user_id) for user_id in sorted(self._identities.known.changed))

    @property
    def verified(self) -> frozenset[UserId]:
        """Accounts of which an identity or a device is verified."""
        known = self._identities.known
        return frozenset(UserId(user_id) for user_id in (*known.masters, *(user_id for user_id, _ in known.devices)))

    def verifying(
        self, crypto: Crypto, client: MatrixClient, homeserver: MatrixHomeserver, world: World, clock: Clock
    ) -> Verifying:
        """What answers approvers who verify the bot, and hears what came in for that."""
        from agentpod_bot.matrix.e2e.control import Control  # noqa: PLC0415 - needs the extra
        from agentpod_bot.matrix.e2e.delivery import Delivery  # noqa: PLC0415 - likewise
        from agentpod_bot.matrix.e2e.direct import DirectChats  # noqa: PLC0415 - likewise
        from agentpod_bot.matrix.e2e.verification import Verification  # noqa: PLC0415 - likewise

        cross_signing = self.cross_signing(crypto, client)
        verification = Verification(
            crypto,
            Delivery(crypto, RoomSpeaker(homeserver, world), clock),
            self._identities,
            cross_signing,
            clock,
            is_approver=lambda user_id: is_approver(world, user_id),
        )
        crypto.on_to_device = verification.hear
        crypto.on_verification = lambda room_id, event, _origin: verification.hear_in_room(room_id, event)
        return Verifying(
            cross_signing=cross_signing,
            verification=verification,
            direct_chats=DirectChats(
                crypto,
                client,
                clock,
                is_approver=lambda user_id: is_approver(world, user_id),
                configured=world.heard,
            ),
            control=Control(self._vault.folder, verification, self._identities, cross_signing, crypto),
        )

    async def close(self) -> None:
        """Close the keys' file."""
        await self._keys.close()


@dataclass(frozen=True, slots=True)
class RoomSpeaker:
    """Fits `e2e.ports.Speaker`."""

    homeserver: MatrixHomeserver
    world: World

    async def say(self, room_id: RoomId, kind: str, content: Mapping[str, Any], txn_id: TxnId) -> None:
        """Send one event, encrypted where the room is."""
        # A direct chat is none of the configured rooms: what it is now is asked for.
        room = self.world.room(room_id) or await self.homeserver.room_state(room_id)
        await self.homeserver.send(room, kind, content, txn_id)


def is_approver(world: World, user_id: UserId) -> bool:
    """Whether an account may approve something somewhere."""
    routes = ((route, world.room(route.room_id)) for route in world.policy.routes.values())
    return any(room is not None and world.policy.is_approver(user_id, route, room) for route, room in routes)


def vault_of(settings: Settings) -> Vault | None:
    """Where the keys of the configured device are; None where the configuration names no secret for them.

    Raises `ConfigurationError` where the extra that encrypts is not installed.
    """
    account, pickle_key = settings.homeserver, settings.e2e.pickle_key
    if pickle_key is None or account.device_id is None:
        return None
    if importlib.util.find_spec("vodozemac") is None:
        raise ConfigurationError("e2e.pickle_key_file: encrypted rooms need: pip install 'agentpod-bot[e2e]'")
    from agentpod_bot.matrix.e2e.vault import Vault  # noqa: PLC0415 - only where it is wanted

    return Vault(
        folder=settings.crypto_folder,
        pickle_key=pickle_key.get_secret_value(),
        user_id=account.user_id,
        device_id=account.device_id,
    )


async def open_keys(settings: Settings) -> OpenKeys | None:
    """The keys of the configured device; None where there are to be none. Raises `CannotStart`, with what to do."""
    vault = vault_of(settings)
    if vault is None:
        return None
    from agentpod_bot.matrix.e2e.identities import Identities  # noqa: PLC0415 - needs the extra
    from agentpod_bot.matrix.e2e.thread import Keys  # noqa: PLC0415 - likewise

    keys = await Keys.open(vault)
    try:
        return OpenKeys(vault, keys, await Identities.open(vault))
    except BaseException:
        await keys.close()
        raise
