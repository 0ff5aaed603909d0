"""How an accepted answer is written: it decides at once, or it is a vote until enough people agree.

Votes are counted at the commit, by the rules, the room and the devices as they are then. The
room hears of them by an edit that asks the same as before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.broker.change import After, Means, audit, change, show_again
from agentpod_bot.broker.places import read
from agentpod_bot.core.copies import seen_in
from agentpod_bot.core.lifecycle import Answered, can_be_answered
from agentpod_bot.core.model import Vote
from agentpod_bot.core.room import Origin
from agentpod_bot.core.votes import tallies, voters_for, votes_needed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.core.ids import EventId, RoomId, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import RoomState, Seen
    from agentpod_bot.core.scene import Accept
    from agentpod_bot.core.votes import Tally
    from agentpod_bot.ports import Tx


def take(tx: Tx, event: Seen, accepted: Accept, room: RoomState, *, after: After, means: Means) -> bool:
    """Let an answer decide, or count it as this person's vote. False where it can do neither any more."""
    question, selected = accepted.question, accepted.selected
    policy, now_ms = means.world.policy, means.clock.now_ms()
    needed = votes_needed(policy, question, selected.option)
    if needed == 1:
        answered = Answered(selected, event.sender, event.event_id, event.ts)
        return change(tx, question, answered, after, means) is not None
    if not can_be_answered(question, selected, now_ms):
        return False
    option_id = selected.option.option.option_id
    room_id = question.asked.room_id
    before = next((vote for vote in tx.votes(question.row) if vote.sender == event.sender), None)
    vote = Vote(
        sender=event.sender,
        option_id=option_id,
        room_id=room_id,
        event_id=event.event_id,
        ts=event.ts,
        at_ms=now_ms,
        device=event.device if accepted.inside and event.origin is Origin.VERIFIED else None,
    )
    tx.vote(question.row, vote)
    chosen = selected.option.option
    audit(tx, question, "voted", now_ms, sender=event.sender, event_id=event.event_id, option=chosen)
    votes, vouches = tx.votes(question.row), means.world.vouches
    voters = voters_for(policy, room, question, votes, selected.option, vouches=vouches)
    if len(voters) >= needed:
        decides = Answered(selected, event.sender, event.event_id, event.ts, needed=needed, voters=voters)
        return change(tx, question, decides, after, means) is not None
    if before is None or (before.option_id, before.room_id, before.device) != (option_id, room_id, vote.device):
        show_again(tx, question, after, means)
    left = None if before is None or before.room_id == room_id else seen_in(question, before.room_id)
    if left is not None:  # one person has one vote, so it is gone there
        show_again(tx, left, after, means)
    return True


def withdraw(tx: Tx, event: Seen, target: EventId, room: RoomState, *, after: After, means: Means) -> None:
    """A vote's event was redacted: while the question is open, the vote counts no longer."""
    found = tx.voted(target)
    question = None if found is None else read(tx, found[0], room.room_id)
    if found is None or question is None or not question.is_open or found[1].room_id != room.room_id:
        return
    tx.withdraw(question.row, found[1].sender)
    now_ms = means.clock.now_ms()
    audit(tx, question, "vote_withdrawn", now_ms, sender=event.sender, event_id=target)
    show_again(tx, question, after, means)


def voters_in(tx: Tx, room_ids: Iterable[RoomId]) -> frozenset[UserId]:
    """Whose votes may make up a quorum in one of these rooms."""
    asked = (question for room_id in room_ids for question in tx.open_questions(room_id=room_id))
    return frozenset(vote.sender for question in asked for vote in tx.votes(question.row))


def standing(tx: Tx, question: Question, means: Means) -> tuple[Tally, ...]:
    """What the votes come to now; nothing while the room is not known."""
    world, votes = means.world, tx.votes(question.row)
    room = world.room(question.asked.room_id)
    return () if room is None else tallies(world.policy, room, question, votes, vouches=world.vouches)
