"""`login`: a password in, a file with an access token out."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from agentpod_bot.cli.making_keys import KeysOptions, check, pickle_key_of, said_of, settings_lines
from agentpod_bot.errors import CannotStart, HomeserverUnreachable
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

PRIVATE = 0o600


@dataclass(frozen=True, slots=True)
class LoginOptions:
    """What the command line says. `password_file` "-" is stdin, None asks the person."""

    homeserver: str
    user: str
    device_name: str
    output: Path
    force: bool
    password_file: str | None
    keys: KeysOptions | None = None
    """None: no keys are made, and the bot cannot speak in encrypted rooms."""


def log_in(options: LoginOptions) -> tuple[str, ...]:
    """Log in, write the token, and return what to tell the person: never the token.

    The file is opened before the homeserver is asked, so that no session is made whose
    token cannot be kept; where the login fails, no file is left. Raises `Stopped`,
    `CredentialsRefused`, `HomeserverUnreachable`.
    """
    from agentpod_bot.config.values import homeserver_url  # noqa: PLC0415 - slow to import, and only needed here
    from agentpod_bot.matrix.login import login  # noqa: PLC0415 - likewise

    try:
        url = homeserver_url(options.homeserver)
    except ValueError as fault:
        raise Stopped(ExitCode.USAGE, f"--homeserver {fault}") from fault
    trouble = None
    if options.keys is not None:
        check(options.keys)
    with quiet("nio"), kept(options.output, replace=options.force) as file:
        password = password_of(options)
        try:
            user_id, device_id, access_token = asyncio.run(login(url, options.user, password, options.device_name))
        except HomeserverUnreachable as fault:
            raise HomeserverUnreachable(f"cannot log in at {url}: {fault}") from fault
        if options.keys is not None:
            from agentpod_bot.matrix.e2e.making import NewDevice, make_keys  # noqa: PLC0415 - needs the extra

            made = NewDevice(
                url=url, user_id=user_id, device_id=device_id, access_token=access_token, password=password
            )
            reset = options.keys.reset_identity
            try:
                pickle_key = pickle_key_of(options.keys.pickle_key_file)
                trouble = asyncio.run(make_keys(made, options.keys.folder, pickle_key, reset_identity=reset))
            except CannotStart as fault:
                raise Stopped(
                    ExitCode(fault.exit_code),
                    f"{fault}. The session {device_id} of {user_id} was made all the same: end it with a Matrix client",
                ) from fault
        try:
            os.write(file, access_token.encode() + b"\n")
            os.fsync(file)
        except OSError as fault:
            raise Stopped(
                ExitCode.USAGE,
                f"cannot write {options.output}: {fault.strerror}. The session {device_id} of {user_id} was made all "
                "the same: end it with a Matrix client",
            ) from fault
    return (
        f"Logged in as {user_id}, device {device_id}.",
        f"The access token is in {options.output}, which only you can read.",
        *(() if options.keys is None else said_of(options.keys, trouble)),
        "",
        "For the configuration file:",
        "homeserver:",
        f"  url: {json.dumps(url)}",
        f"  user_id: {json.dumps(user_id)}",
        f"  device_id: {json.dumps(device_id)}",
        f"  access_token_file: {json.dumps(str(options.output.absolute()))}",
        *(() if options.keys is None else settings_lines(options.keys)),
    )


@contextmanager
def quiet(logger: str) -> Iterator[None]:
    """Say nothing of a library's warnings meanwhile: they repeat, in its words, what our own sentence says."""
    library = logging.getLogger(logger)
    before = library.level
    library.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        library.setLevel(before)


@contextmanager
def kept(path: Path, *, replace: bool) -> Iterator[int]:
    """A new private file, open for writing; it is at `path` where the body ends well, else nowhere."""
    target = path.with_name(f".{path.name}.new") if replace else path
    if replace:
        target.unlink(missing_ok=True)
    try:
        file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    except FileExistsError as fault:
        raise Stopped(ExitCode.USAGE, f"{path} exists; give another --output, or --force to replace it") from fault
    except OSError as fault:
        raise Stopped(ExitCode.USAGE, f"cannot write {path}: {fault.strerror}") from fault
    try:
        os.fchmod(file, PRIVATE)
        yield file
        if replace:
            target.replace(path)
    except BaseException:  # also Ctrl-C at the prompt: no empty token file stays behind
        target.unlink(missing_ok=True)
        raise
    finally:
        os.close(file)


def password_of(options: LoginOptions) -> str:
    """The password from where the options say; one line break at its end is not part of it."""
    match options.password_file:
        case None:
            if not sys.stdin.isatty():
                raise Stopped(ExitCode.USAGE, "no terminal to ask for the password; give --password-file (- for stdin)")
            password: str = typer.prompt(f"Password of {options.user}", hide_input=True, err=True)
        case "-":
            password = sys.stdin.read()
        case path:
            try:
                password = Path(path).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as fault:
                reason = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
                raise Stopped(ExitCode.USAGE, f"cannot read the password from {path}: {reason}") from fault
    password = password.removesuffix("\n").removesuffix("\r")
    if not password:
        raise Stopped(ExitCode.USAGE, "the password is empty")
    return password
