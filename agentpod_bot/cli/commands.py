"""The command line: every command of `agentpod-bot`, in the order in which a new user needs them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from agentpod_bot import __version__
from agentpod_bot.cli import auditing, bridging, calls, connecting, keeping, serving_mcp, verifying
from agentpod_bot.cli.exits import Commands

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Configuration file (else $AGENTPOD_BOT_CONFIG, ./config.yaml, /etc/agentpod-bot/config.yaml).",
    ),
]

app = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def agentpod_bot(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Asks a person in a Matrix room before an AI agent acts, and gives the answer back to the agent.

    \b
    First time:  agentpod-bot demo                 see it work, on a private homeserver
                 agentpod-bot login                get the bot an access token
                 agentpod-bot check-config         see whether the configuration is good
                 agentpod-bot run                  start the daemon

    \b
    Exit codes: 0 ok, 2 usage, 69 homeserver or daemon unreachable, 70 a bug,
    74 output or disk full, 77 credentials refused, 78 configuration.
    ask has more: agentpod-bot ask --help
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are


@app.command(short_help="Run the daemon.")
def run(*, config: Config = None) -> None:
    """Run the daemon until it is told to stop (SIGTERM or Ctrl-C).

    SIGHUP makes it read routes, approvers and tokens anew. Where the homeserver cannot
    be reached, it keeps trying, and is not ready meanwhile.
    """
    from agentpod_bot.config.load import load  # noqa: PLC0415 - other commands start without all of this
    from agentpod_bot.log import configure  # noqa: PLC0415 - likewise

    loaded = load(config, os.environ)
    configure(loaded.settings.log.level, loaded.settings.log.format, sys.stderr)

    from agentpod_bot.app.daemon import run as run_daemon  # noqa: PLC0415 - likewise

    raise typer.Exit(asyncio.run(run_daemon(loaded)))


@app.command(short_help="See it work, on a private homeserver.")
def demo(
    *,
    answers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Answer unattended with these, in order, like 1,Reject; - gives none.",
        ),
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Answer unattended with the lines of this file."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with everything in it.")] = False,
    encrypted: Annotated[
        bool | None,
        typer.Option("--encrypted/--plain", help="Whether the room is encrypted (default: with the extra e2e)."),
    ] = None,
) -> None:
    """Start a private homeserver, ask three questions in a room there, and let you answer them.

    Needs the extra "demo" (make demo sets it up). Everything runs on this machine and is
    gone afterwards; Ctrl-C leaves nothing running. Exit code 1 where an answer did not
    come back to the one who asked. With --answers or --script, as many questions are
    asked as there are answers, at most three.
    """
    from agentpod_bot.cli.making_keys import can_make_keys  # noqa: PLC0415 - only this command needs it
    from agentpod_bot.demo.talk import DemoOptions, run_demo  # noqa: PLC0415 - likewise
    from agentpod_bot.log import configure  # noqa: PLC0415 - likewise

    configure("warning", "auto", sys.stderr)  # what went well is shown as a step
    encrypted = can_make_keys() if encrypted is None else encrypted
    raise typer.Exit(asyncio.run(run_demo(DemoOptions(answers=answers, script=script, keep=keep, encrypted=encrypted))))


@app.command("check-config", short_help="Check the configuration; say where its values come from.")
def check_config(*, config: Config = None) -> None:
    """Check the configuration, and say where each value comes from (secrets as ***).

    Exit code 78 with every fault where it cannot be used.
    """
    from agentpod_bot.config.load import load  # noqa: PLC0415 - slow to import
    from agentpod_bot.config.report import report  # noqa: PLC0415 - likewise
    from agentpod_bot.store import folder  # noqa: PLC0415 - likewise

    loaded = load(config, os.environ)
    folder.check(loaded.settings.store.path.resolve())
    for line in report(loaded):
        typer.echo(line)
    typer.echo("The configuration can be used.")


@app.command(short_help="Get the bot an access token, into a file.")
def login(
    *,
    homeserver: Annotated[str, typer.Option(metavar="URL", help="Address of the homeserver, like https://example.org")],
    user: Annotated[str, typer.Option(metavar="NAME", help="The bot's account: its name or its full Matrix id.")],
    device_name: Annotated[
        str, typer.Option(metavar="NAME", help="What the account's list of sessions calls this one.")
    ] = "agentpod-bot",
    output: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the access token (mode 0600).")] = Path(
        "access_token"
    ),
    force: Annotated[bool, typer.Option("--force", help="Replace the file where it exists.")] = False,
    password_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Read the password from this file, or from stdin where FILE is -."),
    ] = None,
    e2e: Annotated[
        bool | None,
        typer.Option("--e2e/--no-e2e", help="Make keys for encrypted rooms (default: where the extra is installed)."),
    ] = None,
    e2e_store: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to make the keys (default: crypto beside the token).")
    ] = None,
    pickle_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The secret that encrypts the keys; made if missing (default: beside the token)."
        ),
    ] = None,
    reset_identity: Annotated[
        bool,
        typer.Option("--reset-identity", help="Replace the account's cross-signing identity where it has another."),
    ] = False,
) -> None:
    """Log the bot in with its password, and write the access token into a file.

    The password is asked for without echo, sent to the homeserver once, and stored
    nowhere; the token is never printed. Every call is a new session of the account.
    Older sessions stay logged in, with whatever tokens they have: end those that you
    do not need with a Matrix client.

    The keys for encrypted rooms are made here, and nowhere else: back them up together
    with the secret that encrypts them.
    """
    from agentpod_bot.cli.logging_in import LoginOptions, log_in  # noqa: PLC0415 - slow to import
    from agentpod_bot.cli.making_keys import KeysOptions, can_make_keys  # noqa: PLC0415 - likewise
    from agentpod_bot.log import configure  # noqa: PLC0415 - likewise

    configure("warning", "auto", sys.stderr)  # what went well is said in sentences
    keys = None
    if e2e or (e2e is None and can_make_keys()):
        keys = KeysOptions(
            folder=e2e_store or output.with_name("crypto"),
            pickle_key_file=pickle_key_file or output.with_name("pickle_key"),
            reset_identity=reset_identity,
        )
    options = LoginOptions(homeserver, user, device_name, output, force=force, password_file=password_file, keys=keys)
    for line in log_in(options):
        typer.echo(line)


app.command("doctor", short_help="Look at everything that has to be right.")(keeping.doctor)
app.command("backup", short_help="Copy the store, while the daemon runs or not.")(keeping.backup)
app.command("verify", short_help="Compare emoji with an approver, for encrypted rooms.")(verifying.verify)
app.command("ask", short_help="Ask a person; exit 0 only if the answer approves.")(calls.ask)
app.command("list", short_help="List this client's requests.")(calls.list_requests)
app.command("cancel", short_help="Cancel requests that nobody needs any more.")(calls.cancel)
app.command("healthcheck", short_help="Ask a running daemon whether it is ready.")(calls.healthcheck)
app.add_typer(auditing.audit, name="audit", short_help="Read or check the record of who decided what.")
app.command("hook", short_help="Answer a harness's hook, which runs this command.")(bridging.hook)
app.add_typer(bridging.proxy, name="proxy", short_help="Run an agent, and ask its questions in the room.")
app.command("connect", short_help="Print what to write where, so that a harness asks.")(connecting.connect)
app.command("mcp", short_help="Serve MCP, with tools that ask a person.")(serving_mcp.mcp)


class Shape(StrEnum):
    """A JSON shape that this program takes or gives."""

    PERMISSION = "permission"
    ANSWER = "answer"
    OUTCOME = "outcome"
    REQUEST = "request"
    VIEW = "view"


@app.command()
def schema(
    shape: Annotated[
        Shape | None, typer.Argument(help="Which one; all of them by default.", show_default=False)
    ] = None,
) -> None:
    """Print the JSON Schema of what goes over the wire.

    \b
    permission  a question, as the content of a Matrix event
    answer      a structured answer, as the content of a Matrix event
    outcome     the receipt in the edit that closes a question
    request     the body of POST /v1/requests
    view        what the HTTP endpoint says about a request
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are
    from agentpod_bot.cli.schemas import schemas  # noqa: PLC0415 - slow to import

    every = schemas()
    typer.echo(json.dumps(every if shape is None else every[shape], indent=2))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"agentpod-bot {__version__}")
