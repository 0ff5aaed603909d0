"""Exit codes, and the one place where a failure becomes one and a sentence on stderr."""

from __future__ import annotations

import traceback
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from agentpod_bot.errors import AgentpodError, CannotStart, ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "agentpod-bot"


class ExitCode(IntEnum):
    """What a command's exit says. The large numbers are those of BSD's sysexits.h."""

    OK = 0
    NO = 1
    """The plain opposite of OK: rejected, not ready, nothing there to cancel."""
    USAGE = 2
    NO_ANSWER = 3
    UNREACHABLE = 69
    BUG = 70
    REFUSED = 77
    CONFIGURATION = 78
    INTERRUPTED = 130
    """128 and the signal's number, as shells say it; other signals likewise."""


class Stopped(AgentpodError):
    """A command cannot go on, and this is its exit code and its sentence for a person."""

    code = "stopped"

    def __init__(self, exit_code: ExitCode, msg: str) -> None:
        super().__init__(msg)
        self.exit_code = exit_code


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


def explain(failure: Exception) -> int:
    """Say on stderr what stopped the command; return its exit code.

    An expected failure is a plain sentence. Anything else is a bug of this program:
    one line, the traceback, and exit code 70.
    """
    match expected(failure):
        case ConfigurationError(problems=problems) as fault if problems:
            typer.echo(f"{PROGRAM}: the configuration cannot be used:", err=True)
            for problem in problems:
                typer.echo(f"  {problem}", err=True)
            return fault.exit_code
        case (CannotStart() | Stopped()) as fault:
            typer.echo(f"{PROGRAM}: {fault}", err=True)
            return int(fault.exit_code)
        case _:
            typer.echo(f"{PROGRAM}: bug: {type(failure).__name__}: {failure}", err=True)
            typer.echo("".join(traceback.format_exception(failure)), err=True, nl=False)
            return ExitCode.BUG


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
