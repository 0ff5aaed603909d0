from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from tests.examples import START
from tests.fakes import FakeClock
from tests.fuzzing import Fuzzing

ROOT = Path(__file__).resolve().parents[2]
PROPERTIES = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_that_may_hold(number):
    assert {holds}

def test_that_is_no_property():
    raise AssertionError
"""


class Timed:
    """A test that takes so many seconds of a clock."""

    def __init__(self, clock: FakeClock, seconds: int) -> None:
        self._clock = clock
        self._seconds = seconds
        self.runs = 0

    def runtest(self) -> None:
        self.runs += 1
        self._clock.advance(self._seconds * 1_000)


def fuzzed(*seconds: int, minutes: int = 1) -> tuple[list[int], float]:
    """How often tests that take so many seconds ran, and how long all of them took."""
    clock = FakeClock(START)
    started = clock.monotonic()
    tests = [Timed(clock, each) for each in seconds]
    fuzzing = Fuzzing(started + 60 * minutes, clock.monotonic)
    session = cast("Any", type("Session", (), {"items": tests}))
    fuzzing.pytest_collection_finish(session)
    for test in tests:
        steps = fuzzing.pytest_runtest_call(cast("Any", test))
        next(steps)
        test.runtest()
        with pytest.raises(StopIteration):
            steps.send(None)
    assert fuzzing.properties == len(tests)
    assert fuzzing.runs == sum(test.runs for test in tests)
    return [test.runs for test in tests], clock.monotonic() - started


def test_properties_share_the_time_and_stop_when_it_is_over() -> None:
    assert fuzzed(1, 2, 10) == ([20, 10, 2], 60)


def test_what_one_property_takes_too_much_the_others_lack_and_each_runs_once() -> None:
    assert fuzzed(100, 1, 1) == ([1, 1, 1], 102)


@pytest.mark.parametrize(("holds", "code"), [("number + number == 2 * number", 0), ("number < 143", 1)])
def test_only_properties_are_run_and_a_failing_example_is_printed(tmp_path: Path, holds: str, code: int) -> None:
    file = tmp_path / "test_properties.py"
    file.write_text(PROPERTIES.format(holds=holds))
    options = ["-p", "tests.fuzzing", "-m", "hypothesis", "-p", "no:cacheprovider", "--minutes", "0.03"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, file],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout
    assert ("number=143" in done.stdout) is (code == 1)
    runs = re.search(r"1 properties in (\d+) runs", done.stdout)
    assert runs is not None
    assert int(runs[1]) > 1 or code == 1
