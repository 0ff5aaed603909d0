"""The part of `login` that makes the new device's keys, so that the bot can speak in encrypted rooms."""

from __future__ import annotations

import importlib.util
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from pathlib import Path

PRIVATE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class KeysOptions:
    """Where the keys go, and the file with the secret that they are encrypted with, which is made if it is missing."""

    folder: Path
    pickle_key_file: Path
    reset_identity: bool = False


def can_make_keys() -> bool:
    """Whether the extra that encrypts is installed."""
    return importlib.util.find_spec("vodozemac") is not None


def check(options: KeysOptions) -> None:
    """Raise `Stopped` where the keys could not be made, before there is a device that would lack them."""
    from agentpod_bot.matrix.e2e.vault import KEYS  # noqa: PLC0415 - needs nothing, but only this command needs it

    if not can_make_keys():
        raise Stopped(
            ExitCode.USAGE,
            "keys for encrypted rooms need: pip install 'agentpod-bot[e2e]' (or give --no-e2e, and ask in rooms "
            "without encryption only)",
        )
    if (options.folder / KEYS).exists():
        raise Stopped(
            ExitCode.USAGE,
            f"{options.folder} holds the keys of another device; give another --e2e-store, or move it away",
        )
    if options.pickle_key_file.exists():
        pickle_key_of(options.pickle_key_file)


def pickle_key_of(path: Path) -> str:
    """The secret in a file; a new one, written there, where there is none. Raises `Stopped`."""
    from agentpod_bot.config.credentials import checked, content  # noqa: PLC0415 - slow to import
    from agentpod_bot.matrix.e2e.vault import new_pickle_key  # noqa: PLC0415 - only this command needs it

    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError:
        try:
            return checked(content(path, is_credential=False)).get_secret_value()
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise Stopped(ExitCode.USAGE, f"--pickle-key-file {path}: {reason}") from error
    except OSError as error:
        raise Stopped(ExitCode.USAGE, f"cannot write {path}: {error.strerror}") from error
    made = new_pickle_key()
    try:
        os.write(file, made.encode() + b"\n")
        os.fsync(file)
    finally:
        os.close(file)
    return made


def said_of(options: KeysOptions, trouble: str | None) -> tuple[str, ...]:
    """What a person is told of the new keys."""
    made = f"The device's keys are in {options.folder}: keep a backup of it, and of {options.pickle_key_file}."
    return (made,) if trouble is None else (made, f"Other devices will warn of it: {trouble}")


def settings_lines(options: KeysOptions) -> tuple[str, ...]:
    """What the configuration file has to say of the keys."""
    return (
        "e2e:",
        f"  store: {json.dumps(str(options.folder.absolute()))}",
        f"  pickle_key_file: {json.dumps(str(options.pickle_key_file.absolute()))}",
    )
