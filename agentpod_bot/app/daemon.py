"""The composition root: builds every object once, starts and stops them in order, hears signals."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from agentpod_bot.api.app import application
from agentpod_bot.api.connection import Limits as ConnectionLimits
from agentpod_bot.api.server import Server
from agentpod_bot.api.tokens import Tokens
from agentpod_bot.api.view import view
from agentpod_bot.app.health import Health
from agentpod_bot.app.keys import open_keys
from agentpod_bot.app.meaning import listening, policy_of, tokens_of
from agentpod_bot.broker.assembly import assemble
from agentpod_bot.callbacks.post import Poster
from agentpod_bot.callbacks.sender import Callbacks
from agentpod_bot.callbacks.target import targets_of
from agentpod_bot.config.load import load
from agentpod_bot.config.reload import reloadable
from agentpod_bot.core.ids import ClientName, RouteName
from agentpod_bot.core.policy import Trust
from agentpod_bot.errors import (
    CannotStart,
    ConfigurationError,
    CredentialsRefused,
    MatrixError,
    Refused,
    StoreUnavailable,
    TokenRefused,
)
from agentpod_bot.log import configure
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.homeserver import MatrixHomeserver
from agentpod_bot.matrix.invites import pending_invites
from agentpod_bot.matrix.renewal import Renewal, account_of, session_of
from agentpod_bot.matrix.sync import SyncLoop
from agentpod_bot.metrics import Metrics
from agentpod_bot.store.database import open_store
from agentpod_bot.store.measured import MeasuredStore
from agentpod_bot.system import SystemChance, SystemClock

if TYPE_CHECKING:
    from agentpod_bot.app.keys import OpenKeys
    from agentpod_bot.config.load import Loaded
    from agentpod_bot.config.model import Settings
    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.core.policy import Policy
    from agentpod_bot.matrix.e2e.control import Control
    from agentpod_bot.ports import Store

log = structlog.get_logger(__name__)

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 30.0


async def run(loaded: Loaded) -> int:
    """Run the daemon until SIGTERM or SIGINT; returns its exit code. Raises `CannotStart`."""
    store = await asyncio.to_thread(open_store, loaded.settings.store.path)
    keys: OpenKeys | None = None
    daemon: Daemon | None = None
    try:
        keys = await open_keys(loaded.settings)
        daemon = Daemon(loaded, store, keys)
        await daemon.serve()
    except BaseExceptionGroup as group:
        cannot = group.subgroup(CannotStart)
        if cannot is None:
            raise
        raise _first(cannot) from group
    finally:
        if daemon is not None:
            await daemon.client.close()
        if keys is not None:
            await keys.close()
        await store.close()
    return 0


class Daemon:
    """Every part of the running process, built once."""

    def __init__(self, loaded: Loaded, store: Store, keys: OpenKeys | None) -> None:
        settings = loaded.settings
        self._loaded = loaded
        self._clock = SystemClock()
        self._metrics = Metrics()
        self._store = MeasuredStore(store, self._metrics, self._clock)
        self.client = MatrixClient(
            settings.homeserver.url,
            settings.homeserver.user_id,
            settings.homeserver.access_token.get_secret_value(),
            device_id=settings.homeserver.device_id,
        )
        self._crypto = (
            None if keys is None else keys.crypto(self.client, self._clock, verified_only=self._verified_only)
        )
        homeserver = MatrixHomeserver(self.client, self._crypto)
        self._renewal = Renewal(self.client, session_of(settings))
        self._callbacks = Callbacks(
            self._store,
            Poster(self._clock),
            lambda question: view(question).model_dump_json(),
            targets=targets_of(settings),
            retention_ms=settings.requests.retention_ms,
            clock=self._clock,
            chance=SystemChance(),
            meter=self._metrics,
        )
        self._parts = assemble(
            self._store,
            homeserver,
            policy_of(settings, {}),
            clock=self._clock,
            chance=SystemChance(),
            meter=self._metrics,
            call_back=self._callbacks.ring,
        )
        self._world = self._parts.world
        self._world.held = lambda: not self._sync.first_sync_done.is_set()
        self._rooms = self._parts.rooms
        self._waiters = self._parts.waiters
        self._verifying = (
            keys.verifying(self._crypto, self.client, homeserver, self._world, self._clock)
            if keys is not None and self._crypto is not None
            else None
        )
        self._sync = SyncLoop(
            self.client,
            self._parts.inbox,
            self._clock,
            jitter=secrets.SystemRandom().random,
            meter=self._metrics,
            renew=self._renew,
            opener=None if self._verifying is None else self._verifying.direct_chats,
        )
        self._health = Health(self._store, self._sync, self._rooms.closed, self._metrics, self._clock)
        self._world.trouble = self._health.trouble
        self._tokens = Tokens(tokens_of(settings))
        self._server = Server(
            application(
                broker=self._parts.broker,
                tokens=self._tokens,
                readiness=self._health.problems,
                metrics=self._health.exposition,
                closed_routes=self._health.closed_routes,
                limits=ConnectionLimits(body_bytes=settings.http.body_limit),
                allowed_hosts=settings.http.allowed_hosts,
            ),
            listening(settings),
        )
        self._metrics.watch(
            waiting_calls=self._waiters.open_waits,
            matrix_ready=lambda: self._health.trouble() is None,
            last_good_sync=self._health.last_good_sync,
            open_circuits=self._callbacks.open_circuits,
        )
        self._show_configured(settings)

    async def serve(self) -> None:
        """Start in order, run until a signal says to stop, stop in order."""
        stop = asyncio.Event()
        hangup = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, hangup.set)
        async with AsyncExitStack() as doors:
            await doors.enter_async_context(self._server)
            if self._verifying is not None:
                await self._open_door(doors, self._verifying.control)
            try:
                async with asyncio.TaskGroup() as tasks:
                    running = [
                        tasks.create_task(self._matrix(), name="matrix"),
                        tasks.create_task(self._parts.deadlines.run(), name="deadlines"),
                        tasks.create_task(self._reloads(hangup), name="reloads"),
                        tasks.create_task(self._callbacks.run(), name="callbacks"),
                    ]
                    await stop.wait()
                    log.info("stopping", open_waits=self._waiters.open_waits())
                    for task in running:
                        task.cancel()
            finally:  # also where a task died: whoever waits is told, and nobody is cut off
                self._waiters.stop()
                await self._server.stop()
                await self._parts.commit.settled()

    async def _matrix(self) -> None:
        """Reach the homeserver, catch up with the rooms, and only then begin to speak there."""
        await self._recover()
        await self._reach()
        async with asyncio.TaskGroup() as tasks:
            if self._crypto is not None:
                tasks.create_task(self._crypto.upkeep(), name="keys")
            if self._verifying is not None:
                tasks.create_task(self._verifying.verification.run(), name="verification")
                tasks.create_task(self._verifying.direct_chats.run(), name="direct-chats")
            tasks.create_task(self._rooms.run(), name="rooms")
            tasks.create_task(self._sync.run(), name="sync")
            await self._sync.first_sync_done.wait()
            for name, route in self._world.policy.routes.items():
                if (room := self._world.room(route.room_id)) is None or not room.bot_joined:
                    log.warning("not_in_room", route=name, room_id=route.room_id, invite=self._world.own)
            log.info("ready", routes=len(self._world.policy.routes))
            tasks.create_task(self._parts.outbox.run(), name="outbox")
            tasks.create_task(self._parts.holds.run(), name="holds")

    async def _recover(self) -> None:
        """Learn what calls of an earlier run held, and which rooms routes went into."""
        while True:
            try:
                await self._parts.holds.recover()
                await self._parts.upgrades.recover()
            except StoreUnavailable as error:
                log.warning("start_waits_for_the_store", error=error.code, reason=str(error), wait_s=FIRST_RETRY_S)
                await self._clock.sleep(FIRST_RETRY_S)
            else:
                return

    async def _reach(self) -> None:
        """Wait for the homeserver; make sure that the token is the bot's and that every alias means a room."""
        wait_s = FIRST_RETRY_S
        is_renewed = False
        while True:
            try:
                await self._check_account()
                await self._publish_keys()
                loaded = self._loaded
                policy = await self._resolved(loaded.settings)
                if loaded is not self._loaded:
                    continue  # a reload went before: its rules are in force, and its aliases resolved
                self._world.policy = policy
                await self._world.recover(self._clock.now_ms())
                await self._rooms.settle()
                if any((room := self._world.room(r)) and not room.bot_joined for r in self._world.policy.rooms()):
                    self._rooms.follow(await pending_invites(self.client))
            except TokenRefused as error:
                renewed = await self._renewal.renew()
                if renewed == "never":
                    raise CredentialsRefused(f"homeserver.access_token: {error}") from error
                if renewed == "later" or is_renewed:  # one that is refused all the same is no reason not to wait
                    await self._clock.sleep(wait_s)
                    wait_s = min(LONGEST_RETRY_S, wait_s * 2)
                is_renewed = renewed == "renewed"
            except (MatrixError, StoreUnavailable) as error:
                name = "homeserver_unreachable" if isinstance(error, MatrixError) else "start_waits_for_the_store"
                log.warning(name, error=error.code, reason=str(error), wait_s=wait_s)
                await self._clock.sleep(wait_s)
                wait_s = min(LONGEST_RETRY_S, wait_s * 2)
            else:
                return

    async def _open_door(self, doors: AsyncExitStack, control: Control) -> None:
        """Let `agentpod-bot verify` in; without it the daemon runs only where nobody has to be verified."""
        if control.fits or self._world.policy.trust is not Trust.ALL:
            await doors.enter_async_context(control)
        else:
            log.warning("verify_has_no_socket", path=str(control.path), why="the path of e2e.store is too long for one")

    async def _publish_keys(self) -> None:
        """See that the homeserver has the device's keys, and that the account's identity vouches for them."""
        if self._crypto is None or self._verifying is None:
            return
        await self._crypto.publish()
        secret = self._loaded.settings.homeserver.password
        password = None if secret is None else secret.get_secret_value()
        try:
            await self._verifying.cross_signing.ensure_or_warn(password)
        except TokenRefused:
            raise
        except MatrixError as error:  # others' devices warn of ours then, and no more
            log.warning("not_cross_signed", error=error.code, why=str(error))

    def _verified_only(self) -> bool:
        return self._world.policy.trust is Trust.VERIFIED

    async def _check_account(self) -> None:
        self._check_own(*await self.client.whoami())

    def _check_own(self, user_id: UserId, device_id: str | None) -> None:
        expected = self._loaded.settings.homeserver
        if user_id != expected.user_id:
            raise ConfigurationError(f"homeserver.user_id: the access token is that of {user_id}")
        if expected.device_id is not None and device_id != expected.device_id:
            raise ConfigurationError(f"homeserver.device_id: the access token is that of device {device_id}")

    async def _renew(self) -> bool:
        return await self._renewal.renew() == "renewed"

    async def _change_token(self, settings: Settings) -> None:
        """Take over a new access token, once it is known to be the bot's.

        On another device the homeserver does not recognise what was tried before: nothing
        is sent until a sync has shown what of it stands in the rooms.
        """
        before, now = (s.homeserver.access_token.get_secret_value() for s in (self._loaded.settings, settings))
        if now == before:
            return
        try:
            user_id, device_id = await account_of(settings.homeserver.url, settings.homeserver.user_id, now)
        except TokenRefused as error:
            raise ConfigurationError(f"homeserver.access_token: {error}") from error
        self._check_own(user_id, device_id)
        self.client.use(now)
        self._sync.begin_anew()
        log.info("access_token_replaced", device_id=device_id)

    async def _resolved(self, settings: Settings) -> Policy:
        """The policy with every alias resolved. Raises `ConfigurationError` for one that means no room."""
        aliases: dict[str, RoomId] = {}
        for name, route in settings.routes.items():
            if route.room.startswith("#") and route.room not in aliases:
                try:
                    aliases[route.room] = await self.client.resolve_alias(route.room)
                except Refused as error:
                    raise ConfigurationError(f"routes.{name}.room: the alias means no room ({error})") from error
        return policy_of(settings, aliases)

    async def _reloads(self, hangup: asyncio.Event) -> None:
        while True:
            await hangup.wait()
            hangup.clear()
            try:
                await self._reload()
            except ConfigurationError as error:
                log.error("configuration_refused", problems=error.problems)  # noqa: TRY400 - says all there is
            except MatrixError as error:
                log.error("configuration_refused", problems=[f"the homeserver could not be asked: {error}"])  # noqa: TRY400 - as above

    async def _reload(self) -> None:
        """Take over routes, approvers, tokens and limits of the file as it is now, all of them or none."""
        async with self._renewal.lock:
            loaded = await asyncio.to_thread(load, self._loaded.path, os.environ)
            settings = reloadable(self._loaded.settings, loaded.settings)
            await self._change_token(settings)
            self._renewal.replace(session_of(settings))
        # A good token stays taken over, also where what follows fails: with the dead one no alias can be resolved.
        policy = await self._resolved(settings)
        self._tokens.replace(tokens_of(settings))
        self._world.policy = policy
        self._callbacks.replace(targets_of(settings), retention_ms=settings.requests.retention_ms)
        self._loaded = replace(loaded, settings=settings)
        self._show_configured(settings)
        configure(settings.log.level, settings.log.format, sys.stderr)
        log.info("configuration_reloaded", routes=len(settings.routes), clients=len(settings.clients))
        try:
            self._rooms.follow(await pending_invites(self.client))
        except MatrixError as error:
            log.warning("invitations_unknown", error=error.code)

    def _show_configured(self, settings: Settings) -> None:
        routes, clients = map(RouteName, settings.routes), map(ClientName, settings.clients)
        self._metrics.configured(routes=routes, clients=clients)


def _first(group: BaseExceptionGroup[CannotStart]) -> CannotStart:
    """The first failure of a group, however deep."""
    first = group.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
