"""Which harnesses `connect` knows, in the order of the documentation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.harness import snippets_bridges as bridges
from agentpod_bot.harness import snippets_hooks as hooks
from agentpod_bot.harness.snippets_claude import claude_code

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.harness.snippets import Place, Snippet

SNIPPETS: Mapping[str, Callable[[Place, str | None], Snippet]] = {
    "claude-code": claude_code,
    "codex": bridges.codex,
    "codex-hook": hooks.codex_hook,
    "acp": bridges.acp,
    "opencode": bridges.opencode,
    "copilot": hooks.copilot,
    "qwen": hooks.qwen,
    "gemini": hooks.gemini,
    "cursor": hooks.cursor,
    "mcp": bridges.mcp,
    "gaia": bridges.gaia,
    "open-science": bridges.open_science,
    "langchain": bridges.langchain,
}
VERSIONS: Mapping[str, tuple[str | None, ...]] = {"claude-code": ("2.1.332", None)}
"""The versions that the documentation shows; of any other harness one, whatever its version."""


ASKS_AS: Mapping[str, tuple[str, ...]] = {"mcp": ("claude-prompt", "native")}
"""In whose request shapes one asks that asks in others than its own name's: its tools, the one and the other."""


def shapes_of(harness: str) -> tuple[str, ...]:
    """The request shapes that a client's `harnesses` must name, so that this one may ask."""
    return ASKS_AS.get(harness, (harness,))


def documented(place: Place) -> tuple[Snippet, ...]:
    """Every snippet that the documentation shows."""
    return tuple(make(place, version) for name, make in SNIPPETS.items() for version in VERSIONS.get(name, (None,)))
