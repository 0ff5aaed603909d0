"""What the commands that call a daemon do: call, wait, and say what came of it."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import typer

from agentpod_bot.cli.asking import bound, exit_code
from agentpod_bot.cli.exits import say
from agentpod_bot.cli.following import closed, post
from agentpod_bot.core.text import visible_line
from agentpod_bot.proxy.client import Reply, Unreached, connected, refused, unreachable
from agentpod_bot.proxy.signals import signalled
from agentpod_bot.proxy.stopped import ExitCode, Stopped
from agentpod_bot.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.cli.asking import Asked, View
    from agentpod_bot.core.ids import RequestId, SessionId
    from agentpod_bot.proxy.client import Daemon
    from agentpod_bot.proxy.endpoint import Endpoint

HEALTH_S = 5.0
WITHDRAW_S = 10.0
ENDS: Mapping[str, str] = {
    "expired": "Nobody answered in time; nothing was allowed.",
    "cancelled": "The question was cancelled; nothing was allowed.",
    "superseded": "The question was replaced by a newer one; nothing was allowed.",
    "answered_elsewhere": "A client closed the question and says that it was answered elsewhere; that is no decision.",
    "undeliverable": "The question could not be put to anyone; nothing was allowed.",
}


async def ask(where: Endpoint, asked: Asked, *, wait: bool, as_json: bool) -> int:
    """Ask, wait where wanted, print the end; return the exit code.

    A signal cancels the request and is never exit code 0, even where an approval came
    at the same moment.
    """
    async with connected(where) as daemon:
        with signalled() as stop:
            work = asyncio.create_task(ask_and_wait(daemon, asked, wait=wait, as_json=as_json))
            either: set[asyncio.Future[Any]] = {work, stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                return await work
            work.cancel()
            await asyncio.wait({work})
        await withdraw(daemon, asked)
        return 128 + stop.result()


async def ask_and_wait(daemon: Daemon, asked: Asked, *, wait: bool, as_json: bool) -> ExitCode:
    """Ask, wait where wanted, print the end; return the exit code."""
    timer = SystemClock()
    posted = await post(daemon, asked, timer)
    if not bound(asked, posted):
        with suppress(Unreached):
            await daemon.cancel(asked.request_id)
        raise Stopped(
            ExitCode.NO_ANSWER, "the daemon took this for another question; nobody's answer to that counts here"
        )
    if not wait:
        typer.echo(readable(posted) if as_json else asked.request_id)
        return ExitCode.NO_ANSWER
    code, until = posted.get("code"), posted.get("expires_at")
    say(f"Asked as {shown(code)} ({shown(asked.request_id)}), open until {shown(until)}. Ctrl-C cancels.")
    ended = await closed(daemon, asked, posted, timer, say)
    result = exit_code(asked, posted, ended)
    chosen, sentence = end_of(ended, result)
    say(sentence)
    if as_json:
        typer.echo(readable(ended))
    elif chosen is not None:
        typer.echo(chosen)
    return result


def end_of(ended: View, result: ExitCode) -> tuple[str | None, str]:
    """The chosen option's id, where one of ours was chosen, and a sentence about the end."""
    match ended.get("decision"):
        case {"outcome": "selected", "option_id": str(option_id), **rest} if result is not ExitCode.NO_ANSWER:
            who = f"{shown(rest.get('label'))}, by {shown(rest.get('answered_by'))}"
            comment = rest.get("comment")
            return option_id, f"{who}: {shown(comment)}" if comment else who
        case {"outcome": str(outcome), **rest} if outcome in ENDS:
            reason = rest.get("reason")
            said_already = outcome == "expired" or not reason
            return None, ENDS[outcome] if said_already else f"{ENDS[outcome]} Reason: {shown(reason)}."
        case _:
            return None, "What came back is no answer to this question; it counts as none."


