"""The daemon as a user runs it: its files, its process, its log, and a harness that calls it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import aiohttp

from agentpod_bot.demo.process import Leashed, free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

View = dict[str, Any]
Event = dict[str, Any]

POLL_S = 0.02
READY_S = 45.0
PATIENCE_S = 20.0
ALLOW = {"id": "allow_once", "kind": "allow_once"}
REJECT = {"id": "reject_once", "kind": "reject_once"}


class Reply(NamedTuple):
    """What the daemon answered to one call. `body` is the JSON, or the text where it is none."""

    status: int
    body: Any
    headers: Mapping[str, str]


class Harness:
    """One client of the daemon; use it with `async with`."""

    def __init__(self, url: str, token: str | None, socket: Path | None = None) -> None:
        self._url = url
        self._token = token
        self._socket = socket
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        connector = None if self._socket is None else aiohttp.UnixConnector(str(self._socket))
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        timeout = aiohttp.ClientTimeout(total=90)
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, timeout=timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()

    async def call(
        self, method: str, path: str, body: Any = None, *, wait_s: float | None = None, **query: str
    ) -> Reply:
        """One call; a connection that is cut raises as aiohttp does."""
        assert self._session is not None
        if wait_s is not None:
            query["wait"] = str(wait_s)
        async with self._session.request(method, f"{self._url}{path}", json=body, params=query) as response:
            is_json = response.content_type.endswith("json")
            body = await response.json(content_type=None) if is_json else await response.text()
            return Reply(response.status, body, response.headers)

    async def ask(self, wait_s: float | None = None, **fields: Any) -> Reply:
        """Ask something; `fields` replace or add to what is asked."""
        asked = {"session_id": "acps_1", "title": "Run the tests", "options": [ALLOW, REJECT]} | fields
        return await self.call("POST", "/v1/requests", asked, wait_s=wait_s)

    async def asked(self, **fields: Any) -> View:
        """The view of something newly asked."""
        reply = await self.ask(**fields)
        assert reply.status == 201, reply
        return view_of(reply)

    async def view(self, request_id: str, *, wait_s: float = 0) -> View:
        """A request as it is when it is closed, or after `wait_s`."""
        reply = await self.call("GET", f"/v1/requests/{request_id}", wait_s=wait_s)
        assert reply.status == 200, reply
        return view_of(reply)

    async def waiting_calls(self, count: int) -> None:
        """Return once so many calls of all clients wait."""

        async def they_do() -> bool:
            metrics = await self.call("GET", "/metrics")
            return f"\nagentpod_waiting_calls {count:.1f}\n" in metrics.body

        await eventually(they_do)


class Daemon:
    """One configuration and one store, and the process that runs on them, again and again.

    `config` may be changed before `start`, and before `hang_up` after `write`.
    """

    def __init__(self, folder: Path, *, homeserver: str, bot: tuple[str, str], rooms: Mapping[str, str]) -> None:
        """`bot` is its account and access token, `rooms` are routes' names and room ids. There is no approver yet."""
        folder.mkdir()
        (folder / "store").mkdir(mode=0o700)
        self.folder = folder
        self.log = folder / "daemon.log"
        self.store = folder / "store" / "agentpod.db"
        self.token = secrets.token_urlsafe(24)
        self.port = free_port()
        user_id, access_token = bot
        self.config: dict[str, Any] = {
            "homeserver": {
                "url": homeserver,
                "user_id": user_id,
                "access_token_file": self.secret("access_token", access_token),
            },
            "http": {"listen": f"127.0.0.1:{self.port}"},
            "clients": {"laptop": {"token_file": self.secret("laptop", self.token), "routes": list(rooms)}},
            "routes": {name: {"room": room_id, "approvers": []} for name, room_id in rooms.items()},
            "store": {"path": str(self.store)},
            "log": {"level": "info", "format": "json"},
        }
        self._running: Leashed | None = None

    @property
    def path(self) -> Path:
        """The configuration file."""
        return self.folder / "config.json"

    @property
    def socket(self) -> Path | None:
        """The Unix socket, where it listens on one."""
        given = self.config["http"].get("socket")
        return None if given is None else Path(given)

    @property
    def pid(self) -> int:
        """The daemon's own process, as its store's lock tells."""
        told: int = json.loads(self.store.with_name("agentpod.db.lock").read_text())["pid"]
        return told

    def approve(self, *user_ids: str) -> Self:
        """Make these the approvers of every route."""
        for route in self.config["routes"].values():
            route["approvers"] = list(user_ids)
        return self

    def listen_on_socket(self) -> Path:
        """Listen on a Unix socket, and nowhere else."""
        path = self.folder / "http.sock"
        self.config["http"] = {"socket": str(path)}
        return path

    def secret(self, name: str, value: str) -> str:
        """Write a secret that only its owner can read; returns the file's path."""
        path = self.folder / name
        path.touch(mode=0o600)
        path.write_text(value)
        return str(path)

    def client(self, name: str) -> str:
        """Add a client of every route; returns its token."""
        token = secrets.token_urlsafe(24)
        token_file = self.secret(name, token)
        self.config["clients"][name] = {"token_file": token_file, "routes": list(self.config["routes"])}
        return token

    def write(self) -> None:
        """Write the configuration file as `config` is now (JSON is YAML)."""
        self.path.write_text(json.dumps(self.config, indent=1))

    def command(self, *arguments: str) -> list[str]:
        """One of the program's commands with this configuration."""
        name, *rest = arguments
        mode = ["-X", "dev"] if sys.flags.dev_mode else []
        return [sys.executable, *mode, "-m", "agentpod_bot", name, "--config", str(self.path), *rest]

    async def start(self, *, until_ready: bool = True) -> None:
        """Write the file and run the daemon on it."""
        self.write()
        self._running = Leashed(self.command("run"), output=self.log, env=clean_environment())
        if until_ready:
            await self.ready()

    async def ready(self) -> None:
        """Wait until it says that it is ready."""

        async def says_so() -> bool:
            assert self._running is not None
            assert self._running.exit_code() is None, self._running.tail()
            return (await self.readiness())[0] == 200

        try:
            await eventually(says_so, within_s=READY_S)
        except TimeoutError as error:
            assert self._running is not None
            raise TimeoutError(f"not ready after {READY_S:g} s:\n{self._running.tail()}") from error

    async def readiness(self) -> tuple[int, Any]:
        """Status and body of `/readyz`; 0 where nobody answers."""
        with contextlib.suppress(aiohttp.ClientConnectionError, FileNotFoundError):
            async with self.harness(None) as probe:
                reply = await probe.call("GET", "/readyz")
                return reply.status, reply.body
        return 0, None

    def harness(self, token: str | None = "") -> Harness:
        """A client; the configuration's first one unless another token, or none, is given."""
        url = "http://localhost" if self.socket else f"http://127.0.0.1:{self.port}"
        return Harness(url, self.token if token == "" else token, self.socket)

    def kill(self) -> None:
        """End it as a power cut does."""
        os.kill(self.pid, signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        os.kill(self.pid, signal.SIGTERM)

    def hang_up(self) -> None:
        """Ask it to read its configuration anew."""
        os.kill(self.pid, signal.SIGHUP)

    async def ended(self) -> int:
        """Wait until it ended by itself; returns its exit code."""
        running = self._running
        assert running is not None

        async def has_ended() -> bool:
            return running.exit_code() is not None

        await eventually(has_ended, within_s=READY_S)
        self._running = None
        return await running.stop()

    async def stop(self) -> None:
        """End it, whatever state it is in."""
        if self._running is not None:
            await self._running.stop()
            self._running = None
        assert self.complaints() == []

    def complaints(self) -> list[str]:
        """What Python itself had to say: resources left open, tasks forgotten. Told in its development mode only."""
        if not self.log.exists():
            return []
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        python = [line for line in lines if line.get("logger") in {"py.warnings", "asyncio"}]
        bad = [str(line["event"]) for line in python if line["level"] not in {"debug", "info"}]
        return [event for event in bad if not event.startswith("Executing ")]  # slow, which is no fault here

    def logged(self, event: str) -> list[dict[str, Any]]:
        """The lines of the log with this name, of all runs."""
        return [line for line in map(read_line, self.log.read_text().splitlines()) if line.get("event") == event]

    async def until_logged(self, event: str, *, times: int = 1) -> dict[str, Any]:
        """Wait until the log says so for the `times`th time; returns that line."""

        async def stands_there() -> bool:
            return len(self.logged(event)) >= times

        await eventually(stands_there)
        return self.logged(event)[times - 1]


class Forwarder:
    """A homeserver's address that can be out of reach: passes connections on to the real one while it is open."""

    def __init__(self, target: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._target = int(target.rpartition(":")[2])
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self) -> None:
        """Be there."""
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Be gone, and cut every connection."""
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._writers):
                writer.transport.abort()
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        """It is closed at first."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        await self.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self._target)
        ends = {writer, to_writer}
        self._writers |= ends
        try:
            await asyncio.gather(_pour(reader, to_writer), _pour(to_reader, writer))
        finally:
            self._writers -= ends
            for end in ends:
                end.close()


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while read := await reader.read(65_536):
            writer.write(read)
            await writer.drain()
    writer.close()


class Ran(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@contextlib.asynccontextmanager
async def running(command: Sequence[str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command that runs, and does not outlive the body."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env=clean_environment(),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ended(process: asyncio.subprocess.Process) -> Ran:
    """Wait until a running command ends by itself."""
    out, err = await asyncio.wait_for(process.communicate(), READY_S)
    return Ran(process.returncode or 0, out.decode(), err.decode())


async def ran(command: Sequence[str]) -> Ran:
    """Run a command to its end."""
    async with running(command) as process:
        return await ended(process)


async def eventually(holds: Callable[[], Awaitable[bool]], *, within_s: float = PATIENCE_S) -> None:
    """Return once it holds; TimeoutError where it does not in time."""
    deadline = time.monotonic() + within_s
    while not await holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"does not hold within {within_s:g} s")
        await asyncio.sleep(POLL_S)


def view_of(reply: Reply) -> View:
    """A reply's body as a view."""
    view: View = reply.body
    return view


def clean_environment() -> dict[str, str]:
    """Our environment without what would override a configuration."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AGENTPOD_BOT_") and name != "CREDENTIALS_DIRECTORY"
    }


def read_line(line: str) -> dict[str, Any]:
    """A line of the log; one that is no JSON object is a word of Python's own, and a fault."""
    read: dict[str, Any] = json.loads(line)
    return read
