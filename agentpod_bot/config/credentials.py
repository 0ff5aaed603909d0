"""Secrets: from a file that a `*_file` key names, from `$CREDENTIALS_DIRECTORY`, or from the environment.

Exactly one of the three gives a secret. No sentence of this module repeats one.
"""

from __future__ import annotations

import os
import shlex
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from agentpod_bot.config import environment, fault, values
from agentpod_bot.config.fault import Fault, dotted, shown
from agentpod_bot.config.source import CredentialFile, SecretFile, Source, said

if TYPE_CHECKING:
    from collections.abc import Mapping

DIRECTORY = "CREDENTIALS_DIRECTORY"
"""Variable in which a service manager says where it put the credentials (systemd.exec(5))."""
MIN_CHARACTERS = 16
MAX_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Found:
    """A secret and where it came from."""

    secret: SecretStr
    source: Source


@dataclass(frozen=True, slots=True)
class Places:
    """Where secrets may lie: the folder of the configuration file, and the credentials directory."""

    folder: Path
    credentials: Path | None

    @classmethod
    def of(cls, folder: Path, environ: Mapping[str, str]) -> Places:
        """The places of one start."""
        directory = environ.get(DIRECTORY)
        return cls(folder, Path(directory) if directory else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One secret to find, at the path of its key.

    `file` is the value of its `*_file` neighbour as written, `override` the variable that
    holds the secret itself.
    """

    at: fault.Path
    file: str | None
    file_source: Source | None
    override: environment.Override | None
    required: bool = True
    chosen: bool = False
    """A person chose it: it may be short, and hold more than one word."""

    @property
    def file_at(self) -> fault.Path:
        """The path of the `*_file` neighbour."""
        return (*self.at[:-1], f"{self.at[-1]}_file")


def find(wanted: Wanted, places: Places) -> Found | Fault | None:
    """Find and check one secret, or say why there is none; None where none is given and none is required."""
    at, name = wanted.at, dotted(wanted.at)
    given: list[Source] = []
    if wanted.file is not None:
        given.append(SecretFile(places.folder / wanted.file))
    if places.credentials is not None and os.path.lexists(places.credentials / name):
        given.append(CredentialFile(places.credentials / name))
    if wanted.override is not None:
        given.append(wanted.override.source)
    match given:
        case [] if not wanted.required:
            return None
        case []:
            ways = f"`{dotted(wanted.file_at)}` or {environment.variable_of(at)}, or give a credential named {name}"
            return Fault(at, f"is required, and never stands in this file: set {ways}")
        case [source]:
            return opened(wanted, source, places)
        case _:
            ways = ", ".join(_said(source, wanted) for source in given)
            return Fault(at, f"is given {len(given)} times: {ways}; keep one of them")


def opened(wanted: Wanted, source: Source, places: Places) -> Found | Fault:
    """Read a secret from its one source."""
    path: Path | None = None
    match source:
        case SecretFile(path=path):
            at, given_in = wanted.file_at, wanted.file_source
            folder, home = os.path.realpath(path.parent), places.credentials
            is_credential = home is not None and folder == os.path.realpath(home)
        case CredentialFile(path=path):
            at, given_in, is_credential = wanted.at, source, True
        case _:
            at, given_in, is_credential = wanted.at, source, False
    try:
        text = content(path, is_credential=is_credential) if path is not None else variable(wanted)
        return Found(checked_line(text) if wanted.chosen else checked(text), source)
    except FileNotFoundError:
        if wanted.file is not None and looks_secret(wanted.file, path):
            return Fault(at, "names no file; the value is not shown here, as it may be the secret itself", given_in)
        return Fault(at, f"there is no file {shown(str(path))}", given_in)
    except OSError as error:
        return Fault(at, f"cannot be read: {error.strerror}", given_in)
    except ValueError as error:
        return Fault(at, str(error), given_in)


def _said(source: Source, wanted: Wanted) -> str:
    match source:
        case SecretFile(path=path) if wanted.file and not os.path.lexists(path) and looks_secret(wanted.file, path):
            return f"`{dotted(wanted.file_at)}`"
        case _:
            return said(source)


def variable(wanted: Wanted) -> str:
    """The text of the variable that holds the secret."""
    return "" if wanted.override is None else wanted.override.text


def content(path: Path, *, is_credential: bool) -> str:
    """Read a secret's file. `ValueError` where others may read it too, or it is no text of fair size.

    A service manager gives its credentials to a group of its own choosing, so there only
    access by everybody is refused.
    """
    # not to hang on a pipe that nobody writes to
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        check_mode(
            path, os.fstat(descriptor).st_mode, forbidden=stat.S_IRWXO if is_credential else stat.S_IRWXG | stat.S_IRWXO
        )
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            raw = file.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{shown(str(path))} is larger than {MAX_BYTES} bytes")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{shown(str(path))} is not UTF-8") from None


def check_mode(path: Path, mode: int, *, forbidden: int) -> None:
    """Refuse (`ValueError`) what is no regular file, and one that others can open, with the command that helps."""
    if not stat.S_ISREG(mode):
        raise ValueError(f"{shown(str(path))} is no regular file")
    if mode & forbidden:
        others = "everybody" if mode & stat.S_IRWXO else "its group"
        remedy = f"chmod {'600' if forbidden & stat.S_IRWXG else 'o-rwx'} {shlex.quote(str(path))}"
        raise ValueError(
            f"{shown(str(path))} has mode {stat.S_IMODE(mode):04o}, which opens it to {others}; run: {remedy}"
        )


def checked(text: str) -> SecretStr:
    """A secret that can travel in an HTTP header and cannot be guessed; white space around it is dropped."""
    secret = text.strip()
    if not secret:
        raise ValueError("gives an empty secret")
    if values.is_placeholder(secret):
        raise ValueError("gives a placeholder; put the real secret there")
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise ValueError("gives a secret that is not one word of visible ASCII characters")
    if len(secret) < MIN_CHARACTERS:
        raise ValueError(f"gives a secret of {len(secret)} characters; it needs {MIN_CHARACTERS} at least")
    return SecretStr(secret)


def checked_line(text: str) -> SecretStr:
    """A secret that a person chose: one line, exactly as it is; the line break at its end is not part of it."""
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret:
        raise ValueError("gives an empty secret")
    if values.is_placeholder(secret):
        raise ValueError("gives a placeholder; put the real secret there")
    if not secret.isprintable():
        raise ValueError("gives a secret that is not one line of visible characters")
    return SecretStr(secret)


def looks_secret(value: str, path: Path | None) -> bool:
    """Whether a value that should be a path may rather be a secret; base64 has slashes too."""
    if len(value) < MIN_CHARACTERS:
        return False
    folder = None if path is None else path.parent
    is_path = folder is not None and os.path.isdir(folder)  # noqa: PTH112 - raises nothing, unlike Path.is_dir
    return len(value.rpartition("/")[2]) >= MIN_CHARACTERS or not is_path
