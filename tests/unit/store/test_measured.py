from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.metrics import Metrics
from agentpod_bot.store.measured import MeasuredStore
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Slow:
    """A store that takes two seconds, and may fail."""

    def __init__(self, clock: FakeClock, failure: Exception | None = None) -> None:
        self._clock = clock
        self._failure = failure

    async def run(self, work: Callable[[Any], Any]) -> Any:
        self._clock.advance(2_000)
        if self._failure is not None:
            raise self._failure
        return work(None)


@pytest.mark.parametrize(
    ("failure", "counted"), [(None, 0), (LookupError("its own"), 0), (StoreUnavailable("disk full"), 1)]
)
async def test_every_transaction_is_timed_and_only_the_databases_own_failures_are_counted(
    failure: Exception | None, counted: int
) -> None:
    clock, metrics = FakeClock(), Metrics()
    store = MeasuredStore(Slow(clock, failure), metrics, clock)
    if failure is None:
        assert await store.run(lambda _: 7) == 7
    else:
        with pytest.raises(type(failure)):
            await store.run(lambda _: 7)
    shown = metrics.render().decode()
    assert "\nagentpod_store_transaction_seconds_sum 2.0\n" in shown
    assert f"\nagentpod_store_failures_total {counted:.1f}\n" in shown
