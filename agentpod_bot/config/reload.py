"""Which changes of the configuration a running daemon can take over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.config import keys
from agentpod_bot.config.fault import dotted
from agentpod_bot.errors import ConfigurationError

if TYPE_CHECKING:
    from agentpod_bot.config.fault import Path
    from agentpod_bot.config.model import Settings

SECTIONS = frozenset({"clients", "routes", "requests", "audit"})
"""Sections that are taken over whole: every later request is judged by the new values."""
KEYS: frozenset[Path] = frozenset(
    {
        ("homeserver", "access_token"),
        ("homeserver", "password"),
        ("homeserver", "refresh_token"),
        ("e2e", "trust"),
        ("log", "level"),
    }
)
"""Further keys that are taken over."""


def reloadable(old: Settings, new: Settings) -> Settings:
    """The new settings, where a running daemon can take over all that differs.

    Raises `ConfigurationError` with a line for each key that differs and needs a restart;
    then nothing may be taken over, for half a configuration is one that nobody wrote.
    """
    before = {leaf.at: leaf.value for leaf in keys.leaves(old)}
    changed = [leaf.at for leaf in keys.leaves(new) if leaf.at not in before or before[leaf.at] != leaf.value]
    if fixed := [at for at in changed if at[0] not in SECTIONS and at not in KEYS]:
        raise ConfigurationError(*(f"{dotted(at)}: has changed; that needs a restart of the daemon" for at in fixed))
    return new
