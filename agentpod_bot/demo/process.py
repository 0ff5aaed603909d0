"""A program that this one starts, watches and certainly ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agentpod_bot.demo import leash

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

POLL_S = 0.05
GRACE_S = 8.0


def free_port() -> int:
    """A loopback TCP port that nobody listens on now (which is no promise for later)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Leashed:
    """One running command, ended by `stop`, or by itself when this process dies in any way.

    Bound to no event loop: it may be started in one and stopped in another.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        output: Path,
        env: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        """Start `command`; what it writes to standard output and error is appended to `output`.

        `grace_s` is how long it may take to end after it was asked to; then it is killed.
        """
        self.output = output
        self._grace_s = grace_s
        held, self._string = os.pipe()
        try:
            with output.open("ab") as log:
                self._leash = subprocess.Popen(  # noqa: S603 - the command is this program's own
                    [sys.executable, "-I", str(Path(leash.__file__)), str(grace_s), *command],
                    stdin=held,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=None if env is None else dict(env),
                    start_new_session=True,  # Ctrl-C in the terminal is for us; we end it in order
                )
        except BaseException:
            os.close(self._string)
            raise
        finally:
            os.close(held)

    @property
    def pid(self) -> int:
        """The leash's process id; the command is its child."""
        return self._leash.pid

    def exit_code(self) -> int | None:
        """None while it runs; 128 + n where signal n ended it."""
        return self._leash.poll()

    def tail(self, lines: int = 20) -> str:
        """The end of what it wrote."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.output.read_text(errors="replace").splitlines()[-lines:])
        return ""

    async def stop(self) -> int:
        """End it (asked first, then killed), and return its exit code. Again: the same code."""
        self._let_go()
        try:
            for _ in range(int((self._grace_s + 2) / POLL_S)):
                if self._leash.poll() is not None:
                    break
                await asyncio.sleep(POLL_S)
        finally:
            if self._leash.poll() is None:  # out of patience, or cancelled: the command dies with its leash
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._leash.pid, signal.SIGKILL)
            code = self._leash.wait()
        return code

    def _let_go(self) -> None:
        if self._string >= 0:
            os.close(self._string)
            self._string = -1
