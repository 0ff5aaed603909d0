"""Options that need several people: how many, whose votes count, and what they come to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentpod_bot.core.labels import guarded_scope
from agentpod_bot.core.model import Scope
from agentpod_bot.core.trust import is_counted
from agentpod_bot.errors import ApproverNotInRoom

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentpod_bot.core.ids import UserId
    from agentpod_bot.core.model import NewQuestion, Offered, Question, Vote
    from agentpod_bot.core.policy import Policy, Route
    from agentpod_bot.core.room import Device, RoomState


@dataclass(frozen=True, slots=True)
class Tally:
    """The people who are for one option now, in the order of their votes, and how many it takes."""

    option: Offered
    voters: tuple[UserId, ...]
    needed: int


def votes_needed(policy: Policy, question: Question, offered: Offered) -> int:
    """How many approvers it takes to choose an option: the route's quorum where it approves with scope always.

    In the room of a copy it is the larger one of both routes.
    """
    route = policy.routes.get(question.asked.route)
    return 1 if route is None else _needed(policy.on_behalf(route, question), question.asked, offered)


def voters_for(
    policy: Policy,
    room: RoomState,
    question: Question,
    votes: Sequence[Vote],
    offered: Offered,
    *,
    vouches: Callable[[Device], bool],
) -> tuple[UserId, ...]:
    """Those whose vote for this option counts now, in the order of their votes.

    Whoever left the room or may approve no longer does not count, whatever was so when they voted;
    nor does a vote that came in a way in which none counts any more, or whose device `vouches` no longer.
    Where a question has a copy, each room decides by its own rules and the votes given there.
    """
    return tuple(
        vote.sender
        for vote in votes
        if vote.option_id == offered.option.option_id
        and vote.room_id == question.asked.room_id
        and policy.may_approve(vote.sender, question, room)
        and is_counted(vote, policy, room, vouches)
    )


def tallies(
    policy: Policy, room: RoomState, question: Question, votes: Sequence[Vote], *, vouches: Callable[[Device], bool]
) -> tuple[Tally, ...]:
    """What the votes for a question come to now; options that nobody is for are left out."""
    counted = (
        Tally(
            offered,
            voters_for(policy, room, question, votes, offered, vouches=vouches),
            votes_needed(policy, question, offered),
        )
        for offered in question.asked.offered
    )
    return tuple(tally for tally in counted if tally.voters)


def check_decidable(policy: Policy, route: Route, room: RoomState, asked: NewQuestion) -> None:
    """Raise `ApproverNotInRoom` where an option is offered that not enough people could choose now.

    The strict reading of "fewer approvers joined than a decision needs": each approving
    option that is offered must be in reach, not only one of them.
    """
    there = len(policy.who_approve(route, room, requester=asked.requester))
    for offered in asked.offered:
        if guarded_scope(offered.option, asked.options) is not None and there < _needed(route, asked, offered):
            raise ApproverNotInRoom(
                f"fewer approvers of route {route.name} are in its room than an option of this request needs",
                retry_after_s=60,
            )


def _needed(route: Route, asked: NewQuestion, offered: Offered) -> int:
    return route.quorum if guarded_scope(offered.option, asked.options) is Scope.ALWAYS else 1
