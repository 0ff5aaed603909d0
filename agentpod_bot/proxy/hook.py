"""A hook command: one call of a harness on standard input, its answer on standard output.

Whatever fails, the harness is told its own explicit no: most harnesses take a hook that
fails as one that has nothing against it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from agentpod_bot.errors import AgentpodError
from agentpod_bot.harness.adapter import Manner, WhenUnanswered
from agentpod_bot.harness.hook_exits import DENIED, Exit, exit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.harness.adapter import Json
    from agentpod_bot.proxy.endpoint import Endpoint

PATIENCE_S: Mapping[str, int] = {
    "claude-code": 600,
    "codex-hook": 600,
    "copilot": 30,
    "cursor": 60,
    "gemini": 60,
    "qwen": 60,
}
"""The harnesses with command hooks, and after how many seconds each stops waiting for one, unless told otherwise.

Cursor names no number; this one is on the safe side.
"""
LARGEST_CALL = 2**20
"""Bytes of a call; the daemon takes no larger one."""
MARGIN_S = 2.0
STDOUT = 1
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer of the daemon that can be handed on. `why` is a sentence without its full stop."""

    why: str
    unreached: bool = False


def call_of(stdin: BinaryIO) -> bytes:
    """The call of the harness; the beginning of one that is larger than any that can be asked.

    All of it is taken all the same: a harness whose pipe breaks may take the hook for one
    that failed, and go on.
    """
    body = stdin.read(LARGEST_CALL + 1)
    while len(body) > LARGEST_CALL and stdin.read(_CHUNK):
        pass
    return body


def run(
    harness: str,
    read: Callable[[], bytes],
    find: Callable[[], Endpoint],
    *,
    route: str | None = None,
    timeout_s: int | None = None,
    when_unanswered: WhenUnanswered = WhenUnanswered.DENY,
) -> Exit:
    """Ask the daemon, and say how the hook ends. `find` may raise `Stopped`. Raises nothing of its own.

    `read` gives the call of the harness, as `call_of` does.
    """
    call: bytes | None = None
    try:
        call = read()
        if len(call) > LARGEST_CALL:
            failed = Failed(f"the call is larger than {LARGEST_CALL} bytes")
        else:
            answer = asyncio.run(answered(harness, call, find(), route=route, timeout_s=timeout_s))
            if not isinstance(answer, Failed):
                return exit_of(harness, answer)
            failed = answer
    except AgentpodError as fault:  # no token, say, or a configuration that cannot be used
        failed = Failed(str(fault).replace("\n", "; "))
    except Exception as bug:  # noqa: BLE001 - whatever it is, a hook that only fails would let the tool run
        failed = Failed(f"the hook of agentpod-bot failed: {type(bug).__name__}: {bug}")
    return refused(harness, call, failed, Manner(when_unanswered=when_unanswered))


def unwritten() -> Exit:
    """How the hook ends where nobody reads its answer."""
    return Exit(b"", "nothing was allowed: the answer could not be written\n", DENIED)


async def answered(
    harness: str, call: bytes, endpoint: Endpoint, *, route: str | None, timeout_s: int | None
) -> Json | Failed:
    """What the daemon answers within the harness's patience; a signal ends the wait, or that nobody reads stdout."""
    from agentpod_bot.proxy.client import connected  # noqa: PLC0415 - slow to import, and not every failure needs it
    from agentpod_bot.proxy.door import Unanswered, ask  # noqa: PLC0415 - likewise
    from agentpod_bot.proxy.signals import deserted, signalled  # noqa: PLC0415 - likewise
    from agentpod_bot.system import SystemClock  # noqa: PLC0415 - likewise

    patience_s = timeout_s if timeout_s is not None else PATIENCE_S[harness]
    query = {"timeout": str(patience_s)} | ({} if route is None else {"route": route})
    with signalled() as stop, deserted(STDOUT) as gone:
        async with connected(endpoint) as daemon:
            work = asyncio.create_task(ask(daemon, harness, call, query, SystemClock()))
            first: set[asyncio.Future[object]] = {work, stop, gone}  # type: ignore[arg-type] # futures of any kind
            await asyncio.wait(first, timeout=own_limit_s(patience_s), return_when=asyncio.FIRST_COMPLETED)
            told = stop.done() or gone.done()
            if told or not work.done():
                work.cancel()
                await asyncio.wait({work})
                return Failed("the hook was told to stop" if told else "agentpod-bot gave no answer in time")
            try:
                return (await work).content
            except Unanswered as why:
                return Failed(str(why), unreached=why.unreached)


def own_limit_s(patience_s: int) -> float:
    """When this gives up: before the harness does, after the daemon should have."""
    return max(patience_s - MARGIN_S, patience_s * 3 / 4)


def refused(harness: str, call: bytes | None, failed: Failed, manner: Manner) -> Exit:
    """The harness's explicit no, with what failed.

    Its own question in the terminal instead, where `manner` says so and no daemon was reached.
    """
    try:
        from agentpod_bot.harness.registry import ADAPTERS  # noqa: PLC0415 - an answer needs none of this
        from agentpod_bot.proxy.ends import unanswered  # noqa: PLC0415 - likewise

        end = unanswered(failed.why, unreached=failed.unreached)
        stdout, stderr, code = exit_of(harness, ADAPTERS[harness].refuse(call, end, manner))
    except Exception as bug:  # noqa: BLE001 - there is still the exit code
        return Exit(b"", f"nothing was allowed: {failed.why}; {type(bug).__name__}: {bug}\n", DENIED)
    return Exit(stdout, stderr or f"agentpod-bot: {failed.why}\n", code)
