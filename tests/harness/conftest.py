"""The real programs, each with a model that does as it is told and a person in a real room of either kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness import programs
from tests.harness.projects import Project
from tests.harness.rooms import Room
from tests.integration.conftest import cast, daemon, owner, people, register, sealed, synapse

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast
    from tests.integration.daemons import Daemon

__all__ = ["cast", "daemon", "owner", "people", "register", "sealed", "synapse"]  # fixtures

FITTING = " ".join(programs.BUILT_FOR)
HARNESSES = ("acp", "claude-code", "claude-prompt", "codex", "opencode")


@pytest.fixture(autouse=True, scope="module")
def _installed(request: pytest.FixtureRequest) -> None:
    """Whoever selects these tests has the programs that they NEED (all, where a module does not say)."""
    if not programs.fits_here():
        pytest.skip(f"the programs are built for {FITTING}")
    needed = getattr(request.module, "NEED", programs.PROGRAMS)
    missing = [program.package for program in needed if not program.path.exists()]
    if missing:
        pytest.fail(f"not installed in {programs.FOLDER}: {', '.join(missing)}; `make test-harness` installs them")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """The folder in which the program works."""
    folder = tmp_path / "project"
    folder.mkdir()
    return Project(folder)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The program's user's own folder, still empty."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def room(daemon: Daemon, owner: Person, cast: Cast) -> Room:
    """The room that is asked. Its daemon is not started yet."""
    daemon.config["clients"]["laptop"]["harnesses"] = list(HARNESSES)
    return Room(daemon, owner, cast.room_id)
