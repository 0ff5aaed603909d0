"""Exit codes, and the one place where a failure becomes one and a sentence on stderr."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from agentpod_bot.errors import CannotStart, ConfigurationError
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "agentpod-bot"
NO_PLACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""What writing fails with where nothing is wrong with the program."""


class Commands(TyperGroup):
    """All commands; whatever one of them raises ends here, never as a bare traceback."""

    # Any: typer's own name for a context differs between its versions
    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command; a failure becomes `typer.Exit` with its documented code."""
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort, typer.TyperException, BrokenPipeError):
            raise  # typer's own business: exit codes, usage messages, a reader that went away
        except Exception as failure:
            raise typer.Exit(explain(failure)) from failure

    def main(self, *args: Any, **more: Any) -> Any:
        """Run everything, `--help` too, which no command's invocation is."""
        try:
            return super().main(*args, **more)
        except OSError as failure:
            sys.exit(explain(failure))


def explain(failure: Exception) -> int:
    """Say on stderr what stopped the command; return its exit code.

    An expected failure is a plain sentence. Anything else is a bug of this program:
    one line, the traceback, and exit code 70.
    """
    match expected(failure):
        case ConfigurationError(problems=problems) as fault if problems:
            say(f"{PROGRAM}: the configuration cannot be used:")
            for problem in problems:
                say(f"  {problem}")
            return fault.exit_code
        case (CannotStart() | Stopped()) as fault:
            say(f"{PROGRAM}: {fault}")
            return int(fault.exit_code)
        case None if isinstance(failure, OSError) and failure.errno in NO_PLACE:
            abandon_stdout()
            say(f"{PROGRAM}: cannot write: {failure.strerror}")
            return ExitCode.OUTPUT
        case _:
            say(f"{PROGRAM}: bug: {type(failure).__name__}: {failure}")
            say("".join(traceback.format_exception(failure)).removesuffix("\n"))
            return ExitCode.BUG


def say(sentence: str) -> None:
    """Tell the person at the terminal; that stderr takes nothing changes no exit code."""
    with suppress(OSError):
        typer.echo(sentence, err=True)


def abandon_stdout() -> None:
    """Send what stdout still holds nowhere: Python would try again at its end, and exit with 120."""
    with suppress(OSError, ValueError):  # no file at all, in tests
        stdout = sys.stdout.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stdout)
        os.close(nowhere)


def expected(failure: BaseException) -> CannotStart | Stopped | None:
    """The expected failure in what was raised; None where anything unexpected is in it.

    A task group wraps what its tasks raise, so an expected failure may come in a group.
    """
    found: CannotStart | Stopped | None = None
    for leaf in leaves(failure):
        match leaf:
            case CannotStart() | Stopped():
                found = found or leaf
            case _:
                return None
    return found


def leaves(failure: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, of its groups, and so on; a plain exception is its own."""
    match failure:
        case BaseExceptionGroup(exceptions=inner):
            for each in inner:
                yield from leaves(each)
        case _:
            yield failure
