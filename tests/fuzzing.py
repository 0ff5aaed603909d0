"""Runs the project's properties for as long as told: `pytest -p tests.fuzzing -m hypothesis --minutes 5`.

Each property has an equal share of the time that is left, and runs again and again in it with
new examples. One that fails is not run again, and its example is printed at the end and kept
in `.hypothesis`, where the next run of it, `make test` too, begins.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.database import DirectoryBasedExampleDatabase

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

MINUTES = 5.0
EXAMPLES = 250
"""Of one run of a property: few enough to look at the clock between two."""


class Fuzzing:
    """Repeats tests until `until`, in seconds of `clock`."""

    def __init__(self, until: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._until = until
        self._clock = clock
        self._waiting = 0
        self.properties = 0
        self.runs = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count those that share the time."""
        self._waiting = len(session.items)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run one test again until its share of the time is over; at least once."""
        now = self._clock()
        share = max(0.0, self._until - now) / max(1, self._waiting)
        self._waiting -= 1
        self.properties += 1
        self.runs += 1
        result = yield
        while self._clock() < now + share:
            self.runs += 1
            item.runtest()
        return result

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how much was tried."""
        terminalreporter.write_line(
            f"{self.properties} properties in {self.runs} runs of up to {EXAMPLES} examples each"
        )


def pytest_addoption(parser: pytest.Parser) -> None:
    """Take the minutes from the command line."""
    parser.addoption("--minutes", type=float, default=MINUTES, help="how long to run in all")


def pytest_configure(config: pytest.Config) -> None:
    """Begin: what loading the tests takes counts too."""
    settings.register_profile(
        "fuzz",
        max_examples=EXAMPLES,
        derandomize=False,
        database=DirectoryBasedExampleDatabase(config.rootpath / ".hypothesis" / "examples"),
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink],
    )
    settings.load_profile("fuzz")
    until = time.monotonic() + 60 * float(config.getoption("--minutes"))
    config.pluginmanager.register(Fuzzing(until), "fuzzing")
