"""Claude Code's hooks, sent by itself over HTTP or by a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.harness import hook_permission
from agentpod_bot.harness.hook_permission import Dialect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "claude-code"
HOOK = True
PATIENCE_S: int | None = 600

KINDS: Mapping[str, str] = {
    "Bash": "execute",
    "Edit": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Write": "edit",
    "Read": "read",
    "Glob": "search",
    "Grep": "search",
    "WebSearch": "search",
    "WebFetch": "fetch",
    "ExitPlanMode": "switch_mode",
}
"""Kinds of its tools, as the Agent Client Protocol calls them; others' are not known."""

_DIALECT = Dialect(NAME, KINDS, has_question_tools=True)


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    return hook_permission.parse(_DIALECT, body)


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - a repeat says the same
    """What Claude Code is told."""
    return hook_permission.answer(_DIALECT, asked, end, manner)


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """The same for a call of which no question was made."""
    return hook_permission.refuse(call, end, manner)
