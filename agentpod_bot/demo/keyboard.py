"""Where the demo's answers come from: a person's keyboard, or a list written before."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

UNANSWERED = "-"
"""The answer that leaves a question without one."""


def written(text: str) -> tuple[str, ...]:
    """The answers of a script: one a line, without empty lines and `#` comments."""
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def listed(text: str) -> tuple[str, ...]:
    """The answers of a comma-separated list."""
    return tuple(answer.strip() for answer in text.split(",") if answer.strip())


def answers_of(answers: str | None, script: Path | None) -> tuple[str, ...] | None:
    """What was written before, or None: a person types. Raises OSError for an unreadable script."""
    if script is not None:
        return written(script.read_text(encoding="utf-8"))
    return None if answers is None else listed(answers)


class Keyboard:
    """Lines of a file descriptor, read by a thread that never keeps the process from ending.

    The thread reads the descriptor itself: a buffered `sys.stdin` would be locked by it
    while the interpreter shuts down. Terminals, pipes and files all work so.
    """

    def __init__(self, descriptor: int) -> None:
        """Begin to read; to be made inside the event loop that asks for the lines."""
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        threading.Thread(target=self._read, name="keyboard", daemon=True).start()

    async def line(self) -> str | None:
        """The next line without its end; None where there will be none any more."""
        line = await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
        return line

    def _read(self) -> None:
        pending = b""
        try:
            while got := os.read(self._descriptor, 4096):
                *lines, pending = (pending + got).split(b"\n")
                for line in lines:
                    self._give(line.decode(errors="replace").rstrip("\r"))
        except OSError:  # the terminal is gone, which is the end of the input
            pending = b""
        if pending:
            self._give(pending.decode(errors="replace"))
        self._give(None)

    def _give(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:  # the loop is closed: the demo is over
            return
