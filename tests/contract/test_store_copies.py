"""Copies of questions as the store keeps them, and what a room has of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import Code, EventId, RouteName, Row
from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import OPEN, Attachment, Copy, Status
from tests.unit.store.examples import (
    MINUTE,
    OFFERED,
    OTHER_ROOM,
    ROOM,
    T0,
    effect,
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

COPY = Copy(
    route=RouteName("leads"),
    room_id=OTHER_ROOM,
    asked_at_ms=T0 + 5 * MINUTE,
    offered=OFFERED,
    masked=False,
    attachment=Attachment.UPLOADED,
    file={"url": "mxc://hs/1"},
)
THERE = EventId("$there")
NOW = T0 + 10 * MINUTE


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("copies"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def now(tx: Tx, row: Row) -> Question:
    """A question as it is stored."""
    found = tx.question(row)
    assert found is not None
    return found


@pytest.fixture
def copied(tx: Tx) -> Question:
    """A pending question that is asked in the other room too."""
    stored = insert_pending(tx)
    assert tx.add_copy(stored.row, COPY)
    return now(tx, stored.row)


def test_a_question_comes_with_its_copy_and_has_one_at_most(tx: Tx) -> None:
    row = insert_pending(tx).row
    assert now(tx, row).copy is None
    assert tx.add_copy(row, COPY)
    assert not tx.add_copy(row, replace(COPY, room_id=ROOM))
    assert now(tx, row).copy == COPY
    with pytest.raises(ValueError, match="constraint"):
        tx.add_copy(Row(row + 1), COPY)


def test_what_its_room_shows_of_a_copy_is_kept_once(tx: Tx, copied: Question) -> None:
    row = copied.row
    assert tx.post_copy(row, THERE)
    assert not tx.post_copy(row, EventId("$second"))
    tx.show_copy(row, EventId("$third"), 1)
    tx.show_copy(row, THERE, 2)
    tx.show_copy_closed(row, 3)
    tx.show_copy_closed(row, 4)
    tx.attach_copy(row, Attachment.SHOWN)
    assert tx.withdraw_copy(row, 5)
    assert not tx.withdraw_copy(row, 6)
    kept = now(tx, row).copy
    assert kept == replace(
        COPY, event_id=THERE, shown_ts=1, shown_closed_ts=3, withdrawn_at_ms=5, attachment=Attachment.SHOWN
    )


def test_a_copy_that_the_timeline_shows_first_gets_its_id_from_there(tx: Tx, copied: Question) -> None:
    tx.show_copy(copied.row, THERE, 1)
    tx.attach_copy(copied.row, Attachment.UPLOADED, file={"url": "mxc://hs/2"})
    kept = now(tx, copied.row).copy
    assert kept is not None
    assert (kept.event_id, kept.shown_ts, kept.file) == (THERE, 1, {"url": "mxc://hs/2"})


def test_each_room_has_the_question_with_its_own_place(tx: Tx, copied: Question) -> None:
    tx.post_copy(copied.row, THERE)
    [here], [there] = tx.open_questions(room_id=ROOM), tx.open_questions(room_id=OTHER_ROOM)
    assert (here.asked.room_id, here.event_id, here.original) == (ROOM, copied.event_id, None)
    assert (there.asked.room_id, there.asked.route, there.event_id) == (OTHER_ROOM, "leads", THERE)
    assert there.whole == here
    assert there.status is Status.PENDING
    assert len(tx.open_questions()) == len(tx.open_questions(client=copied.key.client)) == 1
    assert tx.open_questions(route=RouteName("leads")) == ()


def test_a_copy_that_is_not_in_its_room_yet_is_queued_there(tx: Tx, copied: Question) -> None:
    [there] = tx.open_questions(room_id=OTHER_ROOM)
    assert (there.status, now(tx, copied.row).status) == (Status.QUEUED, Status.PENDING)


def test_an_event_is_the_question_or_its_copy(tx: Tx, copied: Question) -> None:
    tx.post_copy(copied.row, THERE)
    assert copied.event_id is not None
    here, there = tx.by_event(copied.event_id), tx.by_event(THERE)
    assert here is not None
    assert there is not None
    assert (here.asked.room_id, there.asked.room_id) == (ROOM, OTHER_ROOM)
    assert tx.by_event(EventId("$none")) is None


def test_a_code_is_taken_in_both_rooms(tx: Tx, copied: Question) -> None:
    code = copied.asked.code
    assert code in tx.codes(OTHER_ROOM, since_ms=NOW)
    [there] = tx.by_code(OTHER_ROOM, code)
    assert there.original is not None
    assert tx.by_code(OTHER_ROOM, Code("X9")) == ()
    assert tx.close(copied.row, selected(NOW), from_status=OPEN, revision=1, now_ms=NOW)
    assert code in tx.codes(OTHER_ROOM, since_ms=NOW)
    assert code not in tx.codes(OTHER_ROOM, since_ms=NOW + 1)


def test_a_copy_closes_with_its_question_and_is_shown_closed_by_its_own_edit(tx: Tx, copied: Question) -> None:
    tx.post_copy(copied.row, THERE)
    assert tx.closed_questions(OTHER_ROOM, since_ms=T0) == ()
    assert tx.close(copied.row, selected(NOW), from_status=OPEN, revision=1, now_ms=NOW)
    assert tx.open_questions(room_id=OTHER_ROOM) == ()
    ends_ms = copied.asked.expires_at_ms
    for room_id in (ROOM, OTHER_ROOM):
        assert [each.row for each in tx.closed_questions(room_id, since_ms=NOW)] == [copied.row]
        assert [each.row for each in tx.closed_questions(room_id, since_ms=ends_ms)] == [copied.row]  # not shown yet
    tx.show_copy_closed(copied.row, NOW + 5)
    assert [each.row for each in tx.closed_questions(OTHER_ROOM, since_ms=NOW + 5)] == [copied.row]
    assert tx.closed_questions(OTHER_ROOM, since_ms=NOW + 6) == ()
    assert [each.row for each in tx.closed_questions(ROOM, since_ms=NOW + 6)] == [copied.row]


def test_a_withdrawn_copy_is_open_in_its_room_no_more(tx: Tx, copied: Question) -> None:
    tx.post_copy(copied.row, THERE)
    tx.show_copy_closed(copied.row, NOW)
    tx.withdraw_copy(copied.row, NOW)
    assert tx.open_questions(room_id=OTHER_ROOM) == ()
    assert len(tx.open_questions(room_id=ROOM)) == 1
    [there] = tx.closed_questions(OTHER_ROOM, since_ms=NOW)
    assert there.status is Status.UNDELIVERABLE
    assert tx.closed_questions(ROOM, since_ms=T0) == ()


def test_effects_of_one_name_stand_in_each_room_by_themselves(tx: Tx, copied: Question) -> None:
    row = copied.row
    for room_id in (ROOM, OTHER_ROOM):
        for name in ("question", "outcome"):
            assert tx.enqueue(effect(name, row=row, room_id=room_id, content={"in": room_id}))
            assert not tx.enqueue(effect(name, row=row, room_id=room_id, txn=f"again-{name}-{room_id}"))
        assert tx.content_of(row, room_id, "question") == {"in": room_id}
    begun = tx.begin(ROOM, NOW)
    assert begun is not None
    tx.sent(begun.effect_id, EventId("$q"), NOW)
    there = tx.begin(OTHER_ROOM, NOW)
    assert there is not None
    assert there.effect == "question"  # what was sent in the one room sets nothing free in the other
    assert tx.drop_all_unsent(row, OTHER_ROOM, ("outcome",)) == {"outcome"}
    assert tx.unsent(row, ROOM, "outcome") is not None
    tx.enqueue(effect("progress:1", row=row, content=None, priority=Priority.PROGRESS))
    assert tx.has_edit_to_render(row, ROOM, Priority.PROGRESS)
    assert not tx.has_edit_to_render(row, OTHER_ROOM, Priority.PROGRESS)


def test_an_event_says_something_about_its_question_in_its_own_room_only(tx: Tx, copied: Question) -> None:
    tx.enqueue(effect("reminder", row=copied.row, room_id=OTHER_ROOM))
    begun = tx.begin(OTHER_ROOM, NOW)
    assert begun is not None
    tx.sent(begun.effect_id, EventId("$reminder"), NOW)
    assert tx.about(EventId("$reminder"), OTHER_ROOM) == (copied.row,)
    assert tx.about(EventId("$reminder"), ROOM) is None
    assert copied.event_id is not None
    assert tx.about(copied.event_id, OTHER_ROOM) is None


def test_a_copy_that_was_dropped_may_be_made_anew_with_all_its_effects(tx: Tx, copied: Question) -> None:
    row = copied.row
    tx.enqueue(effect("upload", row=row, room_id=OTHER_ROOM))
    tx.enqueue(effect("upload", row=row))
    tx.drop_copy(row)
    assert now(tx, row).copy is None
    assert tx.unsent(row, ROOM, "upload") is not None
    assert tx.add_copy(row, COPY)
    assert tx.enqueue(effect("upload", row=row, room_id=OTHER_ROOM, txn="new"))
    tx.post_copy(row, THERE)
    tx.drop_copy(row)  # the room knows of it
    assert now(tx, row).copy is not None


def test_a_copy_goes_with_its_question(tx: Tx, copied: Question) -> None:
    tx.close(copied.row, selected(NOW), from_status=OPEN, revision=1, now_ms=NOW)
    assert tx.prune(NOW + 1) == 1
    assert tx.by_event(THERE) is None
    assert tx.insert(question(2)).copy is None


def test_somebody_may_still_answer_in_the_room_of_a_copy(tx: Tx) -> None:
    stored = insert_pending(tx)
    tx.add_copy(stored.row, COPY)
    assert tx.asked_in(since_ms=NOW) == {ROOM, OTHER_ROOM}
