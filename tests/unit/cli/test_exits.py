from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from agentpod_bot.cli.exits import Commands, explain
from agentpod_bot.errors import (
    ConfigurationError,
    CredentialsRefused,
    HomeserverUnreachable,
    StoreRefused,
    Unavailable,
)
from agentpod_bot.proxy.stopped import ExitCode, Stopped


def failing(failure: BaseException) -> typer.Typer:
    """A command line with one command, which fails so."""
    app = typer.Typer(cls=Commands, rich_markup_mode=None)

    @app.callback()
    def group() -> None:
        """Make it a group."""

    @app.command()
    def fail() -> None:
        raise failure

    return app


@pytest.mark.parametrize(
    ("failure", "exit_code"),
    [
        (HomeserverUnreachable("nobody at home"), 69),
        (CredentialsRefused("nobody at home"), 77),
        (StoreRefused("nobody at home"), 78),
        (Stopped(ExitCode.NO, "nobody at home"), 1),
        (ExceptionGroup("two tasks", [StoreRefused("nobody at home"), StoreRefused("nor there")]), 78),
        (ExceptionGroup("nested", [ExceptionGroup("one", [CredentialsRefused("nobody at home")])]), 77),
    ],
)
def test_an_expected_failure_is_one_sentence_and_its_exit_code(failure: Exception, exit_code: int) -> None:
    result = CliRunner().invoke(failing(failure), ["fail"])
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert result.stderr == "agentpod-bot: nobody at home\n"


def test_a_faulty_configuration_lists_every_fault() -> None:
    result = CliRunner().invoke(failing(ConfigurationError("routes.ops.room: is missing", "http: no")), ["fail"])
    assert result.exit_code == 78
    assert result.stderr.splitlines()[1:] == ["  routes.ops.room: is missing", "  http: no"]


@pytest.mark.parametrize(
    "failure",
    [
        RuntimeError("boom"),
        Unavailable("an expected failure that should have been answered elsewhere"),
        ExceptionGroup("mixed", [StoreRefused("x"), RuntimeError("boom")]),
    ],
)
def test_anything_else_is_a_bug_with_its_traceback(failure: Exception) -> None:
    result = CliRunner().invoke(failing(failure), ["fail"])
    assert result.exit_code == 70
    assert result.stderr.startswith("agentpod-bot: bug: ")
    assert "Traceback" in result.stderr


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_full_disk_is_no_bug(number: int) -> None:
    result = CliRunner().invoke(failing(OSError(number, os.strerror(number))), ["fail"])
    assert result.exit_code == ExitCode.OUTPUT
    assert result.stderr == f"agentpod-bot: cannot write: {os.strerror(number)}\n"


@pytest.mark.parametrize("words", [["version"], ["--help"], ["ask", "--help"]])
def test_an_output_that_takes_nothing_is_said_in_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ended = subprocess.run(
            [sys.executable, "-m", "agentpod_bot", *words], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == ExitCode.OUTPUT
    assert ended.stderr == b"agentpod-bot: cannot write: No space left on device\n"


def test_a_stderr_that_takes_nothing_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(typer, "echo", full)
    assert explain(CredentialsRefused("nobody at home")) == 77


def test_the_exit_code_of_a_command_is_kept() -> None:
    assert CliRunner().invoke(failing(typer.Exit(3)), ["fail"]).exit_code == 3


def test_wrong_usage_is_no_bug() -> None:
    result = CliRunner().invoke(failing(typer.BadParameter("no such thing")), ["fail"])
    assert result.exit_code == 2
    assert "bug" not in result.stderr


def test_ctrl_c_is_no_bug() -> None:
    result = CliRunner().invoke(failing(KeyboardInterrupt()), ["fail"])
    assert (result.exit_code, result.output) == (ExitCode.INTERRUPTED, "")
