"""What is said only once its turn has come: an edit says what is true then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.broker import places
from agentpod_bot.broker.change import FILE, QUESTION, Means
from agentpod_bot.broker.reminders import REMINDERS, notified
from agentpod_bot.broker.votes import standing
from agentpod_bot.core.kept import Effect, Priority
from agentpod_bot.render.attachment import file_message
from agentpod_bot.render.outcome import outcome
from agentpod_bot.render.reminder import reminder
from agentpod_bot.render.standing import still_asked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Tx


def question_of(tx: Tx, effect: Effect) -> Question | None:
    """The question that an effect belongs to, as the effect's room has it."""
    return None if effect.row is None else places.read(tx, effect.row, effect.room_id)


def render(tx: Tx, effect: Effect, means: Means) -> Mapping[str, Any] | None:
    """Give an edit its content, from the question as it is now; kept before the first try."""
    question = question_of(tx, effect)
    if question is None or question.event_id is None:
        tx.abandon(effect.effect_id, "there is nothing to edit")
        return None
    if effect.effect == FILE:
        content = file_message(question)
    elif effect.effect in REMINDERS:
        content = reminder(question, mentions=notified(question, means))
    elif effect.priority is Priority.PROGRESS:
        asked = tx.content_of(question.row, effect.room_id, QUESTION)
        if asked is None or not question.is_open:
            tx.abandon(effect.effect_id, "decided meanwhile")
            return None
        content = still_asked(question, asked, standing(tx, question, means))
    elif question.closing is not None:
        content = outcome(question, standing(tx, question, means))
    else:
        tx.abandon(effect.effect_id, "an open question is not edited")
        return None
    tx.fill(effect.effect_id, content)
    return content
