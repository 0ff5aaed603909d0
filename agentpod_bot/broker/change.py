"""How one event of a question's life is written: the compare-and-set, the audit, and what follows.

Everything here runs inside a transaction of the store.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.broker import places
from agentpod_bot.core import copies
from agentpod_bot.core.ids import TxnId, WebhookId
from agentpod_bot.core.kept import AuditRow, NewEffect, Priority
from agentpod_bot.core.lifecycle import Effect, Posted, step
from agentpod_bot.core.model import OPEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.broker.rates import Rates
    from agentpod_bot.broker.world import World
    from agentpod_bot.core.ids import ClientName, EventId, RoomId, Row, UserId
    from agentpod_bot.core.lifecycle import Event
    from agentpod_bot.core.model import Option, Question
    from agentpod_bot.ports import Chance, Clock, Tx

MESSAGE = "m.room.message"
REACTION = "m.reaction"
UPLOAD = "upload"
QUESTION = "question"
FILE = "file"
OUTCOME = "outcome"
AGAIN = "again"
PROGRESS = "progress"
REMINDER = "reminder"
AFTER_QUIET = "after_quiet"
KEYCAPS = "keycaps"
KEYCAP = "keycap"
SEED_AFTER_MS = 3_000
"""A question that is answered at once gets no keycaps: they would only be noise."""
LONGEST_CODE = 80
_NO_CODE = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(slots=True)
class After:
    """What has to be done once the transaction is committed, and only then."""

    closed: list[Question] = field(default_factory=list)
    rooms: set[RoomId] = field(default_factory=set)
    clients: set[ClientName] = field(default_factory=set)
    """Those of whose requests one has another status now."""
    refused: list[str] = field(default_factory=list)
    """Tries to answer that decided nothing, each by its kind."""
    unread: int = 0
    """Events that could not be decrypted."""
    calls_back: bool = False
    """Whether outcomes are to be posted."""

    def add(self, more: After) -> None:
        """Take over what a part of the same transaction left to do."""
        self.closed += more.closed
        self.rooms |= more.rooms
        self.clients |= more.clients
        self.refused += more.refused
        self.unread += more.unread
        self.calls_back |= more.calls_back


@dataclass(frozen=True, slots=True)
class Means:
    """What a change needs beside the transaction."""

    world: World
    clock: Clock
    chance: Chance
    rates: Rates

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
    whole = question.whole
    if isinstance(event, Posted):
        if not places.post(tx, question, event.event_id):
            return None
        # A copy in another room is no new state of the question.
        what = "shown" if question.original is None else "copy_shown"
        audit(tx, changed, what, now_ms, event_id=event.event_id)
        if question.original is not None:
            show_again(tx, whole, after, means)  # its own room hears where it is asked now
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
            option=None if closing.option is None else closing.option.option,
            detail=closing.via.value if closing.via else closing.reason,
        )
        whole = replace(whole, status=changed.status, closing=closing)
        if question.key.client in means.world.policy.called_back:
            tx.call_back(changed, WebhookId(f"msg_{means.chance.hex(128)}"), now_ms)
            after.calls_back = True
    after.clients.add(changed.key.client)
    for effect in effects:
        match effect:
            case Effect.RELEASE:
                after.closed.append(whole)
            case Effect.SHOW_OUTCOME:
                for place in copies.places(whole):
                    _show_outcome(tx, place, after, means)
            case Effect.SHOW_IN_COPY:
                for place in copies.places(whole)[1:]:
                    _show_outcome(tx, place, after, means)
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
    option: Option | None = None,
    detail: str | None = None,
) -> None:
    """Append one line about a question. `detail` becomes a code: no sentence stands in the audit."""
    tx.audit(
        AuditRow(
            what=what,
            at_ms=now_ms,
            row=question.row,
            client=question.key.client,
            request_id=question.key.request_id,
            revision=question.key.revision,
            digest=question.asked.digest,
            room_id=question.asked.room_id,
            sender=sender,
            event_id=event_id,
            option_id=None if option is None else option.option_id,
            meaning=None if option is None else option.meaning,
            scope=None if option is None else option.scope,
            detail=None if detail is None else _code(detail),
        )
    )


def edit_again(tx: Tx, question: Question, after: After, means: Means) -> None:
    """Have the outcome shown anew, wherever it is shown."""
    for place in copies.places(question):
        if not copies.is_gone(place):
            edit_place_again(tx, place, after, means)


def edit_place_again(tx: Tx, place: Question, after: After, means: Means) -> None:
    """Have the outcome shown anew in one room."""
    _edit(tx, place, AGAIN, Priority.EDIT, after=after, means=means)


def show_again(tx: Tx, place: Question, after: After, means: Means) -> None:
    """Have an open question shown anew in one room, with what there is to say of it now."""
    _edit(tx, place, PROGRESS, Priority.PROGRESS, after=after, means=means)


def _edit(tx: Tx, place: Question, name: str, priority: Priority, *, after: After, means: Means) -> None:
    """Where an edit still waits to be rendered, that one will say it all."""
    room_id = place.asked.room_id
    if not tx.has_edit_to_render(place.row, room_id, priority):
        number = 1
        while not tx.enqueue(means.effect(room_id, f"{name}:{number}", priority, None, row=place.row)):
            number += 1
    after.rooms.add(room_id)


def _code(reason: str) -> str:
    return _NO_CODE.sub("_", reason)[:LONGEST_CODE]


def _show_outcome(tx: Tx, question: Question, after: After, means: Means) -> None:
    room_id = question.asked.room_id
    dropped = tx.drop_all_unsent(question.row, room_id, (UPLOAD, QUESTION, REMINDER, AFTER_QUIET, KEYCAPS))
    if QUESTION in dropped or copies.is_gone(question):
        return  # no try was made, so that the room never heard of it; or it does not show it any more
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
