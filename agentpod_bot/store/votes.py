"""Votes for options that need several people. What they come to is judged by `core.votes`, at the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, insert, select

from agentpod_bot.core.ids import Row
from agentpod_bot.core.model import Vote
from agentpod_bot.core.room import Device
from agentpod_bot.store.tables import votes
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from sqlalchemy import Row as Record

    from agentpod_bot.core.ids import EventId, UserId

_v = votes.c
_OF_QUESTION = _v.question_row == bindparam("row")

_COLUMNS = (_v.sender, _v.option_id, _v.room_id, _v.event_id, _v.ts, _v.at_ms, _v.device_id, _v.ed25519)
_VOTES = select(*_COLUMNS).where(_OF_QUESTION).order_by(_v.seq)
_VOTED = select(_v.question_row, *_COLUMNS).where(_v.event_id == bindparam("of_event")).limit(1)
_VOTE = insert(votes)
_WITHDRAW = delete(votes).where(_OF_QUESTION, _v.sender == bindparam("by"))


class Votes(Transaction):
    """The part of a transaction that is about votes; promises stand in `ports.Tx`."""

    def vote(self, row: Row, vote: Vote) -> None:
        """Keep a person's vote, in place of an earlier one of theirs. Raises ValueError where the row is none."""
        self.withdraw(row, vote.sender)
        self._change(
            _VOTE,
            {
                "question_row": row,
                "sender": vote.sender,
                "option_id": vote.option_id,
                "room_id": vote.room_id,
                "event_id": vote.event_id,
                "ts": vote.ts,
                "at_ms": vote.at_ms,
                "device_id": None if vote.device is None else vote.device.device_id,
                "ed25519": None if vote.device is None else vote.device.ed25519,
            },
        )

    def votes(self, row: Row) -> tuple[Vote, ...]:
        """Everybody's latest vote for a question, in the order in which they came."""
        return tuple(_vote_of(*record) for record in self._rows(_VOTES, {"row": row}))

    def voted(self, event_id: EventId) -> tuple[Row, Vote] | None:
        """The question and the vote that this event gave, while it is that person's latest."""
        record: Record[*tuple[Any, ...]] | None = self._first(_VOTED, {"of_event": event_id})
        return None if record is None else (Row(record[0]), _vote_of(*record[1:]))

    def withdraw(self, row: Row, sender: UserId) -> None:
        """Forget a person's vote for a question."""
        self._change(_WITHDRAW, {"row": row, "by": sender})


def _vote_of(  # noqa: PLR0917 - one argument for each column of a vote, in their order
    sender: Any,
    option_id: Any,
    room_id: Any,
    event_id: Any,
    ts: int,
    at_ms: int,
    device_id: str | None,
    ed25519: str | None,
) -> Vote:
    return Vote(
        sender=sender,
        option_id=option_id,
        room_id=room_id,
        event_id=event_id,
        ts=ts,
        at_ms=at_ms,
        device=None if device_id is None or ed25519 is None else Device(sender, device_id, ed25519),
    )
