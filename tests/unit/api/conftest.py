from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.unit.api.bench import Bench, bench

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def daemon() -> AsyncIterator[Bench]:
    """A server with the default limits."""
    async with bench() as running:
        yield running
