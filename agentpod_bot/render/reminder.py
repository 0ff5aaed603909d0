"""Reminders: messages in an open question's thread that notify those who can answer it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.render import sentences
from agentpod_bot.render.content import in_thread
from agentpod_bot.render.presented import present_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.core.ids import UserId
    from agentpod_bot.core.model import Question


def reminder(question: Question, *, mentions: Sequence[UserId]) -> dict[str, Any]:
    """Return an `m.text`, for a notice notifies nobody, that says what is still open, and until when.

    `mentions` are pinged, and nobody else. The question must have its event; `ValueError` otherwise.
    """
    if question.event_id is None:
        raise ValueError("a question that is not in the room cannot be remembered there")
    return {
        "msgtype": "m.text",
        "body": sentences.still_open(present_title(question)),
        "m.mentions": {"user_ids": list(mentions)},
        "m.relates_to": in_thread(question.event_id),
    }
