"""Questions that nobody answered are asked once more, in the room of a second route.

What is asked there is a copy: the same question, by an event of its own. Whether it can be
asked there is checked when its time has come, as for a new question but for the caps, and
again and again where it cannot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.change import FILE, QUESTION, UPLOAD, After, Means, audit
from agentpod_bot.broker.composing import composed
from agentpod_bot.broker.reminders import plan_reminder
from agentpod_bot.broker.submit import codes_taken
from agentpod_bot.core.copies import offers_alike, places
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import Attachment, Copy, Status
from agentpod_bot.core.policy import check_reachable
from agentpod_bot.core.votes import check_decidable
from agentpod_bot.errors import AgentpodError, Invalid, TooLarge, Unavailable
from agentpod_bot.render.attachment import fits

if TYPE_CHECKING:
    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.core.ids import Row
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy, Route
    from agentpod_bot.ports import Tx

log = structlog.get_logger(__name__)

WITH_FILE = frozenset({Attachment.UPLOADED, Attachment.SHOWN})


@dataclass(slots=True)
class Looked:
    """What came of one look: when the next question's time comes, and which could not be asked again, and why."""

    next_ms: int | None = None
    failed: dict[Row, AgentpodError] = field(default_factory=dict)


class Escalations:
    """Looks for questions whose time has come. Which those are follows from the policy and the store alone."""

    def __init__(self, means: Means, commit: Commit) -> None:
        self._means = means
        self._commit = commit
        self.waiting: dict[Row, str] = {}
        """Questions whose time has come, and the code of why each could not be asked again so far."""

    async def look(self) -> int | None:
        """Ask every question again whose time has come; returns when the next one's does."""
        policy = self._means.world.policy
        if all(route.escalation is None for route in policy.routes.values()) or self._means.world.trouble() is not None:
            return None
        looked = await self._commit(self._work)
        for row, error in looked.failed.items():
            if self.waiting.get(row) != error.code:
                log.warning("not_escalated", question=row, error=error.code, reason=str(error))
        self.waiting = {row: error.code for row, error in looked.failed.items()}
        return looked.next_ms

    def _work(self, tx: Tx, after: After) -> Looked:
        now_ms = self._means.clock.now_ms()
        looked = Looked()
        for route in self._means.world.policy.routes.values():
            for question in () if route.escalation is None else tx.open_questions(route=route.name):
                due_ms = due_at(self._means.world.policy, question)
                if due_ms is None:
                    continue
                if due_ms > now_ms:
                    looked.next_ms = due_ms if looked.next_ms is None else min(looked.next_ms, due_ms)
                elif question.status is Status.PENDING and question.asked.expires_at_ms > now_ms:
                    try:
                        escalate(tx, question, after=after, means=self._means)
                    except (Unavailable, TooLarge, Invalid) as error:
                        looked.failed[question.row] = error
        return looked


def due_at(policy: Policy, question: Question) -> int | None:
    """When a question is asked once more if it is still open; None where it is not, or was already."""
    route = policy.routes.get(question.asked.route)
    if route is None or route.escalation is None or question.copy is not None or not question.is_open:
        return None
    due_ms = question.asked.created_at_ms + route.escalation.after_ms
    return due_ms if due_ms < question.asked.expires_at_ms else None


def escalate(tx: Tx, question: Question, *, after: After, means: Means) -> None:
    """Ask a pending question once more, on the route that its own one names.

    Raises `Unavailable` and its kinds where nobody there could decide it now, `TooLarge` or
    `Invalid` where that room cannot be shown the same question; nothing is written then.
    """
    world, asked, now_ms = means.world, question.asked, means.clock.now_ms()
    policy = world.policy
    target = policy.on_behalf(_target(policy, question), question)
    room = check_reachable(policy, target, world.room(target.room_id), can_encrypt=world.can_encrypt)
    if policy.is_strict(room) and asked.code in codes_taken(tx, (room.room_id,), policy, now_ms):
        raise Unavailable("in that room its code was another question's, before the route went there")
    masked = asked.masked or target.mask_secrets
    attachment, file = asked.attachment, asked.file
    if attachment in WITH_FILE:  # the file of the first room may say more than this one is to see
        same = masked == asked.masked and fits(file, encrypted=room.encrypted is True)
        attachment, file = (Attachment.UPLOADED, file) if same else (Attachment.WANTED, None)
    there = replace(asked, route=target.name, room_id=target.room_id, masked=masked, attachment=attachment, file=file)
    new, content = composed(tx, there, room, means, stored=question)
    if not offers_alike(new.offered, asked.offered):
        raise TooLarge("preview", f"the question cannot be shown on route {target.name} with the same options")
    check_decidable(policy, target, room, new)
    copy = Copy(
        route=target.name,
        room_id=target.room_id,
        asked_at_ms=now_ms,
        offered=new.offered,
        masked=masked,
        attachment=new.attachment,
        file=new.file if new.attachment is Attachment.UPLOADED else None,
    )
    if not tx.add_copy(question.row, copy):
        return
    _, place = places(replace(question, copy=copy))
    if copy.attachment is Attachment.WANTED:
        tx.enqueue(means.effect(copy.room_id, UPLOAD, Priority.UPLOAD, None, row=question.row))
    tx.enqueue(means.effect(copy.room_id, QUESTION, Priority.QUESTION, content, row=question.row))
    if copy.attachment is Attachment.UPLOADED:
        tx.enqueue(means.effect(copy.room_id, FILE, Priority.FILE, None, row=question.row))
    plan_reminder(tx, place, means)
    audit(tx, place, "escalated", now_ms, detail=target.name)
    after.rooms.add(copy.room_id)


def _target(policy: Policy, question: Question) -> Route:
    route = policy.routes.get(question.asked.route)
    target = None if route is None or route.escalation is None else policy.routes.get(route.escalation.to)
    if target is None:
        raise Unavailable("the route to ask on next is not configured any more")
    if target.room_id == question.asked.room_id:
        raise Unavailable(f"the room of route {target.name} is the one in which the question stands already")
    return target
