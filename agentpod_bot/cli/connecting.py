"""`connect`: what to write where, so that a harness asks this daemon; and a test question through the same door."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from agentpod_bot.cli.calls import (  # noqa: TC001 - typer reads annotations at run time
    Client,
    Config,
    Socket,
    TokenFile,
    Url,
)
from agentpod_bot.cli.exits import say
from agentpod_bot.errors import ConfigurationError
from agentpod_bot.harness.snippets import TIMEOUT_S, URL, Piece, Place, printed
from agentpod_bot.harness.snippets_all import SNIPPETS, shapes_of
from agentpod_bot.proxy import endpoint
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.config.model import Settings

PROGRAM = "agentpod-bot"
UNKNOWN_FILE = "agentpod.token"
"""Stands for the token's file where nothing says which it is."""


def connect(
    harness: Annotated[
        str, typer.Argument(metavar="HARNESS", help=f"One of {', '.join(SNIPPETS)}.", show_default=False)
    ],
    *,
    version: Annotated[
        str | None, typer.Option(metavar="V", help="The harness's version, like 2.1.332, where settings depend on it.")
    ] = None,
    route: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which route to ask; the token's only one by default.")
    ] = None,
    timeout: Annotated[
        int, typer.Option(min=1, metavar="SECONDS", help="How long the harness is told to wait for an answer.")
    ] = TIMEOUT_S,
    check: Annotated[
        bool, typer.Option("--check", help="Ask a test question instead, and print what the harness would be told.")
    ] = False,
    url: Url = None,
    socket: Socket = None,
    token_file: TokenFile = None,
    config: Config = None,
    client: Client = None,
) -> None:
    """Print what to write where, so that a harness asks this daemon.

    The settings hold the path of the token's file, never the token. With --check, a test
    question is put into the room in that harness's own shape; answer it there. Nothing
    runs, whatever the answer is.

    \b
    Exit codes of --check:
      0    somebody answered, and the harness would have been told so
      3    nobody answered, or nobody was asked; stderr says why
      others as those of ask
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are
    if harness not in SNIPPETS:
        raise Stopped(ExitCode.USAGE, f'no harness is called "{harness}"; there are: {", ".join(SNIPPETS)}')
    wanted = endpoint.Wanted(url, socket, token_file, config, client)
    if check:
        where = endpoint.find(wanted, os.environ)

        from agentpod_bot.cli.trying import try_out  # noqa: PLC0415 - the HTTP client is slow to import

        raise typer.Exit(asyncio.run(try_out(where, harness, route=route, timeout_s=timeout)))
    place, holder = place_of(wanted, os.environ)
    place = replace(place, program=program(), route=route, timeout_s=timeout)
    try:
        snippet = SNIPPETS[harness](place, version)
        typer.echo(printed(replace(snippet, pieces=(allowed(harness, holder), *snippet.pieces))))
    except ValueError as fault:
        raise Stopped(ExitCode.USAGE, f"{harness} needs an address: {fault}; give --url") from fault


class Holder(NamedTuple):
    """The client whose token it is, and the request shapes that it may use so far."""

    name: str
    harnesses: tuple[str, ...]


UNKNOWN_HOLDER = Holder("NAME", ())
"""Stands for the client where no configuration says which it is."""


def allowed(harness: str, holder: Holder) -> Piece:
    """The line of the daemon's configuration without which every question of this harness is refused."""
    shapes = dict.fromkeys((*holder.harnesses, *shapes_of(harness)))
    line = f"clients:\n  {json.dumps(holder.name)}:\n    harnesses: [{', '.join(shapes)}]"
    beside = "" if holder.harnesses else "; keep what its list names already"
    return Piece(f"In the daemon's configuration, for the client whose token this is{beside}", "yaml", line)


def place_of(wanted: endpoint.Wanted, environ: Mapping[str, str]) -> tuple[Place, Holder]:
    """Where the daemon is, in which file its token is (as `ask` finds both), and whose. No token is read.

    Where nothing says where the daemon is, the address that it has by default. Raises
    `Stopped` or `ConfigurationError`, where what is said cannot be used.
    """
    holder = UNKNOWN_HOLDER
    file = wanted.token_file or (Path(named) if (named := environ.get(endpoint.TOKEN_FILE)) else None)
    if wanted.url or wanted.socket or environ.get(endpoint.URL) or environ.get(endpoint.SOCKET):
        found = endpoint.find(wanted, environ, token=False)
    elif (configured := configuration(wanted, environ)) is not None:
        found = endpoint.listener(configured.http)
        file = file or file_of(configured, wanted.client)
        holder = holder_of(configured, wanted.client, file)
    else:
        found = endpoint.Endpoint(URL)
    place = Place(token_file=str((file or Path(UNKNOWN_FILE)).absolute()))
    if file is None:
        say(f"Nothing names the token's file; {place.token_file} stands for it below. See --token-file.")
    if found.socket is not None:
        return replace(place, url=None, socket=str(found.socket)), holder
    return replace(place, url=found.url), holder


def configuration(wanted: endpoint.Wanted, environ: Mapping[str, str]) -> Settings | None:
    """The configuration; None where there is no such file, and nobody named one."""
    from agentpod_bot.config.load import find, load  # noqa: PLC0415 - slow to import, and not always needed

    try:
        path = find(wanted.config, environ)
    except ConfigurationError:
        return None
    return load(path, environ).settings


def file_of(settings: Settings, client: str | None) -> Path | None:
    """The file of the named client's token, or of the only one's; None where the token is in no file of its own."""
    match client, tuple(settings.clients.values()):
        case None, (only,):
            return only.token_file
        case str(), _ if client in settings.clients:
            return settings.clients[client].token_file
        case _:
            raise Stopped(ExitCode.USAGE, f"choose a client with --client: {', '.join(sorted(settings.clients))}")


def holder_of(settings: Settings, client: str | None, file: Path | None) -> Holder:
    """The named client, or the one whose token is in this file, or the only one; else an unknown one."""
    whose = [name for name, one in settings.clients.items() if file and one.token_file and same(one.token_file, file)]
    names = [client] if client in settings.clients else whose or list(settings.clients)
    return Holder(names[0], settings.clients[names[0]].harnesses) if len(names) == 1 else UNKNOWN_HOLDER


def same(one: Path, other: Path) -> bool:
    """Whether two paths name one file, which need not be there."""
    return one.resolve() == other.resolve()


def program() -> str:
    """How to start this program from anywhere: its whole path, where there is one."""
    started = shutil.which(sys.argv[0]) if Path(sys.argv[0]).name == PROGRAM else None
    found = started or shutil.which(PROGRAM)
    return PROGRAM if found is None else str(Path(found).absolute())
