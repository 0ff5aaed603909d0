"""Numbers: what is read is what was written, or it is not read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentpod_bot.errors import MalformedJson
from agentpod_bot.harness import strict_json
from agentpod_bot.harness.strict_json import MAX_DIGITS


def _short(number: str) -> str:
    return f"{number[:6]} of {len(number)}"


@pytest.mark.parametrize(
    "number",
    ["1e309", "-1e309", "1" * 41, "-" + "1" * 41, "1" + "0" * 40, "-" + "9" * 5_000, "1" * 5_000],
    ids=_short,
)
@pytest.mark.parametrize("read", [strict_json.read, strict_json.read_either])
def test_a_number_that_would_be_read_as_another_one_is_refused(number: str, read: Any) -> None:
    with pytest.raises(MalformedJson, match="a number is too large to be read"):
        read(f'{{"x": [{number}]}}'.encode())


@pytest.mark.parametrize("number", ["1e308", "0.1", "1" * 40, "-" + "9" * 40, "-0", "true"], ids=_short)
def test_other_numbers_are_read(number: str) -> None:
    assert strict_json.read(f'{{"x": [{number}]}}'.encode()) == json.loads(f'{{"x": [{number}]}}')


@given(st.integers(-(10**MAX_DIGITS) + 1, 10**MAX_DIGITS - 1))
def test_a_whole_number_that_is_read_is_the_one_that_was_written(number: int) -> None:
    assert strict_json.read(f'{{"x": {number}}}'.encode()) == {"x": number}


@pytest.mark.parametrize("body", [b"", b"\n", b"{x", b"[1,"])
def test_what_is_no_json_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(MalformedJson, match=r"^the body is no JSON: .+ \(line \d+, column \d+\)$"):
        strict_json.read(body)
