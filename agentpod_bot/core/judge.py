"""Which question an answer is for, and what it does: by identity, never by order.

Everything here is pure. A `Scene` is what the room shows and what the store knows at the
moment an event is read; the verdict says what follows, and only `Accept` can decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from agentpod_bot.core.answer import (
    LONGEST_TOKEN,
    NoMatch,
    Reading,
    Selected,
    Why,
    begins_like_an_answer,
    codes_in,
    is_keycap,
    match_reaction,
    match_reading,
    match_readings,
    readings,
)
from agentpod_bot.core.model import Outcome
from agentpod_bot.core.rejecting import judge_rejection, rejection_in
from agentpod_bot.core.scene import (
    AskWhich,
    Hint,
    Ignore,
    ListOpen,
    NamesLost,
    NamesNothing,
    NamesOther,
    NamesQuestion,
    NotApprover,
    came_after,
    is_deaf,
    not_known,
    weighed,
)
from agentpod_bot.core.text import folded, trimmed, without_fallback
from agentpod_bot.core.trust import heeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import Code
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import Foreign, Reacted, Said, Seen
    from agentpod_bot.core.scene import Scene, Verdict

QUIET_MS = 30_000
"""For so long after another question closed, a bare answer might still be meant for it."""
OWN_QUIET_MS = 2_000
"""The same where this person closed the other question: they know that it is closed."""
LATE_MS = 600_000
"""For so long after the last question closed, a bare answer is taken for one to it."""
OPEN_LIST = "!open"


def judge_said(said: Said, scene: Scene) -> Verdict:
    """What a text message does."""
    return heeded(said, scene, _judge_said(said, scene))


def _judge_said(said: Said, scene: Scene) -> Verdict:
    if is_deaf(said.sender, scene):
        return Ignore()
    body = without_fallback(said.body) if said.names.reply_to else said.body
    bare = trimmed(body)
    if not bare:
        return Ignore()
    if len(bare) <= LONGEST_TOKEN and folded(bare) == OPEN_LIST:
        return ListOpen() if scene.approves_something(said.sender) else Ignore()
    rejection = rejection_in(body)
    if rejection is not None:
        return judge_rejection(said, rejection, scene, theirs=_theirs(said, scene))
    text = Text.read(said, body, scene)
    match scene.named:
        case NamesQuestion(question=question):
            return _named(text, scene, question)
        case NamesOther(ours=ours):
            if text.is_coded:
                return _coded(text, scene)
            if ours and (_would_match(text.bare, scene.shown) or _like_a_try(body, scene.shown)):
                return _which(said, scene)
            return Ignore()
        case NamesLost(lost=lost):  # whatever code is beside it: nobody can say which of the two is meant
            return not_known(said.sender, scene, lost)
        case NamesNothing():
            return _coded(text, scene) if text.is_coded else _bare(text, scene)
        case other:
            assert_never(other)


def judge_reacted(reacted: Reacted, scene: Scene) -> Verdict:
    """What a reaction does. `scene.named` is the event that it stands on, if that is a question."""
    return heeded(reacted, scene, _judge_reacted(reacted, scene))


def _judge_reacted(reacted: Reacted, scene: Scene) -> Verdict:
    if is_deaf(reacted.sender, scene):
        return Ignore()
    match scene.named:
        case NamesQuestion(question=question):
            selected = match_reaction(reacted.key, question.asked.offered)
            if selected is None or not scene.policy.heeds_reactions(question):
                return Ignore()
            return weighed(reacted, scene, question, selected)
        case NamesLost(lost=lost):
            return not_known(reacted.sender, scene, lost) if is_keycap(reacted.key) else Ignore()
        case NamesOther() | NamesNothing():
            return Ignore()
        case other:
            assert_never(other)


@dataclass(frozen=True, slots=True)
class Text:
    """A message's body, and the ways to read it."""

    said: Said
    body: str
    mine: Mapping[Code, Question]
    """Codes of open questions."""
    theirs: frozenset[Code]
    """Codes of other accounts' questions that the room shows, and such as two of ours have."""
    bare: tuple[Reading, ...]
    coded: tuple[Reading, ...]
    """Readings with a code that are an answer to the question of that code."""
    stray: tuple[Reading, ...]
    """Readings with a code that are no answer: the code may be a word of a reason."""

    @classmethod
    def read(cls, said: Said, body: str, scene: Scene) -> Text:
        """Take the body apart by the codes that mean something in this room now."""
        mine = {question.asked.code: question for question in scene.open}
        theirs = _theirs(said, scene)
        found = readings(body, mine.keys() | scene.spent.keys() | theirs)
        coded = tuple(reading for reading in found if _is_coded_answer(reading, mine, scene))
        return cls(
            said=said,
            body=body,
            mine=mine,
            theirs=theirs,
            bare=tuple(reading for reading in found if reading.code is None),
            coded=coded,
            stray=tuple(reading for reading in found if reading.code is not None and reading not in coded),
        )

    @property
    def is_coded(self) -> bool:
        """Whether a code says which question is meant; also a wrong answer with a code, if it is nothing else."""
        return bool(self.coded) or (bool(self.stray) and not self.bare)


