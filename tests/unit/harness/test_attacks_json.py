"""What a body may cost before anything of it is known."""

from __future__ import annotations

import time
import tracemalloc
from contextlib import suppress

import pytest

from agentpod_bot.errors import AgentpodError
from agentpod_bot.harness.strict_json import read

EMOJI = '"\\ud83d\\ude00"'
"""A whole pair of escaped surrogates, which is right; it makes the reader look at every string."""


@pytest.mark.parametrize("depth", [1, 50, 300])
def test_a_body_with_an_escaped_emoji_costs_no_more_memory_for_being_deep(depth: int) -> None:
    items = ",".join([EMOJI, *["0"] * 20_000])
    body = f'{{"x":{"[" * depth}{items}{"]" * depth}}}'.encode()
    tracemalloc.start()
    try:
        with suppress(AgentpodError):  # refusing it is right too
            read(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 1024 * 1024


def test_a_body_of_the_allowed_size_is_read_before_anyone_notices() -> None:
    body = f'{{"x":[{",".join([EMOJI, *["0"] * 500_000])}]}}'.encode()
    began = time.process_time()
    read(body)
    assert time.process_time() - began < 0.4
