"""`!reject K7 M3`: several questions rejected by their codes, in one message. Nothing approves several."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentpod_bot.core.answer import LONGEST_TALK, LONGEST_TOKEN, Selected, cleaned
from agentpod_bot.core.labels import REJECT_ONCE, kind_of
from agentpod_bot.core.model import Meaning, Via
from agentpod_bot.core.scene import Accept, Ignore, Left, NotApprover, RejectSeveral, WhyLeft, came_after
from agentpod_bot.core.text import folded

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from agentpod_bot.core.ids import Code
    from agentpod_bot.core.model import Offered, Question
    from agentpod_bot.core.room import Said
    from agentpod_bot.core.scene import Scene, Verdict

REJECT_COMMAND = "!reject"
_REASON = re.compile("[:\uff1a\n\r]")
_BETWEEN = re.compile(r"[\s,;\uff0c\u3001]+")


@dataclass(frozen=True, slots=True)
class Rejection:
    """What a rejection of several names, as it was written, and the reason for all of them."""

    named: tuple[str, ...]
    comment: str | None


def rejection_in(body: str) -> Rejection | None:
    """Read `!reject`, codes, and perhaps a colon or line break and a reason; None for any other text."""
    text = body.strip()
    cut = _REASON.search(text)
    head = text if cut is None else text[: cut.start()]
    command, *rest = _BETWEEN.split(head.strip(), maxsplit=1)
    if len(command) > LONGEST_TOKEN or folded(command) != REJECT_COMMAND:
        return None
    # Codes are not looked for in what is cut: the beginning of one may be another one.
    named = [] if len(head) > LONGEST_TALK else [token for token in _BETWEEN.split("".join(rest)) if token]
    return Rejection(tuple(dict.fromkeys(named)), None if cut is None else cleaned(text[cut.end() :]))


def judge_rejection(said: Said, rejection: Rejection, scene: Scene, *, theirs: AbstractSet[Code]) -> Verdict:
    """What a rejection of several does. It counts for the codes that it names, whatever it replies to.

    `theirs` are codes that another account's open question has, or two of ours: with one
    of those, the question has to be answered by itself.
    """
    mine = {folded(question.asked.code): question for question in scene.open}
    spent = {folded(code): question for code, question in scene.spent.items()}
    foreign = {folded(code) for code in theirs}
    codes = {name: token for token in rejection.named if (name := _name(token))}
    if not scene.approves_something(said.sender):
        named = [mine[name] for name in codes if name in mine]
        return NotApprover(named[0]) if named else Ignore()
    rejected: list[Accept] = []
    left: list[Left] = []
    for name, token in codes.items():
        if name in foreign:
            left.append(Left(token, WhyLeft.FOREIGN))
            continue
        question = mine.get(name) or spent.get(name)
        done = Left(token, WhyLeft.UNKNOWN) if question is None else _one(said, rejection, scene, question, token)
        if isinstance(done, Accept):
            rejected.append(done)
        else:
            left.append(done)
    return RejectSeveral(tuple(rejected), tuple(left))


def _name(token: str) -> str:
    """A token as codes are compared; one that is too long to be a code stays as it is."""
    return (folded(token) or token) if len(token) <= LONGEST_TOKEN else token


def _one(said: Said, rejection: Rejection, scene: Scene, question: Question, token: str) -> Accept | Left:
    if question.whole.is_open and scene.policy.has_lost(question):
        return Left(token, WhyLeft.NOT_ASKED_HERE, question)
    if not scene.may(said.sender, question):
        return Left(token, WhyLeft.NOT_APPROVER, question)
    if scene.is_moving(question):
        return Left(token, WhyLeft.MOVING, question)
    if not question.is_open:
        return Left(token, WhyLeft.CLOSED, question)
    if not came_after(said, question):
        return Left(token, WhyLeft.UNKNOWN)
    option = rejecting_option(question.asked.offered)
    if option is None:
        return Left(token, WhyLeft.NO_REJECTION, question)
    return Accept(question, Selected(option, Via.NAME, rejection.comment))


def rejecting_option(offered: tuple[Offered, ...]) -> Offered | None:
    """The option by which a question is plainly rejected: for this once if it has that, else its first rejection."""
    rejecting = [each for each in offered if each.option.meaning is Meaning.REJECT]
    once = [each for each in rejecting if kind_of(each.option) is REJECT_ONCE]
    return next(iter((*once, *rejecting)), None)
