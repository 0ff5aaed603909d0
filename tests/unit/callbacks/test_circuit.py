from __future__ import annotations

import pytest

from agentpod_bot.callbacks.circuit import (
    FAILURES_TO_OPEN,
    MOST_AT_ONCE,
    PROBE_EVERY_MS,
    RETRY_S,
    Circuit,
    backoff_ms,
)
from tests.examples import START


def opened() -> Circuit:
    circuit = Circuit()
    for _ in range(FAILURES_TO_OPEN):
        circuit.failed(START, None)
    return circuit


def test_a_target_that_answers_is_posted_a_few_outcomes_at_once() -> None:
    assert Circuit().room(START, under_way=0) == MOST_AT_ONCE
    assert Circuit().room(START, under_way=MOST_AT_ONCE - 1) == 1
    assert Circuit().room(START, under_way=MOST_AT_ONCE + 1) == 0


def test_the_circuit_opens_after_failures_in_a_row_and_says_so_once() -> None:
    circuit = Circuit()
    said = [circuit.failed(START, None) for _ in range(FAILURES_TO_OPEN + 2)]
    assert said == [False] * (FAILURES_TO_OPEN - 1) + [True, False, False]
    assert circuit.is_open


def test_an_answer_in_between_starts_the_count_anew() -> None:
    circuit = Circuit()
    for _ in range(3):
        for _ in range(FAILURES_TO_OPEN - 1):
            circuit.failed(START, None)
        assert circuit.answered() is False
    assert not circuit.is_open


def test_an_open_circuit_lets_one_probe_through_at_a_time_and_only_now_and_then() -> None:
    circuit = opened()
    assert circuit.room(START + PROBE_EVERY_MS - 1, under_way=0) == 0
    assert circuit.room(START + PROBE_EVERY_MS, under_way=0) == 1
    assert circuit.room(START + PROBE_EVERY_MS, under_way=1) == 0
    circuit.failed(START + PROBE_EVERY_MS, None)
    assert circuit.room(START + 2 * PROBE_EVERY_MS - 1, under_way=0) == 0


def test_a_probe_that_is_answered_closes_the_circuit_at_once() -> None:
    circuit = opened()
    assert circuit.answered() is True
    assert circuit.room(START, under_way=0) == MOST_AT_ONCE


def test_a_target_that_asks_for_time_is_left_in_peace_for_so_long() -> None:
    circuit = Circuit()
    circuit.failed(START, 90_000)
    circuit.failed(START, None)
    assert not circuit.is_open
    assert circuit.room(START + 89_999, under_way=0) == 0
    assert circuit.room(START + 90_000, under_way=0) == MOST_AT_ONCE


@pytest.mark.parametrize("attempts", range(1, len(RETRY_S) + 3))
def test_each_wait_lies_between_half_of_its_step_and_all_of_it(attempts: int) -> None:
    full_ms = RETRY_S[min(attempts, len(RETRY_S)) - 1] * 1000
    assert backoff_ms(attempts, 0.0) == full_ms // 2
    assert backoff_ms(attempts, 1.0) == full_ms
    assert full_ms // 2 < backoff_ms(attempts, 0.5) < full_ms


def test_the_steps_only_grow() -> None:
    assert sorted(set(RETRY_S)) == list(RETRY_S)
