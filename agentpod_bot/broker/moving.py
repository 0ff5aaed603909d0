"""Open questions of a route that went into the room that replaced its own are asked again there, once.

It stays the same question, with its code, digest, deadline and whoever waits for it. What
is new is where it stands: it is `queued` until the new room shows it, so that nothing can
decide it meanwhile, and what was said or voted in the old room no longer counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from agentpod_bot.broker import places
from agentpod_bot.broker.change import QUESTION, UPLOAD, After, Means, audit, change, show_again
from agentpod_bot.broker.composing import composed
from agentpod_bot.broker.reminders import plan_reminder
from agentpod_bot.broker.submit import codes_taken
from agentpod_bot.core import copies
from agentpod_bot.core.kept import AuditRow, Priority
from agentpod_bot.core.lifecycle import Undelivered
from agentpod_bot.core.model import Attachment
from agentpod_bot.core.upgrades import NotFollowed, target_fault
from agentpod_bot.core.votes import check_decidable
from agentpod_bot.errors import Invalid, TooLarge, Unavailable
from agentpod_bot.render.notices import followed
from agentpod_bot.render.outcome import moved_message

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.ids import RoomId, RouteName, Row
    from agentpod_bot.core.model import NewQuestion, Question
    from agentpod_bot.core.policy import Route
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.ports import Tx

MOVED = "moved"
FOLLOWED = "followed"
NOT_ALIKE = "it cannot be asked again in the room that replaced its own"


@dataclass(frozen=True, slots=True)
class Moved:
    """A route went into another room: how many questions are asked again there, and how many could not be."""

    asked_again: int
    given_up: int


@dataclass(frozen=True, slots=True)
class Again:
    """A question as it stands in the old room, and as it will in the new one; `new` None: it cannot."""

    place: Question
    new: NewQuestion | None
    content: Mapping[str, Any]


def move(
    tx: Tx, name: RouteName, hops: Sequence[RoomId], target: RoomState | None, *, after: After, means: Means
) -> Moved | NotFollowed:
    """Have a route live in the last of these rooms, of which each replaced the one before it.

    Everything or nothing is written; where it is nothing, the reason is returned. Nothing
    is moved before all that was said in the first room up to its end has been judged.
    """
    start, room_id = hops[0], hops[-1]
    if not tx.is_replaced(start):
        return NotFollowed.NOT_CAUGHT_UP
    route = means.world.policy.routes.get(name)
    if route is None or not route.follow_upgrades or target is None:
        return NotFollowed.UNREACHABLE
    there = replace(route, room_id=room_id)
    if not target.encrypted and any(tx.is_encrypted(left) for left in hops):
        return NotFollowed.ENCRYPTION_LOST  # it may be since the rooms were looked at
    fault = target_fault(means.world.policy, there, target, can_encrypt=means.world.can_encrypt)
    if fault is not None:
        return fault
    now_ms = means.clock.now_ms()
    again: list[Again] = []
    for place in tx.open_questions(room_id=start):
        if place.asked.route != name or place.asked.expires_at_ms <= now_ms:
            continue
        if any(other.asked.room_id == room_id for other in copies.places(place)):
            return NotFollowed.ASKED_THERE
        try:
            again.append(_composed(tx, place, there, target, means))
        except Unavailable:
            return NotFollowed.APPROVERS
    for left, entered in pairwise(hops):
        tx.keep_move(name, left, entered, now_ms)
    tx.audit(AuditRow(what="upgrade_followed", at_ms=now_ms, room_id=room_id, detail=name))
    for each in again:
        _ask_again(tx, each, room_id, after=after, means=means)
    tx.enqueue(means.effect(room_id, f"{FOLLOWED}:{name}", Priority.HINT, followed([name])))
    after.rooms |= {start, room_id}
    given_up = sum(each.new is None for each in again)
    return Moved(len(again) - given_up, given_up)


def show_moved(tx: Tx, row: Row, room_id: RoomId, after: After, means: Means) -> None:
    """Have what stands of a question in a room that it left show that it is asked in the next one."""
    left = tx.left_at(row, room_id)
    if left is not None and left.event_id is not None:
        tx.enqueue(means.effect(room_id, MOVED, Priority.EDIT, moved_message(left), row=row))
        after.rooms.add(room_id)


def _composed(tx: Tx, place: Question, there: Route, room: RoomState, means: Means) -> Again:
    """How a question is asked in the new room. Raises `Unavailable` where nobody there could decide it."""
    asked, policy, now_ms = place.asked, means.world.policy, means.clock.now_ms()
    if policy.is_strict(room) and asked.code in codes_taken(tx, (room.room_id,), policy, now_ms):
        return Again(place, None, {})  # an approval that another question got there would be one of this
    failed = asked.attachment is Attachment.FAILED  # then nothing that approves was offered, and nothing will be
    # Who uploaded a file for the old room did not know how the new one is encrypted.
    wanted = replace(asked, room_id=room.room_id, attachment=Attachment.FAILED if failed else Attachment.WANTED)
    try:
        new, content = composed(tx, wanted, room, means, stored=place)
    except (TooLarge, Invalid):
        return Again(place, None, {})
    if not copies.offers_alike(new.offered, asked.offered):
        return Again(place, None, {})
    check_decidable(policy, policy.on_behalf(there, place), room, new)
    return Again(place, new, content)


def _ask_again(tx: Tx, again: Again, room_id: RoomId, *, after: After, means: Means) -> None:
    place, row, now_ms = again.place, again.place.row, means.clock.now_ms()
    if again.new is None:
        _give_up(tx, place, after, means)
        return
    for vote in tx.votes(row):
        if vote.room_id == place.asked.room_id:
            tx.withdraw(row, vote.sender)
            audit(tx, place, "vote_void", now_ms, sender=vote.sender, event_id=vote.event_id)
    tx.leave(place, room_id, again.new.attachment, now_ms)
    show_moved(tx, row, place.asked.room_id, after, means)
    now = places.read(tx, row, room_id)
    if now is None:
        raise AssertionError(row)  # it was written there by the line before
    if now.asked.attachment is Attachment.WANTED:
        tx.enqueue(means.effect(room_id, UPLOAD, Priority.UPLOAD, None, row=row))
    tx.enqueue(means.effect(room_id, QUESTION, Priority.QUESTION, again.content, row=row))
    plan_reminder(tx, now, means)
    audit(tx, place, "left_room", now_ms, event_id=place.event_id)
    audit(tx, now, "asked_again" if now.original is None else "copy_asked_again", now_ms)
    if now.original is None and now.copy is not None:
        show_again(tx, now, after, means)  # it says where else it is asked
    after.clients.add(now.key.client)


def _give_up(tx: Tx, place: Question, after: After, means: Means) -> None:
    """It would not be the same question there: nobody is asked, and its client is told; a copy only ends there."""
    if place.original is None:
        change(tx, place, Undelivered(NOT_ALIKE), after, means)
    elif tx.withdraw_copy(place.row, means.clock.now_ms()):
        audit(tx, place, "copy_refused", means.clock.now_ms(), detail=NOT_ALIKE)
        show_again(tx, place.whole, after, means)