def _is_coded_answer(reading: Reading, mine: Mapping[Code, Question], scene: Scene) -> bool:
    if reading.code is None:
        return False
    question = mine.get(reading.code) or scene.spent.get(reading.code)
    if question is None:  # another account's question: its options are not known here
        return reading.comment is None
    return isinstance(match_reading(reading, question.asked.offered), Selected)


def _named(text: Text, scene: Scene, question: Question) -> Verdict:
    own = question.asked.code
    contradicted = any(reading.code != own for reading in text.coded)
    agreeing = (*text.bare, *(reading for reading in text.coded if reading.code == own))
    match match_readings(agreeing, question.asked.offered):
        case Selected() as selected if not contradicted:
            inside = own not in text.theirs and any(reading.code == own for reading in text.coded)
            return weighed(text.said, scene, question, selected, inside=inside)
        case _:
            return weighed(text.said, scene, question, _hint(text, question))


def _hint(text: Text, question: Question) -> Hint:
    """What is told of a try that is no answer to `question`: what was wrong with it, where that is plain."""
    tried = (r for r in (*text.bare, *text.coded, *text.stray) if r.code in {None, question.asked.code})
    return Hint(question, reasoned=match_readings(tried, question.asked.offered) == NoMatch(Why.NOT_REJECTING))


def _coded(text: Text, scene: Scene) -> Verdict:
    said = text.said
    codes = {reading.code for reading in text.coded or text.stray if reading.code is not None}
    if len(codes) > 1:
        return _which(said, scene)
    code = codes.pop()
    question = text.mine.get(code)
    if question is None:  # another account's question, or a closed one
        lost = _lost(said, scene, code)
        if lost is not None:
            return not_known(said.sender, scene, lost)
        gone = scene.spent.get(code)
        return Ignore() if gone is None or code in text.theirs else weighed(said, scene, gone, Hint(gone))
    if code in text.theirs:
        return _which(said, scene)  # two questions have this code: the event must be named
    # A label may hold a word that is a code elsewhere. Read so, the text must mean nothing.
    others = (*scene.open, *(other for other in scene.recent if _just_closed(said, other, scene)))
    if _would_match((Reading(None, text.body, None),), others):
        return _which(said, scene)
    selected = match_readings(text.coded, question.asked.offered)
    if isinstance(selected, NoMatch):
        return weighed(said, scene, question, _hint(text, question))
    if not came_after(said, question):
        return _which(said, scene)
    return weighed(said, scene, question, selected, inside=True)


def _bare(text: Text, scene: Scene) -> Verdict:
    said, body = text.said, text.body
    shown = scene.shown
    if not shown:
        return _late_for_the_last(text, scene)
    only = shown[0] if len(shown) == 1 and _is_plainly_meant(said, shown[0], scene) else None
    if only is not None:
        selected = match_readings(text.bare, only.asked.offered)
        if isinstance(selected, Selected):
            return weighed(said, scene, only, selected)
        if not (codes_in(body, text.mine.keys()) or begins_like_an_answer(body, only.asked.offered)):
            return Ignore()
        return _hint(text, only) if scene.may(said.sender, only) else Ignore()
    if _would_match(text.bare, shown):
        return _which(said, scene)
    if _like_a_try(body, shown) or codes_in(body, text.mine.keys()):
        return AskWhich() if scene.approves_something(said.sender) else Ignore()
    return Ignore()


