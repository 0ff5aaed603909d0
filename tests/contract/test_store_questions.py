from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.event import listen, remove

from agentpod_bot.core.ids import ClientName, Code, EventId, RequestId, RouteName, Row, SessionId
from agentpod_bot.core.model import OPEN, Attachment, Claim, Hold, Listed, Outcome, Progress, Status
from tests.unit.store.examples import (
    LAPTOP,
    MINUTE,
    OFFERED,
    OTHER_ROOM,
    OWNER,
    ROOM,
    SESSION,
    T0,
    ended,
    foreign,
    insert_closed,
    insert_pending,
    migrated_engine,
    question,
    read,
    rows,
    selected,
    undone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from agentpod_bot.ports import Tx

NOW = T0 + 2 * MINUTE
NOT_SELECTED = [outcome for outcome in Outcome if outcome is not Outcome.SELECTED]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("questions"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def test_a_stored_question_is_queued_and_comes_back_exactly_as_it_was_asked(tx: Tx) -> None:
    asked = question()
    stored = tx.insert(asked)
    assert stored.asked == asked
    assert stored.status is Status.QUEUED
    assert tx.question(stored.row) == stored


@pytest.mark.parametrize("hold", [None, Hold(), Hold("claude-code:main:aa")])
def test_a_question_remembers_in_whose_shape_it_was_asked_and_which_call_holds_it(tx: Tx, hold: Hold | None) -> None:
    stored = tx.insert(question(harness="claude-code", hold=hold))
    assert tx.question(stored.row) == stored
    assert (stored.asked.harness, stored.asked.hold) == ("claude-code", hold)


def test_held_questions_are_those_whose_end_no_harness_was_told_yet(tx: Tx) -> None:
    queued = tx.insert(question(1, hold=Hold()))
    pending = insert_pending(tx, 2, hold=Hold("twin"))
    insert_pending(tx, 3)
    decided = insert_closed(tx, 4, selected(), hold=Hold())
    delivered = insert_closed(tx, 5, selected(), hold=Hold())
    given_up = insert_closed(tx, 6, selected(), hold=Hold())
    insert_closed(tx, 7, ended(Outcome.CANCELLED), hold=Hold())
    tx.deliver(delivered.row, NOW)
    tx.give_up(given_up.row)
    assert [each.row for each in tx.held()] == [queued.row, pending.row, decided.row]


def test_a_row_that_is_none_reads_as_none(tx: Tx) -> None:
    assert tx.question(Row(404)) is None
    assert tx.current(LAPTOP, RequestId("none")) is None


def test_a_key_that_is_not_new_is_refused_and_the_first_question_stays(tx: Tx) -> None:
    stored = tx.insert(question())
    with pytest.raises(ValueError, match="UNIQUE"):
        tx.insert(question(title="another"))
    assert tx.current(LAPTOP, stored.key.request_id) == stored


def test_two_clients_never_share_a_request(tx: Tx) -> None:
    mine = tx.insert(question())
    theirs = tx.insert(question(client=ClientName("desktop")))
    assert tx.current(LAPTOP, mine.key.request_id) == mine
    assert tx.current(ClientName("desktop"), mine.key.request_id) == theirs


def test_the_current_revision_is_the_highest_one_open_or_closed(tx: Tx) -> None:
    first = insert_closed(tx, closing=ended(Outcome.SUPERSEDED))
    assert tx.current(LAPTOP, first.key.request_id) == first
    second = tx.insert(question(revision=2))
    assert tx.current(LAPTOP, first.key.request_id) == second


def test_the_next_number_of_a_session_is_one_more_than_its_highest(tx: Tx) -> None:
    assert tx.next_request_seq(LAPTOP, SESSION) == 1
    tx.insert(question(7))
    tx.insert(question(3))
    tx.insert(question(90, client=ClientName("desktop")))
    tx.insert(question(80, session_id=SessionId("other")))
    assert tx.next_request_seq(LAPTOP, SESSION) == 8


def test_open_questions_are_those_that_fit_all_that_is_given_in_the_order_they_were_asked(tx: Tx) -> None:
    pending = insert_pending(tx, 1)
    queued = tx.insert(question(2, session_id=SessionId("s2"), route=RouteName("dev"), room_id=OTHER_ROOM))
    theirs = tx.insert(question(3, client=ClientName("desktop")))
    insert_closed(tx, 4)
    assert tx.open_questions() == (pending, queued, theirs)
    assert tx.open_questions(client=LAPTOP) == (pending, queued)
    assert tx.open_questions(client=LAPTOP, session_id=SESSION) == (pending,)
    assert tx.open_questions(session_id=SESSION) == (pending, theirs)
    assert tx.open_questions(route=RouteName("dev")) == (queued,)
    assert tx.open_questions(room_id=ROOM) == (pending, theirs)
    assert tx.open_questions(client=LAPTOP, session_id=SESSION, route=RouteName("dev"), room_id=ROOM) == ()


def test_closed_questions_are_recent_ones_and_those_whose_end_the_room_showed_late_or_not_yet(tx: Tx) -> None:
    since = T0 + 60 * MINUTE
    before, after = ended(at_ms=since - 1), ended(at_ms=since)
    late = {"expires_at_ms": since}
    recent = insert_closed(tx, 1, after)
    hidden = insert_closed(tx, 2, before, **late)
    shown = insert_closed(tx, 3, before, **late)
    tx.show_closed(shown.row, since - 1)
    shown_late = insert_closed(tx, 8, before, **late)
    tx.show_closed(shown_late.row, since)
    ran_out = insert_closed(tx, 4, before, expires_at_ms=since - 1)
    never_posted = tx.insert(question(5, **late))
    assert tx.close(never_posted.row, before, from_status=OPEN, revision=1, now_ms=NOW)
    still_open = insert_pending(tx, 6, **late)
    elsewhere = insert_closed(tx, 7, after, room_id=OTHER_ROOM)
    found = rows(tx.closed_questions(ROOM, since_ms=since))
    assert found == [recent.row, hidden.row, shown_late.row]
    assert not set(found) & {shown.row, ran_out.row, still_open.row, elsewhere.row}


def test_codes_are_those_of_open_and_recent_questions_also_of_other_accounts(tx: Tx) -> None:
    since = T0 + 60 * MINUTE
    insert_pending(tx, 1)
    insert_closed(tx, 2, ended(at_ms=since - 1))
    insert_closed(tx, 3, ended(at_ms=since))
    insert_closed(tx, 4, ended(at_ms=since - 1), created_at_ms=since)
    insert_pending(tx, 5, room_id=OTHER_ROOM)
    tx.keep_foreign(foreign("$open", code=Code("F1"), shown_ts=since - 1, expires_at_ms=since))
    tx.keep_foreign(foreign("$ended", code=Code("F2"), shown_ts=since - 1, closed_ts=since + 5))
    tx.keep_foreign(foreign("$new", code=Code("F3"), shown_ts=since, closed_ts=since))
    tx.keep_foreign(foreign("$expired", code=Code("F4"), shown_ts=since - 2, expires_at_ms=since - 1))
    tx.keep_foreign(foreign("$card", code=None, shown_ts=since))
    tx.keep_foreign(foreign("$away", code=Code("F5"), shown_ts=since, room_id=OTHER_ROOM))
    assert tx.codes(ROOM, since_ms=since) == {"K1", "K3", "K4", "F1", "F3"}


def test_a_code_names_the_questions_of_its_own_room_newest_first(tx: Tx) -> None:
    old = insert_closed(tx, 1, code=Code("Q2"))
    new = tx.insert(question(2, code=Code("Q2")))
    tx.insert(question(3, code=Code("Q2"), room_id=OTHER_ROOM))
    assert tx.by_code(ROOM, Code("Q2")) == (new, old)
    assert tx.by_code(ROOM, Code("q2")) == ()


def test_an_event_is_found_as_the_question_that_it_is(tx: Tx) -> None:
    tx.insert(question(1))
    stored = insert_pending(tx, 2)
    assert tx.by_event(EventId("$q2")) == stored
    assert tx.by_event(EventId("$q1")) is None


def test_pages_list_current_revisions_newest_first_and_each_of_them_once(tx: Tx) -> None:
    insert_closed(tx, 1, ended(Outcome.SUPERSEDED))
    others = [tx.insert(question(number)).row for number in (2, 3, 4)]
    current = tx.insert(question(1, revision=2)).row
    tx.insert(question(9, client=ClientName("desktop")))
    first = tx.page(LAPTOP, status=None, session_id=None, limit=2, before=None)
    second = tx.page(LAPTOP, status=None, session_id=None, limit=2, before=first.cursor)
    assert rows(first.questions) == [current, others[2]]
    assert rows(second.questions) == [others[1], others[0]]
    assert first.cursor is not None
    assert second.cursor is None


def test_a_page_holds_only_what_has_the_status_and_session_now(tx: Tx) -> None:
    insert_closed(tx, 1, ended(Outcome.SUPERSEDED))
    pending = insert_pending(tx, 1, revision=2)
    other = insert_pending(tx, 2, session_id=SessionId("s2"))
    tx.insert(question(3))

    def listed(status: Status | None, session_id: SessionId | None) -> list[int]:
        return rows(tx.page(LAPTOP, status=status, session_id=session_id, limit=9, before=None).questions)

    assert listed(Status.SUPERSEDED, None) == []
    assert listed(Status.PENDING, None) == [other.row, pending.row]
    assert listed(Status.PENDING, SESSION) == [pending.row]
    assert listed(None, SessionId("s2")) == [other.row]


def test_a_page_says_of_each_question_what_is_stored_of_it(tx: Tx) -> None:
    decided = insert_closed(tx, 1, selected())
    tx.deliver(decided.row, NOW + 9)
    stored = [decided, insert_closed(tx, 2, ended(Outcome.EXPIRED)), insert_pending(tx, 3), tx.insert(question(4))]
    page = tx.page(LAPTOP, status=None, session_id=None, limit=9, before=None)
    assert page.questions == tuple(Listed.of(read(tx, each)) for each in reversed(stored))


def test_a_page_reads_nothing_that_may_be_large(engine: Engine) -> None:
    """A hundred requests of a mebibyte each must not be read for a list that shows none of it."""
    read_columns: list[str] = []

    def note(*event: Any) -> None:
        read_columns.extend(re.findall(r"questions\.(\w+)", event[2].partition("FROM")[0]))

    with undone(engine) as tx:
        tx.insert(question())
        listen(engine, "before_cursor_execute", note)
        try:
            tx.page(LAPTOP, status=None, session_id=None, limit=9, before=None)
        finally:
            remove(engine, "before_cursor_execute", note)
    assert "digest" in read_columns
    assert not {"title", "agent", "options", "offered", "preview", "raw"} & set(read_columns)


def test_posting_makes_a_queued_question_pending_once(tx: Tx) -> None:
    stored = tx.insert(question())
    assert tx.post(stored.row, EventId("$first"))
    assert not tx.post(stored.row, EventId("$second"))
    now = read(tx, stored)
    assert (now.status, now.event_id) == (Status.PENDING, "$first")


def test_a_question_that_was_closed_while_being_sent_stays_closed_and_keeps_its_event(tx: Tx) -> None:
    stored = tx.insert(question())
    assert tx.close(stored.row, ended(), from_status=OPEN, revision=1, now_ms=NOW)
    assert not tx.post(stored.row, EventId("$late"))
    assert not tx.post(stored.row, EventId("$again"))
    now = read(tx, stored)
    assert (now.status, now.event_id) == (Status.CANCELLED, "$late")


def test_posting_a_row_that_is_none_is_false(tx: Tx) -> None:
    assert not tx.post(Row(404), EventId("$x"))


def test_the_timeline_shows_a_question_once(tx: Tx) -> None:
    stored = tx.insert(question())
    tx.show(stored.row, EventId("$shown"), NOW)
    tx.show(stored.row, EventId("$other"), NOW + 1)
    now = read(tx, stored)
    assert (now.event_id, now.shown_ts, now.status) == ("$shown", NOW, Status.QUEUED)
    assert tx.post(stored.row, EventId("$shown"))
    assert read(tx, stored).event_id == "$shown"


def test_the_first_edit_that_shows_a_question_closed_counts(tx: Tx) -> None:
    stored = insert_closed(tx)
    tx.show_closed(stored.row, NOW + 5)
    tx.show_closed(stored.row, NOW + 9)
    assert read(tx, stored).shown_closed_ts == NOW + 5


def test_a_selected_answer_closes_a_pending_question_and_is_kept_whole(tx: Tx) -> None:
    stored = insert_pending(tx)
    closing = selected()
    assert tx.close(stored.row, closing, from_status=OPEN, revision=1, now_ms=NOW)
    now = read(tx, stored)
    assert (now.status, now.closing) == (Status.DECIDED, closing)


@pytest.mark.parametrize("outcome", NOT_SELECTED)
def test_any_other_end_closes_a_queued_question_too_and_is_kept_whole(tx: Tx, outcome: Outcome) -> None:
    stored = tx.insert(question())
    closing = ended(outcome, claim=Claim("allow_once", OWNER), reason="redacted \x00", event_id=EventId("$why"))
    assert tx.close(stored.row, closing, from_status=OPEN, revision=1, now_ms=NOW)
    now = read(tx, stored)
    assert (now.status, now.closing) == (outcome.status, closing)


@pytest.mark.parametrize("first", [selected(), *(ended(outcome) for outcome in NOT_SELECTED)])
@pytest.mark.parametrize("second", [selected(at_ms=NOW + 1), ended(Outcome.EXPIRED, at_ms=NOW + 1)])
def test_a_closed_question_never_changes_again(tx: Tx, first: object, second: object) -> None:
    stored = insert_closed(tx, closing=first)  # type: ignore[arg-type]  # parametrize knows no types
    everything = frozenset(Status)
    assert not tx.close(stored.row, second, from_status=everything, revision=1, now_ms=NOW)  # type: ignore[arg-type]  # the same
    assert read(tx, stored) == stored


def test_nothing_is_selected_while_the_question_is_not_in_the_room(tx: Tx) -> None:
    stored = tx.insert(question())
    assert not tx.close(stored.row, selected(), from_status=OPEN, revision=1, now_ms=NOW)
    assert read(tx, stored) == stored


@pytest.mark.parametrize(("late_ms", "decided"), [(-1, True), (0, False), (1, False)])
def test_nothing_is_selected_from_the_deadline_on_whatever_the_expiry_task_does(
    tx: Tx, late_ms: int, *, decided: bool
) -> None:
    stored = insert_pending(tx)
    now_ms = stored.asked.expires_at_ms + late_ms
    assert tx.close(stored.row, selected(), from_status=OPEN, revision=1, now_ms=now_ms) is decided
    assert (read(tx, stored).status is Status.DECIDED) is decided


def test_a_question_past_its_deadline_can_still_expire(tx: Tx) -> None:
    stored = insert_pending(tx)
    late = stored.asked.expires_at_ms
    assert tx.close(stored.row, ended(Outcome.EXPIRED, late), from_status=OPEN, revision=1, now_ms=late)


@pytest.mark.parametrize(
    ("revision", "from_status"),
    [(2, OPEN), (1, frozenset({Status.QUEUED})), (1, frozenset()), (1, frozenset({Status.DECIDED}))],
)
def test_another_revision_or_status_closes_nothing(tx: Tx, revision: int, from_status: frozenset[Status]) -> None:
    stored = insert_pending(tx)
    for closing in (selected(), ended()):
        assert not tx.close(stored.row, closing, from_status=from_status, revision=revision, now_ms=NOW)
    assert read(tx, stored) == stored


def test_a_row_that_is_none_cannot_be_closed(tx: Tx) -> None:
    assert not tx.close(Row(404), ended(), from_status=OPEN, revision=1, now_ms=NOW)


@pytest.mark.parametrize(
    "closing",
    [
        selected(option=None),
        selected(answered_by=None),
        *(ended(outcome, option=OFFERED[0]) for outcome in NOT_SELECTED),
        *(ended(outcome, answered_by=OWNER) for outcome in NOT_SELECTED),
        *(ended(outcome, option=OFFERED[0], answered_by=OWNER) for outcome in NOT_SELECTED),
    ],
)
def test_only_a_selected_end_has_an_option_and_a_person_and_it_has_both(tx: Tx, closing: object) -> None:
    stored = insert_pending(tx)
    with pytest.raises(ValueError, match="selected"):
        tx.close(stored.row, closing, from_status=OPEN, revision=1, now_ms=NOW)  # type: ignore[arg-type]  # parametrize knows no types
    assert read(tx, stored) == stored


def test_delivery_is_noted_once_and_only_of_a_closed_question(tx: Tx) -> None:
    stored = insert_pending(tx)
    assert not tx.deliver(stored.row, NOW)
    assert read(tx, stored).delivered_at_ms is None
    assert tx.close(stored.row, selected(), from_status=OPEN, revision=1, now_ms=NOW)
    assert tx.deliver(stored.row, NOW + 1)
    assert not tx.deliver(stored.row, NOW + 2)
    assert read(tx, stored).delivered_at_ms == NOW + 1


def test_that_the_harness_gave_up_is_kept(tx: Tx) -> None:
    stored = insert_closed(tx)
    assert not stored.gave_up
    tx.give_up(stored.row)
    assert read(tx, stored).gave_up


def test_the_latest_progress_of_a_decided_question_is_kept(tx: Tx) -> None:
    stored = insert_closed(tx, closing=selected())
    tx.progress(stored.row, Progress(next_index=1))
    latest = Progress(2, (0, 1), 2, "no such \ud800 file", "failed")
    tx.progress(stored.row, latest)
    assert read(tx, stored).progress == latest


def test_a_question_that_is_not_decided_has_no_progress(tx: Tx) -> None:
    for stored in (insert_pending(tx, 1), insert_closed(tx, 2)):
        tx.progress(stored.row, Progress(next_index=1))
        assert read(tx, stored).progress is None


def test_open_questions_whose_deadline_is_reached_are_due(tx: Tx) -> None:
    assert tx.next_deadline() is None
    later = insert_pending(tx, 1, expires_at_ms=NOW + 1)
    pending = insert_pending(tx, 2, expires_at_ms=NOW)
    queued = tx.insert(question(3, expires_at_ms=NOW - 5))
    insert_closed(tx, 4, expires_at_ms=NOW - 9)
    assert tx.due(NOW) == (queued, pending)
    assert tx.due(NOW + 1) == (queued, pending, later)
    assert tx.next_deadline() == NOW - 5


FILE = {"file": {"url": "mxc://hs.example/file", "key": {"k": "secret"}, "iv": "iv", "hashes": {"sha256": "hash"}}}


def test_where_the_file_of_a_question_is_is_kept_and_what_it_offers_because_of_that(tx: Tx) -> None:
    stored = insert_pending(tx, 1, attachment=Attachment.WANTED)
    assert read(tx, stored).asked.attachment is Attachment.WANTED
    tx.attach(stored.row, Attachment.UPLOADED, file=FILE)
    tx.attach(stored.row, Attachment.SHOWN)
    now = read(tx, stored).asked
    assert (now.attachment, now.file, now.offered) == (
        Attachment.SHOWN,
        FILE,
        stored.asked.offered,
    )
    tx.attach(stored.row, Attachment.FAILED, offered=stored.asked.offered[:1])
    assert read(tx, stored).asked.offered == stored.asked.offered[:1]


def test_open_questions_of_a_session_a_client_and_a_route_are_counted_at_once(tx: Tx) -> None:
    insert_pending(tx, 1)
    insert_pending(tx, 2, session_id=SessionId("another"))
    insert_pending(tx, 3, client=ClientName("ci"))
    insert_closed(tx, 4)
    route = question().route
    assert tx.open_counts(client=LAPTOP, session_id=SESSION, route=route) == (1, 2, 3, 3)
    assert tx.open_counts(client=LAPTOP, session_id=SESSION, route=RouteName("nowhere")) == (1, 2, 0, 3)
    assert tx.open_counts(client=ClientName("nobody"), session_id=SESSION, route=RouteName("nowhere")) == (0, 0, 0, 3)


def test_the_rooms_in_which_somebody_may_still_answer_are_those_of_what_is_open_or_closed_lately(tx: Tx) -> None:
    tx.insert(question(1))
    insert_closed(tx, 2, ended(Outcome.EXPIRED, at_ms=NOW), room_id=OTHER_ROOM)
    assert tx.asked_in(since_ms=NOW) == {ROOM, OTHER_ROOM}
    assert tx.asked_in(since_ms=NOW + 1) == {ROOM}
