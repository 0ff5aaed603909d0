from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine, event, inspect, text
from sqlalchemy.dialects import postgresql
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.schema import CreateIndex, CreateTable
from sqlalchemy.sql.dml import UpdateBase
from sqlalchemy.sql.selectable import SelectBase

from agentpod_bot.store import callbacks, copies, health, journal, outbox, questions, timeline, undecrypted, votes
from agentpod_bot.store.engine import sqlite_engine
from agentpod_bot.store.schema import migrate
from agentpod_bot.store.tables import metadata
from tests.unit.store.examples import migrated_engine

if TYPE_CHECKING:
    from pathlib import Path

OF_THE_OPEN = re.compile(r"INDEX ix_(outbox_unsent|questions_open_\w+|questions_held)$")
"""Indexes that hold what is not done yet, and nothing else."""
WHOLE_TABLES = {
    ("_OPEN_QUESTIONS", ()),  # read once, at the start
    ("_OPEN_QUESTIONS", ("session_id",)),  # a session without its client is never asked for
    ("_FORGET_EFFECTS", None),
    ("_FORGET_FOREIGN", None),
    ("_FORGET_EVENTS", None),
    ("_KEPT", None),  # of events that could not be read few are kept
    ("_PRUNE", None),  # likewise
    ("_LAST", None),  # the last of all, once a connection
    ("_FIRST_SINCE", None),  # ends at the first line that is kept, which is among the first of all
}


def described(engine: Engine) -> dict[str, Any]:
    """All that the database itself says of every table."""
    look = inspect(engine)

    def plain(things: list[Any]) -> list[str]:
        return sorted(repr(sorted((key, str(value)) for key, value in thing.items())) for thing in things)

    return {
        table: {
            "columns": plain(list(look.get_columns(table))),
            "primary key": str(look.get_pk_constraint(table)),
            "unique": plain(list(look.get_unique_constraints(table))),
            "foreign keys": plain(list(look.get_foreign_keys(table))),
            "checks": plain(list(look.get_check_constraints(table))),
        }
        for table in look.get_table_names()
        if table != "alembic_version"
    } | {"indexes": _indexes(engine)}


def _indexes(engine: Engine) -> set[str]:
    with engine.connect() as connection:
        found = connection.execute(text("SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"))
        return set(found.scalars())


def test_the_migrations_make_exactly_the_tables(tmp_path: Path) -> None:
    migrated = migrated_engine(tmp_path)
    direct = create_engine("sqlite://")
    metadata.create_all(direct)
    with migrated.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
    made = described(migrated)
    assert made == described(direct)
    assert set(made) - {"indexes"} == set(metadata.tables)
    autoincrement = "SELECT name FROM sqlite_master WHERE sql LIKE '%AUTOINCREMENT%'"
    with migrated.connect() as one, direct.connect() as other:
        assert set(one.execute(text(autoincrement))) == set(other.execute(text(autoincrement)))
    direct.dispose()


def test_migrating_again_changes_nothing(tmp_path: Path) -> None:
    engine = migrated_engine(tmp_path)
    before = described(engine)
    migrate(engine)
    assert described(engine) == before


def test_a_migration_that_is_cut_off_leaves_nothing_behind(tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "agentpod.db")

    def fail(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if "TABLE outbox" in statement:
            raise OperationalError(statement, None, Exception("disk I/O error"))

    event.listen(engine, "before_cursor_execute", fail)
    with pytest.raises(OperationalError):
        migrate(engine)
    assert inspect(engine).get_table_names() == []
    event.remove(engine, "before_cursor_execute", fail)
    migrate(engine)
    assert set(inspect(engine).get_table_names()) == {*metadata.tables, "alembic_version"}


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE questions SET status = 'approved'",
        "UPDATE questions SET status = 'decided'",
        "UPDATE questions SET closed_at_ms = 1",
        "UPDATE questions SET revision = 0",
        "INSERT INTO decisions (question_row, outcome, at_ms) VALUES (1, 'approved', 1)",
        "INSERT INTO decisions (question_row, outcome, at_ms) VALUES (1, 'selected', 1)",
        "INSERT INTO decisions (question_row, outcome, at_ms, option) VALUES (1, 'expired', 1, '{}')",
        "INSERT INTO decisions (question_row, outcome, at_ms, answered_by) VALUES (1, 'expired', 1, '@o')",
        "INSERT INTO decisions (question_row, outcome, at_ms, via) VALUES (1, 'expired', 1, 'guess')",
        "INSERT INTO decisions (question_row, outcome, at_ms) VALUES (2, 'expired', 1)",
        "INSERT INTO decisions (question_row, outcome, at_ms, voters) VALUES (1, 'expired', 1, '[\"@o\"]')",
        "INSERT INTO votes (question_row, sender, option_id, event_id, ts, at_ms) VALUES (2, '@o', 'a', '$e', 1, 1)",
    ],
)
def test_the_tables_themselves_refuse_what_can_never_be(tmp_path: Path, change: str) -> None:
    engine = migrated_engine(tmp_path)
    columns = {column.name: 1 for column in metadata.tables["questions"].columns if not column.nullable}
    names = ", ".join(columns)
    words = {"status": "'queued'", "attachment": "'none'"}
    values = ", ".join(words.get(name, "1") for name in columns)
    with engine.connect() as connection, connection.begin():
        connection.execute(text(f"INSERT INTO questions ({names}) VALUES ({values})"))  # noqa: S608 - our own column names
        with pytest.raises(IntegrityError):
            connection.execute(text(change))


def test_the_same_tables_can_be_made_in_postgresql() -> None:
    dialect = postgresql.dialect()
    for table in metadata.sorted_tables:
        assert "CREATE TABLE" in str(CreateTable(table).compile(dialect=dialect))
        for index in table.indexes:
            assert "INDEX" in str(CreateIndex(index).compile(dialect=dialect))


def test_no_statement_of_a_running_daemon_reads_a_whole_table(tmp_path: Path) -> None:
    engine = migrated_engine(tmp_path)
    read_whole = set()
    explained = 0
    with engine.connect() as connection:
        for module in (questions, copies, votes, outbox, callbacks, timeline, undecrypted, health, journal):
            for name, constant in vars(module).items():
                for key, statement in constant.items() if isinstance(constant, dict) else [(None, constant)]:
                    if not is_statement(statement):
                        continue
                    sql = re.sub(r"__\[POSTCOMPILE_\w+\]", "?", str(statement.compile(dialect=engine.dialect)))
                    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", (None,) * sql.count("?"))
                    explained += 1
                    if any(step.detail.startswith("SCAN") and not OF_THE_OPEN.search(step.detail) for step in plan):
                        read_whole.add((name, key))
    assert explained > 50
    assert read_whole - {("_READ", None), ("_OLDEST_FIRST", None)} == WHOLE_TABLES


def is_statement(constant: object) -> bool:
    return isinstance(constant, SelectBase | UpdateBase)


def test_the_names_of_constraints_follow_one_convention() -> None:
    assert isinstance(metadata, MetaData)
    for table in metadata.sorted_tables:
        for constraint in table.constraints:
            assert str(constraint.name).startswith(("pk_", "fk_", "uq_", "ck_"))
