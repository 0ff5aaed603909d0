"""The keys of the bot's device: opened at the start, where the configuration says that there are any."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.config.model import Settings
    from agentpod_bot.matrix.client import MatrixClient
    from agentpod_bot.matrix.e2e.crypto import Crypto
    from agentpod_bot.matrix.e2e.identities import Identities
    from agentpod_bot.matrix.e2e.thread import Keys
    from agentpod_bot.matrix.e2e.vault import Vault
    from agentpod_bot.ports import Clock


class OpenKeys:
    """The device's keys, and what is known of others' identities."""

    def __init__(self, keys: Keys, identities: Identities) -> None:
        self._keys = keys
        self.identities = identities

    def crypto(self, client: MatrixClient, clock: Clock, *, verified_only: Callable[[], bool]) -> Crypto:
        """What the keys are used with."""
        from agentpod_bot.matrix.e2e.crypto import Crypto  # noqa: PLC0415 - needs the extra

        return Crypto(self._keys, client, clock, verdicts=self.identities, verified_only=verified_only)

    async def close(self) -> None:
        """Close the keys' file."""
        await self._keys.close()


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

    identities = await Identities.open(vault)
    return OpenKeys(await Keys.open(vault), identities)
