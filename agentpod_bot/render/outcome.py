"""The outcome: the edit that turns a closed question into what became of it, with its receipt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.core.envelope import RECEIPT_TYPE, SCHEMA_VERSION, Receipt
from agentpod_bot.core.labels import kind_of
from agentpod_bot.render import sentences
from agentpod_bot.render.content import MAX_EVENT_BYTES, Prose, event_size, instant, stacked
from agentpod_bot.render.presented import present_closed
from agentpod_bot.render.preview import BODY_CHARACTERS, BODY_LINES, Measured, shown
from agentpod_bot.render.progress import is_withdrawn, progress_lines
from agentpod_bot.render.question import block

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.core.model import Closing, NewQuestion, Question
    from agentpod_bot.core.votes import Tally
    from agentpod_bot.render.presented import Presented

_SMALLER = 4
"""By how much less of the preview is shown where the whole would not fit beside the reasons."""


def outcome(question: Question, tallies: Sequence[Tally] = ()) -> dict[str, Any]:
    """Return the content of the edit: new content for people, the receipt for programs; it pings nobody.

    `tallies` are what the votes came to, which is said where it expired. The question must
    be closed and have its event; `ValueError` otherwise.
    """
    closing = question.closing
    if closing is None or question.event_id is None:
        raise ValueError("only a question that was posted and is closed has an outcome to show")
    closed, seen = present_closed(question)
    lines = _lines(closed, tallies)
    edit = _edit(question, seen, lines, _receipt(question.asked, closing), part=1)
    if event_size(edit) > MAX_EVENT_BYTES:
        edit = _edit(question, seen, lines, _receipt(question.asked, closing), part=_SMALLER)
    return edit


def closed_message(question: Question) -> dict[str, Any]:
    """Return a closed question as a message of its own, for people only; `ValueError` for an open one."""
    if question.closing is None:
        raise ValueError("an open question is no closed message")
    closed, seen = present_closed(question)
    return _message(seen, _lines(closed), part=1)


def moved_message(question: Question) -> dict[str, Any]:
    """Return the edit of a question in a room that it left, for people only; `ValueError`: it has no event there.

    It has no receipt, for it did not end: a program that took one for that would not draw it in the next room.
    """
    if question.event_id is None:
        raise ValueError("a question that never was in a room cannot be shown as moved there")
    _, seen = present_closed(question)
    return _edit(question, seen, [sentences.moved_line()], {}, part=1)


def _lines(question: Question, tallies: Sequence[Tally] = ()) -> list[str]:
    asked, closing = question.asked, question.closing
    if closing is None:
        return []
    votes = [sentences.votes_for(each.option, each.voters, each.needed) for each in tallies]
    first = sentences.outcome_line(
        asked, closing, delivered_at_ms=question.delivered_at_ms, gave_up=question.gave_up, votes=votes
    )
    lines = [first]
    lines += [line for line in (sentences.answer_line(closing), sentences.reason_line(closing)) if line is not None]
    if question.progress is not None:
        lines += progress_lines(question.progress)
    if is_withdrawn(closing, question.progress):
        lines[0] = f"{sentences.WITHDRAWN} · {lines[0]}"
    return lines


def _edit(
    question: Question, seen: Presented, lines: list[str], receipt: dict[str, Any], *, part: int
) -> dict[str, Any]:
    return {
        "msgtype": "m.text",
        "body": f"* {lines[0]}",
        "m.mentions": {},
        "m.new_content": _message(seen, lines, part=part),
        "m.relates_to": {"rel_type": "m.replace", "event_id": question.event_id},
        **receipt,
    }


def _message(seen: Presented, lines: list[str], *, part: int) -> dict[str, Any]:
    preview = shown(Measured(seen.preview), characters=BODY_CHARACTERS // part, lines=BODY_LINES)
    prose = stacked([Prose.of(lines), block(seen, preview, sentences.asked_at(seen.asked))], gap="\n\n")
    return {**prose.message(), "m.mentions": {}}


def _receipt(asked: NewQuestion, closing: Closing) -> dict[str, Any]:
    receipt: dict[str, Any] = {
        "suite_event_type": RECEIPT_TYPE,
        "schema_version": SCHEMA_VERSION,
        "request_id": asked.key.request_id,
        "session_id": asked.session_id,
        "request_seq": asked.request_seq,
        "outcome": closing.outcome.value,
        "decided_at": instant(closing.at_ms),
        "subject": {"id": asked.key.request_id, "digest": asked.digest, "revision": asked.key.revision},
    }
    if closing.option is not None:
        option = closing.option.option
        kind = kind_of(option)
        receipt |= {"option_id": option.option_id, "meaning": option.meaning.value, "decided_by": closing.answered_by}
        receipt |= {} if kind is None else {"scope": kind.scope.value}
    Receipt.model_validate(receipt)
    return receipt
