"""A folder in which a program works, and the one thing that its model wants to do there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = "touch marker"
PROMPT = "Go on"


@dataclass(frozen=True, slots=True)
class Project:
    """A folder of its own."""

    folder: Path

    @property
    def has_run(self) -> bool:
        """Whether `COMMAND` ran."""
        return self.holds("marker")

    def holds(self, name: str) -> bool:
        """Whether there is such a file."""
        return (self.folder / name).exists()

    def remove(self, name: str) -> None:
        """Remove a file."""
        (self.folder / name).unlink()

    def read(self, name: str) -> str:
        """A file's text."""
        return (self.folder / name).read_text()

    def write(self, name: str, text: str) -> None:
        """Write a file, and the folder in which it is."""
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
