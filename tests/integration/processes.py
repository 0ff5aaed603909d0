"""What a program left behind: processes (Linux) and files."""

from __future__ import annotations

import asyncio
from pathlib import Path


def running_in(folder: Path) -> list[int]:
    """Processes that name `folder` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str(folder).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:  # it ended while we looked
                continue
    return found


async def gone(folder: Path, within_s: float) -> bool:
    """Whether no process names `folder` any more, or soon will not."""
    for _ in range(int(within_s / 0.05)):
        if not running_in(folder):
            return True
        await asyncio.sleep(0.05)
    return False


def contents(folder: Path) -> list[Path]:
    """What is in `folder`."""
    return sorted(folder.iterdir())
