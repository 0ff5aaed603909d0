"""`audit export` and `audit verify`: the record of who decided what, read and checked."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agentpod_bot.cli.exits import Commands, say
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentpod_bot.core.journal import Link
    from agentpod_bot.store.reading import StoredAudit

FORMAT = "agentpod-audit/1"
LINK = re.compile(r"(?P<seq>[0-9]{1,16}):(?P<hash>[0-9a-f]{64})")
HEAD = re.compile(r"(?:[0-9]{1,16}:)?(?P<hash>[0-9a-f]{64})")

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Configuration file that names the store (else $AGENTPOD_BOT_CONFIG, ./config.yaml, "
        "/etc/agentpod-bot/config.yaml).",
    ),
]
Store = Annotated[Path | None, typer.Option(metavar="PATH", help="The store's file, instead of a configuration.")]

audit = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None)


@audit.callback()
def about() -> None:
    """Read or check the audit: who was asked, who answered what, who was refused and why.

    Its lines are only ever added, in the same transaction as what they tell, and each is
    chained to the one before it by a hash. They are kept for audit.retention, longer than
    the requests themselves.
    """


class Form(StrEnum):
    """How an export is written."""

    JSONL = "jsonl"


@audit.command(short_help="Print the audit, oldest line first.")
def export(
    *,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Only lines from then on: 2026-11-07T10:30:00Z, or how long ago (30m, 24h, 7d).",
        ),
    ] = None,
    form: Annotated[Form, typer.Option("--format", help="How to write it.")] = Form.JSONL,  # noqa: ARG001 - one so far
    store: Store = None,
    config: Config = None,
) -> None:
    """Print the audit as JSON, one line each, oldest first; the daemon may be running.

    Who was asked, who answered what, who was refused and why, in codes; no titles, commands
    or reasons. The first and the last line say what the others follow and where they end,
    so that `audit verify FILE` can check what was printed. The head (number and hash of
    the last line) is told on stderr: kept elsewhere, it shows later whether lines were
    taken away.
    """
    from agentpod_bot.core.journal import Link  # noqa: PLC0415 - other commands start without all of this

    since_ms = None if since is None else _since_ms(since)
    with _opened(store, config) as kept:
        head = after = kept.anchor if since_ms is None else kept.before(since_ms)
        _print({"format": FORMAT, "after": str(after)})
        for fields, stored in kept.lines(None if since_ms is None else after):
            _print({**fields, "hash": stored})
            head = Link(fields["seq"], str(stored))
        _print({"head": str(head)})
    sys.stdout.flush()
    say(f"head {head}")


@audit.command(short_help="Check that no line was changed, taken away, added or moved.")
def verify(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="What `audit export` printed, - for stdin; the store by default.", show_default=False
        ),
    ] = None,
    *,
    head: Annotated[
        str | None, typer.Option(metavar="HASH", help="A head that you kept: it must be one of the lines.")
    ] = None,
    store: Store = None,
    config: Config = None,
) -> None:
    """Check the audit of the store (the daemon may be running), or of an exported file.

    Every line carries a hash over itself and the line before it: one that was changed, taken
    away, added or moved shows, and the first such line is named. What the hashes alone cannot
    show is that the newest lines were taken away, or that somebody who can write the file made
    all of it anew: give a head that was kept elsewhere (export and the daemon's log, once a
    day, tell it) as --head for that. The oldest lines go after audit.retention.

    \b
    Exit codes: 0 every line follows from the one before it (and the head is among them),
    1 broken, or the head is not among them, 2 usage, 78 there is no audit that can be read
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are
    from agentpod_bot.core.journal import Broken, Whole, examine  # noqa: PLC0415 - as above

    wanted = None if head is None else _hash_of(head)
    fault: str | None = None
    if file is None:
        with _opened(store, config) as kept:
            after = kept.anchor
            result = examine(after, kept.lines(), wanted=wanted)
    else:
        with _lines(file) as written:
            exported = Exported(written)
            after = exported.after
            result = examine(after, exported.lines(), wanted=wanted)
        if isinstance(result, Whole):
            fault = exported.fault_of_end(result.head)
    if isinstance(result, Broken):
        fault = f"line {result.seq} {result.why}"
    if fault is not None or isinstance(result, Broken):
        typer.echo(f"The audit is broken: {fault}.")
        raise typer.Exit(ExitCode.NO)
    typer.echo(
        f"Lines {after.seq + 1} to {result.head.seq}: each follows from the one before it."
        if result.lines
        else f"There is no line after line {after.seq}."
    )
    typer.echo(f"head {result.head}")
    if not result.remembered:
        typer.echo(
            "The head that you gave is not among these lines: the newest were taken away, all was made anew, "
            "or the head is older than what is kept."
        )
        raise typer.Exit(ExitCode.NO)
    if wanted is None:
        typer.echo("Only a head that was kept elsewhere (--head) shows whether newer lines were taken away.")
    else:
        typer.echo("The head that you gave is among them: up to there nothing is other than it was then.")


