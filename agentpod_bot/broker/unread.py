"""What is never read of a room, because too much was said there: nobody is left to believe that it counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.broker import places
from agentpod_bot.broker.change import audit, show_again
from agentpod_bot.broker.others import keep_unread
from agentpod_bot.broker.said_back import SaidBack

if TYPE_CHECKING:
    from agentpod_bot.broker.change import After, Means
    from agentpod_bot.core.room import RoomState, Unread
    from agentpod_bot.ports import Tx


def passed_over(tx: Tx, unread: Unread, room: RoomState, after: After, means: Means) -> None:
    """Tell a room in which something is open that not all was read there, and what follows.

    An answer may be in it, a question of another account, beside which a bare answer is for
    neither, and a redaction that took back a vote: so no vote of before counts. A question of
    ours that is in the room and was not shown yet is in it, too.
    """
    keep_unread(tx, room, means)
    now_ms, is_void = means.clock.now_ms(), False
    open_now = tx.open_questions(room_id=room.room_id)
    until_ms = now_ms if unread.until_ts is None else min(unread.until_ts, now_ms)
    for place in open_now:
        if place.event_id is not None and place.shown_ts is None:
            # Whoever sends an event says when that was: it says nothing of before the question.
            places.show(tx, place, place.event_id, max(until_ms, place.asked.created_at_ms))
        votes = [vote for vote in tx.votes(place.row) if vote.room_id == room.room_id]
        for vote in votes:
            tx.withdraw(place.row, vote.sender)
            audit(tx, place, "vote_void", now_ms, sender=vote.sender, event_id=vote.event_id)
        if votes:
            show_again(tx, place, after, means)
            is_void = True
    if open_now:
        SaidBack(tx, means, room, after).not_read(unread.until_ts, votes_are_void=is_void)
