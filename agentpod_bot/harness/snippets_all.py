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


def documented(place: Place) -> tuple[Snippet, ...]:
    """Every snippet that the documentation shows."""
    return tuple(make(place, version) for name, make in SNIPPETS.items() for version in VERSIONS.get(name, (None,)))
