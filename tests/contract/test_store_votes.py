"""Votes as the store keeps them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import EventId, OptionId, Row, UserId
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import OPEN, Vote
from agentpod_bot.core.room import Device
from tests.unit.store.examples import (
    BOT,
    MINUTE,
    OWNER,
    ROOM,
    T0,
    effect,
    insert_closed,
    insert_pending,
    migrated_engine,
    question,
    read,
    selected,
    undone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from agentpod_bot.ports import Tx

SECOND = UserId("@second:example.org")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("votes"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def vote(sender: UserId = OWNER, option: str = "always", event: str = "$vote", at_ms: int = T0) -> Vote:
    return Vote(
        sender=sender, option_id=OptionId(option), room_id=ROOM, event_id=EventId(event), ts=at_ms - 1, at_ms=at_ms
    )


def test_each_person_has_one_vote_the_latest_and_in_its_turn(tx: Tx) -> None:
    row = insert_pending(tx).row
    assert tx.votes(row) == ()
    tx.vote(row, vote(event="$1"))
    tx.vote(row, vote(SECOND, event="$2"))
    assert tx.votes(row) == (vote(event="$1"), vote(SECOND, event="$2"))
    tx.vote(row, vote(option="wider", event="$3"))
    assert tx.votes(row) == (vote(SECOND, event="$2"), vote(option="wider", event="$3"))


def test_what_vouches_for_a_vote_is_kept_with_it(tx: Tx) -> None:
    row = insert_pending(tx).row
    vouched = replace(vote(event="$1"), device=Device(OWNER, "PHONE", "key"))
    tx.vote(row, vouched)
    assert tx.votes(row) == (vouched,)
    assert tx.voted(EventId("$1")) == (row, vouched)
    tx.vote(row, vote(event="$2"))
    assert tx.votes(row) == (vote(event="$2"),)


def test_a_vote_is_for_one_revision_only(tx: Tx) -> None:
    first = insert_pending(tx)
    tx.vote(first.row, vote())
    second = tx.insert(question(revision=2))
    assert tx.votes(second.row) == ()


def test_only_the_event_of_the_latest_vote_is_a_vote(tx: Tx) -> None:
    row = insert_pending(tx).row
    tx.vote(row, vote(event="$1"))
    assert tx.voted(EventId("$1")) == (row, vote(event="$1"))
    tx.vote(row, vote(event="$2"))
    assert tx.voted(EventId("$1")) is None
    assert tx.voted(EventId("$2")) == (row, vote(event="$2"))


def test_a_withdrawn_vote_is_gone_and_no_other(tx: Tx) -> None:
    row = insert_pending(tx).row
    tx.vote(row, vote())
    tx.vote(row, vote(SECOND, event="$2"))
    tx.withdraw(row, OWNER)
    tx.withdraw(row, BOT)
    assert tx.votes(row) == (vote(SECOND, event="$2"),)


def test_there_are_no_votes_for_a_question_that_is_none(tx: Tx) -> None:
    with pytest.raises(ValueError, match="constraint"):
        tx.vote(Row(404), vote())


def test_votes_are_forgotten_with_their_question(tx: Tx) -> None:
    row = insert_closed(tx).row
    tx.vote(row, vote())
    assert tx.prune(T0 + 60 * MINUTE) == 1
    assert tx.votes(row) == ()
    assert tx.voted(EventId("$vote")) is None


def test_who_asked_and_who_voted_come_back_as_they_were(tx: Tx) -> None:
    stored = insert_pending(tx, requester=SECOND)
    assert stored.asked.requester == SECOND
    closing = selected(voters=(SECOND, OWNER))
    assert tx.close(stored.row, closing, from_status=OPEN, revision=1, now_ms=T0 + MINUTE)
    assert read(tx, stored).closing == closing


def test_the_content_of_an_effect_is_kept_after_it_was_sent(tx: Tx) -> None:
    row = insert_pending(tx).row
    tx.enqueue(effect("question", row=row, content={"body": "asked"}, priority=Priority.QUESTION))
    begun = tx.begin(question().room_id, T0)
    assert begun is not None
    tx.sent(begun.effect_id, EventId("$q"), T0)
    assert tx.content_of(row, ROOM, "question") == {"body": "asked"}
    tx.enqueue(effect("votes:1", row=row, content=None, priority=Priority.PROGRESS))
    assert tx.content_of(row, ROOM, "votes:1") is None
    assert tx.content_of(row, ROOM, "none") is None


def test_an_edit_that_shows_votes_is_not_one_that_shows_an_end(tx: Tx) -> None:
    row = insert_pending(tx).row
    tx.enqueue(effect("votes:1", row=row, content=None, priority=Priority.PROGRESS))
    assert not tx.has_edit_to_render(row, ROOM)
    assert tx.has_edit_to_render(row, ROOM, Priority.PROGRESS)
