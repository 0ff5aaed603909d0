"""Events that cannot be decrypted: an approver is told so, and theirs are kept for when their keys come.

Most keys come a moment later, so what is told waits for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.broker.said_back import SaidBack
from agentpod_bot.broker.scenes import scene_of
from agentpod_bot.core.room import Undecrypted
from agentpod_bot.core.scene import NamesLost, NamesOther, NamesQuestion

if TYPE_CHECKING:
    from agentpod_bot.broker.change import After, Means
    from agentpod_bot.core.ids import EventId, RoomId
    from agentpod_bot.core.room import RoomState, Undecryptable, UnreadNotice
    from agentpod_bot.core.scene import Scene
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
    notice = _told(event, scene, SaidBack(tx, means, room, after))
    if event.event is not None and event.session_id is not None:
        kept = Undecrypted(
            event_id=event.event_id,
            room_id=room.room_id,
            session_id=event.session_id,
            first_seen_ms=means.clock.now_ms(),
            event=event.event,
            sender_level=None if room.powers is None else room.powers.of(event.sender),
            notice=notice,
        )
        tx.keep_undecrypted(kept, at_most=MOST_KEPT)


def _told(event: Undecryptable, scene: Scene, back: SaidBack) -> UnreadNotice | None:
    """Tell an approver what it means that their message cannot be read, where it may be an answer."""
    match scene.named:
        case NamesQuestion(question=question):
            may_be = question.is_open and scene.may(event.sender, question)
            return back.undecryptable(event, question) if may_be else None
        case NamesLost(lost=lost):
            back.not_known(event, lost)
            return None
        case NamesOther(ours=False):
            return None  # it is about something else
        case _:
            theirs = tuple(question for question in scene.shown if scene.may(event.sender, question))
            if len(theirs) == 1:
                return back.undecryptable(event, theirs[0])
            return back.undecryptable_which(event, theirs) if theirs else None


def taken_back(tx: Tx, room_id: RoomId, target: EventId) -> None:
    """An event was redacted: where nobody could read it so far, it is nothing any more, also once its key comes."""
    kept = tx.take_undecrypted(room_id, target)
    if kept is not None:
        became_readable(tx, kept)


def became_readable(tx: Tx, kept: Undecrypted) -> None:
    """Nobody has to be told of an event any more; the notice that waits is about another one, or for nothing."""
    notice = kept.notice
    effect = None if notice is None else tx.effect_of_txn(notice.txn_id)
    if notice is None or effect is None or effect.attempts > 0 or effect.content != notice.content:
        return  # it is said, it may be, or it is about another one
    other = tx.undecrypted_of(notice.txn_id)
    if other is None or other.notice is None:
        tx.drop(effect.effect_id)
    else:
        tx.fill(effect.effect_id, other.notice.content)
