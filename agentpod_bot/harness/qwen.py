"""Qwen Code's hooks: Claude Code's events and answers, with tools of its own.

Shapes: https://qwenlm.github.io/qwen-code-docs/en/users/features/hooks/
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.harness import hook_permission
from agentpod_bot.harness.hook_permission import Dialect

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.harness.adapter import Call, End, Json, Manner

NAME = "qwen"
HOOK = True
PATIENCE_S: int | None = 600
"""Of a hook that it calls over HTTP; it stops a command after 60 s unless it is told otherwise."""

KINDS: Mapping[str, str] = {
    "run_shell_command": "execute",
    "edit": "edit",
    "write_file": "edit",
    "read_file": "read",
    "glob": "search",
    "grep_search": "search",
    "web_fetch": "fetch",
    "exit_plan_mode": "switch_mode",
}
"""Kinds of its tools, as the Agent Client Protocol calls them; others' are not known."""

_DIALECT = Dialect(NAME, KINDS, has_question_tools=False)


def parse(body: bytes, manner: Manner) -> Call:  # noqa: ARG001 - every adapter takes it
    """Read one hook call; raises `MalformedJson` or `Invalid`."""
    return hook_permission.parse(_DIALECT, body)


def answer(asked: bytes, call: bytes, end: End, manner: Manner) -> Json:  # noqa: ARG001 - a repeat says the same
    """What Qwen Code is told."""
    return hook_permission.answer(_DIALECT, asked, end, manner)


def refuse(call: bytes | None, end: End, manner: Manner) -> Json:
    """The same for a call of which no question was made."""
    return hook_permission.refuse(call, end, manner)
