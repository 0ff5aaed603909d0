from __future__ import annotations

import asyncio
import os
import pty
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.integration.processes import contents, gone, running_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.synapse

DEMO = (sys.executable, "-m", "agentpod_bot", "demo")
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
WITHIN_S = 90


@dataclass(frozen=True, slots=True)
class Played:
    """How a demo ended and all that it printed."""

    code: int
    output: str


def environment(folder: Path) -> dict[str, str]:
    """Its temporary folder inside `folder`, and settings of a real bot, which it must not use."""
    return os.environ | {
        "TMPDIR": str(folder),
        "COLUMNS": "100",
        "AGENTPOD_BOT_HOMESERVER__URL": "http://127.0.0.1:1",
        "AGENTPOD_BOT_ROUTES__OPS__ROOM": "!elsewhere",
    }


async def play(folder: Path, *arguments: str) -> Played:
    process = await asyncio.create_subprocess_exec(
        *DEMO,
        *arguments,
        env=environment(folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), WITHIN_S)
    return Played(process.returncode or 0, output.decode())


@pytest.mark.parametrize("kind", ["--encrypted", "--plain"])
async def test_one_answer_is_given_and_comes_back_and_nothing_is_left(tmp_path: Path, kind: str) -> None:
    played = await play(tmp_path, "--answers", "1", kind)
    assert played.code == 0, played.output
    assert played.output.lstrip().startswith("✓ Starting a private homeserver")
    assert "Decided: Allow once (allow_once), by @you:localhost, via number." in played.output
    assert '"status": "decided"' in played.output
    assert "identity_published" not in played.output  # no line of a log
    assert contents(tmp_path) == []


async def test_a_script_answers_refuses_and_leaves_one_to_expire(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("# the three questions\n2\nReject: use the staging database\n-\n")
    played = await play(tmp_path, "--script", str(script))
    assert played.code == 0, played.output
    assert "Decided: Always allow (allow_always)" in played.output
    assert "Decided: Reject (reject_once)" in played.output
    assert '"comment": "use the staging database"' in played.output
    assert "Not decided: expired. Nothing was allowed." in played.output


@pytest.mark.timeout(180)
async def test_an_answer_that_means_nothing_allows_nothing_and_fails_the_demo(tmp_path: Path) -> None:
    played = await play(tmp_path, "--answers", "sure")
    assert played.code == 1, played.output
    assert "Not decided: expired. Nothing was allowed." in played.output


async def test_without_any_input_it_ends_by_itself_and_says_that_nothing_was_answered(tmp_path: Path) -> None:
    played = await play(tmp_path)
    assert played.code == 1, played.output
    assert "The input ended before the answer" in played.output


async def test_keep_leaves_the_folder_with_the_daemons_log(tmp_path: Path) -> None:
    played = await play(tmp_path, "--answers", "1", "--keep")
    assert played.code == 0, played.output
    [kept] = contents(tmp_path)
    assert {kept / "config.json", kept / "daemon.log", kept / "homeserver"} <= set(contents(kept))


@LINUX
async def test_a_person_types_the_answers_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *DEMO, env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    screen = Terminal(ours)
    await screen.until("you> ")
    screen.type("Allow once\n")
    await screen.until("Decided: Allow once")
    await screen.until("you> ")
    screen.type("no idea\n")  # nothing is guessed: the question stays
    await screen.until("no idea")
    await screen.until("you> ")
    screen.type("2\n")
    await screen.until("Decided: Reject")
    await screen.until("you> ")
    process.send_signal(signal.SIGINT)
    await screen.until("nothing is left running")
    assert await asyncio.wait_for(process.wait(), 30) == 130
    os.close(ours)
    assert running_in(tmp_path) == []
    assert contents(tmp_path) == []


@LINUX
@pytest.mark.parametrize("step", ["Starting a private homeserver", "Waiting for the bot", "you> "])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_whenever_and_however_it_is_ended_nothing_keeps_running(
    tmp_path: Path, step: str, number: signal.Signals
) -> None:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *DEMO, env=environment(tmp_path), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    await Terminal(ours).until(step)
    process.send_signal(number)
    await asyncio.wait_for(process.wait(), 30)
    os.close(ours)
    assert await gone(tmp_path, within_s=15)


class Terminal:
    """The other side of a pseudo-terminal: what is shown, and what is typed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._shown = ""
        os.set_blocking(descriptor, False)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    async def until(self, wanted: str) -> None:
        """Wait until that was shown; what came before it is forgotten."""
        async with asyncio.timeout(WITHIN_S):
            while wanted not in self._shown:
                try:
                    self._shown += os.read(self._descriptor, 65536).decode(errors="replace")
                except BlockingIOError:
                    await asyncio.sleep(0.02)
                except OSError as error:  # the process ended
                    raise AssertionError(f"ended before {wanted!r}: {self._shown[-3000:]}") from error
        self._shown = self._shown.partition(wanted)[2]
