"""Where a client's outcomes are posted, and with what they are signed: from the configuration only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentpod_bot.callbacks.address import Allowed
from agentpod_bot.core.ids import ClientName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.config.model import ClientSettings, Settings


@dataclass(frozen=True, slots=True)
class Target:
    """One client's target. `secrets` are those to sign with: one, or two while they are changed."""

    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    allow_private: bool = False

    @property
    def allowed(self) -> Allowed:
        """The addresses to which this target may lead."""
        return Allowed(own_networks=self.allow_private, in_clear=self.url.startswith("http:"))


def targets_of(settings: Settings) -> Mapping[ClientName, Target]:
    """The target of each client that has one."""
    return {
        ClientName(name): target
        for name, client in settings.clients.items()
        if (target := _target_of(client)) is not None
    }


def _target_of(client: ClientSettings) -> Target | None:
    if client.callback_url is None:
        return None
    given = (client.callback_secret, client.callback_old_secret)
    secrets = tuple(secret.get_secret_value() for secret in given if secret is not None)
    return Target(client.callback_url, secrets, allow_private=client.callback_allow_private)
