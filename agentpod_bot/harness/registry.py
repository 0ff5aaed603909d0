"""Every harness whose calls the daemon answers, by the name that paths and the configuration use."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from agentpod_bot.harness import (
    acp,
    claude_code,
    claude_prompt,
    codex,
    codex_hook,
    copilot,
    cursor,
    gaia,
    gemini,
    langchain,
    open_science,
    opencode,
    qwen,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.adapter import Harness

_HARNESSES: tuple[Harness, ...] = (
    acp,
    codex,
    claude_code,
    claude_prompt,
    codex_hook,
    copilot,
    qwen,
    gemini,
    cursor,
    opencode,
    gaia,
    open_science,
    langchain,
)

ADAPTERS: Mapping[str, Harness] = MappingProxyType({harness.NAME: harness for harness in _HARNESSES})
"""The modules themselves: each fits `Harness`, which mypy holds."""
