"""Runs one command and ends it as soon as whoever asked for it is gone.

Started as a script of its own (`python leash.py GRACE COMMAND…`) with a pipe as standard
input. When the pipe closes, because its other end was closed or because that process died
in any way, `kill -9` included, the command is asked to end, has `GRACE` seconds for it, and
is then killed with everything that it started. Exits with the command's own code.

It imports the standard library only, so that it starts in a few hundredths of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
STDIN = 0


def dies_with_parent() -> Callable[[], None] | None:
    """What the child runs before its command, so that a killed leash leaves nothing either.

    Linux only; elsewhere None, and only the pipe holds.
    """
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl  # loaded before the fork: nothing may be allocated after it

    def ask() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    return ask


def run(grace_s: float, command: list[str]) -> int:
    """Run `command` until it ends or standard input closes; return its exit code."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler is what makes the wake-up pipe be written
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: None)
    child = subprocess.Popen(  # noqa: S603 - the command is this program's own
        command,
        stdin=subprocess.DEVNULL,
        process_group=0,
        preexec_fn=dies_with_parent(),  # noqa: PLW1509 - this process has one thread
    )
    try:
        while child.poll() is None:
            ready, _, _ = select.select([STDIN, woken], [], [])
            if STDIN in ready and not os.read(STDIN, 4096):
                break
            if woken in ready and set(os.read(woken, 4096)) - {signal.SIGCHLD}:
                break  # asked to end by a signal
        child.terminate()  # does nothing where it has ended by itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(grace_s)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty; macOS says so by EPERM
            os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


if __name__ == "__main__":
    code = run(float(sys.argv[1]), sys.argv[2:])
    sys.exit(code if code >= 0 else 128 - code)
