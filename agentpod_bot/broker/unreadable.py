"""Events that cannot be decrypted: an approver is told so, and theirs are kept for when their keys come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.broker.said_back import SaidBack
from agentpod_bot.broker.scenes import scene_of
from agentpod_bot.core.room import Undecrypted
from agentpod_bot.core.scene import NamesOther, NamesQuestion

if TYPE_CHECKING:
    from agentpod_bot.broker.change import After, Means
    from agentpod_bot.core.room import RoomState, Undecryptable
    from agentpod_bot.ports import Tx

KEPT_MS = 86_400_000
"""A key that comes later comes too late: by then nearly everything is over that the event can be for."""
MOST_KEPT = 50
"""Events of one room: each may have 64 KiB."""


def came_unreadable(tx: Tx, event: Undecryptable, room: RoomState, after: After, means: Means) -> None:
    """Keep what an approver sent, and tell them; what they sent decides nothing until it can be read."""
    if means.world.policy.is_bot(event.sender):
        return
    after.unread += 1
    scene = scene_of(tx, event, room, means, names=event.names.named)
    if not scene.approves_something(event.sender):
        return
    if event.event is not None and event.session_id is not None:
        kept = Undecrypted(
            event_id=event.event_id,
            room_id=room.room_id,
            session_id=event.session_id,
            first_seen_ms=means.clock.now_ms(),
            event=event.event,
        )
        tx.keep_undecrypted(kept, at_most=MOST_KEPT)
    back = SaidBack(tx, means, room, after)
    match scene.named:
        case NamesQuestion(question=question):
            if question.is_open and scene.may(event.sender, question):
                back.undecryptable(event, question)
        case NamesOther(ours=False):
            pass  # it is about something else
        case _:
            theirs = tuple(question for question in scene.shown if scene.may(event.sender, question))
            if len(theirs) == 1:
                back.undecryptable(event, theirs[0])
            elif theirs:
                back.undecryptable_which(event, theirs)
