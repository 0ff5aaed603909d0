"""The commands for whoever keeps the daemon running: `doctor` and `backup`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from agentpod_bot.proxy.stopped import ExitCode, Stopped

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Configuration file (else $AGENTPOD_BOT_CONFIG, ./config.yaml, /etc/agentpod-bot/config.yaml).",
    ),
]


def doctor(*, config: Config = None) -> None:
    """Look at everything that has to be right, and say what to do where it is not.

    Configuration, store, access token, clocks, and for every route its room, the bot's
    rights there and its approvers. Nothing is changed; it may run beside the daemon, as
    the daemon's user. A line each: ok, warn or fail. Exit code 1 if anything fails.
    """
    from agentpod_bot.cli.doctor import look  # noqa: PLC0415 - imports nearly all that the daemon needs
    from agentpod_bot.cli.findings import Grade  # noqa: PLC0415 - likewise

    failed = False
    for found in look(config):
        typer.echo(str(found))
        failed |= found.grade is Grade.FAIL
    raise typer.Exit(ExitCode.NO if failed else ExitCode.OK)


def backup(
    file: Annotated[Path, typer.Argument(help="Where to write the copy; nothing may be there yet.", metavar="FILE")],
    *,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Also copy the keys of the bot's device, into a new folder."),
    ] = None,
    config: Config = None,
) -> None:
    """Copy the store into FILE, while the daemon runs or not, and check the copy.

    The copy is the store as it is at one moment, one file of mode 0600; it holds raw
    commands, as the store does. The keys are encrypted with the secret in
    e2e.pickle_key_file, which is not copied. To restore them: docs/store.md.
    """
    from agentpod_bot.config.load import store_path  # noqa: PLC0415 - slow to import
    from agentpod_bot.store.backup import back_up  # noqa: PLC0415 - likewise

    store = store_path(config, os.environ)
    try:
        copied = back_up(store, file)
    except FileExistsError as error:
        raise Stopped(ExitCode.USAGE, f"{error.filename} exists already; name another file") from error
    except (FileNotFoundError, NotADirectoryError, PermissionError, IsADirectoryError) as error:
        raise Stopped(ExitCode.USAGE, f"cannot write {file}: {error.strerror}") from error
    typer.echo(f"{file}: {copied.size} bytes, {copied.questions} questions, {copied.open_questions} of them open.")
    if keys is not None:
        _copy_keys(config, keys)


def _copy_keys(config: Path | None, target: Path) -> None:
    import sqlite3  # noqa: PLC0415 - only needed here

    from agentpod_bot.config.load import keys_folder  # noqa: PLC0415 - slow to import
    from agentpod_bot.matrix.e2e.copying import copy_vault  # noqa: PLC0415 - needs the extra

    folder = keys_folder(config, os.environ)
    try:
        copy_vault(folder, target)
    except FileExistsError as error:
        raise Stopped(ExitCode.USAGE, f"{target} exists already; name another folder") from error
    except (OSError, sqlite3.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise Stopped(ExitCode.USAGE, f"the keys in {folder} cannot be copied to {target}: {reason}") from error
    typer.echo(f"{target}: the keys of the bot's device.")
