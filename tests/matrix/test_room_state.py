"""What is known of a room can be lost at any moment; no answer is lost with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from agentpod_bot.broker.world import World
    from agentpod_bot.core.ids import RoomId


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = FakeClock()
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "agentpod.db")


def forget(world: World, room_id: RoomId) -> None:
    """As a send does that the homeserver refuses."""
    world.forget(room_id)


def read_in_part(world: World, room_id: RoomId) -> None:
    """As a reading of the state does whose question about encryption met a fault."""
    state = world.room(room_id)
    assert state is not None
    world.adopt({room_id: replace(state, encrypted=None)})


@pytest.mark.parametrize("lose", [forget, read_in_part])
async def test_an_answer_counts_where_the_state_of_its_room_gets_lost_just_before_it_is_judged(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, lose: Callable[[World, RoomId], None]
) -> None:
    """Between the look whether the state is known and the transaction, others may read it anew."""
    async with rig.run() as pod:
        question = await pod.pending()
        commit = pod.parts.inbox._commit
        lost: list[bool] = []

        async def losing(work: Any) -> Any:
            if not lost:
                lost.append(True)
                lose(pod.parts.world, rig.room)
            return await commit(work)

        monkeypatch.setattr(pod.parts.inbox, "_commit", losing)
        rig.say("1", reply_to=question)
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.answered_by == rig.owner
        assert lost