def _is_plainly_meant(said: Said, question: Question, scene: Scene) -> bool:
    """Whether a bare answer can only be for `question`: no other one is, or just was, open in the room.

    What the timeline showed before this answer counts as shown, whatever its own clock says.
    """
    shown_ts = question.shown_ts
    if shown_ts is None or said.ts < shown_ts or _lively(said, scene):
        return False
    for other in scene.recent:
        closing = other.closing
        if other.shown_ts is None or closing is None:
            continue
        if closing.outcome is Outcome.SELECTED and closing.answered_by == said.sender:
            since = max(closing.answer_ts or closing.at_ms, shown_ts)
            if said.ts - since < OWN_QUIET_MS:
                return False
        elif _just_closed(said, other, scene):
            return False
    return True


def _at(event: Seen, scene: Scene) -> int:
    """When an event was sent; never later than now, for a fast clock must not end a quiet time."""
    return min(event.ts, scene.now_ms)


def _just_closed(event: Seen, question: Question, scene: Scene) -> bool:
    """Whether the room showed a closed question as open when `event` was sent, or until shortly before."""
    if question.closing is None:
        return True
    ended = question.shown_closed_ts
    if ended is None:  # no edit seen: people still see it open, until the time that it names
        ended = max(question.closing.at_ms, question.asked.expires_at_ms)
    return _at(event, scene) - ended <= QUIET_MS


def _lively(event: Seen, scene: Scene) -> tuple[Foreign, ...]:
    """Questions of other accounts that the room showed as open when `event` was sent, or until shortly before."""
    return tuple(
        foreign
        for foreign in scene.foreign
        if _at(event, scene) - min(foreign.closed_ts or foreign.expires_at_ms, foreign.expires_at_ms) <= QUIET_MS
    )


def _theirs(event: Seen, scene: Scene) -> frozenset[Code]:
    """Codes that do not say which question of ours is meant."""
    return scene.doubtful | {foreign.code for foreign in _lively(event, scene) if foreign.code is not None}


def _lost(event: Seen, scene: Scene, code: Code) -> Foreign | None:
    """The question of ours with this code that the store does not know; None where another account's has it, too."""
    found = [foreign for foreign in _lively(event, scene) if foreign.code == code]
    return found[-1] if found and all(foreign.sender == scene.policy.own for foreign in found) else None


def _late_for_the_last(text: Text, scene: Scene) -> Verdict:
    said = text.said
    theirs = [foreign for foreign in scene.foreign if foreign.closed_ts is None and said.ts < foreign.expires_at_ms]
    if theirs:  # another account's question is open: it is that one's
        are_lost = all(foreign.sender == scene.policy.own for foreign in theirs)
        is_try = begins_like_an_answer(text.body, ())  # by number: the options are not known
        return not_known(said.sender, scene, theirs[-1]) if are_lost and is_try else Ignore()
    closed = [q for q in scene.recent if q.shown_ts is not None and q.closing is not None and said.ts >= q.shown_ts]
    if not closed:
        return Ignore()
    last = max(closed, key=lambda q: q.closing.at_ms if q.closing else 0)
    waits = last.left_at_ms is not None and last.whole.is_open
    too_old = last.closing is None or (said.ts - last.closing.at_ms > LATE_MS and not waits)
    if too_old or not scene.may(said.sender, last):
        return Ignore()
    if _would_match(text.bare, (last,)) or _like_a_try(text.body, (last,)):
        return weighed(said, scene, last, Hint(last))
    return Ignore()


def _which(said: Said, scene: Scene) -> Verdict:
    if scene.approves_something(said.sender):
        return AskWhich() if scene.open else Ignore()
    return NotApprover(scene.open[0]) if scene.open else Ignore()


def _would_match(found: tuple[Reading, ...], questions: tuple[Question, ...]) -> bool:
    return any(isinstance(match_readings(found, question.asked.offered), Selected) for question in questions)


def _like_a_try(body: str, questions: tuple[Question, ...]) -> bool:
    return any(begins_like_an_answer(body, question.asked.offered) for question in questions)