async def withdraw(daemon: Daemon, asked: Asked) -> None:
    """Cancel a request whose asker is going away, as well as that can be done in a few seconds."""
    try:
        async with asyncio.timeout(WITHDRAW_S):
            reply = await daemon.cancel(asked.request_id)
            if reply.status == 404:  # noqa: PLR2004 - HTTP's number; the post may still be under way
                await asyncio.sleep(0.5)
                reply = await daemon.cancel(asked.request_id)
    except (Unreached, TimeoutError) as fault:
        say(f"Interrupted. The daemon does not answer ({fault}); the question stays open until it expires.")
        return
    match reply.status:
        case 200:
            say("Interrupted; the question is cancelled.")
        case 404:
            say("Interrupted before anyone was asked.")
        case 409:
            say("Interrupted; the question was closed already.")
        case _:
            say(f"Interrupted. The question could not be cancelled: {reply.sentence}")


async def requests(where: Endpoint, query: Mapping[str, str]) -> list[View]:
    """Every request of this client that fits, newest first, page by page."""
    views: list[View] = []
    cursor: str | None = None
    async with connected(where) as daemon:
        while True:
            reply = await answered(daemon.page({**query, **({"cursor": cursor} if cursor is not None else {})}), where)
            views.extend(each for each in items(reply, "requests") if isinstance(each, dict))
            following = reply.content.get("next_cursor")
            if following is None or str(following) == cursor:
                return views
            cursor = str(following)


def line(view: View) -> str:
    """One request as one line for a person."""
    match view.get("decision"):
        case {"option_id": option_id, "answered_by": by}:
            decided = [f"{shown(option_id)} by {shown(by)}"]
        case _:
            decided = []
    columns = [f"{shown(view.get('code')):<4}", f"{shown(view.get('status')):<18}", shown(view.get("created_at"))]
    return "  ".join([*columns, shown(view.get("request_id")), *decided])


async def cancel(where: Endpoint, request_id: RequestId | None, session_id: SessionId | None) -> list[str]:
    """Cancel one request, those of a session, or (both None) all; return the ids of the cancelled."""
    async with connected(where) as daemon:
        match request_id, session_id:
            case str(), _:
                await answered(daemon.cancel(request_id), where)
                return [request_id]
            case None, str():
                reply = await answered(daemon.cancel_session(session_id), where)
            case _:
                reply = await answered(daemon.cancel_all(), where)
    return [str(each) for each in items(reply, "cancelled")]


async def not_ready(where: Endpoint) -> list[str]:
    """Why the daemon is not ready; empty where it is."""
    async with connected(where) as daemon:
        try:
            reply = await daemon.ready(limit_s=HEALTH_S)
        except Unreached as fault:
            return [f"no daemon answers at {where}: {fault}"]
    if reply.status == 200:  # noqa: PLR2004 - HTTP's number
        return []
    problems = [str(each) for each in items(reply, "problems")]
    return problems or [f"{where}: {reply.sentence}"]


async def answered(call: Any, where: Endpoint) -> Reply:
    """The successful answer of a call. Raises `Stopped` for any other."""
    try:
        reply: Reply = await call
    except Unreached as fault:
        raise unreachable(fault, where) from fault
    if reply.status != 200:  # noqa: PLR2004 - HTTP's number
        raise refused(reply, where)
    return reply


def items(reply: Reply, name: str) -> list[Any]:
    """A list in an answer; empty where there is none, for whatever answers may be no daemon of ours."""
    found = reply.content.get(name)
    return found if isinstance(found, list) else []


def shown(text: object) -> str:
    """A text from outside for a terminal: control and invisible characters as escapes, on one line."""
    return visible_line(str(text or "-"))


def readable(content: object) -> str:
    """JSON for programs and people: of other than printable characters only escapes, since a terminal acts on some."""
    text = json.dumps(content, indent=2, ensure_ascii=False)
    return "".join(char if char.isprintable() or char == "\n" else json.dumps(char)[1:-1] for char in text)
