"""What a harness reports after its decision, in words. Steps are counted from 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.model import Meaning
from agentpod_bot.core.text import visible_line
from agentpod_bot.render.sentences import MAX_REASON, and_more

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Closing, Progress

MAX_STEPS = 10
"""Steps that are named; the number of the others is said."""
WITHDRAWN = "No longer allowed, as the agent reports"
"""Stands before the outcome line of what was allowed and is so no more."""

_WITHDRAWING = frozenset({"revoked", "expired"})
_REPORTS: Mapping[str, str] = {
    "executed": "it was run",
    "consumed": "all of it was used",
    "failed": "it failed",
    "noop": "there was nothing to do",
    "revoked": "it was revoked, and no further step may run",
    "expired": "its time ran out, and no further step may run",
    "reverted": "it was run, and then undone",
}
"""What the usual statuses mean; each ends what was decided. Any other is quoted as it came."""


def progress_lines(progress: Progress) -> tuple[str, ...]:
    """Return what the harness reports; no step comes next where one failed or all has ended."""
    lines: list[str] = []
    if progress.completed:
        steps = ", ".join(str(index + 1) for index in progress.completed[:MAX_STEPS])
        more = len(progress.completed) - MAX_STEPS
        lines.append(f"Steps done: {steps}" + (f" {and_more(more)}" if more > 0 else ""))
    failed = progress.failed_index is not None or progress.failure_reason is not None
    if progress.next_index is not None and not failed and _status(progress) not in _REPORTS:
        lines.append(f"Next step: {progress.next_index + 1}")
    if failed:
        step = "" if progress.failed_index is None else f" at step {progress.failed_index + 1}"
        why = f": {visible_line(progress.failure_reason, limit=MAX_REASON)}" if progress.failure_reason else ""
        lines.append(f"Failed{step}{why}")
    if progress.status is not None:
        said = visible_line(progress.status, limit=MAX_REASON)
        meant = _REPORTS.get(_status(progress))
        lines.append(f"The agent reports: {said}" + (f" ({meant})" if meant else ""))
    return tuple(lines)


def is_withdrawn(closing: Closing, progress: Progress | None) -> bool:
    """Whether something that was allowed is so no more, as the harness reports."""
    if progress is None or closing.option is None or closing.option.option.meaning is Meaning.REJECT:
        return False
    return _status(progress) in _WITHDRAWING


def _status(progress: Progress) -> str:
    return (progress.status or "").strip().casefold()
