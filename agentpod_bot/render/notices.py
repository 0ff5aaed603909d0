"""What the bot says back: notices that reply to a person, and the keycaps under a question.

Each notice replies to the event given as `reply_to`, in `thread` where that event is in
one, and pings nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentpod_bot.core.answer import KEYCAPS
from agentpod_bot.core.copies import places
from agentpod_bot.core.scene import WhyLeft, WhyUnheard
from agentpod_bot.core.trust import FOR_EVERY_DEVICE
from agentpod_bot.render import sentences
from agentpod_bot.render.content import notice
from agentpod_bot.render.presented import present_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.core.ids import EventId
    from agentpod_bot.core.model import NewQuestion, Question
    from agentpod_bot.core.room import Foreign
    from agentpod_bot.core.scene import Left
    from agentpod_bot.render.sentences import Keys

MAX_LISTED = 20
"""Questions named in one notice; the number of the others is said."""
_EMOJI_STYLE = "\ufe0f"


def hint(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that an answer matches no option, and what the options are."""
    asked = present_title(question)
    return _with_options(sentences.no_match(asked), asked, reply_to=reply_to, thread=thread)


def no_reason(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that an answer gave a reason for what takes none, and what the options are."""
    asked = present_title(question)
    return _with_options(sentences.reason_approves_nothing(asked), asked, reply_to=reply_to, thread=thread)


def which_one(
    questions: Sequence[Question], *, now_ms: int, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """Ask which of these open questions an answer is for."""
    lines = [sentences.which_one(is_only=len(questions) == 1), *_listed(questions, now_ms), *_more(questions)]
    if questions:
        lines.append(sentences.how_with_code(questions[0].asked.code))
    return notice("\n".join(lines), reply_to=reply_to, thread=thread)


def open_list(
    questions: Sequence[Question], *, now_ms: int, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """List what is open, with a link to each."""
    lines = [sentences.open_questions(len(questions))]
    for line, question in zip(_listed(questions, now_ms), questions, strict=False):
        lines += [line, f"    {_link(question)}"]
    lines += _more(questions)
    return notice("\n".join(lines), reply_to=reply_to, thread=thread)


def room_replaced(*, reply_to: EventId, some_follow: bool, some_stay: bool) -> dict[str, Any]:
    """Say that nothing is asked any more in a room that was upgraded, and what becomes of what is open."""
    lines = [sentences.room_replaced()] if some_stay else []
    lines += [sentences.room_followed(all_do=not some_stay)] if some_follow else []
    return notice("\n".join(lines), reply_to=reply_to, thread=None)


def not_read(since_ms: int | None, until_ms: int | None, *, now_ms: int, votes_are_void: bool) -> dict[str, Any]:
    """Say in a room that not all that was said there was read; a time is None where it is not known."""
    said = sentences.not_read(since_ms, until_ms, now_ms=now_ms, votes_are_void=votes_are_void)
    return notice(said, reply_to=None, thread=None)


def waits_to_move(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that a question cannot be answered any more in a room that was upgraded, and not yet in the next."""
    return notice(sentences.waits_to_move(present_title(question)), reply_to=reply_to, thread=thread)


def moved(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that a question is asked in the room that replaced the one which it left, and where."""
    now = next((place for place in places(question) if place.asked.route == question.asked.route), question.whole)
    lines = [sentences.moved(present_title(question)), f"    {_link(now)}"]
    return notice("\n".join(lines), reply_to=reply_to, thread=thread)


def followed(routes: Sequence[str]) -> dict[str, Any]:
    """Say in a new room that the questions of these routes are asked there from now on."""
    return notice(sentences.followed(routes), reply_to=None, thread=None)


def not_approver(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that somebody may not answer this question."""
    return notice(sentences.not_an_approver(present_title(question)), reply_to=reply_to, thread=thread)


def not_asked_here(
    question: Question, *, elsewhere: bool, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """Say that this room's route is none of the question's any more; `elsewhere`: its first room's still is."""
    said = sentences.not_asked_here(present_title(question), elsewhere=elsewhere)
    return notice(said, reply_to=reply_to, thread=thread)


def from_requester(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that the person for whom this was asked cannot approve it."""
    return notice(sentences.from_requester(present_title(question)), reply_to=reply_to, thread=thread)


def not_rejected(left: Sequence[Left], *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say of each code of a rejection of several why it rejected nothing."""
    lines = [sentences.not_rejected(), *map(_left, left[:MAX_LISTED])]
    if len(left) > MAX_LISTED:
        lines.append(sentences.and_more(len(left) - MAX_LISTED))
    return notice("\n".join(lines), reply_to=reply_to, thread=thread)


def reject_which(
    questions: Sequence[Question], *, now_ms: int, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """Ask for the codes of the questions to reject, and list those that there are."""
    lines = [sentences.reject_which(), *_listed(questions, now_ms), *_more(questions)]
    return notice("\n".join(lines), reply_to=reply_to, thread=thread)


def no_file_yet(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that nothing can be approved before its full text is in the room."""
    return notice(sentences.no_file_yet(present_title(question)), reply_to=reply_to, thread=thread)


def late(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say what had happened to the question when an answer came; `ValueError` for an open one."""
    if question.closing is None:
        raise ValueError("an open question has no end that an answer could be too late for")
    return notice(sentences.too_late(present_title(question), question.closing), reply_to=reply_to, thread=thread)


def refused(question: Question, why: str, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say why a structured answer does not count."""
    return notice(sentences.answer_refused(present_title(question), why), reply_to=reply_to, thread=thread)


def not_named(question: Question, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that an approval has to say itself which question it is for."""
    return notice(sentences.not_named(present_title(question)), reply_to=reply_to, thread=thread)


def not_known(lost: Foreign, *, reply_to: EventId, thread: EventId | None = None) -> dict[str, Any]:
    """Say that a question of the bot's own is not known any more."""
    return notice(sentences.not_known(lost.code), reply_to=reply_to, thread=thread)


def unheard(
    question: Question | None, why: WhyUnheard, *, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """Say why nothing follows from a message that came as this one did, and what to do.

    To an unverified device it says nothing of the question, which it may not be given to read.
    """
    if why is WhyUnheard.UNVERIFIED:
        said = notice(sentences.unheard(None, why), reply_to=reply_to, thread=thread)
        return {**said, FOR_EVERY_DEVICE: True}
    asked = None if question is None else present_title(question)
    return notice(sentences.unheard(asked, why), reply_to=reply_to, thread=thread)


def undecryptable(
    question: Question, keys: Keys, *, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """Ask for an answer that could not be decrypted to be sent again."""
    return notice(sentences.unreadable(present_title(question), keys), reply_to=reply_to, thread=thread)


def undecryptable_which(
    questions: Sequence[Question], *, now_ms: int, reply_to: EventId, thread: EventId | None = None
) -> dict[str, Any]:
    """The same of a message that may be for one of several questions."""
    lines = [sentences.unreadable_which(), *_listed(questions, now_ms), *_more(questions)]
    return notice("\n".join(lines), reply_to=reply_to, thread=thread)


def keycaps(question: Question) -> tuple[dict[str, Any], ...]:
    """Return the contents of the `m.reaction` events that offer the first ten options (`ValueError`: no event)."""
    if question.event_id is None:
        raise ValueError("a question that is not in the room cannot carry reactions")
    return tuple(keycap(question.event_id, offered.position) for offered in question.asked.offered[: len(KEYCAPS)])


def keycap(event_id: EventId, position: int) -> dict[str, Any]:
    """Return the content of one `m.reaction`: the keycap of a position from 1 to 10, styled as clients send it."""
    key = KEYCAPS[position - 1]
    styled = key[0] + _EMOJI_STYLE + key[1:] if len(key) > 1 else key
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": event_id, "key": styled}}


def _with_options(said: str, asked: NewQuestion, *, reply_to: EventId, thread: EventId | None) -> dict[str, Any]:
    options = [sentences.option_line(offered) for offered in asked.offered]
    return notice("\n".join([said, *options]), reply_to=reply_to, thread=thread)


def _left(left: Left) -> str:
    question = left.question
    if question is None:
        return sentences.left_foreign(left.code) if left.why is WhyLeft.FOREIGN else sentences.left_unknown(left.code)
    asked = present_title(question)
    if left.why is WhyLeft.NO_REJECTION:
        return sentences.left_without_rejection(asked)
    if left.why is WhyLeft.CLOSED and question.closing is not None:
        return sentences.too_late(asked, question.closing)
    if left.why is WhyLeft.NOT_ASKED_HERE:
        return sentences.not_asked_here(asked, elsewhere=False)
    if left.why is WhyLeft.MOVING:
        return sentences.moved(asked) if question.left_at_ms is not None else sentences.waits_to_move(asked)
    if left.why is WhyLeft.NOT_APPROVER:
        return sentences.not_an_approver(asked)
    return sentences.left_unknown(left.code)


def _listed(questions: Sequence[Question], now_ms: int) -> list[str]:
    return [sentences.open_entry(present_title(question), now_ms=now_ms) for question in questions[:MAX_LISTED]]


def _more(questions: Sequence[Question]) -> list[str]:
    return [sentences.and_more(len(questions) - MAX_LISTED)] if len(questions) > MAX_LISTED else []


def _link(question: Question) -> str:
    if question.event_id is None:
        return sentences.not_in_room_yet()
    return f"https://matrix.to/#/{quote(question.asked.room_id, safe='')}/{quote(question.event_id, safe='')}"
