"""Upgraded rooms as the store keeps them, and what a room has of a question that left it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import EventId, RoomId, RouteName, Row, UserId
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import OPEN, Attachment, Copy, Outcome, Status
from agentpod_bot.core.upgrades import Successor, Tombstone
from tests.unit.store.examples import (
    MINUTE,
    OFFERED,
    OTHER_ROOM,
    OWNER,
    ROOM,
    T0,
    effect,
    ended,
    insert_pending,
    migrated_engine,
    question,
    selected,
    undone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Tx

OPS, LEADS = RouteName("ops"), RouteName("leads")
NEW, NEWER = RoomId("!new"), RoomId("!newer")
NOW = T0 + 10 * MINUTE


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("successors"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def now(tx: Tx, row: Row) -> Question:
    stored = tx.question(row)
    assert stored is not None
    return stored


def shown(tx: Tx, number: int = 1) -> Question:
    stored = insert_pending(tx, number)
    tx.show(stored.row, EventId(f"$q{number}"), T0 + number)
    return now(tx, stored.row)


def test_a_replaced_room_is_remembered_for_good(tx: Tx) -> None:
    assert not tx.is_replaced(ROOM)
    tx.mark_replaced(ROOM, Tombstone(None, encrypted=None))
    tx.mark_replaced(ROOM, Tombstone(None, encrypted=None))
    tx.prune(T0 * 2)
    assert (tx.is_replaced(ROOM), tx.is_replaced(OTHER_ROOM)) == (True, False)


@pytest.mark.parametrize("sender", [OWNER, None])
@pytest.mark.parametrize("encrypted", [True, False, None])
def test_what_a_tombstone_said_is_remembered(tx: Tx, sender: UserId | None, *, encrypted: bool | None) -> None:
    assert tx.tombstone(ROOM) is None
    said = Tombstone(Successor(NEW, sender), encrypted=encrypted)
    tx.mark_replaced(ROOM, said)
    tx.prune(T0 * 2)
    assert (tx.tombstone(ROOM), tx.tombstone(OTHER_ROOM)) == (said, None)


def test_the_latest_tombstone_says_which_room_is_next_and_unsays_nothing_of_the_old_one(tx: Tx) -> None:
    tx.mark_replaced(ROOM, Tombstone(Successor(NEW, OWNER), encrypted=False))
    tx.mark_replaced(ROOM, Tombstone(Successor(NEWER, None), encrypted=None))
    assert tx.tombstone(ROOM) == Tombstone(Successor(NEWER, None), encrypted=False)
    tx.mark_replaced(ROOM, Tombstone(None, encrypted=True))
    assert tx.tombstone(ROOM) == Tombstone(None, encrypted=True)


def test_of_two_moves_out_of_one_room_the_first_counts_and_each_route_goes_its_own_way(tx: Tx) -> None:
    tx.keep_move(OPS, ROOM, NEW, T0)
    tx.keep_move(OPS, ROOM, NEWER, T0 + 1)
    tx.keep_move(LEADS, ROOM, NEWER, T0 + 1)
    tx.prune(T0 * 2)
    assert tx.moves() == {(OPS, ROOM): NEW, (LEADS, ROOM): NEWER}


def test_no_room_is_its_own_successor(tx: Tx) -> None:
    with pytest.raises(ValueError, match="cannot hold"):
        tx.keep_move(OPS, ROOM, ROOM, T0)


def test_a_question_that_moves_is_the_same_and_nobody_can_decide_it_before_it_is_shown_there(tx: Tx) -> None:
    before = shown(tx)
    tx.leave(before, NEW, Attachment.WANTED, NOW)
    after = now(tx, before.row)
    assert (after.key, after.asked.code, after.asked.digest) == (before.key, before.asked.code, before.asked.digest)
    assert (after.asked.room_id, after.status, after.event_id, after.shown_ts) == (NEW, Status.QUEUED, None, None)
    assert (after.asked.attachment, after.asked.file) == (Attachment.WANTED, None)
    answer = selected()
    assert not tx.close(before.row, answer, from_status=OPEN, revision=1, now_ms=NOW)
    assert tx.post(before.row, EventId("$new"))
    assert tx.close(before.row, answer, from_status=OPEN, revision=1, now_ms=NOW)


def test_a_closed_question_does_not_move(tx: Tx) -> None:
    before = shown(tx)
    tx.close(before.row, ended(Outcome.CANCELLED), from_status=OPEN, revision=1, now_ms=NOW)
    tx.leave(before, NEW, Attachment.NONE, NOW)
    assert now(tx, before.row).asked.room_id == ROOM


def test_the_room_that_was_left_has_it_as_closed_and_the_new_one_as_open(tx: Tx) -> None:
    before = shown(tx)
    tx.leave(before, NEW, Attachment.NONE, NOW)
    assert [each.row for each in tx.open_questions(room_id=NEW)] == [before.row]
    assert tx.open_questions(room_id=ROOM) == ()
    [left] = tx.left_in(ROOM, since_ms=NOW)
    assert (left.asked.room_id, left.event_id, left.shown_ts, left.left_at_ms) == (ROOM, "$q1", T0 + 1, NOW)
    assert (left.is_open, left.whole) == (False, now(tx, before.row))
    assert tx.left_by_event(EventId("$q1")) == tx.left_at(before.row, ROOM) == left
    assert tx.by_event(EventId("$q1")) is None
    assert (tx.left_in(NEW, since_ms=NOW), tx.left_at(before.row, NEW)) == ((), None)
    assert tx.asked_in(since_ms=NOW) == {ROOM, NEW}
    assert (tx.has_left(before.row), tx.has_left(shown(tx, 2).row)) == (True, False)


def test_what_closed_long_ago_is_no_longer_among_what_left_and_goes_with_its_question(tx: Tx) -> None:
    before = shown(tx)
    tx.leave(before, NEW, Attachment.NONE, NOW)
    tx.close(before.row, ended(Outcome.CANCELLED, at_ms=NOW), from_status=OPEN, revision=1, now_ms=NOW)
    assert len(tx.left_in(ROOM, since_ms=NOW)) == 1
    assert tx.left_in(ROOM, since_ms=NOW + 1) == ()
    tx.prune(NOW + 1)
    assert tx.left_by_event(EventId("$q1")) is None


def test_in_the_room_that_was_left_only_hints_go_on_being_said(tx: Tx) -> None:
    before = shown(tx)
    for priority in Priority:
        tx.enqueue(effect(f"e{priority.value}", row=before.row, priority=priority))
        tx.enqueue(effect(f"e{priority.value}", row=before.row, priority=priority, room_id=OTHER_ROOM))
    tx.leave(before, NEW, Attachment.NONE, NOW)
    unsent = {
        room_id: [each for each in Priority if tx.unsent(before.row, room_id, f"e{each.value}") is not None]
        for room_id in (ROOM, OTHER_ROOM)
    }
    assert unsent == {ROOM: [Priority.HINT], OTHER_ROOM: list(Priority)}


def test_an_event_that_reached_the_room_late_is_known_as_the_one_that_left(tx: Tx) -> None:
    queued = tx.insert(question())
    tx.leave(queued, NEW, Attachment.NONE, NOW)
    tx.post_left(queued.row, ROOM, EventId("$late"), None)
    tx.post_left(queued.row, ROOM, EventId("$other"), T0 + 5)
    left = tx.left_by_event(EventId("$late"))
    assert left is not None
    assert (left.shown_ts, now(tx, queued.row).event_id) == (T0 + 5, None)
    assert tx.left_by_event(EventId("$other")) is None


def test_a_copy_moves_by_itself(tx: Tx) -> None:
    before = shown(tx)
    tx.add_copy(before.row, Copy(route=LEADS, room_id=OTHER_ROOM, asked_at_ms=T0, offered=OFFERED))
    tx.post_copy(before.row, EventId("$copy"))
    [place] = tx.open_questions(room_id=OTHER_ROOM)
    tx.leave(place, NEW, Attachment.NONE, NOW)
    after = now(tx, before.row)
    assert after.copy is not None
    assert (after.copy.room_id, after.copy.event_id) == (NEW, None)
    assert (after.asked.room_id, after.status, after.event_id) == (ROOM, Status.PENDING, before.event_id)
    left = tx.left_by_event(EventId("$copy"))
    assert left is not None
    assert (left.asked.route, left.asked.room_id) == (LEADS, OTHER_ROOM)


def test_rooms_with_open_questions_of_a_route_that_lives_elsewhere_are_found(tx: Tx) -> None:
    stays, gone = shown(tx), shown(tx, 2)
    tx.close(gone.row, ended(Outcome.CANCELLED), from_status=OPEN, revision=1, now_ms=NOW)
    tx.add_copy(stays.row, Copy(route=LEADS, room_id=OTHER_ROOM, asked_at_ms=T0, offered=OFFERED))
    assert tx.stray_rooms(OPS, NEW, NOW) == {ROOM}
    assert tx.stray_rooms(OPS, ROOM, NOW) == frozenset()
    assert tx.stray_rooms(LEADS, NEW, NOW) == {OTHER_ROOM}
    assert tx.stray_rooms(OPS, NEW, stays.asked.expires_at_ms) == frozenset()
    tx.withdraw_copy(stays.row, NOW)
    assert tx.stray_rooms(LEADS, NEW, NOW) == frozenset()
