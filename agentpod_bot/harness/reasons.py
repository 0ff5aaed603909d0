"""What a harness, and the model behind it, is told in words: one plain sentence for each way a question ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from agentpod_bot.core.model import Meaning, Outcome
from agentpod_bot.harness.adapter import End

if TYPE_CHECKING:
    from agentpod_bot.core.model import Closing, Question

EXPIRED = "Nobody answered in time. Nobody refused, and nothing was allowed."
NOT_READ = "The permission request could not be read, so nobody was asked and nothing was allowed."


def end_of(question: Question) -> End:
    """How a closed question ended, for its adapter. Raises `ValueError` for an open one."""
    closing = question.closing
    if closing is None:
        raise ValueError("the question is open")
    return End(
        outcome=closing.outcome,
        reason=_reason(closing),
        option=None if closing.option is None else closing.option.option,
        by=closing.answered_by,
        comment=closing.comment,
    )


def unasked(detail: str, *, unavailable: bool = False) -> End:
    """The end of a call for which no question was asked; `detail` is a sentence of ours without its full stop."""
    return End(outcome=None, reason=f"Nobody was asked, and nothing was allowed: {detail}.", unavailable=unavailable)


def _reason(closing: Closing) -> str:
    match closing.outcome:
        case Outcome.SELECTED:
            return _selected(closing)
        case Outcome.EXPIRED:
            return EXPIRED
        case Outcome.CANCELLED:
            return f"The question was cancelled ({closing.reason or 'no reason given'}). Nothing was allowed."
        case Outcome.SUPERSEDED:
            return "A newer question took the place of this one. Nothing was allowed."
        case Outcome.ANSWERED_ELSEWHERE:
            return "The question was answered in another place. Nothing was allowed in Matrix."
        case Outcome.UNDELIVERABLE:
            return (
                f"The question did not stay in the room ({closing.reason or 'no reason given'}). Nothing was allowed."
            )
        case _:
            assert_never(closing.outcome)


def _selected(closing: Closing) -> str:
    if closing.option is None:  # a decision names its option
        raise ValueError("a decision without an option")
    who = closing.answered_by or "somebody"
    said = f": {closing.comment}" if closing.comment else "."
    match closing.option.option.meaning:
        case Meaning.APPROVE:
            return f"{who} allowed this in Matrix{said}"
        case Meaning.REJECT:
            return f"{who} refused this in Matrix{said}"
        case Meaning.CHOOSE:
            return f"{who} chose this in Matrix{said}"
        case _:
            assert_never(closing.option.option.meaning)
