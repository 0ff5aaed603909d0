"""Secrets on the whole way from a request to a room, and what still knows them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.digest import digest
from agentpod_bot.core.model import TextPreview
from tests.examples import OPS_ROUTE, ROUTE, START, request
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

SECRET = "ghp_" + "0123456789abcdefghijklmnopqrstuvwxyz"
PREVIEW = (TextPreview("Command", f"curl -H 'Authorization: Bearer {SECRET}' https://example.org"),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


@pytest.mark.parametrize("masking", [True, False])
async def test_30_the_room_sees_a_secret_only_where_its_route_says_so(
    rig: Rig, clock: FakeClock, *, masking: bool
) -> None:
    route = replace(OPS_ROUTE, room_id=rig.room, mask_secrets=masking)
    rig.policy = replace(rig.policy, routes={ROUTE: route})
    async with rig.run() as pod:
        question = await pod.pending(title=f"Use {SECRET}", preview=PREVIEW)
        clock.advance(1_000)
        rig.say(f"3: not with {SECRET}")
        decided = await pod.when(question, lambda now: not now.is_open)
        await rig.hs.until(lambda: rig.outcomes(question))
        said = json.dumps([*rig.questions(), *rig.outcomes(question)])
        assert (SECRET in said) is not masking
        assert ("hidden token, 40 characters" in said) is masking
        asked = decided.asked
        assert decided.closing is not None
        assert (asked.title, asked.preview, decided.closing.comment) == (f"Use {SECRET}", PREVIEW, f"not with {SECRET}")
        raw = request(title=asked.title, preview=asked.preview, request_id=None, request_seq=None)
        assert asked.digest == digest(raw, request_id=asked.key.request_id, revision=1, salt=asked.salt)
        assert digest(raw, request_id=asked.key.request_id, revision=1, salt="0" * 32) != asked.digest
