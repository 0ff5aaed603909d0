"""`verify`: the person at the daemon's machine compares emoji with an approver."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from agentpod_bot.cli.exits import say
from agentpod_bot.core.text import visible_line
from agentpod_bot.proxy.stopped import ExitCode, Stopped

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import aiohttp

SOCKET: Final = "control.sock"
LONGEST_SOCKET: Final = 107
CALL_S: Final = 60.0
"""Longer than the daemon ever holds a call that waits for news."""
LONGEST: Final = 255
FIRST_ROW: Final = 4
DRAWN_AS_EMOJI: Final = "\N{VARIATION SELECTOR-16}"
SAME: Final = "Do both of you see the same, in the same order?"
NOT_RUNNING: Final = "the daemon does not run (or not with these keys): start it, then verify"
ENDED: Final = {
    "m.user": "it was cancelled",
    "m.timeout": "it took too long",
    "m.mismatched_sas": "the emoji did not match",
    "m.key_mismatch": "the keys were not the expected ones",
    "m.accepted": "another device of the bot's account answered",
    "m.unknown_method": "there was no way to verify that both sides know",
    "m.unexpected_message": "the other side sent what did not belong there",
    "m.invalid_message": "the other side sent what cannot be read",
}

Config = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Configuration file (else $AGENTPOD_BOT_CONFIG, ./config.yaml, /etc/agentpod-bot/config.yaml).",
    ),
]


def verify(
    *,
    config: Config = None,
    yes_they_match: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Confirm this verification, whose emoji you compared, without asking."),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Show whose devices and identities are verified.")] = False,
    forget: Annotated[
        str | None, typer.Option(metavar="@USER", help="Verify nothing of this account any more.")
    ] = None,
) -> None:
    """Compare emoji with an approver who verifies the bot in a Matrix client.

    The approver starts: they open the bot's profile or session in their client, and
    choose to verify it by emoji. This command, run on the daemon's machine as the
    daemon's user, then shows the same emoji, and asks whether they match. Nothing is
    verified before both of you said so. Without a verification it waits for one; Ctrl-C
    ends it.

    \b
    Exit codes: 0 verified (or shown, or forgotten), 1 not verified,
    69 the daemon does not run, 78 configuration.
    """  # noqa: D301 - typer leaves the lines after a backspace character as they are
    if (yes_they_match is not None) + show + (forget is not None) > 1:
        raise Stopped(ExitCode.USAGE, "give one of: --yes-they-match ID, --list, --forget @USER")
    door = socket_of(config)
    if show:
        for line in asyncio.run(listed(door)):
            typer.echo(line)
    elif forget is not None:
        asyncio.run(call(door, "POST", "/verified/forget", user_id=forget))
        typer.echo(f"Nothing of {visible_line(forget, limit=LONGEST)} is verified any more.")
    else:
        raise typer.Exit(verify_one(door, yes_they_match))


def socket_of(config: Path | None) -> Path:
    """Where the daemon of a configuration listens. Raises `ConfigurationError`, `Stopped`."""
    from agentpod_bot.config.load import load  # noqa: PLC0415 - slow to import

    settings = load(config, os.environ).settings
    if settings.e2e.pickle_key is None:
        raise Stopped(
            ExitCode.CONFIGURATION, "e2e.pickle_key_file: without it the bot has no keys, and nothing to verify"
        )
    door = settings.crypto_folder / SOCKET
    if len(str(door).encode()) > LONGEST_SOCKET:
        raise Stopped(
            ExitCode.CONFIGURATION,
            f"e2e.store: {door} is longer than the {LONGEST_SOCKET} bytes that a Unix socket's path may have",
        )
    return door


def verify_one(door: Path, known: str | None) -> ExitCode:
    """Go through one verification with the person: show, ask, tell the daemon, say what came of it."""
    if known is None:
        found = asyncio.run(first_shown(door))
        for line in pictures(found):
            typer.echo(line)
        one = str(found["id"])
        if not typer.confirm(SAME, default=False):
            asyncio.run(call(door, "POST", f"/verifications/{one}/cancel", mismatch="true"))
            say("Nothing was verified.")
            return ExitCode.NO
    else:
        one = known
        if not one.isalnum():
            raise Stopped(ExitCode.USAGE, f"{visible_line(one, limit=LONGEST)} is no id of a verification")
    asyncio.run(call(door, "POST", f"/verifications/{one}/confirm"))
    say("Waiting for the other side to confirm, too …")
    end = asyncio.run(ended(door, one))
    if end.get("state") != "verified":
        say(f"Nothing was verified: {ENDED.get(str(end.get('code')), 'the other side cancelled')}.")
        return ExitCode.NO
    for line in verified(end):
        typer.echo(line)
    return ExitCode.OK


async def first_shown(door: Path) -> dict[str, Any]:
    """The first verification that shows emoji and was not confirmed; waits for one."""
    waits = False
    async for all_now in news(door):
        for one in all_now:
            if one.get("state") == "shown":
                return one
        if not waits:
            waits = True
            say("Waiting for an approver to verify the bot in their client (Ctrl-C ends this) …")
    raise Stopped(ExitCode.UNREACHABLE, NOT_RUNNING)


async def ended(door: Path, verification_id: str) -> dict[str, Any]:
    """A verification, once it came to its end; as cancelled where the daemon knows it no more."""
    async for all_now in news(door):
        found = next((one for one in all_now if one.get("id") == verification_id), None)
        if found is None:
            return {"state": "cancelled", "code": "m.timeout"}
        if found.get("state") in {"verified", "cancelled"}:
            return found
    raise Stopped(ExitCode.UNREACHABLE, NOT_RUNNING)


async def news(door: Path) -> AsyncIterator[list[dict[str, Any]]]:
    """The list of verifications, and again each time that it changed; without end."""
    version: int | None = None
    while True:
        query = {} if version is None else {"after": str(version)}
        answer = await call(door, "GET", "/verifications", **query)
        version = int(answer.get("version", 0))
        yield [one for one in answer.get("verifications", []) if isinstance(one, dict)]


async def listed(door: Path) -> list[str]:
    """What `--list` says."""
    answer = await call(door, "GET", "/verified")
    own = answer.get("own", {})
    lines = [
        f"The bot: {shown(own.get('user_id'))}, device {shown(own.get('device_id'))}, key {shown(own.get('ed25519'))}"
    ]
    if own.get("trouble"):
        lines.append(f"Not cross-signed: {shown(own['trouble'], limit=1_000)}")
    elif own.get("master"):
        lines.append(f"Cross-signed by its identity {shown(own['master'])}")
    identities, devices = answer.get("identities", []), answer.get("devices", [])
    lines += [f"identity  {shown(one['user_id'])}  {shown(one['master'])}" for one in identities]
    lines += [
        f"device    {shown(one['user_id'])}  {shown(one['device_id'])}  {shown(one['ed25519'])}" for one in devices
    ]
    lines += [
        f"CHANGED   {shown(user_id)} has another identity now: compare emoji again, or --forget them"
        for user_id in answer.get("changed", [])
    ]
    if not identities and not devices:
        lines.append("Nobody is verified.")
    return lines


async def call(door: Path, method: str, path: str, **query: str) -> dict[str, Any]:
    """One call of the daemon. Raises `Stopped` where it does not run, or says no."""
    import aiohttp  # noqa: PLC0415 - slow to import

    try:
        connector = aiohttp.UnixConnector(str(door))
        timeout = aiohttp.ClientTimeout(total=CALL_S)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.request(method, f"http://daemon{path}", params=query) as response,
        ):
            answer = await read(response)
            if response.status >= 400:  # noqa: PLR2004 - what HTTP calls an error
                detail = shown(answer.get("detail", f"the daemon answered {response.status}"), limit=1_000)
                raise Stopped(ExitCode.NO, detail)
            return answer
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Stopped(ExitCode.UNREACHABLE, NOT_RUNNING) from error


async def read(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """The JSON object of an answer; empty where it is none."""
    try:
        answer = json.loads(await response.read())
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def pictures(one: dict[str, Any]) -> list[str]:
    """Who verifies with what, and what both have to see: emoji with their names in two rows, or numbers."""
    lines = [f"{shown(one.get('user_id'))} verifies the bot with device {shown(one.get('device_id'))}.", ""]
    emoji = [f"{symbol} {name}" for symbol, name in one.get("emoji", [])]
    if emoji:
        # A terminal draws each emoji two columns wide; the mark that some end with takes none.
        widths = [len(each.replace(DRAWN_AS_EMOJI, "")) for each in emoji]
        columns = [each + " " * (max(widths) + 2 - width) for each, width in zip(emoji, widths, strict=True)]
        lines += ["  " + "".join(row).rstrip() for row in (columns[:FIRST_ROW], columns[FIRST_ROW:])]
    numbers = "  ".join(str(number) for number in one.get("numbers", []))
    lines.append(f"  (as numbers: {numbers})" if emoji else f"  {numbers}")
    return [*lines, "", f"Verification {shown(one.get('id'))}"]


def verified(one: dict[str, Any]) -> list[str]:
    """What is verified now, in plain words."""
    user_id, device_id = shown(one.get("user_id")), shown(one.get("device_id"))
    lines = []
    if one.get("device"):
        lines.append(f"Verified: device {device_id} of {user_id}.")
    if one.get("identity"):
        lines.append(f"Verified: the identity of {user_id}, and with it every device that they sign, now or later.")
    return lines


def shown(value: object, *, limit: int = LONGEST) -> str:
    """A text of somebody else's on one line, safe for a terminal."""
    return visible_line(str(value), limit=limit)
