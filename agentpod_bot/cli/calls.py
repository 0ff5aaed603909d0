"""The commands that call a running daemon: `ask`, `list`, `cancel`, `healthcheck`."""

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path
from typing import Annotated, Any

import typer

from agentpod_bot.cli import asking
from agentpod_bot.cli.exits import say
from agentpod_bot.core.ids import RequestId, SessionId
from agentpod_bot.proxy import endpoint
from agentpod_bot.proxy.stopped import ExitCode, Stopped

PAGE = 100
"""How many requests `list` fetches with one call."""

Url = Annotated[
    str | None,
    typer.Option(metavar="URL", help=f"Address of the daemon, like http://127.0.0.1:8470 (else ${endpoint.URL})."),
]
Socket = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help=f"Unix socket of the daemon, instead of --url (else ${endpoint.SOCKET})."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help=f"File with the token (else ${endpoint.TOKEN_FILE}, then ${endpoint.TOKEN})."),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Configuration file to take address and token from where neither is given "
        "(else $AGENTPOD_BOT_CONFIG, ./config.yaml, /etc/agentpod-bot/config.yaml).",
    ),
]
ConfigOfAddress = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Configuration file to take the address from where none is given "
        "(else $AGENTPOD_BOT_CONFIG, ./config.yaml, /etc/agentpod-bot/config.yaml).",
    ),
]
Client = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Which client of the configuration file to be; the only one by default."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON as the daemon gives it.")]


