"""The audit: lines that are only ever added, each chained to the one before it.

Where the chain ends is kept in memory between transactions, so that a line costs one
statement. What is kept goes back with every savepoint and transaction that is undone, and
is forgotten with the connection; then the database is asked. Only this process writes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import bindparam, delete, select
from sqlalchemy.dialects.sqlite import insert

from agentpod_bot.core.journal import COLUMNS, START, STATUS_AFTER, Link, fields_of, following
from agentpod_bot.core.kept import AuditRow, Change
from agentpod_bot.core.model import Meaning, Scope, Status
from agentpod_bot.store.listing import LISTED_COLUMNS, listed_of
from agentpod_bot.store.tables import audit, audit_anchor, decisions, questions
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection

    from agentpod_bot.core.ids import ClientName, Row
    from agentpod_bot.core.model import Listed
    from agentpod_bot.ports import T

_a = audit.c
_THE_ANCHOR = 1
LINE_COLUMNS = tuple(_a[name] for name in COLUMNS)

_APPEND = insert(audit)
_LAST = select(_a.seq, _a.hash).order_by(_a.seq.desc()).limit(1)
ANCHOR = select(audit_anchor.c.seq, audit_anchor.c.hash).where(audit_anchor.c.place == _THE_ANCHOR)
_HASH = select(_a.hash).where(_a.seq == bindparam("this"))
_AUDITED = select(*LINE_COLUMNS).where(_a.question_row == bindparam("row")).order_by(_a.seq)
_CHANGES = (
    select(*LINE_COLUMNS, _a.hash, *LISTED_COLUMNS)
    .select_from(audit.outerjoin(questions, questions.c.row == _a.question_row).outerjoin(decisions))
    .where(
        _a.client == bindparam("of_client"),
        _a.seq > bindparam("after"),
        _a.what.in_(sorted(STATUS_AFTER)),
    )
    .order_by(_a.seq)
    .limit(bindparam("at_most"))
)
_FIRST_SINCE = select(_a.seq).where(_a.at_ms >= bindparam("bound_ms")).order_by(_a.seq).limit(1)
_LAST_BEFORE = select(_a.seq, _a.hash).where(_a.seq < bindparam("first")).order_by(_a.seq.desc()).limit(1)
_FORGET = delete(audit).where(_a.seq <= bindparam("last"))
_new_anchor = insert(audit_anchor)
_ANCHOR_AT = _new_anchor.on_conflict_do_update(
    index_elements=[audit_anchor.c.place],
    set_={"seq": _new_anchor.excluded.seq, "hash": _new_anchor.excluded.hash},
)


@dataclass(slots=True)
class Tail:
    """Where the chain ends, as far as this process knows; None: the database has to be asked."""

    last: Link | None = None


class Journal(Transaction):
    """The part of a transaction that is about the audit; promises stand in `ports.Tx`."""

    def __init__(self, connection: Connection, tail: Tail | None = None) -> None:
        super().__init__(connection)
        self._tail = tail or Tail()

    def savepoint(self, work: Callable[[], T]) -> T:
        """Run `work`; where it raises, undo what it did and raise on."""
        before = self._tail.last
        try:
            return super().savepoint(work)
        except BaseException:
            self._tail.last = before
            raise

    def audit(self, row: AuditRow) -> None:
        """Append one line. Raises ValueError where it holds what JSON cannot carry."""
        before = self.head()
        fields = fields_of(before.seq + 1, row)
        link = following(before, fields)
        self._change(_APPEND, {**fields, "hash": link.hash})
        self._tail.last = link

    def head(self) -> Link:
        """The last line that was ever written."""
        if self._tail.last is None:
            last = self._first(_LAST)
            self._tail.last = self.anchor() if last is None else Link(*last)
        return self._tail.last

    def anchor(self) -> Link:
        """The line before the oldest that is kept."""
        anchor = self._first(ANCHOR)
        return START if anchor is None else Link(*anchor)

    def link(self, seq: int) -> Link | None:
        """The line with this number, also where it is the one before the oldest that is kept."""
        found = self._value(_HASH, {"this": seq})
        if found is not None:
            return Link(seq, found)
        anchor = self.anchor()
        return anchor if anchor.seq == seq else None

    def audited(self, row: Row) -> Iterable[AuditRow]:
        """The lines about one question, oldest first; they are kept longer than the question."""
        return tuple(_row_of(record) for record in self._rows(_AUDITED, {"row": row}))

    def changes(self, client: ClientName, *, after: int, at_most: int) -> tuple[Change, ...]:
        """The client's changes of status after a line, oldest first, each with the question as it was then."""
        records = self._rows(_CHANGES, {"of_client": client, "after": after, "at_most": at_most})
        return tuple(_change_of(record) for record in records)

    def prune_audit(self, before_ms: int) -> int:
        """Forget the oldest lines, up to the first that was written since then; returns how many went."""
        head = self.head()
        first = self._value(_FIRST_SINCE, {"bound_ms": before_ms})
        last = self._first(_LAST_BEFORE, {"first": head.seq + 1 if first is None else first})
        if last is None:
            return 0
        self._change(_ANCHOR_AT, {"place": _THE_ANCHOR, "seq": last.seq, "hash": last.hash})
        return self._change(_FORGET, {"last": last.seq})


def _row_of(record: Sequence[Any]) -> AuditRow:
    """The line in a record of `COLUMNS`."""
    line = dict(zip(COLUMNS, record, strict=True))
    del line["seq"]
    line["row"] = line.pop("question_row")
    line["meaning"] = None if line["meaning"] is None else Meaning(line["meaning"])
    line["scope"] = None if line["scope"] is None else Scope(line["scope"])
    return AuditRow(**line)


def _change_of(record: Sequence[Any]) -> Change:
    seq, stored = record[0], record[len(COLUMNS)]
    listed: Any = record[len(COLUMNS) + 1 :]
    row = _row_of(record[: len(COLUMNS)])
    status = STATUS_AFTER[row.what]
    # The question is gone where it was pruned: its first column then is NULL, like all of them.
    question = None if listed[0] is None else _as_then(listed_of(listed), row, status)
    return Change(link=Link(seq, stored), row=row, status=status, question=question)


def _as_then(now: Listed, row: AuditRow, status: Status) -> Listed:
    """A question as it was right after a change: nothing that came later shows in it."""
    if status is Status.QUEUED:
        room_id = row.room_id or now.room_id
        return replace(now, status=status, room_id=room_id, event_id=None, delivered_at_ms=None, closing=None)
    if status is Status.PENDING:
        room_id = row.room_id or now.room_id
        return replace(now, status=status, room_id=room_id, event_id=row.event_id, delivered_at_ms=None, closing=None)
    # The end is written once, with this line. Where they disagree, whoever shows it finds a contradiction.
    return replace(now, status=status, delivered_at_ms=None)
