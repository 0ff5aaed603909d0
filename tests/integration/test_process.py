from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.demo.process import POLL_S, Leashed, free_port
from tests.integration.processes import gone, running_in

if TYPE_CHECKING:
    from pathlib import Path

STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", sys.argv[1]])
print("ready", flush=True)
time.sleep(60)
"""


def started(code: str, folder: Path, **options: float) -> Leashed:
    return Leashed([sys.executable, "-c", code, str(folder)], output=folder / "output", **options)


async def says(leashed: Leashed, words: str) -> bool:
    for _ in range(400):
        if words in leashed.tail():
            return True
        await asyncio.sleep(POLL_S)
    return False


async def ended(leashed: Leashed) -> bool:
    for _ in range(400):
        if leashed.exit_code() is not None:
            return True
        await asyncio.sleep(POLL_S)
    return False


async def test_a_program_that_ends_by_itself_gives_its_code_and_its_last_words(tmp_path: Path) -> None:
    leashed = started("print('one'); print('two'); raise SystemExit(7)", tmp_path)
    assert await ended(leashed)
    assert (await leashed.stop(), await leashed.stop(), leashed.tail(1)) == (7, 7, "two")


async def test_a_program_that_is_asked_to_end_may_do_it_in_its_own_way(tmp_path: Path) -> None:
    code = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(3))\nprint('ready', flush=True)\n"
    leashed = started(code + "signal.pause()", tmp_path)
    assert await says(leashed, "ready")
    assert await leashed.stop() == 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
async def test_a_program_that_will_not_end_is_killed_with_what_it_started(tmp_path: Path) -> None:
    leashed = started(STUBBORN, tmp_path, grace_s=0.2)
    assert await says(leashed, "ready")
    assert len(running_in(tmp_path)) == 3
    assert await leashed.stop() == 128 + signal.SIGKILL
    assert await gone(tmp_path, within_s=5)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
async def test_a_leash_that_is_asked_to_end_ends_its_program(tmp_path: Path) -> None:
    leashed = started("print('ready', flush=True)\nimport time\ntime.sleep(60)", tmp_path)
    assert await says(leashed, "ready")
    os.kill(leashed.pid, signal.SIGTERM)
    assert await gone(tmp_path, within_s=5)
    assert await leashed.stop() == 128 + signal.SIGTERM


async def test_a_program_that_does_not_exist_ends_with_an_error_that_names_it(tmp_path: Path) -> None:
    leashed = Leashed(["/no/such/program"], output=tmp_path / "output")
    assert await says(leashed, "/no/such/program")
    assert await leashed.stop() != 0


def test_a_free_port_can_be_listened_on() -> None:
    assert 1024 <= free_port() <= 65535
