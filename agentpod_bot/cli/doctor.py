"""`doctor`: looks at everything that has to be right, changes nothing, and says what to do."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import time
from typing import TYPE_CHECKING

import agentpod_bot
from agentpod_bot.app.keys import open_keys
from agentpod_bot.app.meaning import policy_of
from agentpod_bot.broker.change import MESSAGE, REACTION
from agentpod_bot.cli import findings
from agentpod_bot.cli.findings import Finding, Levels, fail, ok, warn
from agentpod_bot.cli.logging_in import quiet
from agentpod_bot.config.load import find, load
from agentpod_bot.core.policy import Trust
from agentpod_bot.errors import CannotStart, ConfigurationError, MatrixError, Refused, TokenRefused
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.powers import level_to_send
from agentpod_bot.store.examination import examine
from agentpod_bot.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from agentpod_bot.config.model import Settings
    from agentpod_bot.core.ids import RoomId

CHECK_WITHIN_S = 60.0
KEYS = "device keys"
DEADLINE_S = 10.0


def look(config: Path | None, environ: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Everything that is found, in the order in which it is looked at."""
    python, sqlite = platform.python_version(), sqlite3.sqlite_version
    yield ok("version", f"agentpod-bot {agentpod_bot.__version__}, Python {python}, SQLite {sqlite}")
    try:
        settings = load(config, environ).settings
    except ConfigurationError as error:
        for problem in error.problems:
            yield Finding(findings.Grade.FAIL, "configuration", problem)
        return
    yield ok("configuration", f"{find(config, environ)} can be used")
    path = settings.store.path
    yield from findings.of_store(path, examine(path, within_s=CHECK_WITHIN_S), time.time_ns() // 1_000_000)
    with quiet("nio"):
        yield from asyncio.run(_all(settings))


async def _all(settings: Settings) -> list[Finding]:
    account = settings.homeserver
    client = MatrixClient(
        account.url,
        account.user_id,
        account.access_token.get_secret_value(),
        device_id=account.device_id,
        deadline_s=DEADLINE_S,
    )
    try:
        return [found async for found in _of_homeserver(settings, client)]
    finally:
        await client.close()


async def _of_homeserver(settings: Settings, client: MatrixClient) -> AsyncIterator[Finding]:
    account = settings.homeserver
    try:
        user_id, device_id = await client.whoami()
        server_ms = await client.server_time_ms()
    except TokenRefused as error:
        yield fail("access token", str(error), "get a new one: agentpod-bot login")
        return
    except MatrixError as error:
        yield fail("homeserver", f"{account.url}: {error}", "see whether it runs, and homeserver.url")
        return
    yield ok("homeserver", f"{account.url} answers")
    if user_id != account.user_id:
        yield fail("access token", f"is that of {user_id}, not of {account.user_id}", "get one: agentpod-bot login")
        return
    if account.device_id is not None and device_id != account.device_id:
        yield fail("access token", f"is that of device {device_id}, not of {account.device_id}", "remove the device_id")
    else:
        yield ok("access token", f"is that of {user_id}, device {device_id}")
    can_encrypt = True
    async for found in _of_keys(settings, client):
        can_encrypt = can_encrypt and not (found.what == KEYS and found.grade is findings.Grade.FAIL)
        yield found
    can_encrypt = can_encrypt and settings.e2e.pickle_key is not None
    yield findings.of_clock(None if server_ms is None else server_ms - time.time_ns() // 1_000_000)
    aliases: dict[str, RoomId] = {}
    for name, route in settings.routes.items():
        what = f"route {name}"
        try:
            if route.room.startswith("#") and route.room not in aliases:
                aliases[route.room] = await client.resolve_alias(route.room)
        except Refused as error:
            yield fail(
                what, f"the alias {route.room} means no room ({error})", "write the room's id, or mend the alias"
            )
            continue
        except MatrixError as error:
            yield fail(what, f"the alias {route.room} cannot be looked up: {error}", "try again")
            continue
        async for found in _of_route(settings, name, aliases, client, can_encrypt=can_encrypt):
            yield found


async def _of_keys(settings: Settings, client: MatrixClient) -> AsyncIterator[Finding]:
    """Whether the keys of the bot's device are there, are those that the homeserver has, and are vouched for."""
    what = KEYS
    try:
        keys = await open_keys(settings)
    except CannotStart as error:
        yield Finding(findings.Grade.FAIL, what, str(error))
        return
    if keys is None:
        yield ok(what, "none are configured: the bot asks in rooms without encryption only")
        return
    try:
        crypto = keys.crypto(client, SystemClock(), verified_only=lambda: False)
        await crypto.check()
        yield ok(what, f"{settings.crypto_folder} holds those of device {settings.homeserver.device_id}")
        what = "cross-signing"
        trouble = await keys.cross_signing(crypto, client).look()
        if trouble is None:
            yield ok(what, "the account's identity vouches for the device")
        else:
            yield Finding(findings.Grade.FAIL, what, trouble)
        for user_id in keys.changed:
            yield warn(
                "verified",
                f"{user_id} has another identity than the one that was verified",
                "compare emoji again (agentpod-bot verify)",
            )
        approvers = {approver for route in settings.routes.values() for approver in route.approvers}
        for user_id in (
            sorted(approvers - keys.verified - set(keys.changed)) if Trust(settings.e2e.trust) is not Trust.ALL else ()
        ):
            yield warn(
                "verified",
                f"{user_id} is not, and e2e.trust is {settings.e2e.trust}",
                "compare emoji (agentpod-bot verify): until then no approval of theirs counts in encrypted rooms",
            )
    except (CannotStart, MatrixError) as error:
        yield Finding(findings.Grade.FAIL, what, str(error))
    finally:
        await keys.close()


async def _of_route(
    settings: Settings, name: str, aliases: dict[str, RoomId], client: MatrixClient, *, can_encrypt: bool
) -> AsyncIterator[Finding]:
    policy = policy_of(settings, aliases)
    route = next(route for route in policy.routes.values() if route.name == name)
    levels: Levels | None = None
    try:
        room = await client.room_state(route.room_id)
        if room.bot_joined:
            content = await client.power_levels(route.room_id)
            levels = Levels(level_to_send(content, MESSAGE), level_to_send(content, REACTION))
    except MatrixError as error:
        yield fail(f"route {name}", f"its room {route.room_id} cannot be looked at: {error}", "try again")
        return
    for found in findings.of_room(policy, route, room, levels, can_encrypt=can_encrypt):
        yield found
