from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import EventId, RoomId, Row, TxnId
from agentpod_bot.core.kept import Effect, Priority
from tests.unit.store.examples import (
    OTHER_ROOM,
    ROOM,
    T0,
    effect,
    insert_pending,
    migrated_engine,
    question,
    undone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from agentpod_bot.ports import Tx

NOW = T0 + 1_000
SENT = EventId("$sent")


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("outbox"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def begin(tx: Tx, room_id: RoomId = ROOM, now_ms: int = NOW) -> Effect:
    begun = tx.begin(room_id, now_ms)
    assert begun is not None
    return begun


def test_an_effect_comes_back_exactly_as_it_was_written(tx: Tx) -> None:
    row = tx.insert(question()).row
    content = {"body": "a\x00\ud800", "m.mentions": {"user_ids": []}, "n": 2**53 - 1}
    assert tx.enqueue(effect("question", row=row, content=content, priority=Priority.QUESTION, txn="t1"))
    begun = begin(tx)
    assert begun == Effect(
        effect_id=begun.effect_id,
        row=row,
        room_id=ROOM,
        effect="question",
        priority=Priority.QUESTION,
        event_type="m.room.message",
        content=content,
        txn_id=TxnId("t1"),
        not_before_ms=T0,
        attempts=1,
    )


def test_an_effect_of_a_question_exists_once_also_after_it_was_sent_or_given_up(tx: Tx) -> None:
    row = tx.insert(question(1)).row
    other = tx.insert(question(2)).row
    assert tx.enqueue(effect("outcome", row=row))
    assert not tx.enqueue(effect("outcome", row=row, txn="t2"))
    tx.sent(begin(tx).effect_id, SENT, NOW)
    assert not tx.enqueue(effect("outcome", row=row, txn="t3"))
    assert tx.enqueue(effect("hint", row=row))
    tx.abandon(begin(tx).effect_id, "not wanted")
    assert not tx.enqueue(effect("hint", row=row, txn="t4"))
    assert tx.enqueue(effect("outcome", row=other))
    assert tx.enqueue(effect("outcome"))


def test_an_effect_without_a_question_exists_once_in_its_room(tx: Tx) -> None:
    assert tx.enqueue(effect("which:@u"))
    assert not tx.enqueue(effect("which:@u", txn="t2"))
    assert tx.enqueue(effect("which:@U"))
    assert tx.enqueue(effect("which:@u", room_id=OTHER_ROOM))


@pytest.mark.parametrize("row", [None, Row(404)])
def test_a_second_use_of_a_transaction_id_or_a_question_that_is_none_is_an_error(tx: Tx, row: Row | None) -> None:
    """Silence here would be an effect that is never sent."""
    assert tx.enqueue(effect("a", txn="same"))
    with pytest.raises(ValueError, match="constraint"):
        tx.enqueue(effect("b", row=row, txn="same" if row is None else "new"))


def test_uploads_go_first_then_questions_files_edits_progress_reminders_hints_and_seeds_oldest_first(tx: Tx) -> None:
    wanted = ["u1", "u2", "q1", "q2", "f1", "f2", "e1", "e2", "p1", "p2", "r1", "r2", "h1", "h2", "s1", "s2"]
    priorities = dict(zip("uqfeprhs", Priority, strict=True))
    for name in ["s1", "h1", "r1", "p1", "u1", "e1", "f1", "q1", "p2", "e2", "q2", "s2", "f2", "h2", "r2", "u2"]:
        tx.enqueue(effect(name, priority=priorities[name[0]]))
    said = []
    while begun := tx.begin(ROOM, NOW):
        said.append(begun.effect)
        tx.sent(begun.effect_id, EventId(f"${begun.effect}"), NOW)
    assert said == wanted


def test_a_question_waits_for_its_upload_and_everything_else_for_the_question(tx: Tx) -> None:
    row = tx.insert(question(1)).row
    for name, priority in (("outcome", Priority.EDIT), ("question", Priority.QUESTION), ("upload", Priority.UPLOAD)):
        tx.enqueue(effect(name, row=row, priority=priority))
    upload = begin(tx)
    assert upload.effect == "upload"
    tx.postpone(upload.effect_id, NOW + 5)
    assert tx.begin(ROOM, NOW) is None
    assert tx.rooms_due() == {ROOM: NOW + 5}
    tx.abandon(upload.effect_id, "uploaded")
    posted = begin(tx)
    assert posted.effect == "question"
    assert tx.unsent(row, ROOM, "question") == posted
    tx.sent(posted.effect_id, EventId("$posted"), NOW)
    assert tx.unsent(row, ROOM, "question") is None
    assert begin(tx).effect == "outcome"


def test_tries_are_counted_and_the_same_effect_is_tried_until_it_is_sent(tx: Tx) -> None:
    tx.enqueue(effect("hint"))
    tries = [begin(tx) for _ in range(3)]
    assert [tried.attempts for tried in tries] == [1, 2, 3]
    assert {tried.txn_id for tried in tries} == {tries[0].txn_id}


def test_another_room_and_an_effect_whose_time_has_not_come_are_passed_over(tx: Tx) -> None:
    tx.enqueue(effect("elsewhere", room_id=OTHER_ROOM))
    tx.enqueue(effect("later", priority=Priority.QUESTION, not_before_ms=NOW + 1))
    assert tx.begin(ROOM, NOW) is None
    tx.enqueue(effect("now", priority=Priority.SEED, not_before_ms=NOW))
    assert begin(tx).effect == "now"
    assert begin(tx, now_ms=NOW + 1).effect == "later"


def test_nothing_of_a_question_goes_before_the_question_itself(tx: Tx) -> None:
    row = tx.insert(question(1)).row
    other = tx.insert(question(2)).row
    tx.enqueue(effect("question", row=row, priority=Priority.QUESTION, not_before_ms=NOW + 60_000))
    tx.enqueue(effect("outcome", row=row, priority=Priority.EDIT))
    assert tx.begin(ROOM, NOW) is None
    tx.enqueue(effect("outcome", row=other, priority=Priority.EDIT))
    tx.enqueue(effect("which", priority=Priority.HINT))
    for expected in ("outcome", "which"):
        begun = begin(tx)
        assert (begun.effect, begun.row in {other, None}) == (expected, True)
        tx.sent(begun.effect_id, EventId(f"${expected}"), NOW)
    posted = begin(tx, now_ms=NOW + 60_000)
    assert posted.effect == "question"
    tx.sent(posted.effect_id, SENT, NOW)
    assert begin(tx).row == row


def test_where_the_question_was_given_up_the_rest_goes_on(tx: Tx) -> None:
    row = tx.insert(question()).row
    tx.enqueue(effect("question", row=row, priority=Priority.QUESTION))
    tx.enqueue(effect("outcome", row=row, priority=Priority.EDIT))
    tx.abandon(begin(tx).effect_id, "M_FORBIDDEN")
    assert begin(tx).effect == "outcome"


def test_only_an_effect_that_was_never_tried_can_be_dropped(tx: Tx) -> None:
    row = tx.insert(question()).row
    assert not tx.drop_unsent(row, ROOM, "question")
    tx.enqueue(effect("question", row=row))
    assert tx.drop_unsent(row, ROOM, "question")
    assert tx.begin(ROOM, NOW) is None
    assert tx.enqueue(effect("question", row=row))
    begin(tx)
    assert not tx.drop_unsent(row, ROOM, "question")
    assert begin(tx).attempts == 2


def test_an_effect_that_was_given_up_untried_is_not_dropped(tx: Tx) -> None:
    row = tx.insert(question()).row
    tx.enqueue(effect("hint", row=row))
    effect_id = begin(tx).effect_id
    tx.abandon(effect_id, "not wanted")
    assert not tx.drop_unsent(row, ROOM, "hint")


def test_an_edit_is_still_to_be_rendered_until_it_has_content_or_was_given_up(tx: Tx) -> None:
    row = tx.insert(question(1)).row
    other = tx.insert(question(2)).row
    tx.enqueue(effect("hint", row=row, content=None, priority=Priority.SEED))
    tx.enqueue(effect("full", row=row, priority=Priority.EDIT, not_before_ms=NOW + 1))
    assert not tx.has_edit_to_render(row, ROOM)
    for name in ("outcome", "again"):
        tx.enqueue(effect(name, row=row, content=None, priority=Priority.EDIT))
        assert tx.has_edit_to_render(row, ROOM)
        assert not tx.has_edit_to_render(other, ROOM)
        begun = begin(tx)
        assert (begun.effect, tx.has_edit_to_render(row, ROOM)) == (name, True)
        if name == "outcome":
            tx.fill(begun.effect_id, {"body": "Allowed once"})
            assert not tx.has_edit_to_render(row, ROOM)
            tx.sent(begun.effect_id, SENT, NOW)
        else:
            tx.abandon(begun.effect_id, "not wanted")
        assert not tx.has_edit_to_render(row, ROOM)


def test_content_that_is_rendered_late_is_kept_for_every_try(tx: Tx) -> None:
    tx.enqueue(effect("outcome", content=None))
    begun = begin(tx)
    assert begun.content is None
    tx.fill(begun.effect_id, {"body": "Allowed once"})
    assert begin(tx).content == {"body": "Allowed once"}


def test_the_content_of_what_was_sent_does_not_change(tx: Tx) -> None:
    tx.enqueue(effect("hint"))
    begun = begin(tx)
    tx.sent(begun.effect_id, SENT, NOW)
    tx.fill(begun.effect_id, {"body": "other"})
    kept = tx._connection.exec_driver_sql("SELECT content FROM outbox").scalar_one()  # type: ignore[attr-defined]  # looks at the table
    assert kept == '{"body":"hint"}'


def test_what_is_postponed_is_not_tried_before_then(tx: Tx) -> None:
    tx.enqueue(effect("hint"))
    tx.postpone(begin(tx).effect_id, NOW + 500)
    assert tx.begin(ROOM, NOW + 499) is None
    assert begin(tx, now_ms=NOW + 500).attempts == 2


def test_a_try_that_does_not_count_is_taken_back(tx: Tx) -> None:
    tx.enqueue(effect("question"))
    tried = begin(tx)
    tx.postpone(tried.effect_id, NOW + 500, counted=False)
    assert tx.begin(ROOM, NOW + 499) is None
    assert begin(tx, now_ms=NOW + 500).attempts == 1


def test_what_was_sent_stays_sent_and_its_first_event_counts(tx: Tx) -> None:
    stored = insert_pending(tx)
    tx.enqueue(effect("hint", row=stored.row))
    effect_id = begin(tx).effect_id
    tx.sent(effect_id, EventId("$first"), NOW)
    tx.sent(effect_id, EventId("$second"), NOW)
    tx.postpone(effect_id, NOW)
    tx.abandon(effect_id, "too late")
    assert tx.begin(ROOM, NOW) is None
    assert tx.about(EventId("$first"), ROOM) == (stored.row,)
    assert tx.about(EventId("$second"), ROOM) is None


def test_what_was_given_up_is_not_tried_again_but_still_known_as_ours_where_it_was_taken(tx: Tx) -> None:
    stored = insert_pending(tx)
    tx.enqueue(effect("hint", row=stored.row))
    effect_id = begin(tx).effect_id
    tx.abandon(effect_id, "cancelled meanwhile")
    tx.postpone(effect_id, NOW)
    assert tx.begin(ROOM, NOW) is None
    assert tx.rooms_due() == {}
    tx.sent(effect_id, SENT, NOW)
    assert tx.about(SENT, ROOM) == (stored.row,)


def test_rooms_are_due_when_their_first_unsent_effect_can_be_tried(tx: Tx) -> None:
    assert tx.rooms_due() == {}
    tx.enqueue(effect("a", not_before_ms=NOW + 5))
    tx.enqueue(effect("b", not_before_ms=NOW + 3))
    tx.enqueue(effect("sent", not_before_ms=T0))
    tx.enqueue(effect("c", room_id=OTHER_ROOM, not_before_ms=NOW + 9))
    tx.sent(begin(tx, now_ms=T0).effect_id, SENT, NOW)
    assert tx.rooms_due() == {ROOM: NOW + 3, OTHER_ROOM: NOW + 9}


def test_an_effect_that_waits_for_its_question_does_not_make_its_room_due(tx: Tx) -> None:
    """Else whoever sends would be woken again and again for nothing."""
    row = tx.insert(question()).row
    tx.enqueue(effect("question", row=row, not_before_ms=NOW + 60_000))
    tx.enqueue(effect("outcome", row=row, not_before_ms=NOW))
    assert tx.rooms_due() == {ROOM: NOW + 60_000}


def test_an_unsent_effect_is_found_by_its_transaction_id(tx: Tx) -> None:
    tx.enqueue(effect("hint", txn="t1"))
    begun = begin(tx)
    assert tx.effect_of_txn(TxnId("t1")) == begun
    assert tx.effect_of_txn(TxnId("t2")) is None
    tx.sent(begun.effect_id, SENT, NOW)
    assert tx.effect_of_txn(TxnId("t1")) is None


def test_an_event_of_ours_is_about_its_question_or_about_several_or_none(tx: Tx) -> None:
    stored = insert_pending(tx)
    for name, row in (("outcome", stored.row), ("which", None)):
        tx.enqueue(effect(name, row=row))
        tx.sent(begin(tx).effect_id, EventId(f"${name}"), NOW)
    assert tx.about(EventId("$q1"), ROOM) == (stored.row,)
    assert tx.about(EventId("$outcome"), ROOM) == (stored.row,)
    assert tx.about(EventId("$which"), ROOM) == ()
    assert tx.about(EventId("$theirs"), ROOM) is None


def test_the_event_that_shows_a_questions_file_is_known_in_its_room(tx: Tx) -> None:
    stored = insert_pending(tx)
    for name, row in (("file", stored.row), ("outcome", stored.row), ("which", None)):
        tx.enqueue(effect(name, row=row))
        tx.sent(begin(tx).effect_id, EventId(f"${name}"), NOW)
    assert tx.file_of(EventId("$file"), ROOM) == stored.row
    assert tx.file_of(EventId("$file"), OTHER_ROOM) is None
    assert [tx.file_of(EventId(f"${name}"), ROOM) for name in ("outcome", "which", "q1", "theirs")] == [None] * 4


def test_the_time_of_the_newest_effect_that_begins_so_is_known_sent_or_not(tx: Tx) -> None:
    assert tx.last_effect_at(ROOM, "which:@a_b:") is None
    tx.enqueue(effect("which:@a_b:1", not_before_ms=T0 + 5))
    tx.sent(begin(tx).effect_id, SENT, NOW)
    for other in ("which:@A_B:9", "which:@axb:9", "which:@a%b:9", "xwhich:@a_b:9", "which:@a_b"):
        tx.enqueue(effect(other, not_before_ms=T0 + 99))
    tx.enqueue(effect("which:@a_b:9", room_id=OTHER_ROOM, not_before_ms=T0 + 99))
    assert tx.last_effect_at(ROOM, "which:@a_b:") == T0 + 5
    tx.enqueue(effect("which:@a_b:2", not_before_ms=T0 + 3))
    assert tx.last_effect_at(ROOM, "which:@a_b:") == T0 + 3
    assert tx.last_effect_at(ROOM, "which:@a_b:1") == T0 + 5


def test_the_newest_effect_that_begins_so_and_is_not_sent_is_found(tx: Tx) -> None:
    assert tx.newest_unsent(ROOM, "which:@a_b:") is None
    tx.enqueue(effect("which:@a_b:1"))
    tx.enqueue(effect("which:@a_b:2", not_before_ms=NOW + 1))
    for other in ("which:@A_B:9", "which:@axb:9", "which:@a_b"):
        tx.enqueue(effect(other, not_before_ms=NOW + 1))
    tx.enqueue(effect("which:@a_b:9", room_id=OTHER_ROOM))
    newest = tx.newest_unsent(ROOM, "which:@a_b:")
    assert newest is not None
    assert newest.effect == "which:@a_b:2"
    tx.abandon(newest.effect_id, "no longer wanted")
    tx.sent(begin(tx).effect_id, SENT, NOW)
    assert tx.newest_unsent(ROOM, "which:@a_b:") is None


def test_an_effect_is_dropped_while_no_try_was_made_for_it_and_may_then_be_there_anew(tx: Tx) -> None:
    tx.enqueue(effect("hint:1", content={"body": "first"}, txn="first"))
    waiting = tx.newest_unsent(ROOM, "hint:1")
    assert waiting is not None
    tx.drop(waiting.effect_id)
    assert tx.newest_unsent(ROOM, "hint:1") is None
    assert tx.enqueue(effect("hint:1", content={"body": "second"}, txn="second"))
    tried = begin(tx)
    assert tried.content == {"body": "second"}
    tx.drop(tried.effect_id)
    assert tx.newest_unsent(ROOM, "hint:1") is not None
    tx.sent(tried.effect_id, SENT, NOW)
    tx.drop(tried.effect_id)
    assert tx.about(SENT, ROOM) == ()


def test_the_hints_of_a_room_in_a_span_of_time_are_counted_sent_or_not(tx: Tx) -> None:
    def hints(after_ms: int, up_to_ms: int) -> int:
        return tx.hints(ROOM, after_ms=after_ms, up_to_ms=up_to_ms)

    for number, at_ms in enumerate((T0, T0 + 1, T0 + 2)):
        tx.enqueue(effect(f"hint:{number}", not_before_ms=at_ms))
    tx.enqueue(effect("hint:9", room_id=OTHER_ROOM, not_before_ms=T0 + 1))
    assert hints(T0 - 1, T0 + 2) == 3
    assert hints(T0, T0 + 2) == 2
    assert hints(T0, T0 + 1) == 1
    tx.sent(begin(tx).effect_id, SENT, NOW)
    assert hints(T0 - 1, T0 + 2) == 3
    tx.enqueue(effect("outcome", priority=Priority.EDIT, not_before_ms=T0 + 1))
    assert hints(T0 - 1, T0 + 2) == 3
