"""What a harness reports after its decision, in words. Steps are counted from 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.model import Meaning
from agentpod_bot.render import sentences

if TYPE_CHECKING:
    from agentpod_bot.core.model import Closing, Progress

MAX_STEPS = 10
"""Steps that are named; the number of the others is said."""

_WITHDRAWING = frozenset({"revoked", "expired"})


def progress_lines(progress: Progress) -> tuple[str, ...]:
    """Return what the harness reports; no step comes next where one failed or all has ended."""
    lines: list[str] = []
    if progress.completed:
        named = [index + 1 for index in progress.completed[:MAX_STEPS]]
        lines.append(sentences.steps_done(named, more=len(progress.completed) - len(named)))
    failed = progress.failed_index is not None or progress.failure_reason is not None
    if progress.next_index is not None and not failed and _status(progress) not in sentences.REPORTS:
        lines.append(sentences.next_step(progress.next_index + 1))
    if failed:
        step = None if progress.failed_index is None else progress.failed_index + 1
        lines.append(sentences.step_failed(step, progress.failure_reason))
    if progress.status is not None:
        lines.append(sentences.agent_reports(progress.status, sentences.REPORTS.get(_status(progress))))
    return tuple(lines)


def is_withdrawn(closing: Closing, progress: Progress | None) -> bool:
    """Whether something that was allowed is so no more, as the harness reports."""
    if progress is None or closing.option is None or closing.option.option.meaning is Meaning.REJECT:
        return False
    return _status(progress) in _WITHDRAWING


def _status(progress: Progress) -> str:
    return (progress.status or "").strip().casefold()
