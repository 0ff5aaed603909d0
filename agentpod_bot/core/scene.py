"""One room at the moment in which an event is read, and the verdicts that can follow."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from agentpod_bot.core.answer import Selected
from agentpod_bot.core.labels import approves
from agentpod_bot.core.model import WHOLE_TEXT_SHOWN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import Code, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import Foreign, RoomState, Seen

CLOCKS_DIFFER_MS = 300_000
"""So much earlier than its question an answer that names it by code may be dated."""


@dataclass(frozen=True, slots=True)
class NamesNothing:
    """A bare message."""


@dataclass(frozen=True, slots=True)
class NamesQuestion:
    """It names a question of ours, or something that we said about that one question."""

    question: Question


@dataclass(frozen=True, slots=True)
class NamesOther:
    """It names something else. `ours`: a notice of ours about several questions or none."""

    ours: bool


@dataclass(frozen=True, slots=True)
class NamesLost:
    """It names a question of ours that the store does not know: it was wiped, or put back from a backup."""

    lost: Foreign


Named = NamesNothing | NamesQuestion | NamesOther | NamesLost


@dataclass(frozen=True, slots=True)
class Scene:
    """One room at the moment in which an event of its timeline is read."""

    policy: Policy
    now_ms: int
    room: RoomState
    open: tuple[Question, ...]
    """Queued and pending questions of the room, oldest first."""
    recent: tuple[Question, ...]
    """Closed ones that the room may still show as open, or closed lately; oldest first."""
    foreign: tuple[Foreign, ...]
    """Questions of other accounts that are open or closed lately."""
    named: Named = NamesNothing()
    spent: Mapping[Code, Question] = field(default_factory=dict)
    """Codes of closed questions of the last day, the newest question of each."""
    brought: frozenset[Code] = frozenset()
    """Codes of open questions that were asked in another room first, which this one replaced."""

    @property
    def shown(self) -> tuple[Question, ...]:
        """Open questions that the timeline has shown before this event."""
        return tuple(question for question in self.open if question.shown_ts is not None)

    @property
    def doubtful(self) -> frozenset[Code]:
        """Codes that are not one question's alone: with one of those, the event must be named.

        It happens where a question brings its code from another room into one that has the same.
        """
        rows = Counter(question.asked.code for question in self.open)
        spent = (q.asked.code for q in self.open if q.asked.code in self.spent)
        mine = {q.asked.code: q.shown_ts for q in self.open if q.original is not None or q.asked.code in self.brought}
        others = (f.code for f in self.foreign if f.code in mine and f.shown_ts < (mine[f.code] or self.now_ms))
        return frozenset(code for code, count in rows.items() if count > 1) | frozenset((*spent, *others))

    def may(self, sender: UserId, question: Question) -> bool:
        """Whether `sender` may decide `question`, or may be told where to."""
        if not self.is_moving(question):
            return self.policy.may_answer(sender, question, self.room)
        route = self.policy.routes.get(question.asked.route)
        return route is not None and self.policy.is_approver(sender, route, self.room)

    def is_moving(self, question: Question) -> bool:
        """Whether nothing that is said of a question here decides: it left this room, or waits to.

        Where a route follows upgrades, that holds from the tombstone on, whenever the new
        room could be followed into: what counts depends on the timeline, and not on us.
        """
        route = self.policy.routes.get(question.asked.route)
        waits = self.room.replaced and route is not None and route.follow_upgrades
        return question.left_at_ms is not None or (waits and question.is_open)

    def may_approve(self, sender: UserId, question: Question) -> bool:
        """Whether `sender`, who may decide `question`, may also approve it."""
        return self.policy.may_approve(sender, question, self.room)

    def approves_something(self, sender: UserId) -> bool:
        """Whether `sender` is a joined approver of any route of this room, or of one that left it with a question."""
        here = any(
            route.room_id == self.room.room_id and self.policy.is_approver(sender, route, self.room)
            for route in self.policy.routes.values()
        )
        left = (each for each in (*self.recent, *self.spent.values()) if each.left_at_ms is not None)
        return here or any(self.may(sender, each) for each in left)


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer is for `question` and is plainly this option; the compare-and-set decides."""

    question: Question
    selected: Selected
    inside: bool = False
    """Whether the answer itself says which question it is for, and not only what stands beside its ciphertext."""


class WhyLeft(StrEnum):
    """Why a code in a rejection of several questions rejected nothing."""

    UNKNOWN = "unknown"
    """No question that was open here when it was written has this code."""
    FOREIGN = "foreign"
    """It is the code of another account's question, or of two of ours."""
    CLOSED = "closed"
    MOVING = "moving"
    """Its room was replaced: it is asked in the next one, or will be."""
    NOT_APPROVER = "not_approver"
    NOT_ASKED_HERE = "not_asked_here"
    """No route of this room has the question any more."""
    NO_REJECTION = "no_rejection"
    """The question offers no option that rejects."""


