from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

import pytest

from chaos.options import Options
from chaos.run import run

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.synapse

SEED = 20_261
SEALED_SEED = 20_285


@pytest.mark.timeout(330)
async def test_in_a_short_storm_nothing_is_lost_doubled_wrong_or_unauthorised(tmp_path: Path) -> None:
    """A homeserver of its own, for it is killed twice; `python chaos/run.py --seed …` repeats the plan."""
    if importlib.util.find_spec("synapse") is None:
        pytest.skip("needs the extra `demo`")
    options = Options(SEED, requests=100, rooms=6, minutes=3.0, asking_s=35.0)
    result = await run(options, tmp_path)
    assert result.kept, result.text()
    assert result.figures["homeserver gone"] == 2


@pytest.mark.timeout(330)
async def test_in_a_short_storm_over_encrypted_rooms_nothing_is_in_clear_or_unreadable_either(tmp_path: Path) -> None:
    """Calls about keys meet faults, too, and some people speak in clear, without a key, or with a late one."""
    if importlib.util.find_spec("synapse") is None:
        pytest.skip("needs the extra `demo`")
    options = Options(SEALED_SEED, requests=30, rooms=4, minutes=1.0, asking_s=14.0, encrypted=True)
    result = await run(options, tmp_path)
    assert result.kept, result.text()
    assert result.figures["homeserver gone"] == 2
    assert min(result.figures[f"  {form}"] for form in ("in_clear", "keyless", "late_key")) > 0
    assert result.figures["  of calls about keys"] > 0
