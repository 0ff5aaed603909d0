from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncIterator

    from tests.unit.proxy.conftest import Room

CALL = {
    "session_id": "s",
    "cwd": "/x",
    "hook_event_name": "PermissionRequest",
    "tool_name": "Bash",
    "tool_input": {"command": "npm test"},
}
ALLOWED = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
NOT_READ = 2
"""How a hook says no by its exit code alone."""


@asynccontextmanager
async def hooked(room: Room, stdout: int) -> AsyncIterator[Process]:
    """A hook that runs as a harness starts it: in a session of its own, where no signal reaches it."""
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agentpod_bot", "hook", "claude-code", "--url", room.endpoint.url),
        stdin=asyncio.subprocess.PIPE,
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "AGENTPOD_BOT_TOKEN": "made-up"},
        start_new_session=True,
    )
    os.close(stdout)
    assert running.stdin is not None
    running.stdin.write(json.dumps(CALL).encode())
    running.stdin.close()
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.communicate()


async def assert_ends(room: Room, stdout: int, reader: int) -> None:
    async with hooked(room, stdout) as running:
        call = await room.next()
        os.close(reader)
        await asyncio.wait_for(call.gone.wait(), 20)
        assert await asyncio.wait_for(running.wait(), 20) == NOT_READ
        assert running.stderr is not None
        assert b"nothing was allowed" in await running.stderr.read()
    assert room.calls.empty()


async def test_a_hook_whose_pipe_nobody_reads_any_more_drops_its_call_and_ends(room: Room) -> None:
    reader, writer = os.pipe()
    await assert_ends(room, writer, reader)


@pytest.mark.parametrize("half_closed", [False, True])
async def test_a_hook_whose_socket_nobody_reads_any_more_drops_its_call_and_ends(
    room: Room, *, half_closed: bool
) -> None:
    reader, writer = socket.socketpair()
    if half_closed:
        reader.shutdown(socket.SHUT_WR)
    await assert_ends(room, writer.detach(), reader.detach())


async def test_a_hook_answers_a_reader_that_has_nothing_to_say(room: Room) -> None:
    reader, writer = socket.socketpair()
    reader.shutdown(socket.SHUT_WR)
    reader.settimeout(0)
    with reader:
        async with hooked(room, writer.detach()) as running:
            (await room.next()).answer(ALLOWED)
            assert await asyncio.wait_for(running.wait(), 20) == 0
        assert json.loads(await asyncio.get_running_loop().sock_recv(reader, 65_536)) == ALLOWED
