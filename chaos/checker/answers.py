"""What an event in a room plainly says, read by somebody who knows only the specification.

Less is read here than a bot may read: only forms that leave no doubt. A run uses no others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

Event = dict[str, Any]

QUESTION = "dev.agentpod.permission.v2"
OUTCOME = "dev.agentpod.permission.outcome.v2"
ANSWER = "dev.agentpod.permission.answer.v2"
SELECTORS = re.compile("[\ufe0e\ufe0f]")
KEYCAP = re.compile("([1-9])\u20e3")


@dataclass(frozen=True)
class Question:
    """One question as the room shows it."""

    event_id: str
    place: int
    """Its place in the room's history."""
    ts: int
    request_id: str
    revision: int
    digest: str
    code: str
    expires_at: str
    options: tuple[tuple[str, str, str], ...]
    """Id, label and meaning."""

    @classmethod
    def of(cls, event: Event, place: int) -> Question:
        """Read one from its event."""
        content = event["content"]
        subject = content["subject"]
        return cls(
            event_id=event["event_id"],
            place=place,
            ts=event["origin_server_ts"],
            request_id=content["request_id"],
            revision=subject["revision"],
            digest=subject["digest"],
            code=content["code"],
            expires_at=subject["expires_at"],
            options=tuple((option["id"], option["label"], option["meaning"]) for option in content["options"]),
        )


@dataclass(frozen=True)
class Reading:
    """What one event says. `question` None: it names none. `option` None: it is no answer to it."""

    question: Question | None
    option: str | None = None
    comment: str | None = None
    bare: bool = False
    """It names no question, and would be an answer to one with such options."""
    heard: bool = True
    """Whether whoever sent it is owed a reason where it decides nothing."""


NOTHING = Reading(None, heard=False)


def read(event: Event, questions: Sequence[Question]) -> Reading:
    """What an event says about the questions that stood in the room before it."""
    content = event["content"]
    relation = content.get("m.relates_to", {})
    by_id = {question.event_id: question for question in questions}
    if event["type"] == "m.reaction":
        return _reaction(relation, by_id)
    if event["type"] != "m.room.message" or content.get("msgtype") != "m.text":
        return NOTHING
    if relation.get("rel_type") == "m.replace":
        return NOTHING
    named = by_id.get(_named(relation))
    if content.get("suite_event_type") == ANSWER:
        return _structured(content, named)
    if named is not None:
        option, comment = option_of(content["body"], named)
        return Reading(named, option, comment)
    if _named(relation):
        return NOTHING
    return _free(content["body"], questions)


def _reaction(relation: Event, by_id: dict[str, Question]) -> Reading:
    question = by_id.get(relation.get("event_id", ""))
    key = KEYCAP.fullmatch(SELECTORS.sub("", relation.get("key", "")))
    if question is None or key is None or int(key[1]) > len(question.options):
        return NOTHING
    return Reading(question, question.options[int(key[1]) - 1][0])


def _named(relation: Event) -> str:
    reply = "" if relation.get("is_falling_back") else relation.get("m.in_reply_to", {}).get("event_id", "")
    return str(reply or relation.get("event_id", ""))


def _structured(content: Event, named: Question | None) -> Reading:
    if named is None:
        return NOTHING
    subject = content.get("subject", {})
    agrees = (
        content.get("schema_version") == 1
        and content.get("request_id") == named.request_id
        and subject.get("digest") == named.digest
        and subject.get("revision") == named.revision
        and content.get("option_id") in {option_id for option_id, _, _ in named.options}
    )
    return Reading(named, content["option_id"] if agrees else None, content.get("comment"))


def _free(body: str, questions: Sequence[Question]) -> Reading:
    """A message that names no event: with a code before or behind the answer, or with none."""
    words = body.upper().split() or [""]
    first, last = words[0], words[-1]
    for question in reversed(questions):
        if question.code == first:
            return Reading(question, *option_of(body.split(maxsplit=1)[-1], question))
        if question.code == last:
            return Reading(question, *option_of(body.rsplit(maxsplit=1)[0], question))
    return Reading(None, bare=any(option_of(body, question)[0] is not None for question in questions), heard=False)


def option_of(body: str, question: Question) -> tuple[str | None, str | None]:
    """The option that a text is, by number or label, and the reason behind a rejection."""
    text, colon, comment = body.partition(":")
    for position, (option_id, label, meaning) in enumerate(question.options, 1):
        if text.strip().casefold() in (str(position), label.casefold()):
            if not colon:
                return option_id, None
            return (option_id, comment.strip()) if meaning == "reject" else (None, None)
    return None, None
