"""Structured answers: content that names its question and option by id, for programs to send.

Every identifier in it must agree with one pending question; its body is never looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from agentpod_bot.core.answer import Selected, cleaned
from agentpod_bot.core.model import Via
from agentpod_bot.core.scene import (
    Ignore,
    NamesLost,
    NamesNothing,
    NamesOther,
    NamesQuestion,
    Refuse,
    came_after,
    is_deaf,
    not_known,
    weighed,
)
from agentpod_bot.core.trust import heeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import Structured
    from agentpod_bot.core.scene import Scene, Verdict

ANSWER_SCHEMA_VERSION = 1


def judge_structured(answer: Structured, scene: Scene) -> Verdict:
    """What a structured answer does: every identifier in it must agree; its body is never looked at."""
    return heeded(answer, scene, _judge_structured(answer, scene))


def _judge_structured(answer: Structured, scene: Scene) -> Verdict:
    if is_deaf(answer.sender, scene):
        return Ignore()
    request_id = answer.fields.get("request_id")
    known = [q for q in (*scene.recent, *scene.open) if q.key.request_id == request_id]
    match scene.named:
        case NamesQuestion(question=question):
            disagreement = None
        case NamesLost(lost=lost):
            return not_known(answer.sender, scene, lost)
        case NamesOther():
            if not known or any(foreign.event_id == answer.names.named for foreign in scene.foreign):
                return Ignore()
            question, disagreement = known[-1], "it refers to another event"
        case NamesNothing():
            if not known:
                return Ignore()
            question = known[-1]
            disagreement = _unnamed(answer, known)
        case other:
            assert_never(other)
    names = answer.names
    if names.reply_to and names.reference and names.reply_to != names.reference:
        disagreement = "it replies to one event and refers to another"
    disagreement = disagreement or _disagreement(answer.fields, question)
    if disagreement is not None:
        return weighed(answer, scene, question, Refuse(question, disagreement))
    comment = answer.fields.get("comment") or ""
    for offered in question.asked.offered:
        if offered.option.option_id == answer.fields["option_id"]:
            selected = Selected(offered, Via.STRUCTURED, cleaned(comment))
            return weighed(answer, scene, question, selected, inside=_is_named_inside(answer))
    return weighed(answer, scene, question, Refuse(question, "option_id is none of the options offered"))


def _is_named_inside(answer: Structured) -> bool:
    """Whether an answer says which question it is for, whatever event it refers to.

    Its request id does not: another client may choose the same one, also later.
    """
    subject = answer.fields.get("subject")
    return "code" in answer.fields or (isinstance(subject, dict) and "digest" in subject)


def _unnamed(answer: Structured, known: list[Question]) -> str | None:
    """Why a structured answer that refers to no event cannot be for the newest question of its request id."""
    if len({question.key.client for question in known}) > 1:
        return "two clients' requests have this request_id: refer to the question's event"
    if not came_after(answer, known[-1]):
        return "it is older than the question: refer to the question's event"
    return None


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