class Exported:
    """An exported file, read once from its beginning. Raises `Stopped` where it is no export at all."""

    def __init__(self, written: Iterator[bytes]) -> None:
        self._written = written
        self.after = _after(next(written, b""))
        self._head: str | None = None
        self._more = False

    def lines(self) -> Iterator[tuple[dict[str, Any], object]]:
        """Its lines; what is no line of an audit comes as one without fields."""
        for raw in self._written:
            fields = _object(raw)
            if self._head is not None:
                self._more = True
                return
            if set(fields) == {"head"}:
                self._head = str(fields["head"])
                continue
            stored = fields.pop("hash", None)
            yield fields, stored

    def fault_of_end(self, head: Link) -> str | None:
        """What is wrong with how the file ends, once its lines were read and end with `head`."""
        if self._head is None:
            return f"the file is cut off after line {head.seq}, for no last line names the head"
        if self._more:
            return f"something stands after the last line, {head.seq}"
        return None if self._head == str(head) else f"the file names another head than line {head.seq}"


def _after(raw: bytes) -> Link:
    from agentpod_bot.core.journal import Link  # noqa: PLC0415 - as above

    first = _object(raw)
    found = LINK.fullmatch(str(first.get("after")))
    if first.get("format") != FORMAT or found is None:
        raise Stopped(ExitCode.CONFIGURATION, "the file is none that `agentpod-bot audit export` printed")
    return Link(int(found["seq"]), found["hash"])


def _object(raw: bytes) -> dict[str, Any]:
    """One line of a file; empty where it is no JSON object, or names something twice."""
    from agentpod_bot.errors import Invalid, MalformedJson  # noqa: PLC0415 - as above
    from agentpod_bot.harness import strict_json  # noqa: PLC0415 - as above

    try:
        return strict_json.read(raw)
    except (Invalid, MalformedJson):
        return {}


@contextmanager
def _opened(store: Path | None, config: Path | None) -> Iterator[StoredAudit]:
    from agentpod_bot.store.reading import stored_audit  # noqa: PLC0415 - as above

    if store is None:
        from agentpod_bot.config.load import store_path  # noqa: PLC0415 - as above

        store = store_path(config, os.environ)
    with stored_audit(store) as kept:
        yield kept


@contextmanager
def _lines(file: Path) -> Iterator[Iterator[bytes]]:
    if str(file) == "-":
        yield iter(sys.stdin.buffer)
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        raise Stopped(ExitCode.CONFIGURATION, f"{file} cannot be read: {error.strerror}") from error
    with opened:
        yield iter(opened)


def _hash_of(head: str) -> str:
    found = HEAD.fullmatch(head.strip().lower())
    if found is None:
        raise Stopped(ExitCode.USAGE, "--head: write the 64 hexadecimal digits of a head, with or without its number")
    return found["hash"]


def _since_ms(text: str) -> int:
    from agentpod_bot.config.values import duration_ms  # noqa: PLC0415 - as above

    with suppress(ValueError):
        return time.time_ns() // 1_000_000 - duration_ms(text)
    at: datetime | None = None
    with suppress(ValueError):
        at = datetime.fromisoformat(text)
    if at is None or at.tzinfo is None:
        raise Stopped(ExitCode.USAGE, "--since: write a time with its zone, 2026-11-07T10:30:00Z, or 30m, 24h, 7d")
    return int(at.timestamp() * 1_000)


def _print(line: dict[str, Any]) -> None:
    # What is no text or number was not written by us, and is exported all the same.
    sys.stdout.write(json.dumps(line, separators=(",", ":"), default=repr) + "\n")
