"""`mcp`: an MCP server whose tools ask people through a running daemon."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentpod_bot.cli.calls import (  # noqa: TC001 - typer reads annotations at run time
    Client,
    Config,
    Socket,
    TokenFile,
    Url,
)
from agentpod_bot.cli.exits import say
from agentpod_bot.proxy import endpoint
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from agentpod_bot.proxy.endpoint import Endpoint

MAX_PORT = 65_535


def mcp(
    *,
    http: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Serve streamable HTTP there, at /mcp, instead of stdin and stdout."),
    ] = None,
    allow_remote: Annotated[
        bool, typer.Option("--allow-remote", help="Let --http listen on an address that is not this machine's own.")
    ] = False,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Another name that HTTP calls may use for this server; repeat for more."),
    ] = None,
    route: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which route to ask; the token's only one by default.")
    ] = None,
    timeout: Annotated[
        int | None,
        typer.Option(min=1, metavar="SECONDS", help="How long the client waits for a tool, if it does not wait long."),
    ] = None,
    url: Url = None,
    socket: Socket = None,
    token_file: TokenFile = None,
    config: Config = None,
    client: Client = None,
) -> None:
    """Serve MCP: the tool "approve" for --permission-prompt-tool, and "ask" for any question.

    \b
        claude -p "…" --mcp-config agentpod.json \\
          --permission-prompt-tool mcp__agentpod__approve

    Nothing but a person's answer in the room allows anything; where the daemon cannot be
    reached, the answer is no, with the reason. agentpod-bot connect mcp prints the
    client's settings. Over HTTP, every call must bring the daemon's token. Needs the extra
    "bridges".
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are
    listen = None if http is None else address(http, allow_remote=allow_remote)
    where = endpoint.find(endpoint.Wanted(url, socket, token_file, config, client), os.environ)
    raise typer.Exit(asyncio.run(serve(where, listen, allowed_host or [], route=route, timeout_s=timeout)))


def address(text: str, *, allow_remote: bool) -> tuple[str, int]:
    """Read `HOST:PORT`. Raises `Stopped` (2) where it is none, and where others could call it without leave."""
    host, colon, port = text.rpartition(":")
    bare = host.strip("[]")
    if not colon or not bare or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= MAX_PORT:
        raise Stopped(ExitCode.USAGE, "--http must look like 127.0.0.1:8471")
    if not allow_remote and not is_loopback(bare):
        raise Stopped(ExitCode.USAGE, f"--http {text}: other machines could call this address; say --allow-remote")
    return bare, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can call a host's address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def serve(
    where: Endpoint, listen: tuple[str, int] | None, names: list[str], *, route: str | None, timeout_s: int | None
) -> int:
    """Serve until the client goes away or a signal comes; return the exit code."""
    try:
        from agentpod_bot.cli.mcp_doors import DaemonDoors  # noqa: PLC0415 - an extra, and slow to import
        from agentpod_bot.proxy import mcp_server, mcp_serving  # noqa: PLC0415 - likewise
    except ModuleNotFoundError as fault:
        if fault.name is None or fault.name.startswith("agentpod_bot"):
            raise
        missing = f'this needs the extra "bridges" (requirements-bridges.lock): {fault.name} is not installed'
        raise Stopped(ExitCode.USAGE, missing) from fault
    from agentpod_bot.proxy.client import connected  # noqa: PLC0415 - slow to import
    from agentpod_bot.proxy.signals import signalled  # noqa: PLC0415 - likewise
    from agentpod_bot.system import SystemClock  # noqa: PLC0415 - likewise

    logging.getLogger("mcp").setLevel(logging.ERROR)  # its warnings quote what a client sent
    async with connected(where) as daemon:
        served = mcp_server.server(DaemonDoors(daemon, SystemClock(), route=route, timeout_s=timeout_s, note=say))
        if listen is not None:
            host, port = listen
            shown = f"[{host}]" if ":" in host else host
            say(f"MCP at http://{shown}:{port}{mcp_serving.PATH}, for whoever holds the token.")
            await mcp_serving.over_http(served, host, port, where.token or "", names)
            return ExitCode.OK
        with signalled() as stop:
            work = asyncio.create_task(mcp_serving.over_stdio(served))
            either: set[asyncio.Future[Any]] = {work, stop}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not stop.done():
                await work
                return ExitCode.OK
            work.cancel()
            await asyncio.wait({work})
        return 128 + stop.result()
