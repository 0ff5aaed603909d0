"""What the store knows of a room at the moment in which an event of it is judged."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from agentpod_bot.broker.places import read
from agentpod_bot.core.answer import LONGEST_HEAD, LONGEST_TOKEN
from agentpod_bot.core.copies import seen_in
from agentpod_bot.core.ids import Code
from agentpod_bot.core.judge import LATE_MS, QUIET_MS
from agentpod_bot.core.scene import Named, NamesLost, NamesNothing, NamesOther, NamesQuestion, Scene
from agentpod_bot.core.text import folded

if TYPE_CHECKING:
    from agentpod_bot.broker.change import Means
    from agentpod_bot.core.ids import EventId, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import Foreign, Reacted, RoomState, Said, Structured, Undecryptable
    from agentpod_bot.ports import Tx

DAY_MS = 86_400_000
CODE_WORDS = 12
"""So many words at the end of a message are looked at as codes."""
_CODE = re.compile(r"(?=.*[0-9])(?=.*[a-z])[0-9a-z]{2,4}", re.ASCII | re.IGNORECASE)


def scene_of(
    tx: Tx,
    event: Said | Structured | Reacted | Undecryptable,
    room: RoomState,
    means: Means,
    *,
    names: EventId | None,
    codes_of: str = "",
    back_ms: int | None = None,
    known_ms: int | None = None,
) -> Scene:
    """Put together what judging an event needs: `names` is the event that it names, `codes_of` its text.

    `back_ms` is how long before the event closed questions still matter, where that is not as usual.
    `known_ms` is when the event came, where it could not be read then: it cannot be meant for what
    was asked later, which is as if it were not there.
    """
    now_ms = means.clock.now_ms()
    open_now = _asked_by(tx, known_ms, tx.open_questions(room_id=room.room_id))
    if back_ms is None:  # with nothing open, an answer may be late for what closed some minutes ago
        back_ms = LATE_MS if all(question.shown_ts is None for question in open_now) else QUIET_MS
    since_ms = min(now_ms, event.ts) - back_ms
    named = _named(tx, names, room, open_now, own=means.world.own)
    if isinstance(named, NamesQuestion) and not _asked_by(tx, known_ms, (named.question,)):
        named = NamesOther(ours=False)
    # What was closed lately, and what others ask, matters where the question is not named, or a code may be.
    is_named = isinstance(named, NamesQuestion)
    codes = _like_codes(codes_of)
    # What came from another room brought its code along: another account may have had the same one here today.
    coded = [question for question in open_now if question.asked.code in codes]
    brought = frozenset(question.asked.code for question in coded if tx.has_left(question.row))
    copied = any(question.original is not None for question in coded)
    others_ms = min(since_ms, now_ms - DAY_MS) if copied or brought else since_ms
    left = tx.left_in(room.room_id, since_ms=since_ms) if room.replaced and not is_named else ()
    foreign = () if is_named and not codes else tx.foreign(room.room_id, since_ms=others_ms)
    return Scene(
        policy=means.world.policy,
        now_ms=now_ms,
        room=room,
        open=open_now,
        recent=()
        if is_named
        else (*_asked_by(tx, known_ms, tx.closed_questions(room.room_id, since_ms=since_ms)), *left),
        foreign=tuple(each for each in foreign if each.expires_at_ms >= others_ms),
        named=named,
        spent={each.asked.code: each for each in left if each.asked.code in codes}
        | _spent(tx, room, codes, now_ms - DAY_MS, known_ms=known_ms),
        brought=brought,
    )


def _asked_by(tx: Tx, known_ms: int | None, questions: tuple[Question, ...]) -> tuple[Question, ...]:
    """Of these questions, as the room has them, those that were asked there by then."""
    if known_ms is None:
        return questions
    return tuple(question for question in questions if _asked_ms(tx, question) <= known_ms)


def _asked_ms(tx: Tx, question: Question) -> int:
    """When a question came into the room. One that left it again was there as early as it can have been."""
    if question.left_at_ms is not None:
        return question.asked.created_at_ms
    entered_ms = tx.entered_ms(question.row, question.asked.route)
    if entered_ms is not None:
        return entered_ms
    if question.original is not None and question.copy is not None:
        return question.copy.asked_at_ms
    return question.asked.created_at_ms


def in_room(tx: Tx, event_id: EventId, room: RoomState) -> Question | None:
    """The question that an event is; one of another room is none here, whoever names it.

    What it was in a room that it left is known there, and in the room where it is asked now.
    """
    question = tx.by_event(event_id) or tx.left_by_event(event_id)
    if question is None or question.asked.room_id == room.room_id:
        return question
    here = question.left_at_ms is not None and seen_in(question, room.room_id) is not None
    return question if here else None


def lost_in(tx: Tx, event_id: EventId, room: RoomState, own: UserId) -> Foreign | None:
    """The question of ours that an event is, where the store knows no more of it than that the room shows it."""
    found = tx.foreign_of(event_id)
    return found if found is not None and (found.sender, found.room_id) == (own, room.room_id) else None


def _named(tx: Tx, event_id: EventId | None, room: RoomState, open_now: tuple[Question, ...], *, own: UserId) -> Named:
    """What a message names: a question, something of ours about exactly one, or something else."""
    if event_id is None:
        return NamesNothing()
    question = next((question for question in open_now if question.event_id == event_id), None)
    question = question or in_room(tx, event_id, room)
    if question is not None:
        return NamesQuestion(question)
    about = tx.about(event_id, room.room_id)
    if about is None:
        lost = lost_in(tx, event_id, room, own)
        return NamesOther(ours=False) if lost is None else NamesLost(lost)
    if len(about) != 1:
        return NamesOther(ours=True)
    question = read(tx, about[0], room.room_id)
    if question is None:
        return NamesOther(ours=False)
    return NamesQuestion(question)


def _like_codes(body: str) -> frozenset[Code]:
    """What may be a code in a text: words of its beginning, where an answer stands, and its last ones."""
    words = (*body[:LONGEST_HEAD].split(), *body[-LONGEST_HEAD:].split()[-CODE_WORDS:])
    bare = (folded(word.strip(".,:;()")) for word in words if len(word) <= LONGEST_TOKEN)
    return frozenset(Code(word.upper()) for word in bare if _CODE.fullmatch(word))


def _spent(
    tx: Tx, room: RoomState, codes: frozenset[Code], since_ms: int, *, known_ms: int | None
) -> dict[Code, Question]:
    """Of these codes, those of questions that closed within the last day."""
    found: dict[Code, Question] = {}
    for code in codes:
        asked = _asked_by(tx, known_ms, tx.by_code(room.room_id, code))
        newest = next((question for question in asked if question.closing is not None), None)
        if newest is not None and newest.closing is not None and newest.closing.at_ms >= since_ms:
            found[code] = newest
    return found
