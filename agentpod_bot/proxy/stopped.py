"""Why a command cannot go on: the exit codes, and the failure that carries one."""

from __future__ import annotations

from enum import IntEnum

from agentpod_bot.errors import AgentpodError


class ExitCode(IntEnum):
    """What a command's exit says. The large numbers are those of BSD's sysexits.h."""

    OK = 0
    NO = 1
    """The plain opposite of OK: rejected, not ready, nothing there to cancel."""
    USAGE = 2
    NO_ANSWER = 3
    UNREACHABLE = 69
    BUG = 70
    OUTPUT = 74
    """A disk is full, or stdout takes no more: nobody can have read the answer."""
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
