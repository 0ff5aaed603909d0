"""How one event of a question's life is written: the compare-and-set, the audit, and what follows.

Everything here runs inside a transaction of the store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.ids import TxnId, WebhookId
from agentpod_bot.core.kept import AuditRow, NewEffect, Priority
from agentpod_bot.core.lifecycle import Effect, Posted, step
from agentpod_bot.core.model import OPEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.broker.world import World
    from agentpod_bot.core.ids import EventId, RoomId, Row, UserId
    from agentpod_bot.core.lifecycle import Event
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Chance, Clock, Tx

MESSAGE = "m.room.message"
REACTION = "m.reaction"
UPLOAD = "upload"
QUESTION = "question"
FILE = "file"
OUTCOME = "outcome"
AGAIN = "again"
VOTES = "votes"
KEYCAPS = "keycaps"
KEYCAP = "keycap"
SEED_AFTER_MS = 3_000
"""A question that is answered at once gets no keycaps: they would only be noise."""


@dataclass(slots=True)
class After:
    """What has to be done once the transaction is committed, and only then."""

    closed: list[Question] = field(default_factory=list)
    rooms: set[RoomId] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    """Tries to answer that decided nothing, each by its kind."""
    calls_back: bool = False
    """Whether outcomes are to be posted."""

    def add(self, more: After) -> None:
        """Take over what a part of the same transaction left to do."""
        self.closed += more.closed
        self.rooms |= more.rooms
        self.refused += more.refused
        self.calls_back |= more.calls_back


@dataclass(frozen=True, slots=True)
class Means:
    """What a change needs beside the transaction."""

    world: World
    clock: Clock
    chance: Chance

    def txn_id(self) -> TxnId:
        """A new transaction id: random, so that a restored store never repeats one."""
        return TxnId(f"agentpod.{self.chance.hex(128)}")

    def effect(
        self,
        room_id: RoomId,
        effect: str,
        priority: Priority,
        content: Mapping[str, Any] | None,
        *,
        row: Row | None = None,
        event_type: str = MESSAGE,
        wait_ms: int = 0,
    ) -> NewEffect:
        """One thing to say in a room, with its transaction id drawn before the first try."""
        return NewEffect(
            row=row,
            room_id=room_id,
            effect=effect,
            priority=priority,
            event_type=event_type,
            content=content,
            txn_id=self.txn_id(),
            not_before_ms=self.clock.now_ms() + wait_ms,
        )


def change(tx: Tx, question: Question, event: Event, after: After, means: Means) -> Question | None:
    """Apply one event. None where it changes nothing, also because somebody else was first."""
    now_ms = means.clock.now_ms()
    changed, effects = step(question, event, now_ms)
    if changed is question:
        return None
    if isinstance(event, Posted):
        if not tx.post(question.row, event.event_id):
            return None
        audit(tx, changed, "shown", now_ms, event_id=event.event_id)
    else:
        closing = changed.closing
        if closing is None:  # a step that closes says how; anything else is a fault of ours
            raise AssertionError(event)
        if not tx.close(question.row, closing, from_status=OPEN, revision=question.key.revision, now_ms=now_ms):
            return None
        audit(
            tx,
            changed,
            closing.outcome.value,
            now_ms,
            sender=closing.answered_by,
            event_id=closing.event_id,
            detail=closing.via.value if closing.via else closing.reason,
        )
        if question.key.client in means.world.policy.called_back:
            tx.call_back(changed, WebhookId(f"msg_{means.chance.hex(128)}"), now_ms)
            after.calls_back = True
    for effect in effects:
        match effect:
            case Effect.RELEASE:
                after.closed.append(changed)
            case Effect.SHOW_OUTCOME:
                _show_outcome(tx, changed, after, means)
            case Effect.OFFER_KEYCAPS:
                _offer_keycaps(tx, changed, after, means)
            case _:
                assert_never(effect)
    return changed


def audit(
    tx: Tx,
    question: Question,
    what: str,
    now_ms: int,
    *,
    sender: UserId | None = None,
    event_id: EventId | None = None,
    detail: str | None = None,
) -> None:
    """Append one line about a question."""
    tx.audit(
        AuditRow(
            what=what,
            at_ms=now_ms,
            row=question.row,
            client=question.key.client,
            request_id=question.key.request_id,
            revision=question.key.revision,
            room_id=question.asked.room_id,
            sender=sender,
            event_id=event_id,
            detail=detail,
        )
    )


def edit_again(tx: Tx, question: Question, after: After, means: Means) -> None:
    """Have the outcome shown anew; where an edit still waits to be rendered, that one will say it all."""
    room_id = question.asked.room_id
    if not tx.has_edit_to_render(question.row):
        number = 1
        while not tx.enqueue(means.effect(room_id, f"{AGAIN}:{number}", Priority.EDIT, None, row=question.row)):
            number += 1
    after.rooms.add(room_id)


def _show_outcome(tx: Tx, question: Question, after: After, means: Means) -> None:
    if QUESTION in tx.drop_all_unsent(question.row, (UPLOAD, QUESTION, KEYCAPS)):
        return  # no try was made: the room never heard of it
    room_id = question.asked.room_id
    tx.enqueue(means.effect(room_id, OUTCOME, Priority.EDIT, None, row=question.row))
    after.rooms.add(room_id)


def _offer_keycaps(tx: Tx, question: Question, after: After, means: Means) -> None:
    if not means.world.policy.seeds_reactions(question):
        return
    room_id = question.asked.room_id
    tx.enqueue(
        means.effect(
            room_id, KEYCAPS, Priority.SEED, None, row=question.row, event_type=REACTION, wait_ms=SEED_AFTER_MS
        )
    )
    after.rooms.add(room_id)
