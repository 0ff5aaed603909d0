"""Which question an answer is for, and what it does: by identity, never by order.

Everything here is pure. A `Scene` is what the room shows and what the store knows at the
moment an event is read; the verdict says what follows, and only `Accept` can decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.answer import (
    NoMatch,
    Reading,
    Selected,
    begins_like_an_answer,
    codes_in,
    match_reaction,
    match_readings,
    readings,
)
from agentpod_bot.core.model import Outcome, Via
from agentpod_bot.core.text import folded, without_fallback

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import Code, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import Foreign, Reacted, RoomState, Said, Structured

QUIET_MS = 30_000
"""For so long after another question closed, a bare answer might still be meant for it."""
OWN_QUIET_MS = 2_000
"""The same where this person closed the other question: they know that it is closed."""
LATE_MS = 600_000
"""For so long after the last question closed, a bare answer is taken for one to it."""
OPEN_LIST = "!open"
ANSWER_SCHEMA_VERSION = 1


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


Named = NamesNothing | NamesQuestion | NamesOther


@dataclass(frozen=True, slots=True)
class Scene:
    """One room at the moment in which an event of its timeline is read."""

    policy: Policy
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

    @property
    def shown(self) -> tuple[Question, ...]:
        """Open questions that the timeline has shown before this event."""
        return tuple(question for question in self.open if question.shown_ts is not None)

    def may(self, sender: UserId, question: Question) -> bool:
        """Whether `sender` may decide `question`."""
        return self.policy.may_answer(sender, question, self.room)

    def approves_something(self, sender: UserId) -> bool:
        """Whether `sender` is a joined approver of any route of this room."""
        return sender in self.room.joined and any(
            route.room_id == self.room.room_id and sender in route.approvers for route in self.policy.routes.values()
        )


@dataclass(frozen=True, slots=True)
class Accept:
    """The answer is for `question` and is plainly this option; the compare-and-set decides."""

    question: Question
    selected: Selected


@dataclass(frozen=True, slots=True)
class Late:
    """The answer is for a question that is closed."""

    question: Question


@dataclass(frozen=True, slots=True)
class AskWhich:
    """It could be for more than one question, so it is for none."""


@dataclass(frozen=True, slots=True)
class Hint:
    """It is a try at `question` that matches no option."""

    question: Question


@dataclass(frozen=True, slots=True)
class NotApprover:
    """Somebody who may not answer tried to."""

    question: Question


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


Verdict = Accept | Late | AskWhich | Hint | NotApprover | Refuse | ListOpen | Ignore


def judge_said(said: Said, scene: Scene) -> Verdict:
    """What a text message does."""
    if _deaf(said.sender, scene):
        return Ignore()
    body = without_fallback(said.body) if said.names.reply_to else said.body
    if folded(body) == OPEN_LIST:
        return ListOpen() if scene.approves_something(said.sender) else Ignore()
    if not folded(body):
        return Ignore()
    mine = {question.asked.code: question for question in scene.open}
    theirs = {foreign.code for foreign in scene.foreign if foreign.code is not None}
    found = readings(body, mine.keys() | scene.spent.keys() | theirs)
    match scene.named:
        case NamesQuestion(question=question):
            return _named(said, scene, question, found)
        case NamesOther(ours=ours):
            if any(reading.code is not None for reading in found):
                return _coded(said, scene, mine, body, found)
            if ours and (_would_match(found, scene.shown) or _like_a_try(body, scene.shown)):
                return _which(said, scene)
            return Ignore()
        case NamesNothing():
            if any(reading.code is not None for reading in found):
                return _coded(said, scene, mine, body, found)
            return _bare(said, scene, mine, body, found)
        case other:
            assert_never(other)


def judge_reacted(reacted: Reacted, scene: Scene) -> Verdict:
    """What a reaction does. `scene.named` is the event that it stands on, if that is a question."""
    if _deaf(reacted.sender, scene):
        return Ignore()
    match scene.named:
        case NamesQuestion(question=question):
            selected = match_reaction(reacted.key, question.asked.offered)
            if selected is None or not scene.policy.heeds_reactions(question):
                return Ignore()
            return _by(reacted.sender, scene, question, selected)
        case NamesOther() | NamesNothing():
            return Ignore()
        case other:
            assert_never(other)


def judge_structured(answer: Structured, scene: Scene) -> Verdict:
    """What a structured answer does: every identifier in it must agree; its body is never looked at."""
    if _deaf(answer.sender, scene):
        return Ignore()
    request_id = answer.fields.get("request_id")
    match scene.named:
        case NamesQuestion(question=question):
            pass
        case NamesOther():
            return Ignore()
        case NamesNothing():
            fitting = [q for q in scene.open if q.key.request_id == request_id]
            if len(fitting) > 1:
                return _by(
                    answer.sender, scene, fitting[-1], Refuse(fitting[-1], "it must refer to the question's event")
                )
            closed = [q for q in scene.recent if q.key.request_id == request_id]
            if not fitting and not closed:
                return Ignore()
            question = fitting[0] if fitting else closed[-1]
        case other:
            assert_never(other)
    disagreement = _disagreement(answer.fields, question)
    if disagreement is not None:
        return _by(answer.sender, scene, question, Refuse(question, disagreement))
    comment = answer.fields.get("comment")
    for offered in question.asked.offered:
        if offered.option.option_id == answer.fields["option_id"]:
            return _by(
                answer.sender, scene, question, Selected(offered, Via.STRUCTURED, (comment or "").strip() or None)
            )
    return _by(answer.sender, scene, question, Refuse(question, "option_id is none of the options offered"))


def _deaf(sender: UserId, scene: Scene) -> bool:
    """Bots are never heard; nor is clear text where the room is encrypted, or may be."""
    return scene.policy.is_bot(sender) or scene.room.encrypted is not False


def _by(sender: UserId, scene: Scene, question: Question, result: Selected | Refuse | Hint) -> Verdict:
    """Who speaks, and whether it is still time, go before what was said."""
    if not scene.may(sender, question):
        return NotApprover(question)
    if not question.is_open:
        return Late(question)
    return Accept(question, result) if isinstance(result, Selected) else result


def _named(said: Said, scene: Scene, question: Question, found: tuple[Reading, ...]) -> Verdict:
    agreeing = tuple(reading for reading in found if reading.code in {None, question.asked.code})
    contradicted = any(reading.code not in {None, question.asked.code} for reading in found)
    match match_readings(agreeing, question.asked.offered):
        case Selected() as selected if not contradicted:
            return _by(said.sender, scene, question, selected)
        case _:
            return _by(said.sender, scene, question, Hint(question))


def _coded(said: Said, scene: Scene, mine: Mapping[Code, Question], body: str, found: tuple[Reading, ...]) -> Verdict:
    codes = {reading.code for reading in found if reading.code is not None}
    if len(codes) > 1:
        return _which(said, scene)
    code = codes.pop()
    theirs = any(foreign.code == code for foreign in scene.foreign)
    if code not in mine:  # another account's question, or a closed one
        return Ignore() if theirs else _by(said.sender, scene, scene.spent[code], Hint(scene.spent[code]))
    if theirs:
        return _which(said, scene)  # two questions have this code: the event must be named
    question = mine[code]
    coded = tuple(reading for reading in found if reading.code is not None)
    selected = match_readings(coded, question.asked.offered)
    # A label may hold a word that is a code elsewhere: read so, the text must mean the same.
    whole = (Reading(None, body, None),)
    if any(isinstance(match_readings(whole, other.asked.offered), Selected) for other in scene.open):
        return _which(said, scene)
    if isinstance(selected, NoMatch):
        return _by(said.sender, scene, question, Hint(question))
    return _by(said.sender, scene, question, selected)


def _bare(said: Said, scene: Scene, mine: Mapping[Code, Question], body: str, found: tuple[Reading, ...]) -> Verdict:
    shown = scene.shown
    if not shown:
        return _late_for_the_last(said, scene, body, found)
    only = shown[0] if len(shown) == 1 and _is_plainly_meant(said, shown[0], scene) else None
    if only is not None:
        selected = match_readings(found, only.asked.offered)
        if isinstance(selected, Selected):
            return _by(said.sender, scene, only, selected)
        if not (codes_in(body, mine.keys()) or begins_like_an_answer(body, only.asked.offered)):
            return Ignore()
        return Hint(only) if scene.may(said.sender, only) else Ignore()
    if _would_match(found, shown):
        return _which(said, scene)
    if _like_a_try(body, shown) or codes_in(body, mine.keys()):
        return AskWhich() if scene.approves_something(said.sender) else Ignore()
    return Ignore()


def _is_plainly_meant(said: Said, question: Question, scene: Scene) -> bool:
    """Whether a bare answer can only be for `question`: no other one is, or just was, open in the room.

    What the timeline showed before this answer counts as shown, whatever its own clock says.
    """
    shown_ts = question.shown_ts
    if shown_ts is None or said.ts < shown_ts:
        return False
    for other in scene.recent:
        closing = other.closing
        if other.shown_ts is None or closing is None:
            continue
        if closing.outcome is Outcome.SELECTED and closing.answered_by == said.sender:
            since = max(closing.answer_ts or closing.at_ms, shown_ts)
            if said.ts - since < OWN_QUIET_MS:
                return False
        else:
            ended = other.shown_closed_ts
            if ended is None:  # no edit seen: people still see it open, until the time that it names
                ended = max(closing.at_ms, other.asked.expires_at_ms)
            if said.ts - ended <= QUIET_MS:
                return False
    for foreign in scene.foreign:
        ended = foreign.expires_at_ms if foreign.closed_ts is None else min(foreign.closed_ts, foreign.expires_at_ms)
        if said.ts - ended <= QUIET_MS:
            return False
    return True


def _late_for_the_last(said: Said, scene: Scene, body: str, found: tuple[Reading, ...]) -> Verdict:
    if any(foreign.closed_ts is None and said.ts < foreign.expires_at_ms for foreign in scene.foreign):
        return Ignore()  # another account's question is open: it is that one's
    closed = [q for q in scene.recent if q.shown_ts is not None and q.closing is not None and said.ts >= q.shown_ts]
    if not closed:
        return Ignore()
    last = max(closed, key=lambda q: q.closing.at_ms if q.closing else 0)
    if last.closing is None or said.ts - last.closing.at_ms > LATE_MS or not scene.may(said.sender, last):
        return Ignore()
    if _would_match(found, (last,)) or _like_a_try(body, (last,)):
        return Late(last)
    return Ignore()


def _which(said: Said, scene: Scene) -> Verdict:
    if scene.approves_something(said.sender):
        return AskWhich() if scene.open else Ignore()
    return NotApprover(scene.open[0]) if scene.open else Ignore()


def _would_match(found: tuple[Reading, ...], questions: tuple[Question, ...]) -> bool:
    return any(isinstance(match_readings(found, question.asked.offered), Selected) for question in questions)


def _like_a_try(body: str, questions: tuple[Question, ...]) -> bool:
    return any(begins_like_an_answer(body, question.asked.offered) for question in questions)


def _disagreement(fields: Mapping[str, Any], question: Question) -> str | None:
    """The first field of a structured answer that is malformed or names something else, with the reason."""
    asked = question.asked
    version = fields.get("schema_version")
    if type(version) is not int or version != ANSWER_SCHEMA_VERSION:
        return f"schema_version is not {ANSWER_SCHEMA_VERSION}"
    if fields.get("request_id") != asked.key.request_id:
        return "request_id is not this question's"
    if not isinstance(fields.get("option_id"), str):
        return "option_id is missing"
    if not isinstance(fields.get("comment"), str | None):
        return "comment must be a text"
    other = _first_other(fields, session_id=asked.session_id, request_seq=asked.request_seq, code=asked.code)
    if other is not None:
        return f"{other} is not this question's"
    if "subject" not in fields:
        return None if asked.key.revision == 1 else "subject is missing, and the question was asked anew since"
    subject = fields["subject"]
    if not isinstance(subject, dict):
        return "subject must be an object"
    if not subject.keys() & {"digest", "revision"}:
        return "subject names neither digest nor revision"
    other = _first_other(subject, id=asked.key.request_id, digest=asked.digest, revision=asked.key.revision)
    return None if other is None else f"subject.{other} is not this question's"


def _first_other(fields: Mapping[str, Any], **right: str | int) -> str | None:
    """The first field that is there and is not exactly what it should be; true is not 1."""
    for name, value in right.items():
        if name in fields and (type(fields[name]) is not type(value) or fields[name] != value):
            return name
    return None
