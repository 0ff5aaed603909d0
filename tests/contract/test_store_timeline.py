from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import EventId, OptionId, RoomId, Row, TxnId
from agentpod_bot.core.kept import AuditRow
from agentpod_bot.core.model import OPEN, Meaning, Scope
from agentpod_bot.core.room import Undecrypted, UnreadNotice
from tests.unit.store.examples import (
    BOT,
    LAPTOP,
    OTHER_BOT,
    OTHER_ROOM,
    OWNER,
    ROOM,
    T0,
    audit_line,
    effect,
    ended,
    foreign,
    insert_closed,
    insert_pending,
    migrated_engine,
    question,
    rows,
    undone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from agentpod_bot.ports import Tx

BOUND = T0 + 7 * 24 * 3_600_000


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("timeline"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def known(tx: Tx, since_ms: int = T0) -> list[str]:
    return [theirs.event_id for theirs in tx.foreign(ROOM, since_ms=since_ms)]


def test_another_accounts_question_is_kept_as_it_was_seen_first(tx: Tx) -> None:
    first = foreign()
    tx.keep_foreign(first)
    tx.close_foreign(first.event_id, OTHER_BOT, T0 + 5)
    tx.keep_foreign(foreign(code=None, expires_at_ms=T0))
    assert tx.foreign(ROOM, since_ms=T0) == (foreign(closed_ts=T0 + 5),)
    assert tx.foreign_of(first.event_id) == foreign(closed_ts=T0 + 5)
    assert tx.foreign(OTHER_ROOM, since_ms=T0) == ()


def test_foreign_questions_are_those_whose_end_is_not_shown_or_not_long_ago(tx: Tx) -> None:
    tx.keep_foreign(foreign("$open", shown_ts=T0 + 3))
    tx.keep_foreign(foreign("$ran_out", shown_ts=T0 + 2, expires_at_ms=T0 + 2))
    tx.keep_foreign(foreign("$just_ended", shown_ts=T0 + 1, closed_ts=T0 + 10))
    tx.keep_foreign(foreign("$ended", closed_ts=T0 + 9))
    assert known(tx, since_ms=T0 + 10) == ["$just_ended", "$ran_out", "$open"]


def test_only_the_account_that_asked_ends_its_question_and_its_first_edit_counts(tx: Tx) -> None:
    theirs = foreign()
    tx.keep_foreign(theirs)
    tx.close_foreign(theirs.event_id, OWNER, T0 + 1)
    tx.close_foreign(EventId("$unknown"), OTHER_BOT, T0 + 1)
    assert tx.foreign(ROOM, since_ms=T0) == (theirs,)
    tx.close_foreign(theirs.event_id, OTHER_BOT, T0 + 2)
    tx.close_foreign(theirs.event_id, OTHER_BOT, T0 + 3)
    assert tx.foreign(ROOM, since_ms=T0) == (foreign(closed_ts=T0 + 2),)


def test_an_event_is_seen_once_it_was_marked_and_the_last_one_marked_is_the_newest(tx: Tx) -> None:
    assert not tx.seen(EventId("$1"))
    assert tx.newest_seen(ROOM) is None
    for number in (1, 2):
        tx.mark_seen(ROOM, EventId(f"${number}"), T0 + number)
    tx.mark_seen(OTHER_ROOM, EventId("$3"), T0)
    tx.mark_seen(ROOM, EventId("$1"), T0 + 9)
    assert tx.seen(EventId("$1"))
    assert tx.newest_seen(ROOM) == "$2"
    assert (tx.last_seen_ms(ROOM), tx.last_seen_ms(RoomId("!nowhere"))) == (T0 + 2, None)
    assert tx.newest_seen(OTHER_ROOM) == "$3"


def test_a_room_that_was_seen_encrypted_is_so_for_ever_and_that_it_is_judged_so_is_never_taken_back(tx: Tx) -> None:
    assert not tx.is_encrypted(ROOM)
    tx.mark_encrypted(ROOM, judged=False)
    assert (tx.is_encrypted(ROOM), tx.is_encrypted(ROOM, judged=True)) == (True, False)
    tx.mark_encrypted(ROOM, judged=True)
    tx.mark_encrypted(ROOM, judged=False)
    assert tx.is_encrypted(ROOM, judged=True)
    assert not tx.is_encrypted(OTHER_ROOM)


def test_a_ciphertext_is_new_once_in_a_room_and_never_again_however_old_it_is(tx: Tx) -> None:
    assert tx.take_ciphertext(ROOM, "c1")
    assert tx.take_ciphertext(OTHER_ROOM, "c1")
    assert tx.take_ciphertext(ROOM, "c2")
    tx.prune(BOUND)
    tx.prune_undecrypted(BOUND)
    assert not tx.take_ciphertext(ROOM, "c1")
    assert not tx.take_ciphertext(OTHER_ROOM, "c1")


def test_the_oldest_event_for_which_a_notice_waits_is_found_while_it_is_kept(tx: Tx) -> None:
    notices = [UnreadNotice(TxnId("one"), {"body": f"about {number}"}) for number in (1, 2)]
    first = replace(undecrypted(1), notice=notices[0])
    second = replace(undecrypted(2), notice=notices[1])
    other = replace(undecrypted(3), notice=UnreadNotice(TxnId("other"), {}))
    for kept in (undecrypted(4), first, second, other):
        tx.keep_undecrypted(kept, at_most=9)
    assert tx.undecrypted_of(TxnId("one")) == first
    assert tx.take_undecrypted(ROOM, first.event_id) == first
    assert tx.undecrypted_of(TxnId("one")) == second
    tx.take_undecrypted(ROOM, second.event_id)
    assert tx.undecrypted_of(TxnId("one")) is None
    assert tx.undecrypted_of(TxnId("other")) == other


def undecrypted(number: int, *, room_id: RoomId = ROOM, session_id: str = "s", at_ms: int = T0) -> Undecrypted:
    event = {"type": "m.room.encrypted", "content": {"ciphertext": f"{number}\x00\ud800"}}
    event_id = EventId(f"${number}")
    return Undecrypted(event_id=event_id, room_id=room_id, session_id=session_id, first_seen_ms=at_ms, event=event)


def test_what_could_not_be_read_comes_back_as_it_was_by_its_session(tx: Tx) -> None:
    first, second = undecrypted(1), replace(undecrypted(2, session_id="t"), sender_level=-(2**53) + 1)
    there = undecrypted(3, room_id=OTHER_ROOM)
    for kept in (first, second, there, undecrypted(1, session_id="again")):
        tx.keep_undecrypted(kept, at_most=9)
    assert tx.undecrypted(None, since_ms=T0) == (first, second, there)
    assert tx.undecrypted(None, since_ms=T0 + 1) == ()
    assert tx.undecrypted(frozenset({(ROOM, "s")}), since_ms=T0) == (first,)
    assert tx.undecrypted(frozenset({(ROOM, "t"), (OTHER_ROOM, "s")}), since_ms=T0) == (second, there)
    assert tx.undecrypted(frozenset(), since_ms=T0) == ()


def test_what_could_not_be_read_is_taken_out_once_and_only_for_its_room(tx: Tx) -> None:
    tx.keep_undecrypted(undecrypted(1), at_most=9)
    assert tx.take_undecrypted(OTHER_ROOM, EventId("$1")) is None
    assert tx.take_undecrypted(ROOM, EventId("$1")) == undecrypted(1)
    assert tx.take_undecrypted(ROOM, EventId("$1")) is None
    assert tx.undecrypted(None, since_ms=0) == ()


def test_of_what_could_not_be_read_a_room_keeps_the_newest_and_nothing_for_long(tx: Tx) -> None:
    tx.keep_undecrypted(undecrypted(9, room_id=OTHER_ROOM, at_ms=T0 + 9), at_most=2)
    for number in (1, 2, 3):
        tx.keep_undecrypted(undecrypted(number, at_ms=T0 + number), at_most=2)
    assert [kept.event_id for kept in tx.undecrypted(None, since_ms=0)] == ["$9", "$2", "$3"]
    tx.prune_undecrypted(T0 + 3)
    assert [kept.event_id for kept in tx.undecrypted(None, since_ms=0)] == ["$9", "$3"]


def test_the_position_is_the_accounts_own_and_the_last_move_counts(tx: Tx) -> None:
    assert tx.position(BOT) is None
    tx.move(BOT, "s1")
    tx.move(BOT, "s2")
    assert tx.position(BOT) == "s2"
    assert tx.position(OTHER_BOT) is None


def test_the_audit_of_a_question_is_its_lines_in_their_order(tx: Tx) -> None:
    stored = insert_pending(tx)
    line = AuditRow(
        what="asked",
        at_ms=T0 + 5,
        row=stored.row,
        client=LAPTOP,
        request_id=stored.key.request_id,
        revision=1,
        digest="ab12",
        room_id=ROOM,
        sender=OWNER,
        event_id=EventId("$q1"),
        option_id=OptionId("allow_once"),
        meaning=Meaning.APPROVE,
        scope=Scope.ONCE,
        detail="number",
    )
    tx.audit(line)
    tx.audit(audit_line("shown", row=stored.row))
    tx.audit(audit_line("elsewhere"))
    assert tuple(tx.audited(stored.row)) == (line, audit_line("shown", row=stored.row))
    assert tuple(tx.audited(Row(404))) == ()


def test_pruning_forgets_closed_questions_of_before_and_all_but_their_audit(tx: Tx) -> None:
    old = insert_closed(tx, 1, ended(at_ms=BOUND - 1))
    recent = insert_closed(tx, 2, ended(at_ms=BOUND))
    for row in (old.row, recent.row):
        tx.audit(audit_line(row=row))
        tx.enqueue(effect("outcome", row=row))
        begun = tx.begin(ROOM, T0)
        assert begun is not None
        tx.sent(begun.effect_id, EventId(f"$o{row}"), T0)
    assert tx.prune(BOUND) == 1
    assert tx.question(old.row) is None
    assert len(tuple(tx.audited(old.row))) == 1
    assert tx.about(EventId(f"$o{old.row}"), ROOM) is None
    assert tx.about(EventId("$q1"), ROOM) is None
    assert tx.question(recent.row) == recent
    assert len(tuple(tx.audited(recent.row))) == 1
    assert tx.about(EventId(f"$o{recent.row}"), ROOM) == (recent.row,)


def test_pruning_never_touches_an_open_question_however_old(tx: Tx) -> None:
    pending = insert_pending(tx, 1)
    queued = tx.insert(question(2))
    tx.audit(audit_line(row=pending.row))
    assert tx.prune(BOUND) == 0
    assert tx.open_questions() == (pending, queued)
    assert len(tuple(tx.audited(pending.row))) == 1


def test_pruning_never_touches_an_unsent_effect_nor_the_question_that_it_is_about(tx: Tx) -> None:
    old = insert_closed(tx, 1)
    tx.enqueue(effect("outcome", row=old.row))
    tx.enqueue(effect("which"))
    assert tx.prune(BOUND) == 0
    assert tx.question(old.row) == old
    begun = [tx.begin(ROOM, BOUND), tx.begin(ROOM, BOUND)]
    assert begun[0] is not None
    tx.abandon(begun[0].effect_id, "M_FORBIDDEN")
    assert tx.prune(BOUND) == 1
    left = tx.begin(ROOM, BOUND)
    assert left is not None
    assert left.effect == "which"


def test_pruning_forgets_what_was_said_about_no_question(tx: Tx) -> None:
    tx.enqueue(effect("which:1"))
    begun = tx.begin(ROOM, T0)
    assert begun is not None
    tx.sent(begun.effect_id, EventId("$w"), BOUND - 1)
    tx.prune(BOUND)
    assert tx.about(EventId("$w"), ROOM) is None
    assert tx.last_effect_at(ROOM, "which") is None


def test_pruning_keeps_recent_processed_events_and_the_newest_of_each_room(tx: Tx) -> None:
    for number, at_ms in enumerate((T0, BOUND, T0, T0), start=1):
        tx.mark_seen(ROOM, EventId(f"${number}"), at_ms)
    tx.mark_seen(OTHER_ROOM, EventId("$only"), T0)
    tx.prune(BOUND)
    assert [tx.seen(EventId(f"${number}")) for number in (1, 2, 3, 4)] == [False, True, False, True]
    assert tx.newest_seen(ROOM) == "$4"
    assert tx.newest_seen(OTHER_ROOM) == "$only"


def test_pruning_forgets_foreign_questions_that_ended_before(tx: Tx) -> None:
    tx.keep_foreign(foreign("$open", expires_at_ms=BOUND, shown_ts=T0))
    tx.keep_foreign(foreign("$ran_out", expires_at_ms=BOUND - 1, shown_ts=T0))
    tx.keep_foreign(foreign("$edited", expires_at_ms=BOUND, closed_ts=BOUND - 1, shown_ts=T0))
    tx.keep_foreign(foreign("$edited_late", expires_at_ms=T0, closed_ts=BOUND, shown_ts=T0))
    tx.prune(BOUND)
    assert known(tx) == ["$edited_late", "$open"]


def test_a_row_number_is_never_given_to_another_question(tx: Tx) -> None:
    old = insert_closed(tx, 1)
    assert tx.prune(BOUND) == 1
    assert tx.insert(question(2)).row > old.row


def test_the_number_of_a_request_that_was_forgotten_begins_anew(tx: Tx) -> None:
    insert_closed(tx, 1)
    tx.prune(BOUND)
    assert tx.insert(question(1)).key.revision == 1


def test_a_savepoint_undoes_its_own_work_only_and_raises_on(tx: Tx) -> None:
    kept = tx.insert(question(1))

    def fails() -> None:
        assert tx.close(kept.row, ended(), from_status=OPEN, revision=1, now_ms=T0)
        tx.insert(question(2))
        tx.savepoint(lambda: tx.insert(question(3)))
        raise LookupError("an event that breaks us")

    with pytest.raises(LookupError):
        tx.savepoint(fails)
    assert tx.open_questions() == (kept,)
    after = tx.savepoint(lambda: tx.insert(question(4)))
    assert rows(tx.open_questions()) == [kept.row, after.row]
