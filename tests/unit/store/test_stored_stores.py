"""Upgrades from every schema that there was, on real files of it.

No schema is released yet: until then, a change of the first migration makes its file old,
and `python -m tests.stored_stores` makes it anew. From the release on it must not be run
for that schema again; then the test of the tables holds the migration as it was released.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.kept import Priority
from agentpod_bot.core.model import Attachment, Outcome, Status, Via
from agentpod_bot.errors import StoreRefused
from agentpod_bot.store.database import open_store
from agentpod_bot.store.engine import sqlite_engine
from agentpod_bot.store.schema import known_schemas, migrate
from agentpod_bot.store.tables import EffectState, metadata
from tests.stored_stores import FOLDER, make, read_from

if TYPE_CHECKING:
    from pathlib import Path

NEWEST, *_ = known_schemas()
REMAKE = "the file is old: see this module's text on when `python -m tests.stored_stores` may make it anew"


def copied(schema: str, folder: Path) -> Path:
    path = folder / "agentpod.db"
    path.write_bytes((FOLDER / f"{schema}.db").read_bytes())
    return path


def tables_of(path: Path) -> set[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute("SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
        return set(found.fetchall())


def values_of(path: Path, column: str, table: str) -> set[object]:
    with closing(sqlite3.connect(path)) as connection:
        found = connection.execute(f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL")  # noqa: S608 - ours
        return {value for (value,) in found}


def test_there_is_a_file_of_every_schema_and_no_other() -> None:
    assert {file.stem for file in FOLDER.glob("*.db")} == set(known_schemas())
    assert {file.stem for file in FOLDER.glob("*.json")} == set(known_schemas())


@pytest.mark.parametrize("schema", known_schemas())
def test_a_stored_file_has_exactly_the_tables_that_its_migrations_make(schema: str, tmp_path: Path) -> None:
    engine = sqlite_engine(tmp_path / "fresh.db")
    migrate(engine, to=schema)
    assert tables_of(FOLDER / f"{schema}.db") == tables_of(tmp_path / "fresh.db"), REMAKE
    assert values_of(FOLDER / f"{schema}.db", "version_num", "alembic_version") == {schema}


@pytest.mark.parametrize("schema", known_schemas())
async def test_an_older_store_is_brought_up_to_date_and_all_that_is_in_it_can_be_read(
    schema: str, tmp_path: Path
) -> None:
    path = copied(schema, tmp_path)
    expected = json.loads((FOLDER / f"{schema}.json").read_text(encoding="utf-8"))
    assert await read_from(path) == expected
    assert values_of(path, "version_num", "alembic_version") == {NEWEST}
    assert await read_from(path) == expected
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


async def test_the_newest_file_is_what_this_version_writes(tmp_path: Path) -> None:
    await make(tmp_path / "agentpod.db")
    expected = json.loads((FOLDER / f"{NEWEST}.json").read_text(encoding="utf-8"))
    assert await read_from(tmp_path / "agentpod.db") == expected, REMAKE


def test_the_newest_file_holds_rows_of_every_kind() -> None:
    path = FOLDER / f"{NEWEST}.db"
    for name in metadata.tables:
        assert values_of(path, "1", name), f"nothing stands in {name}"
    assert values_of(path, "status", "questions") == set(Status)
    assert values_of(path, "attachment", "questions") == set(Attachment)
    assert values_of(path, "outcome", "decisions") == set(Outcome)
    assert values_of(path, "via", "decisions") == set(Via)
    assert values_of(path, "state", "outbox") == set(EffectState)
    assert values_of(path, "priority", "outbox") == set(Priority)
    for table in metadata.sorted_tables:
        for column in table.columns:
            assert values_of(path, f'"{column.name}"', table.name), f"no row has {table.name}.{column.name}"


@pytest.mark.parametrize("schema", known_schemas())
def test_a_store_of_a_newer_version_is_refused_and_left_as_it_is(schema: str, tmp_path: Path) -> None:
    path = copied(schema, tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    before = tables_of(path)
    with pytest.raises(StoreRefused, match=r"newer version .* 9999"):
        open_store(path)
    assert tables_of(path) == before
    assert values_of(path, "version_num", "alembic_version") == {"9999"}


def test_the_stored_files_are_small() -> None:
    assert all(file.stat().st_size < 256 * 1024 for file in FOLDER.iterdir())


async def test_a_vote_of_before_has_no_device_that_vouches_for_it(tmp_path: Path) -> None:
    path = copied("0001", tmp_path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE votes SET vouched = 1")
        connection.commit()
    votes = (await read_from(path))["votes"]
    assert votes
    assert {vote["device"] for cast in votes.values() for vote in cast} == {None}
