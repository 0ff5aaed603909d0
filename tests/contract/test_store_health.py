from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import EventId
from agentpod_bot.core.kept import Backlog
from agentpod_bot.store.database import open_store
from tests.unit.store.examples import (
    MINUTE,
    ROOM,
    T0,
    effect,
    insert_closed,
    insert_pending,
    migrated_engine,
    question,
    undone,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

    from agentpod_bot.ports import Tx


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    return migrated_engine(tmp_path_factory.mktemp("health"))


@pytest.fixture
def tx(engine: Engine) -> Iterator[Tx]:
    with undone(engine) as tx:
        yield tx


def test_an_empty_store_has_no_backlog(tx: Tx) -> None:
    assert tx.backlog() == Backlog(queued=0, pending=0, oldest_open_ms=None, unsent=0, oldest_unsent_ms=None)


def test_what_is_open_and_unsent_is_counted_and_what_is_done_is_not(tx: Tx) -> None:
    insert_closed(tx, 1)
    insert_pending(tx, 3)
    insert_pending(tx, 4)
    asked = tx.insert(question(2))
    tx.enqueue(effect("question", row=asked.row, not_before_ms=T0 + 7))
    tx.enqueue(effect("hint", not_before_ms=T0 + 5))
    tx.enqueue(effect("gone"))
    gone = tx.begin(ROOM, T0)
    assert gone is not None
    tx.sent(gone.effect_id, EventId("$gone"), T0)
    assert tx.backlog() == Backlog(
        queued=1, pending=2, oldest_open_ms=T0 + 2 * MINUTE, unsent=2, oldest_unsent_ms=T0 + 5
    )


def test_putting_an_effect_off_makes_it_no_younger(tx: Tx) -> None:
    tx.enqueue(effect("hint", not_before_ms=T0 + 5))
    begun = tx.begin(ROOM, T0 + 5)
    assert begun is not None
    tx.postpone(begun.effect_id, T0 + 10 * MINUTE)
    assert tx.backlog().oldest_unsent_ms == T0 + 5


def touched(tx: Tx, now_ms: int) -> None:
    tx.touch(now_ms)


async def test_touching_the_store_really_writes_each_time(tmp_path: Path) -> None:
    """A statement that changes nothing writes nothing, and proves nothing of a full disk."""
    path = tmp_path / "agentpod.db"
    store = open_store(path)
    sizes = []
    for now_ms in (T0, T0 + 1, T0 + 2, T0 + 3):
        await store.run(partial(touched, now_ms=now_ms))
        sizes.append(path.with_name("agentpod.db-wal").stat().st_size)
    await store.close()
    assert sizes == sorted(set(sizes))
