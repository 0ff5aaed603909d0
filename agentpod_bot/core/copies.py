"""A question as each of its rooms has it.

A question is asked in the room of its route. Where nobody answers, it may be asked once
more, in the room of a second route, by a copy: one row, one code and one decision, but an
event, approvers and a file of its own. Seen in that room a question has the copy's place in
the place of its own, so that whoever judges an answer there judges it by that room's rules.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentpod_bot.core.model import Closing, Outcome, Question, Status

if TYPE_CHECKING:
    from agentpod_bot.core.ids import EventId, RoomId, RouteName
    from agentpod_bot.core.model import Copy, Offered


def seen_in(question: Question, room_id: RoomId) -> Question | None:
    """The question as a room has it; None where it is not asked there."""
    whole = question.whole
    if whole.asked.room_id == room_id:
        return whole
    if whole.copy is not None and whole.copy.room_id == room_id:
        return _as_copied(whole, whole.copy)
    return None


def places(question: Question) -> tuple[Question, ...]:
    """The question as each room has it in which it is asked, that of its own route first."""
    whole = question.whole
    return (whole,) if whole.copy is None else (whole, _as_copied(whole, whole.copy))


def is_gone(place: Question) -> bool:
    """Whether its room no longer shows what becomes of it: it is gone from there, never came there, or was left."""
    if place.left_at_ms is not None:
        return True
    if place.original is None:
        return place.status is Status.UNDELIVERABLE
    return place.copy is not None and place.copy.withdrawn_at_ms is not None


def as_left(
    question: Question,
    room_id: RoomId,
    route: RouteName,
    *,
    event_id: EventId | None,
    shown_ts: int | None,
    at_ms: int,
) -> Question:
    """The question, or its copy for that route, as a room has it that was replaced: closed there since it left."""
    whole = question.whole
    of_copy = whole.copy is not None and route == whole.copy.route
    closing = Closing(Outcome.SUPERSEDED, at_ms=at_ms)
    return replace(
        whole,
        asked=replace(
            whole.asked,
            route=route,
            room_id=room_id,
            masked=whole.asked.masked or (of_copy and whole.copy is not None and whole.copy.masked),
            file=None,  # that of another room, whose secret its key is
        ),
        status=closing.outcome.status,
        closing=closing,
        event_id=event_id,
        shown_ts=shown_ts,
        shown_closed_ts=None,
        original=whole,
        left_at_ms=at_ms,
    )


def offers_alike(one: tuple[Offered, ...], other: tuple[Offered, ...]) -> bool:
    """Whether the same numbers stand for the same options."""
    return [(each.position, each.option) for each in one] == [(each.position, each.option) for each in other]


def _as_copied(whole: Question, copy: Copy) -> Question:
    status, closing = whole.status, whole.closing
    if whole.is_open and copy.withdrawn_at_ms is not None:
        closing = Closing(Outcome.UNDELIVERABLE, at_ms=copy.withdrawn_at_ms)
        status = closing.outcome.status
    elif whole.is_open and copy.event_id is None:
        status = Status.QUEUED
    elif closing is not None and closing.option is not None:  # the other room may print what this one must not see
        closing = replace(closing, option=_printed_there(closing.option, copy))
    return replace(
        whole,
        asked=replace(
            whole.asked,
            route=copy.route,
            room_id=copy.room_id,
            offered=copy.offered,
            masked=copy.masked,
            attachment=copy.attachment,
            file=copy.file,
        ),
        status=status,
        closing=closing,
        event_id=copy.event_id,
        shown_ts=copy.shown_ts,
        shown_closed_ts=copy.shown_closed_ts,
        original=whole,
    )


def _printed_there(option: Offered, copy: Copy) -> Offered:
    """The same option, whatever its number is there: one that lost its file offers fewer."""
    return next((each for each in copy.offered if each.option == option.option), option)
