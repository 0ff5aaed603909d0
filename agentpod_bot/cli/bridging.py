"""The commands that stand between a harness and the daemon: `hook`, `proxy acp`, `proxy codex`."""

from __future__ import annotations

import asyncio
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentpod_bot.cli import calls  # noqa: TC001 - typer reads annotations while the program runs
from agentpod_bot.cli.exits import PROGRAM, Commands, say
from agentpod_bot.core.text import visible_line
from agentpod_bot.harness.adapter import WhenUnanswered
from agentpod_bot.proxy import endpoint
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentpod_bot.proxy.bridging import Way

LONGEST_LINE = 2_000


class HookOf(StrEnum):
    """A harness that can run a command as its hook."""

    CLAUDE_CODE = "claude-code"
    CODEX = "codex-hook"
    COPILOT = "copilot"
    CURSOR = "cursor"
    GEMINI = "gemini"
    QWEN = "qwen"


Route = Annotated[str | None, typer.Option(metavar="NAME", help="Which route to ask; the token's only one by default.")]
Words = Annotated[
    list[str], typer.Argument(metavar="PROGRAM", help="What to run, with its arguments.", show_default=False)
]

proxy = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)


@proxy.callback()
def about() -> None:
    """Run an agent, and put its permission questions into the room.

    Everything else goes on unchanged between the agent and its client, which is what
    started this command. Where nobody can be asked the agent hears that nothing was
    allowed, and stderr says why.
    """


def hook(
    harness: Annotated[HookOf, typer.Argument(help="Whose hook this is.", show_default=False)],
    *,
    route: Route = None,
    timeout: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS", min=1, help="Time-out of the hook in the harness's settings; its usual one by default."
        ),
    ] = None,
    when_unanswered: Annotated[
        WhenUnanswered, typer.Option(help="What the harness is told where the daemon cannot be reached.")
    ] = WhenUnanswered.DENY,
    url: calls.Url = None,
    socket: calls.Socket = None,
    token_file: calls.TokenFile = None,
    config: calls.Config = None,
    client: calls.Client = None,
) -> None:
    """Answer a harness's hook: its call on stdin, people's answer on stdout.

    For the settings of a harness that runs a command before it uses a tool. Whatever
    fails, the harness is told that nothing was allowed, and why; with --when-unanswered
    terminal it asks in its terminal where the daemon cannot be reached.
    """
    from agentpod_bot.proxy import hook as answering  # noqa: PLC0415 - other commands start without it

    ended = answering.run(
        harness.value,
        lambda: answering.call_of(sys.stdin.buffer),
        lambda: endpoint.find(endpoint.Wanted(url, socket, token_file, config, client), os.environ),
        route=route,
        timeout_s=timeout,
        when_unanswered=when_unanswered,
    )
    try:
        sys.stdout.buffer.write(ended.stdout)
        sys.stdout.buffer.flush()
    except OSError:
        ended = answering.unwritten()
    if ended.stderr:
        say(ended.stderr.rstrip("\n"))
    raise typer.Exit(ended.code)


@proxy.command(context_settings={"allow_interspersed_args": False}, short_help="An agent that speaks ACP.")
def acp(
    words: Words,
    *,
    prompt: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Give the agent this prompt and end; no editor is needed then."),
    ] = None,
    route: Route = None,
    url: calls.Url = None,
    socket: calls.Socket = None,
    token_file: calls.TokenFile = None,
    config: calls.Config = None,
    client: calls.Client = None,
) -> None:
    """Run an agent that speaks the Agent Client Protocol, for an editor or without one.

    An editor starts this in the agent's place. Its permission questions, and questions
    with one choice, are answered in the room and not in the editor. At a terminal each
    line is a prompt. Exits with the agent's code.
    """
    way = way_of(endpoint.Wanted(url, socket, token_file, config, client), route)

    if prompt is None and not sys.stdin.isatty():
        from agentpod_bot.proxy import bridging  # noqa: PLC0415 - slow to import

        raise typer.Exit(asyncio.run(bridging.acp(way, words)))
    try:
        from agentpod_bot.proxy import prompting  # noqa: PLC0415 - slow to import, and of an extra
    except ModuleNotFoundError as fault:
        raise Stopped(
            ExitCode.USAGE,
            f'without an editor this needs the extra "bridges" (requirements-bridges.lock): no module {fault.name}',
        ) from fault

    raise typer.Exit(
        asyncio.run(prompting.acp_alone(way, words, cwd=str(Path.cwd()), prompts=prompts_of(prompt), heard=heard))
    )


@proxy.command(context_settings={"allow_interspersed_args": False}, short_help="Codex's app-server or MCP server.")
def codex(
    words: Words,
    *,
    route: Route = None,
    url: calls.Url = None,
    socket: calls.Socket = None,
    token_file: calls.TokenFile = None,
    config: calls.Config = None,
    client: calls.Client = None,
) -> None:
    """Run `codex app-server` or `codex mcp-server` for the client that starts this in its place.

    Its approvals, and its questions with one choice, are answered in the room and not
    in the client. Exits with Codex's code.
    """
    way = way_of(endpoint.Wanted(url, socket, token_file, config, client), route)

    from agentpod_bot.proxy import bridging  # noqa: PLC0415 - slow to import

    raise typer.Exit(asyncio.run(bridging.codex(way, words)))


def way_of(wanted: endpoint.Wanted, route: str | None) -> Way:
    """How a bridge asks."""
    from agentpod_bot.proxy.bridging import Way  # noqa: PLC0415 - slow to import

    return Way(endpoint.find(wanted, os.environ), complain, route)


def complain(sentence: str) -> None:
    """Tell the person who looks at stderr; agents and daemons say what they like, on one line."""
    say(f"{PROGRAM}: {visible_line(sentence, limit=LONGEST_LINE)}")


def heard(text: str) -> None:
    """Print what the agent says; of what a terminal would act on, only line breaks and tabs."""
    typer.echo("".join(char for char in text if char.isprintable() or char in "\n\t"), nl=False)


async def prompts_of(prompt: str | None) -> AsyncIterator[str]:
    """The one prompt that was given, or else each line of standard input."""
    from agentpod_bot.proxy.pipes import Source, lines  # noqa: PLC0415 - only this needs it

    if prompt is not None:
        yield prompt
        return
    async for line in lines(Source(sys.stdin.fileno())):
        if typed := line.decode(errors="replace").strip():
            yield typed
