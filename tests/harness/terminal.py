"""A terminal in which a program runs, with eyes and hands of its own: a private tmux."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from tests.integration.daemons import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

SIZE = ("-x", "160", "-y", "50")
SHOWN_S = 60.0


class Terminal:
    """One shell command in a terminal; use it with `async with`. Nothing of it outlives the body."""

    def __init__(self, line: str, env: Mapping[str, str]) -> None:
        self._tmux = shutil.which("tmux") or pytest.skip("needs tmux, which gives a program a terminal")
        self._folder = Path(tempfile.mkdtemp(prefix="terminal-"))  # a socket's path must be short
        self._line = line
        self._env = dict(env)

    async def __aenter__(self) -> Self:
        """Start the command; what it leaves on the screen stays there when it ends."""
        await self._say("new-session", "-d", *SIZE, "sh", "-c", self._line, ";", "set-option", "remain-on-exit", "on")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it, and the terminal."""
        await self._say("kill-server")
        shutil.rmtree(self._folder)

    async def shows(self, text: str) -> None:
        """Wait until it stands on the screen. Raises TimeoutError, with what stands there instead."""
        try:
            await eventually(lambda: self._has(text), within_s=SHOWN_S)
        except TimeoutError as error:
            raise TimeoutError(f"no {text!r} on the screen:\n{await self.screen()}") from error

    async def shows_no_more(self, text: str) -> None:
        """Wait until it does not stand there any more."""

        async def is_gone() -> bool:
            return not await self._has(text)

        await eventually(is_gone, within_s=SHOWN_S)

    async def press(self, *keys: str) -> None:
        """Press keys, by their names in tmux; a text is typed."""
        await self._say("send-keys", *keys)

    async def screen(self) -> str:
        """What stands on the screen."""
        return await self._say("capture-pane", "-p")

    async def _has(self, text: str) -> bool:
        return text in await self.screen()

    async def _say(self, *words: str) -> str:
        command = [self._tmux, "-S", str(self._folder / "socket"), "-f", "/dev/null", *words]
        process = await asyncio.create_subprocess_exec(*command, env=self._env, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        return out.decode(errors="replace")
