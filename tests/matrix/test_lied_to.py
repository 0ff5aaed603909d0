"""The bot with a homeserver that lies about when its room was encrypted."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.policy import Trust
from agentpod_bot.core.room import Batch
from agentpod_bot.matrix.response import parts_of, room_batch
from tests.examples import START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question

SYNC = "/_matrix/client/v3/sync"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        made = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        made.seal()
        yield made


def forged(rig: Rig, question: Question) -> Batch:
    """A response in which an approver answers in clear, and the room is encrypted only after that."""
    ts = rig.clock.now_ms()
    answer: dict[str, Any] = {
        "type": "m.room.message",
        "event_id": "$forged",
        "sender": rig.owner,
        "origin_server_ts": ts,
        "content": {
            "msgtype": "m.text",
            "body": f"1 {question.asked.code}",
            "m.relates_to": {"m.in_reply_to": {"event_id": question.event_id}},
        },
    }
    switch = {
        "type": "m.room.encryption",
        "event_id": "$switch",
        "sender": rig.owner,
        "origin_server_ts": ts,
        "state_key": "",
        "content": {"algorithm": "m.megolm.v1.aes-sha2"},
    }
    response = {"rooms": {"join": {rig.room: {"timeline": {"events": [answer, switch]}}}}}
    [part] = parts_of(response, frozenset({rig.room}))
    return Batch(next_batch="forged", rooms=(room_batch(part, (), rig.pod),), invites=())


@pytest.mark.parametrize("trust", [Trust.APPROVERS_VERIFIED, Trust.VERIFIED])
async def test_clear_text_said_to_be_from_before_the_room_was_encrypted_approves_nothing_where_devices_are_verified(
    rig: Rig, trust: Trust
) -> None:
    rig.policy = replace(rig.policy, trust=trust)
    held = asyncio.Event()
    rig.hs.hold("GET", SYNC, held)
    async with rig.run(caught_up=False) as pod:
        asked = await pod.ask()
        question = await pod.when(asked, lambda now: now.event_id is not None)
        assert rig.hs.sent_by(rig.pod, kind="m.room.encrypted")
        await pod.parts.inbox.handle(forged(rig, question))
        assert (await pod.now(question)).is_open


@pytest.mark.parametrize(
    ("trust", "length"),
    [(Trust.ALL, 2), (Trust.APPROVERS_VERIFIED, 4), (Trust.VERIFIED, 4)],
    ids=str,
)
async def test_an_answer_that_was_read_before_the_store_was_lost_has_hardly_a_later_questions_code(
    rig: Rig, trust: Trust, length: int
) -> None:
    """A homeserver could send its ciphertext once more, and nobody knows any longer that it was read."""
    rig.policy = replace(rig.policy, trust=trust)
    async with rig.run() as pod:
        assert len((await pod.ask()).asked.code) == length
