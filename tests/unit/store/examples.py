"""Questions, effects and endings that the store's tests are about."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import (
    ClientName,
    Code,
    EventId,
    OptionId,
    RequestId,
    RoomId,
    RouteName,
    SessionId,
    TxnId,
    UserId,
)
from agentpod_bot.core.kept import AuditRow, NewEffect, Priority
from agentpod_bot.core.model import (
    OPEN,
    Closing,
    DiffPreview,
    FieldPreview,
    Key,
    Listed,
    Meaning,
    NewQuestion,
    Offered,
    Option,
    Outcome,
    Question,
    Scope,
    TextPreview,
    Via,
)
from agentpod_bot.core.room import Foreign
from agentpod_bot.store.engine import sqlite_engine
from agentpod_bot.store.schema import migrate
from agentpod_bot.store.writer import SqlTx

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from sqlalchemy import Engine

    from agentpod_bot.ports import Tx

LAPTOP = ClientName("laptop")
SESSION = SessionId("acps_3f0c")
ROOM = RoomId("!ops")
OTHER_ROOM = RoomId("!dev")
OWNER = UserId("@owner:example.org")
BOT = UserId("@pod:example.org")
OTHER_BOT = UserId("@otherpod:example.org")
T0 = 1_794_045_600_000
MINUTE = 60_000
ALLOW = Option(OptionId("allow_once"), "Allow once", Meaning.APPROVE, Scope.ONCE)
REJECT = Option(OptionId("reject_once"), "Nein \U0001f600 \x00 \ud800 'quoted'", Meaning.REJECT, Scope.ONCE)
OTHER = Option(OptionId("later"), "Later", Meaning.CHOOSE, None)
OFFERED = (
    Offered(1, ALLOW, "Allow once", frozenset({"allow once", "allow", "a", "z"}), id_matches=True),
    Offered(2, REJECT, "Nein (refuses once)", frozenset(), id_matches=False),
    Offered(3, OTHER, "Later (other)", frozenset({"later"}), id_matches=True),
)


def question(number: int = 1, *, revision: int = 1, client: ClientName = LAPTOP, **changes: Any) -> NewQuestion:
    """A question that is open for 30 minutes from minute `number` on; other numbers, other requests."""
    created_at_ms = T0 + number * MINUTE
    made = NewQuestion(
        key=Key(client, RequestId(f"acps_3f0c:{number}"), revision),
        session_id=SESSION,
        request_seq=number,
        title="Run the\x00 test suite \ud800",
        tool_kind="execute",
        agent=None,
        options=(ALLOW, REJECT, OTHER),
        preview=(
            TextPreview("Command", "bun test\nnull"),
            TextPreview("Script", "x", "bash"),
            FieldPreview("Location", ""),
            DiffPreview("a\x00.py", None, "new \ud800"),
            DiffPreview("b.py", "old\r\n", None),
        ),
        preview_complete=True,
        route=RouteName("ops"),
        room_id=ROOM,
        code=Code(f"K{number}"),
        salt="00ff",
        digest="ab12",
        content_key="cd34",
        offered=OFFERED,
        created_at_ms=created_at_ms,
        expires_at_ms=created_at_ms + 30 * MINUTE,
        raw=b'{"title": "\x00\xff"}',
        masked=False,
    )
    return replace(made, **changes)


def effect(name: str, *, row: Any = None, txn: str = "", **changes: Any) -> NewEffect:
    """An effect that may be sent at T0; its transaction id is `txn`, else made from row, room and name."""
    made = NewEffect(
        row=row,
        room_id=ROOM,
        effect=name,
        priority=Priority.HINT,
        event_type="m.room.message",
        content={"body": "hint"},
        txn_id=TxnId(txn or f"{row}-{changes.get('room_id', ROOM)}-{name}"),
        not_before_ms=T0,
    )
    return replace(made, **changes)


def foreign(event_id: str = "$theirs", **changes: Any) -> Foreign:
    """A question of another account, shown at T0 and open for 30 minutes."""
    made = Foreign(
        event_id=EventId(event_id),
        room_id=ROOM,
        sender=OTHER_BOT,
        code=Code("X9"),
        shown_ts=T0,
        expires_at_ms=T0 + 30 * MINUTE,
        closed_ts=None,
    )
    return replace(made, **changes)


def selected(at_ms: int = T0 + 2 * MINUTE, **changes: Any) -> Closing:
    """The owner chose the first option."""
    made = Closing(
        outcome=Outcome.SELECTED,
        at_ms=at_ms,
        option=OFFERED[0],
        answered_by=OWNER,
        via=Via.NUMBER,
        comment="3: use\x00 the staging database",
        event_id=EventId("$answer"),
        answer_ts=at_ms - 1,
    )
    return replace(made, **changes)


def ended(outcome: Outcome = Outcome.CANCELLED, at_ms: int = T0 + 2 * MINUTE, **changes: Any) -> Closing:
    """An end that is nobody's decision."""
    return replace(Closing(outcome=outcome, at_ms=at_ms), **changes)


def audit_line(what: str = "asked", **changes: Any) -> AuditRow:
    """A line of the audit at T0."""
    return replace(AuditRow(what=what, at_ms=T0), **changes)


def insert_pending(tx: Tx, number: int = 1, **changes: Any) -> Question:
    """Store a question and post it as `$q<number>`."""
    stored = tx.insert(question(number, **changes))
    assert tx.post(stored.row, EventId(f"$q{number}"))
    return read(tx, stored)


def insert_closed(tx: Tx, number: int = 1, closing: Closing | None = None, **changes: Any) -> Question:
    """Store a question, post it and close it."""
    stored = insert_pending(tx, number, **changes)
    revision = stored.key.revision
    assert tx.close(stored.row, closing or ended(), from_status=OPEN, revision=revision, now_ms=T0 + MINUTE)
    return read(tx, stored)


def read(tx: Tx, stored: Question) -> Question:
    """The question as it is now."""
    now = tx.question(stored.row)
    assert now is not None
    return now


def rows(questions: Sequence[Question | Listed]) -> list[int]:
    """Their rows, in their order."""
    return [stored.row for stored in questions]


def migrated_engine(folder: Path) -> Engine:
    """Engine over a new store in a folder."""
    engine = sqlite_engine(folder / "agentpod.db")
    migrate(engine)
    return engine


@contextmanager
def undone(engine: Engine) -> Iterator[Tx]:
    """A transaction of which nothing is kept, for tests that look at one work only."""
    with engine.connect() as connection, connection.begin() as transaction:
        yield SqlTx(connection)
        transaction.rollback()