def ask(
    title: Annotated[str, typer.Argument(metavar="TITLE", help="What is asked, in one line.", show_default=False)],
    *,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID:KIND[:LABEL]",
            help="One answer to offer; repeat for more. KIND is allow_once, allow_always, reject_once, "
            "reject_always or choose. Default: allow_once and reject_once.",
        ),
    ] = None,
    command: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The command that will run, shown with the question.")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="LABEL=VALUE", help="A line of detail, shown with the question; repeat for more."),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Session that the question belongs to; a new one by default.")
    ] = None,
    agent: Annotated[str | None, typer.Option(metavar="NAME", help="What the asker calls itself.")] = None,
    route: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which route to ask; the token's only one by default.")
    ] = None,
    ttl: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long the question stays open (30s, 30m, 24h); else the daemon says."
        ),
    ] = None,
    wait: Annotated[bool, typer.Option(help="Wait for the answer.")] = True,
    as_json: Json = False,
    url: Url = None,
    socket: Socket = None,
    token_file: TokenFile = None,
    config: Config = None,
    client: Client = None,
) -> None:
    """Ask a person, wait, and exit 0 only if the answer is an approval.

    \b
        agentpod-bot ask "Deploy?" --command ./deploy.sh && ./deploy.sh

    is safe: nothing but a person's approval of this very question exits 0. The id of
    the chosen option is printed on stdout, everything else on stderr. If the daemon is
    restarted meanwhile, the question stays and the wait goes on. Ctrl-C cancels it.

    \b
    Exit codes:
      0    approved (or, of options of kind choose, one was chosen)
      1    rejected
      2    wrong usage, or the daemon does not accept the question; nobody was asked
      3    no answer: expired, cancelled, closed elsewhere, not deliverable;
           also always with --no-wait, which prints the request's id instead
      69   the daemon does not answer, or cannot ask now
      74   the answer could not be written to stdout
      77   the daemon refuses the token
      78   the configuration file or the token file cannot be used
      130  interrupted (other signals: 128 and the signal's number)
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are
    offered = asking.choices(option or ())
    session_id = session or f"ask_{secrets.token_hex(4)}"
    request_id = RequestId(f"{session_id}:{secrets.token_hex(8)}")
    preview: list[dict[str, Any]] = [asking.field(each) for each in field or ()]
    if command is not None:
        preview.insert(0, {"type": "text", "label": "Command", "text": command})
    body: dict[str, Any] = {
        "session_id": session_id,
        "request_id": request_id,
        "title": title,
        "options": [each.as_json() for each in offered],
        "preview": preview,
    }
    body |= {"agent": agent} if agent is not None else {}
    body |= {"route": route} if route is not None else {}
    body |= {"ttl_s": asking.seconds(ttl)} if ttl is not None else {}
    where = endpoint.find(endpoint.Wanted(url, socket, token_file, config, client), os.environ)

    from agentpod_bot.cli import waiting  # noqa: PLC0415 - the HTTP client is slow to import

    raise typer.Exit(
        asyncio.run(waiting.ask(where, asking.Asked(request_id, body, offered), wait=wait, as_json=as_json))
    )


def list_requests(
    *,
    status: Annotated[
        str | None,
        typer.Option(metavar="STATUS", help="Only these: queued, pending, decided, expired, cancelled, …"),
    ] = None,
    session: Annotated[str | None, typer.Option(metavar="ID", help="Only those of this session.")] = None,
    as_json: Json = False,
    url: Url = None,
    socket: Socket = None,
    token_file: TokenFile = None,
    config: Config = None,
    client: Client = None,
) -> None:
    """List this client's requests, newest first, as far back as the daemon keeps them.

    One line each: code in the room, status, time of asking, request id and, where
    there is one, the decision.
    """
    where = endpoint.find(endpoint.Wanted(url, socket, token_file, config, client), os.environ)
    query = {"limit": str(PAGE)}
    query |= {"status": status} if status is not None else {}
    query |= {"session_id": session} if session is not None else {}

    from agentpod_bot.cli import waiting  # noqa: PLC0415 - the HTTP client is slow to import

    views = asyncio.run(waiting.requests(where, query))
    if as_json:
        typer.echo(waiting.readable(views))
        return
    for view in views:
        typer.echo(waiting.line(view))
    if not views:
        say("No requests.")


def cancel(
    request_id: Annotated[
        str | None, typer.Argument(help="The request to cancel.", metavar="REQUEST_ID", show_default=False)
    ] = None,
    *,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Cancel every open request of this session instead.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Cancel every open request of this client instead.")
    ] = False,
    url: Url = None,
    socket: Socket = None,
    token_file: TokenFile = None,
    config: Config = None,
    client: Client = None,
) -> None:
    """Cancel a request that nobody needs any more; the question in the room says so.

    Prints the ids of the cancelled requests. Exit code 1 where the named request does
    not exist, or is closed already.
    """
    if (request_id is not None) + (session is not None) + everything != 1:
        raise Stopped(ExitCode.USAGE, "give one of: a request id, --session ID, --all")
    where = endpoint.find(endpoint.Wanted(url, socket, token_file, config, client), os.environ)

    from agentpod_bot.cli import waiting  # noqa: PLC0415 - the HTTP client is slow to import

    cancelled = asyncio.run(
        waiting.cancel(
            where,
            RequestId(request_id) if request_id is not None else None,
            SessionId(session) if session is not None else None,
        )
    )
    for each in cancelled:
        typer.echo(waiting.shown(each))


def healthcheck(*, config: ConfigOfAddress = None, url: Url = None, socket: Socket = None) -> None:
    """Ask a running daemon whether it is ready: exit 0 if so, 1 with the reasons if not.

    Ready means: the store can be written, the homeserver takes the token, and the last
    good sync is at most a minute old. Needs no token. Made for a container's HEALTHCHECK.
    """
    where = endpoint.find(endpoint.Wanted(url, socket, None, config), os.environ, token=False)

    from agentpod_bot.cli import waiting  # noqa: PLC0415 - the HTTP client is slow to import

    problems = asyncio.run(waiting.not_ready(where))
    for problem in problems:
        say(f"not ready: {waiting.shown(problem)}")
    raise typer.Exit(ExitCode.NO if problems else ExitCode.OK)