@dataclass(frozen=True, slots=True)
class Left:
    """A code, as it was written, that rejected nothing; `question` where there is one that it means."""

    code: str
    why: WhyLeft
    question: Question | None = None


@dataclass(frozen=True, slots=True)
class RejectSeveral:
    """An approver rejects questions by their codes, each by its own rejecting option. Neither: no code was named."""

    rejected: tuple[Accept, ...]
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True)
class Late:
    """The answer is for a question that is closed."""

    question: Question


@dataclass(frozen=True, slots=True)
class Moving:
    """The answer is for a question that left this room, or waits to, for the room that replaced it."""

    question: Question


@dataclass(frozen=True, slots=True)
class AskWhich:
    """It could be for more than one question, so it is for none."""


@dataclass(frozen=True, slots=True)
class Hint:
    """It is a try at `question` that matches no option."""

    question: Question
    reasoned: bool = False
    """Whether it would match but for the reason behind it, which only a rejection takes."""


@dataclass(frozen=True, slots=True)
class NotApprover:
    """Somebody who may not answer tried to."""

    question: Question


@dataclass(frozen=True, slots=True)
class FromRequester:
    """It would approve `question`, and comes from the person for whom it was asked, or nobody knows who that is."""

    question: Question


@dataclass(frozen=True, slots=True)
class NoFileYet:
    """It would approve `question`, whose full text is not in the room."""

    question: Question


@dataclass(frozen=True, slots=True)
class NotNamed:
    """It would approve `question`, and what says that it is for this one could be changed on the way."""

    question: Question


@dataclass(frozen=True, slots=True)
class NotKnown:
    """It is for a question of ours that the store does not know."""

    lost: Foreign


class WhyUnheard(StrEnum):
    """Why nothing that comes so decides anything in this room."""

    CLEAR = "clear_text"
    STRANGER = "unknown_device"
    UNVERIFIED = "unverified_device"


@dataclass(frozen=True, slots=True)
class Unheard:
    """It would mean something, had it come in another way; `question` where it is about one."""

    why: WhyUnheard
    question: Question | None = None


@dataclass(frozen=True, slots=True)
class Refuse:
    """A structured answer that does not agree with `question`; `why` names the field."""

    question: Question
    why: str


@dataclass(frozen=True, slots=True)
class ListOpen:
    """An approver asks what is open."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Plain talk, or nothing that concerns us."""


Verdict = (
    Accept
    | RejectSeveral
    | Late
    | Moving
    | AskWhich
    | Hint
    | NotApprover
    | FromRequester
    | NoFileYet
    | NotNamed
    | NotKnown
    | Unheard
    | Refuse
    | ListOpen
    | Ignore
)


def is_deaf(sender: UserId, scene: Scene) -> bool:
    """Bots are never heard; nor is anybody where it is not known whether the room is encrypted."""
    return scene.policy.is_bot(sender) or scene.room.encrypted is None


def not_known(sender: UserId, scene: Scene, lost: Foreign) -> Verdict:
    """Approvers are told that a question is not known any more; nobody can say which of them it was for."""
    return NotKnown(lost) if scene.approves_something(sender) else Ignore()


def weighed(
    event: Seen, scene: Scene, question: Question, result: Selected | Refuse | Hint, *, inside: bool = False
) -> Verdict:
    """Who speaks, and whether it is still time, go before what was said.

    `inside` says whether what was said names the question itself.
    """
    sender = event.sender
    if not scene.may(sender, question):
        return NotApprover(question)
    if scene.is_moving(question):
        return Moving(question)
    if not question.is_open:
        return Late(question)
    if not isinstance(result, Selected):
        return result
    if approves(result.option.option, question.asked.options):
        if not scene.may_approve(sender, question):
            return FromRequester(question)
        if scene.policy.is_strict(scene.room) and not inside:
            return NotNamed(question)
    return NoFileYet(question) if approves_unread(question, result) else Accept(question, result, inside=inside)


def approves_unread(question: Question, selected: Selected) -> bool:
    """Whether an answer approves what nobody can have read whole."""
    asked = question.asked
    return asked.attachment not in WHOLE_TEXT_SHOWN and approves(selected.option.option, asked.options)


def came_after(event: Seen, question: Question) -> bool:
    """Whether a question was in the room when `event` was sent.

    Servers' clocks differ by a little. A code is not given out again within a day, so
    within that little it never was another question's.
    """
    return question.shown_ts is not None and event.ts >= question.shown_ts - CLOCKS_DIFFER_MS
