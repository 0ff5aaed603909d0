"""How a command that a harness runs as its hook gives an answer back: what it prints, and its exit code.

An answer is printed and the exit code is 0: only so do all of them read it. Claude Code
does not honour exit code 2 for a permission request, and Qwen Code ignores what is printed
with it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Answer

TOLD = 0
DENIED = 2
"""For Codex, Cursor, Copilot, Gemini and Qwen a no, with stderr as its reason."""
CLOSED = frozenset({"codex-hook"})
"""Harnesses that take no answer from an object which stops the agent: there the exit code is the no."""
COMMANDS = frozenset({"claude-code", "codex-hook", "copilot", "cursor", "gemini", "qwen"})
NO_HOOK = "Nothing was allowed: this harness has no hook that a command answers.\n"


class Exit(NamedTuple):
    """What a hook's command ends with."""

    stdout: bytes
    stderr: str
    code: int


def exit_of(name: str, answer: Answer) -> Exit:
    """How the hook's command of the harness `name` ends with `answer`, one of its adapter's.

    Failures are told so too: their answer is the adapter's `refuse`. Raises `ValueError` for
    an answer that is no JSON.
    """
    if name not in COMMANDS:
        return Exit(b"", NO_HOOK, DENIED)
    if name in CLOSED and isinstance(answer, dict) and answer.get("continue") is False:
        return Exit(b"", f"{answer.get('stopReason') or NO_HOOK.strip()}\n", DENIED)
    # ASCII alone is the same in every encoding that a terminal or a pipe may have.
    return Exit(json.dumps(answer, allow_nan=False).encode("ascii") + b"\n", "", TOLD)
