"""Who is notified of a question: at once, at the end of quiet hours, and once more before it ends.

Each reminder is a row of the outbox, written once for a question, that waits for its time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.broker.change import AFTER_QUIET, REMINDER, Means
from agentpod_bot.core.kept import Effect, Priority
from agentpod_bot.core.reminders import is_quiet, quiet_until, remind_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Route
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.ports import Tx

REMINDERS = frozenset({REMINDER, AFTER_QUIET})
_MENTIONS_NOBODY: Mapping[str, Any] = {"m.mentions": {"user_ids": []}}


def approvers_there(route: Route | None, room: RoomState | None) -> tuple[UserId, ...]:
    """Whom a question of this route mentions: the approvers of its list who are in its room."""
    return () if route is None or room is None else tuple(sorted(route.approvers & room.joined))


def notified(question: Question, means: Means) -> tuple[UserId, ...]:
    """Whom something that is said about a question now mentions: nobody in quiet hours."""
    route = means.world.policy.route_of(question)
    if route is None or is_quiet(route, means.clock.now_ms()):
        return ()
    return approvers_there(route, means.world.room(question.asked.room_id))


def plan_reminder(tx: Tx, question: Question, means: Means) -> None:
    """Have people reminded of a question that is asked now, where its route wants that."""
    asked, now_ms = question.asked, means.clock.now_ms()
    route = means.world.policy.routes.get(asked.route)
    if route is None:
        return
    at_ms = remind_at(route, asked_ms=now_ms, expires_at_ms=asked.expires_at_ms)
    if at_ms is not None:
        _enqueue(tx, question, REMINDER, at_ms, means)


def hushed(tx: Tx, effect: Effect, question: Question, means: Means) -> Effect:
    """The effect that posts a question, before a try: in quiet hours it notifies nobody, until they end."""
    asked, now_ms = question.asked, means.clock.now_ms()
    route = means.world.policy.routes.get(asked.route)
    if route is None or effect.content is None or not is_quiet(route, now_ms):
        return effect
    ends_ms = quiet_until(route, now_ms=now_ms, expires_at_ms=asked.expires_at_ms)
    if ends_ms is not None:
        _enqueue(tx, question, AFTER_QUIET, ends_ms, means)
        planned = tx.unsent(question.row, asked.room_id, REMINDER)
        if planned is not None and planned.not_before_ms <= ends_ms:
            tx.drop_unsent(question.row, asked.room_id, REMINDER)  # it would be held until then, and one is enough
    content = {**effect.content, **_MENTIONS_NOBODY}
    tx.fill(effect.effect_id, content)
    return replace(effect, content=content)


def lowered(effect: Effect, question: Question, means: Means) -> Effect:
    """A reminder before a try: what was written before the quiet hours mentions nobody in them."""
    route = means.world.policy.routes.get(question.asked.route)
    if route is None or effect.content is None or not is_quiet(route, means.clock.now_ms()):
        return effect
    return replace(effect, content={**effect.content, **_MENTIONS_NOBODY})


def is_held(tx: Tx, effect: Effect, question: Question, means: Means) -> bool:
    """Whether a reminder waits, for the end of quiet hours that the question outlives."""
    route = means.world.policy.routes.get(question.asked.route)
    if route is None:
        return False
    now_ms = means.clock.now_ms()
    ends_ms = quiet_until(route, now_ms=now_ms, expires_at_ms=question.asked.expires_at_ms)
    if ends_ms is None:
        return False
    tx.postpone(effect.effect_id, ends_ms)
    return True


def _enqueue(tx: Tx, question: Question, effect: str, at_ms: int, means: Means) -> None:
    wait_ms = at_ms - means.clock.now_ms()
    room_id = question.asked.room_id
    tx.enqueue(means.effect(room_id, effect, Priority.REMINDER, None, row=question.row, wait_ms=wait_ms))
