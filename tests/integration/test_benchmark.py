from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from benchmarks.report import ARMS, SEALED_ARMS, report
from benchmarks.round_trip import Clock, Options, measure

if TYPE_CHECKING:
    from agentpod_bot.demo.homeserver import PrivateSynapse

pytestmark = pytest.mark.synapse


async def test_a_short_benchmark_measures_every_arm_and_finds_every_phase(synapse: PrivateSynapse) -> None:
    found = await measure(synapse, Options(rounds=2, pairs=1, seed=1, warm_up=0, encrypted=True), Clock())
    every = [*ARMS, *SEALED_ARMS]
    assert {arm: [len(rounds) for rounds in pairs] for arm, pairs in found.items()} == {arm: [2] for arm in every}
    for played in (one for pairs in found.values() for rounds in pairs for one in rounds):
        assert min(played.before, played.away, played.after) > 0
        assert played.late >= 0
        assert played.total == pytest.approx(played.own + played.away)
    text, _ = report(found, Random(1))
    assert "own path" in text
    assert "encrypted daemon to nio" in text
