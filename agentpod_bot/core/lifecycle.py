"""The life of a question: the only place that says which change follows from which event.

`step` is pure. The store's compare-and-set makes sure that what it says happens once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never

from agentpod_bot.core.model import OPEN, Claim, Closing, Outcome, Question, Status
from agentpod_bot.core.scene import approves_unread

if TYPE_CHECKING:
    from agentpod_bot.core.answer import Selected
    from agentpod_bot.core.ids import EventId, UserId


@dataclass(frozen=True, slots=True)
class Posted:
    """The homeserver took the question, by its reply or by showing it in the timeline."""

    event_id: EventId


@dataclass(frozen=True, slots=True)
class Answered:
    """An approver's answer that is plainly one offered option. `ts` is its `origin_server_ts`."""

    selected: Selected
    sender: UserId
    event_id: EventId
    ts: int
    needed: int = 1
    """How many people have to agree on this option."""
    voters: tuple[UserId, ...] = ()
    """Those who do now, `sender` among them; only looked at where one is not enough."""


@dataclass(frozen=True, slots=True)
class Lapsed:
    """The deadline passed and nobody answered."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The client no longer needs an answer. `reason` is ours, for the view and the audit."""

    reason: str


@dataclass(frozen=True, slots=True)
class Superseded:
    """The client replaced the question by a new revision."""


@dataclass(frozen=True, slots=True)
class AnsweredElsewhere:
    """The client says that it was answered in another place. A claim, never a decision."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Undelivered:
    """The homeserver will never take the question, or it was redacted."""

    reason: str


Event = Posted | Answered | Lapsed | Cancelled | Superseded | AnsweredElsewhere | Undelivered


class Effect(Enum):
    """What has to be done after a change was committed."""

    RELEASE = auto()
    """Give the closed question to everybody who waits for it."""
    SHOW_OUTCOME = auto()
    """Edit the question into its outcome, or drop it where it was never sent."""
    SHOW_IN_COPY = auto()
    """Edit the question's copy, where it has one; its own event can no longer be edited."""
    OFFER_KEYCAPS = auto()
    """Seed reactions, should it stay unanswered for a while."""


CLOSED = (Effect.RELEASE, Effect.SHOW_OUTCOME)


def step(question: Question, event: Event, now_ms: int) -> tuple[Question, tuple[Effect, ...]]:
    """Return the question after `event`, and what follows. A closed question never changes again.

    The same object comes back where the event changes nothing: an answer at or past the
    deadline, one to a question that is not in the room, one with fewer voters than it
    needs, a lapse before the deadline.
    """
    if question.status not in OPEN:
        return question, ()
    match event:
        case Posted(event_id=event_id):
            if question.status is Status.QUEUED:
                return replace(question, status=Status.PENDING, event_id=event_id), (Effect.OFFER_KEYCAPS,)
            return question, ()
        case Answered() as answer:
            if not can_be_answered(question, answer.selected, now_ms) or not _enough(answer):
                return question, ()
            return _closed(
                question,
                Closing(
                    Outcome.SELECTED,
                    at_ms=now_ms,
                    option=answer.selected.option,
                    answered_by=answer.sender,
                    via=answer.selected.via,
                    comment=answer.selected.comment,
                    event_id=answer.event_id,
                    answer_ts=answer.ts,
                    voters=answer.voters if answer.needed > 1 else (),
                ),
            )
        case Lapsed():
            if now_ms < question.asked.expires_at_ms:
                return question, ()
            # It ended when it said it would, also where that was noticed later.
            return _closed(question, Closing(Outcome.EXPIRED, at_ms=question.asked.expires_at_ms))
        case Cancelled(reason=reason):
            return _closed(question, Closing(Outcome.CANCELLED, at_ms=now_ms, reason=reason))
        case Superseded():
            return _closed(question, Closing(Outcome.SUPERSEDED, at_ms=now_ms))
        case AnsweredElsewhere(claim=claim):
            return _closed(question, Closing(Outcome.ANSWERED_ELSEWHERE, at_ms=now_ms, claim=claim))
        case Undelivered(reason=reason):
            closed, _ = _closed(question, Closing(Outcome.UNDELIVERABLE, at_ms=now_ms, reason=reason))
            return closed, (Effect.RELEASE, Effect.SHOW_IN_COPY)
        case _:
            assert_never(event)


def can_be_answered(question: Question, selected: Selected, now_ms: int) -> bool:
    """Whether this answer can still do anything: the question is in the room, in time, and offers it as read."""
    return (
        question.status is Status.PENDING
        and now_ms < question.asked.expires_at_ms
        and selected.option in question.asked.offered
        and not approves_unread(question, selected)
    )


def _enough(answer: Answered) -> bool:
    return answer.needed <= 1 or (answer.sender in answer.voters and len(set(answer.voters)) >= answer.needed)


def _closed(question: Question, closing: Closing) -> tuple[Question, tuple[Effect, ...]]:
    return replace(question, status=closing.outcome.status, closing=closing), CLOSED
