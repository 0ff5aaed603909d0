"""A private Synapse on loopback: for the demo, the tests and the benchmarks, never for real use.

Everything it writes is in one folder, and it ends with whoever started it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import importlib.util
import json
import secrets
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import aiohttp

from agentpod_bot.demo.person import Person
from agentpod_bot.demo.process import POLL_S, Leashed, free_port
from agentpod_bot.errors import HomeserverUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

SERVER_NAME = "localhost"
TRIES = 3  # a free port may be taken by somebody else before Synapse listens on it
UNLIMITED = {"per_second": 100_000, "burst_count": 100_000}
LIMITS_OFF: dict[str, Any] = {
    "rc_message": UNLIMITED,
    "rc_registration": UNLIMITED,
    "rc_registration_token_validity": UNLIMITED,
    "rc_login": {"address": UNLIMITED, "account": UNLIMITED, "failed_attempts": UNLIMITED},
    "rc_joins": {"local": UNLIMITED, "remote": UNLIMITED},
    "rc_joins_per_room": UNLIMITED,
    "rc_invites": {"per_room": UNLIMITED, "per_user": UNLIMITED, "per_issuer": UNLIMITED},
    "rc_admin_redaction": UNLIMITED,
    "rc_room_creation": UNLIMITED,
    "rc_media_create": UNLIMITED,
    "rc_presence": {"per_user": UNLIMITED},
    "rc_user_directory": UNLIMITED,
}


@dataclass(frozen=True, slots=True)
class Account:
    """A registered user, logged in once. Password and token are good for this homeserver only."""

    user_id: str
    password: str
    access_token: str
    device_id: str


class PrivateSynapse:
    """A running Synapse inside `async with`; bound to no event loop, usable from any.

    `default_limits` keeps Synapse's own rate limits, which answer 429 after about nine
    sends. `progress` hears, a few times a second, for how many seconds it has been
    starting. The folder is made new and removed at the end, unless it is given.
    Entering raises `HomeserverUnreachable` where Synapse is not installed, ends by
    itself, or does not answer within `deadline_s` (3 s are usual, 16 s the first time).
    """

    def __init__(
        self,
        *,
        folder: Path | None = None,
        default_limits: bool = False,
        deadline_s: float = 120.0,
        progress: Callable[[float], None] | None = None,
    ) -> None:
        self._given = folder
        self._default_limits = default_limits
        self._deadline_s = deadline_s
        self._progress = progress
        self._secret = secrets.token_hex(16)
        self._running: Leashed | None = None
        self.folder = Path()
        self.url = ""

    @property
    def pid(self) -> int | None:
        """The process whose end ends Synapse; None where it does not run."""
        return None if self._running is None else self._running.pid

    async def __aenter__(self) -> Self:
        """Start it and wait until it answers."""
        if importlib.util.find_spec("synapse") is None:
            raise HomeserverUnreachable(
                "the demo's homeserver is not installed; run `make demo`, or: pip install -r requirements-demo.lock"
            )
        self.folder = self._given or Path(tempfile.mkdtemp(prefix="agentpod-synapse-"))
        try:
            await self._start()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, whatever happened."""
        await self._end()

    async def register(self, name: str, password: str | None = None) -> Account:
        """Register a user by the shared secret, which is also its first login.

        Without a password one is made up. Raises `HomeserverUnreachable` where Synapse refuses.
        """
        password = password or secrets.token_urlsafe(9)
        route = f"{self.url}/_synapse/admin/v1/register"
        async with aiohttp.ClientSession() as session:
            async with session.get(route) as response:
                nonce = (await response.json())["nonce"]
            # the order and the separators are Synapse's, from its "register" admin API
            signed = b"\0".join(part.encode() for part in (nonce, name, password, "notadmin"))
            body = {
                "nonce": nonce,
                "username": name,
                "password": password,
                "admin": False,
                "mac": hmac.new(self._secret.encode(), signed, hashlib.sha1).hexdigest(),
            }
            async with session.post(route, json=body) as response:
                told = await response.json()
                if response.status != HTTPStatus.OK:
                    raise HomeserverUnreachable(f"cannot register {name}: {told.get('error', told)}")
        return Account(told["user_id"], password, told["access_token"], told["device_id"])

    def person(self, account: Account) -> Person:
        """That account as somebody who reads and writes; to be used with `async with`."""
        return Person(self.url, account.user_id, account.access_token)

    async def room(self, owner: Account, *others: Account, name: str = "Agents") -> str:
        """Make a private room that `owner` and all `others` have joined; return its id."""
        async with self.person(owner) as made:
            room_id = await made.create_room(name, invite=[other.user_id for other in others])
        for other in others:
            async with self.person(other) as joins:
                await joins.join(room_id)
        return room_id

    async def _start(self) -> None:
        began = time.monotonic()
        for attempt in range(TRIES):
            port = free_port()
            self.url = f"http://127.0.0.1:{port}"
            config = self._write_config(port)
            self._running = Leashed(
                [sys.executable, "-m", "synapse.app.homeserver", "-c", str(config)],
                output=self.folder / "synapse.out",
            )
            if await self._answers(self._running, began):
                return
            if "Address already in use" not in self._last_words(self._running) or attempt == TRIES - 1:
                raise HomeserverUnreachable(
                    f"Synapse ended with code {self._running.exit_code()}:\n{self._last_words(self._running)}"
                )

    async def _answers(self, running: Leashed, began: float) -> bool:
        """True once `/health` says yes, False where Synapse ended."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2)) as session:
            while (so_far := time.monotonic() - began) < self._deadline_s:
                if self._progress is not None:
                    self._progress(so_far)
                if running.exit_code() is not None:
                    return False
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self.url}/health") as response:
                        if response.status == HTTPStatus.OK and running.exit_code() is None:
                            return True
                await asyncio.sleep(POLL_S)
        raise HomeserverUnreachable(
            f"Synapse did not answer within {self._deadline_s:.0f} s:\n{self._last_words(running)}"
        )

    def _last_words(self, running: Leashed) -> str:
        log = self.folder / "homeserver.log"
        logged = log.read_text(errors="replace").splitlines()[-15:] if log.exists() else []
        return "\n".join([running.tail(15), *logged]).strip()

    async def _end(self) -> None:
        try:
            if self._running is not None:
                await self._running.stop()
                self._running = None
        finally:
            if self._given is None:
                shutil.rmtree(self.folder, ignore_errors=True)

    def _write_config(self, port: int) -> Path:
        """Write what Synapse needs to know; JSON is YAML, and its keys are Synapse's."""
        config: dict[str, Any] = {
            "server_name": SERVER_NAME,
            "public_baseurl": f"http://127.0.0.1:{port}/",
            "pid_file": str(self.folder / "synapse.pid"),
            "signing_key_path": str(self.folder / "signing.key"),
            "media_store_path": str(self.folder / "media"),
            "log_config": str(self.folder / "log.config"),
            "database": {"name": "sqlite3", "args": {"database": str(self.folder / "synapse.db")}},
            "listeners": [
                {
                    "port": port,
                    "type": "http",
                    "tls": False,
                    "bind_addresses": ["127.0.0.1"],
                    "resources": [{"names": ["client"], "compress": False}],
                }
            ],
            # nobody from outside: no federation, no open registration, no statistics
            "federation_domain_whitelist": [],
            "trusted_key_servers": [],
            "suppress_key_server_warning": True,
            "enable_registration": False,
            "registration_shared_secret": self._secret,
            "macaroon_secret_key": secrets.token_hex(16),
            "form_secret": secrets.token_hex(16),
            "report_stats": False,
            "url_preview_enabled": False,
            "presence": {"enabled": False},
            "bcrypt_rounds": 4,  # a password here guards nothing, and the default costs 0.25 s a user
        }
        if not self._default_limits:
            config |= LIMITS_OFF
        log = {
            "version": 1,
            "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
            "handlers": {
                "file": {
                    "class": "logging.FileHandler",
                    "formatter": "line",
                    "filename": str(self.folder / "homeserver.log"),
                }
            },
            "root": {"level": "WARNING", "handlers": ["file"]},
            "disable_existing_loggers": False,
        }
        key = hashlib.sha256(self._secret.encode()).digest()
        (self.folder / "signing.key").write_text(f"ed25519 a_demo {_unpadded(key)}\n")
        (self.folder / "log.config").write_text(json.dumps(log))
        path = self.folder / "homeserver.json"
        path.write_text(json.dumps(config, indent=1))
        return path


def _unpadded(raw: bytes) -> str:
    return base64.b64encode(raw).decode().rstrip("=")
