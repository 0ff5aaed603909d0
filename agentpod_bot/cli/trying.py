"""`connect --check`: a test question in a harness's own shape, through the door that the harness will use."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import typer

from agentpod_bot.cli.exits import say
from agentpod_bot.cli.following import CLOSED, no_answer
from agentpod_bot.cli.waiting import ENDS, WITHDRAW_S, answered, items, readable, shown
from agentpod_bot.core.model import Outcome
from agentpod_bot.harness import trials
from agentpod_bot.proxy.client import Unreached, connected, escaped, unreachable
from agentpod_bot.proxy.signals import signalled
from agentpod_bot.proxy.stopped import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.cli.asking import View
    from agentpod_bot.proxy.client import Daemon
    from agentpod_bot.proxy.endpoint import Endpoint

PAGE = {"limit": "20"}
"""Of the newest questions of this client, among which the new one is."""


async def try_out(where: Endpoint, harness: str, *, route: str | None, timeout_s: int) -> int:
    """Ask, wait, print what the harness would be told; return the exit code. A signal takes the question back."""
    async with connected(where) as daemon:
        known = {str(view.get("request_id")) for view in await newest(daemon)}
        with signalled() as stop:
            work = asyncio.create_task(asked(daemon, harness, known, route=route, timeout_s=timeout_s))
            either: set[asyncio.Future[Any]] = {work, stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                return await work
            work.cancel()
            await asyncio.wait({work})
        await withdraw(daemon, known)
        return 128 + stop.result()


async def asked(daemon: Daemon, harness: str, known: set[str], *, route: str | None, timeout_s: int) -> ExitCode:
    """Ask the test question, wait for its answer, and say what came; the exit code is 0 where a person answered."""
    body = trials.trial(trials.door_of(harness), secrets.token_hex(trials.NONCE_DIGITS // 2))
    query: Mapping[str, str] = {"timeout": str(timeout_s)} | ({} if route is None else {"route": route})
    say(f'Asking "{trials.TITLE}" as {harness} would. Answer it in the room; nothing runs. Ctrl-C cancels.')
    try:
        path = f"/v1/harness/{trials.door_of(harness)}"
        reply = await daemon.call("POST", path, query=query, body=body, extra_s=timeout_s)
    except Unreached as fault:
        raise unreachable(fault, daemon.endpoint) from fault
    if reply.status != 200:  # noqa: PLR2004 - HTTP's number
        raise no_answer(reply, daemon)
    typer.echo(readable(reply.content))
    return judged([view for view in await newest(daemon) if str(view.get("request_id")) not in known])


def judged(views: list[View]) -> ExitCode:
    """What became of the new question, by the daemon's own account of it."""
    match [view.get("decision") for view in views]:
        case []:
            say("Nobody was asked; what the harness would be told says why.")
        case [{"outcome": Outcome.SELECTED, **rest}]:
            say(
                f"{shown(rest.get('label'))}, by {shown(rest.get('answered_by'))}. The harness would be told the above."
            )
            return ExitCode.OK
        case [{"outcome": str(outcome)}] if outcome in ENDS:
            say(ENDS[outcome])
        case [_]:
            say("The question is still open; the harness would not have waited any longer.")
        case _:
            say("Several questions came in meanwhile; which of them this was cannot be told.")
    return ExitCode.NO_ANSWER


async def withdraw(daemon: Daemon, known: set[str]) -> None:
    """Cancel what this call asked, as well as that can be done in a few seconds."""
    try:
        async with asyncio.timeout(WITHDRAW_S):
            for view in await newest(daemon):
                if view.get("status") not in CLOSED and (name := str(view.get("request_id"))) not in known:
                    await daemon.call("POST", f"/v1/requests/{escaped(name)}/cancel")
    except (Unreached, TimeoutError) as fault:
        say(f"Interrupted. The daemon does not answer ({fault}); it cancels the question by itself.")
        return
    say("Interrupted; the question is cancelled.")


async def newest(daemon: Daemon) -> list[View]:
    """This client's newest questions. Raises `Stopped` where the daemon does not say."""
    reply = await answered(daemon.page(PAGE), daemon.endpoint)
    return [each for each in items(reply, "requests") if isinstance(each, dict)]
