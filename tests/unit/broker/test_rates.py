from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot.broker.rates import Rates
from agentpod_bot.core.ids import ClientName
from agentpod_bot.core.rate import Rate
from agentpod_bot.errors import TooManyRequests
from tests.examples import CALLER
from tests.fakes import FakeClock

TWO_A_MINUTE = replace(CALLER, rate=Rate(2, 60_000))


def refused(rates: Rates) -> int:
    with pytest.raises(TooManyRequests) as caught:
        rates.take(TWO_A_MINUTE)
    return caught.value.retry_after_s


def test_a_client_without_a_rate_asks_as_often_as_it_likes() -> None:
    rates = Rates(FakeClock())
    for _ in range(1_000):
        rates.take(CALLER)


def test_a_refusal_says_after_how_many_seconds_it_would_be_none() -> None:
    clock = FakeClock()
    rates = Rates(clock)
    rates.take(TWO_A_MINUTE)
    rates.take(TWO_A_MINUTE)
    assert refused(rates) == 30
    clock.advance(29_001)
    assert refused(rates) == 1
    clock.advance(999)
    rates.take(TWO_A_MINUTE)
    assert refused(rates) == 30


def test_each_client_has_a_bucket_of_its_own() -> None:
    rates = Rates(FakeClock())
    rates.take(TWO_A_MINUTE)
    rates.take(TWO_A_MINUTE)
    rates.take(replace(TWO_A_MINUTE, client=ClientName("ci")))
    refused(rates)


def test_a_changed_rate_holds_from_the_next_question_on() -> None:
    rates = Rates(FakeClock())
    rates.take(TWO_A_MINUTE)
    rates.take(TWO_A_MINUTE)
    rates.take(replace(CALLER, rate=Rate(3, 60_000)))
    rates.take(CALLER)
    rates.take(TWO_A_MINUTE)
