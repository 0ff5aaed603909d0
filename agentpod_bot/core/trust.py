"""Whether what vouches for an event is enough for it to decide something in its room."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar, assert_never

from agentpod_bot.core.room import Origin, Reacted, Seen
from agentpod_bot.core.scene import (
    Accept,
    AskWhich,
    FromRequester,
    Hint,
    Ignore,
    Late,
    ListOpen,
    Moving,
    NoFileYet,
    NotApprover,
    NotKnown,
    NotNamed,
    Refuse,
    RejectSeveral,
    Unheard,
    WhyUnheard,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.core.model import Question, Vote
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.core.room import Device, ForeignEdit, OwnEdit, RoomState, Said, Structured
    from agentpod_bot.core.scene import Scene, Verdict

FOR_EVERY_DEVICE = "dev.agentpod.for_every_device"
"""A field, true, of what we say that devices have to read which are given nothing else to read."""

BY_A_DEVICE = frozenset({Origin.DEVICE, Origin.VERIFIED})

AnySeen = TypeVar("AnySeen", bound=Seen)


def as_vouched(event: AnySeen, vouches: Callable[[Device], bool]) -> AnySeen:
    """The event as it counts now: its device may have been verified when it was read, and not be so any more.

    `vouches` says whether a device is one of its account's that is verified.
    """
    if event.origin is not Origin.VERIFIED or (event.device is not None and vouches(event.device)):
        return event
    return replace(event, origin=Origin.DEVICE)


def is_counted(vote: Vote, policy: Policy, room: RoomState, vouches: Callable[[Device], bool]) -> bool:
    """Whether a vote counts by the way in which it came: where devices are verified, while its own is."""
    return not policy.is_strict(room) or (vote.device is not None and vouches(vote.device))


def why_unheard(event: Seen, policy: Policy, room: RoomState) -> WhyUnheard | None:
    """Why an event decides nothing by the way in which it came; None where it may.

    Reactions are clear text wherever they are sent: for them it is what they choose that
    counts (`core.scene.weighed`).
    """
    if event.origin is Origin.STRANGER:
        return WhyUnheard.STRANGER
    if room.encrypted is False or isinstance(event, Reacted):
        return None
    match event.origin:
        case Origin.CLEAR:
            return WhyUnheard.CLEAR
        case Origin.DEVICE:
            return WhyUnheard.UNVERIFIED if policy.is_strict(room) else None
        case Origin.VERIFIED:
            return None
        case _:
            assert_never(event.origin)


def heeded(event: Said | Structured | Reacted, scene: Scene, verdict: Verdict) -> Verdict:
    """The verdict on an event, or why nothing follows from one that came so."""
    why = why_unheard(event, scene.policy, scene.room)
    if why is None:
        return verdict
    match verdict:
        case (
            Accept(question=question)
            | Hint(question=question)
            | FromRequester(question=question)
            | NoFileYet(question=question)
            | NotNamed(question=question)
            | Refuse(question=question)
        ):
            return Unheard(why, question)
        case RejectSeveral():
            return Unheard(why, _first(verdict))
        case AskWhich() | ListOpen():
            return Unheard(why)
        case NotApprover() | NotKnown() | Late() | Moving() | Unheard() | Ignore():
            return verdict
        case _:
            assert_never(verdict)


def ends_something(event: OwnEdit | ForeignEdit, room: RoomState) -> bool:
    """Whether an edit that shows a question's end is believed.

    An end that is not believed only makes bare answers unclear for longer.
    """
    return room.encrypted is False or event.origin in BY_A_DEVICE


def _first(several: RejectSeveral) -> Question | None:
    about = (*(each.question for each in several.rejected), *(each.question for each in several.left))
    return next((question for question in about if question is not None), None)
