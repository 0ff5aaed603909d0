"""Where a value of the configuration came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Default:
    """Nobody gave it."""


@dataclass(frozen=True, slots=True)
class InFile:
    """The configuration file, at this line (counted from 1)."""

    path: Path
    line: int


@dataclass(frozen=True, slots=True)
class InEnvironment:
    """An environment variable, by the name that it really has."""

    variable: str


@dataclass(frozen=True, slots=True)
class CredentialFile:
    """A file of `$CREDENTIALS_DIRECTORY`, found by its name."""

    path: Path


@dataclass(frozen=True, slots=True)
class SecretFile:
    """A file that a `*_file` key names."""

    path: Path


Source = Default | InFile | InEnvironment | CredentialFile | SecretFile


def said(source: Source) -> str:
    """A source in a few words, for the report and for faults."""
    match source:
        case Default():
            return "default"
        case InFile(path=path, line=line):
            return f"{path.name}:{line}"
        case InEnvironment(variable=variable):
            return f"environment variable {variable}"
        case CredentialFile(path=path):
            return f"credential file {path}"
        case SecretFile(path=path):
            return f"secret file {path}"
        case _:
            assert_never(source)
