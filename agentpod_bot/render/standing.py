"""An open question of which there is more to say: the same question, with lines that say it.

They say who is for an option that needs several people, and where else it was asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.render import sentences
from agentpod_bot.render.content import MAX_EVENT_BYTES, Prose, event_size, notice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.model import Question
    from agentpod_bot.core.votes import Tally


def still_asked(question: Question, asked: Mapping[str, Any], tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the content of an edit that repeats `asked`, the question's own content, and adds what became of it.

    The lines stand at the end of the question's block; all else stays as it was asked,
    envelope and card included. It pings nobody. Where so much does not fit into one
    event, it is a notice below the question instead. `ValueError`: it has no event.
    """
    if question.event_id is None:
        raise ValueError("a question that is not in the room cannot be shown there again")
    lines = [*_elsewhere(question), *(sentences.votes_line(each.option, each.voters, each.needed) for each in tallies)]
    said = " · ".join(lines) or sentences.NO_VOTES
    shown = _with_lines(question, asked, lines)
    if shown is not None:
        edit = {
            "msgtype": "m.text",
            "body": f"* {question.asked.code}: {said}",
            "m.mentions": {},
            "m.new_content": shown,
            "m.relates_to": {"rel_type": "m.replace", "event_id": question.event_id},
        }
        if event_size(edit) <= MAX_EVENT_BYTES:
            return edit
    return notice(f"{question.asked.code}: {said}", reply_to=question.event_id, thread=None)


def _elsewhere(question: Question) -> list[str]:
    copy = question.copy
    if question.original is not None or copy is None:
        return []
    if copy.withdrawn_at_ms is not None:  # one that was redacted was asked, and people there know of it
        return [sentences.not_asked(question.asked, copy)] if copy.event_id is None else []
    return [] if copy.event_id is None else [sentences.also_asked(question.asked, copy)]


def _with_lines(question: Question, asked: Mapping[str, Any], lines: list[str]) -> dict[str, Any] | None:
    """Return the question's content with lines before its list; None where that list is not found in it."""
    if not lines:
        return dict(asked)
    options = Prose.of([sentences.option_line(offered) for offered in question.asked.offered])
    body, list_, end = asked["body"].rpartition(f"\n\n{options.body}\n\n")
    html, html_list, html_end = asked["formatted_body"].rpartition(options.html)
    if not (list_ and html_list):
        return None
    added = Prose.of(lines)
    return {
        **asked,
        "body": f"{body}\n{added.body}{list_}{end}",
        "formatted_body": f"{html}{added.html}{html_list}{html_end}",
    }
