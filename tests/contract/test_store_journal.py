from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import ClientName, EventId, Row
from agentpod_bot.core.journal import START, STATUS_AFTER, Link, fields_of, following
from agentpod_bot.core.model import OPEN, Listed, Outcome, Status
from agentpod_bot.store.writer import SqlTx
from tests.unit.store.examples import (
    LAPTOP,
    T0,
    audit_line,
    ended,
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

    from agentpod_bot.core.kept import AuditRow
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import Tx


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("journal"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def chained(*rows: AuditRow) -> Link:
    """Where a chain of these lines ends."""
    link = START
    for row in rows:
        link = following(link, fields_of(link.seq + 1, row))
    return link


def line_about(stored: Question, what: str, **changes: object) -> AuditRow:
    """A line about a question of the laptop's."""
    return audit_line(
        what, row=stored.row, client=stored.key.client, request_id=stored.key.request_id, revision=1, **changes
    )


def test_each_line_is_chained_to_the_one_before_it_from_the_first_on(tx: Tx) -> None:
    assert tx.head() == START
    lines = [audit_line("asked"), audit_line("shown", at_ms=T0 + 1), audit_line("selected", detail="number")]
    for number, line in enumerate(lines, start=1):
        tx.audit(line)
        assert tx.head() == chained(*lines[:number])
    assert tx.link(2) == chained(*lines[:2])
    assert tx.link(4) is None


def test_a_savepoint_that_is_undone_takes_its_lines_out_of_the_chain(tx: Tx) -> None:
    tx.audit(audit_line("asked"))

    def fails() -> None:
        tx.audit(audit_line("shown"))
        tx.savepoint(lambda: tx.audit(audit_line("selected")))
        raise LookupError("an event that breaks us")

    with pytest.raises(LookupError):
        tx.savepoint(fails)
    tx.savepoint(lambda: tx.audit(audit_line("set_aside")))
    assert tx.head() == chained(audit_line("asked"), audit_line("set_aside"))


def test_a_line_that_cannot_be_hashed_is_not_written_and_breaks_nothing(tx: Tx) -> None:
    tx.audit(audit_line("asked"))
    with pytest.raises(ValueError, match="JSON cannot carry"):
        tx.audit(audit_line("late", sender="@\ud800"))
    tx.audit(audit_line("shown"))
    assert tx.head() == chained(audit_line("asked"), audit_line("shown"))


def test_pruning_removes_the_oldest_lines_only_and_keeps_what_the_next_one_follows(tx: Tx) -> None:
    lines = [audit_line(at_ms=T0 + at) for at in (1, 2, 9, 3, 4)]  # the clock was set back in between
    for line in lines:
        tx.audit(line)
    head = tx.head()
    assert tx.prune_audit(T0 + 3) == 2
    assert tx.link(1) is None
    assert tx.link(2) == chained(*lines[:2])
    assert tx.link(3) == chained(*lines[:3])
    assert tx.prune_audit(T0 + 3) == 0
    assert tx.head() == head


def test_a_chain_that_was_pruned_whole_goes_on_from_where_it_was(engine: Engine) -> None:
    with engine.connect() as connection, connection.begin() as transaction:
        tx = SqlTx(connection)
        tx.audit(audit_line("asked"))
        tx.audit(audit_line("shown"))
        head = tx.head()
        assert tx.prune_audit(T0 + 1) == 2
        after = SqlTx(connection)  # one that has to ask the database
        assert after.head() == head
        after.audit(audit_line("selected"))
        assert after.head() == chained(audit_line("asked"), audit_line("shown"), audit_line("selected"))
        transaction.rollback()


def test_the_lines_about_a_question_outlive_it(tx: Tx) -> None:
    old = insert_closed(tx, 1)
    tx.audit(line_about(old, "cancelled"))
    head = tx.head()
    assert tx.prune(T0 + 24 * 3_600_000) == 1
    assert tx.question(old.row) is None
    assert [line.what for line in tx.audited(old.row)] == ["cancelled"]
    assert tx.head() == head


def test_changes_are_a_clients_own_lines_about_status_after_a_line_in_their_order(tx: Tx) -> None:
    mine, theirs = insert_pending(tx, 1), insert_pending(tx, 2, client=ClientName("phone"))
    for what in ("asked", "late", "shown", "delivered", "cancelled"):
        tx.audit(line_about(mine, what))
        tx.audit(line_about(theirs, what))
    tx.audit(audit_line("which"))
    found = tx.changes(LAPTOP, after=0, at_most=9)
    assert [(change.link.seq, change.status) for change in found] == [
        (1, Status.QUEUED),
        (5, Status.PENDING),
        (9, Status.CANCELLED),
    ]
    assert [change.link for change in found] == [tx.link(seq) for seq in (1, 5, 9)]
    assert [change.link.seq for change in tx.changes(LAPTOP, after=1, at_most=1)] == [5]
    assert tx.changes(LAPTOP, after=9, at_most=9) == ()


def test_a_change_shows_the_question_as_it_was_then_and_nothing_that_came_later(tx: Tx) -> None:
    queued = tx.insert(question(1))
    tx.audit(line_about(queued, "asked"))
    assert tx.post(queued.row, EventId("$q1"))
    pending = read(tx, queued)
    tx.audit(line_about(queued, "shown", event_id=EventId("$q1")))
    assert tx.close(queued.row, selected(), from_status=OPEN, revision=1, now_ms=T0)
    decided = read(tx, queued)
    tx.audit(line_about(queued, "selected"))
    tx.deliver(queued.row, T0 + 9)
    shown = [change.question for change in tx.changes(LAPTOP, after=0, at_most=9)]
    assert shown == [Listed.of(queued), Listed.of(pending), Listed.of(decided)]


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.SELECTED])
def test_every_outcome_is_a_change_of_status(tx: Tx, outcome: Outcome) -> None:
    assert STATUS_AFTER[outcome.value] is outcome.status
    stored = insert_closed(tx, 1, ended(outcome))
    tx.audit(line_about(stored, outcome.value))
    [change] = tx.changes(LAPTOP, after=0, at_most=9)
    assert change.question == Listed.of(stored)


def test_a_change_of_a_question_that_was_pruned_is_told_without_it(tx: Tx) -> None:
    old = insert_closed(tx, 1)
    tx.audit(line_about(old, "cancelled"))
    tx.prune(T0 + 24 * 3_600_000)
    [change] = tx.changes(LAPTOP, after=0, at_most=9)
    assert change.question is None
    assert change.row == line_about(old, "cancelled")


def test_nothing_is_known_of_a_line_that_was_never_written(tx: Tx) -> None:
    assert tx.link(0) == START
    assert tx.link(1) is None
    assert tuple(tx.audited(Row(404))) == ()
