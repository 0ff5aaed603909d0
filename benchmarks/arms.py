"""The three ways from a question to its answer that are compared, and the one person who answers in all.

The person's side, the homeserver, the content that is sent, the sync filter and the wire
are the same in each; what differs is only who asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from http import HTTPStatus
from itertools import count
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

from nio.client.async_client import AsyncClient, AsyncClientConfig
from nio.responses import RoomSendResponse, SyncResponse
from nio.store import SqliteStore

from agentpod_bot.demo.person import POLL_MS, Event, Person
from agentpod_bot.matrix.response import SYNC_FILTER

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping
    from pathlib import Path

    import aiohttp

    from agentpod_bot.demo.daemon import Daemon
    from agentpod_bot.demo.homeserver import Account

QUESTION_TYPE = "dev.agentpod.permission.v2"
MESSAGE = "m.room.message"
WAIT_S = 60
ANSWER = "1"
OPTION = "allow_once"

REQUEST: Mapping[str, Any] = {
    "session_id": "acps_3f0c",
    "title": "Run the test suite",
    "tool_kind": "execute",
    "agent": "hermes",
    "options": [
        {"id": OPTION, "kind": "allow_once", "label": "Allow once"},
        {"id": "allow_always", "kind": "allow_always", "label": "Always allow"},
        {"id": "reject_once", "kind": "reject_once", "label": "Reject"},
        {"id": "reject_always", "kind": "reject_always", "label": "Never allow"},
    ],
    "preview": [
        {"type": "text", "label": "Command", "text": "bun test --coverage"},
        {"type": "field", "label": "Location", "value": "apps/hub"},
    ],
}


@dataclass(frozen=True, slots=True)
class Answered:
    """What the person did in one round, times by `perf_counter`."""

    question_id: str
    answer_id: str
    seen_at: float
    """The sync showed the question."""
    sent_at: float
    """The homeserver had taken the answer."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The contents that the daemon really sent: the question, and the edit that closed it."""

    question: dict[str, Any]
    outcome: dict[str, Any]

    def outcome_of(self, question_id: str) -> dict[str, Any]:
        """Return that edit, made one of another question."""
        return self.outcome | {"m.relates_to": {"rel_type": "m.replace", "event_id": question_id}}


class Answerer:
    """The person: sees a question, replies to it at once, and waits for its edit. Plain aiohttp calls."""

    def __init__(self, person: Person, room_id: str, bot: str) -> None:
        self._person = person
        self._room_id = room_id
        self._bot = bot
        self.question: Event = {}
        self.edit: Event = {}
        """The last ones seen."""

    async def arrive(self) -> None:
        """Take the position from which on events count."""
        await self._person.sync()

    async def answer(self) -> Answered:
        """Wait for the next question, and answer it."""
        self.question = await self._next(lambda event: event["content"].get("suite_event_type") == QUESTION_TYPE)
        seen_at = perf_counter()
        question_id: str = self.question["event_id"]
        answer_id = await self._person.reply(self._room_id, question_id, ANSWER)
        return Answered(question_id, answer_id, seen_at, perf_counter())

    async def see_closed(self, question_id: str) -> None:
        """Wait for the edit of a question."""
        edits = {"rel_type": "m.replace", "event_id": question_id}
        self.edit = await self._next(lambda event: event["content"].get("m.relates_to") == edits)

    def edits_seen(self) -> int:
        """How many edits there were so far."""
        relations = (event["content"].get("m.relates_to", {}) for _, event in self._person.seen)
        return sum(relation.get("rel_type") == "m.replace" for relation in relations)

    async def _next(self, wanted: Any) -> Event:
        while True:
            for _, event in await self._person.sync():
                if event["type"] == MESSAGE and event["sender"] == self._bot and wanted(event):
                    return event


class Asker(Protocol):
    """One arm's way to ask in one room."""

    async def ask(self) -> None:
        """Ask, and return when the answer is here."""
        ...

    async def close(self, question_id: str) -> None:
        """Have the question edited into its outcome."""
        ...


class ThroughDaemon:
    """The harness: one HTTP call to the daemon, which does everything else, the edit included."""

    def __init__(self, daemon: Daemon, session: aiohttp.ClientSession) -> None:
        self._url = f"{daemon.url}/v1/requests?wait={WAIT_S}"
        self._headers = {"Authorization": f"Bearer {daemon.token}"}
        self._session = session
        self._numbers = count(1)

    async def ask(self) -> None:
        """Ask, and return with the decision. Raises RuntimeError for any other end."""
        body = {**REQUEST, "request_seq": next(self._numbers)}
        async with self._session.post(self._url, json=body, headers=self._headers) as response:
            view = json.loads(await response.read())
        if response.status != HTTPStatus.CREATED or (view.get("decision") or {}).get("option_id") != OPTION:
            raise RuntimeError(f"the daemon did not bring the answer back: {response.status} {view}")

    async def close(self, question_id: str) -> None:
        """Leave it to the daemon."""


class Bot(Protocol):
    """A bot without anything around it: it sends, and it syncs."""

    async def send(self, content: Mapping[str, Any]) -> str:
        """Send a message; return its event's id."""
        ...

    async def sync(self) -> Iterable[Event]:
        """Return what is new in the room, waiting for it; the first call returns at once."""
        ...


class Bare:
    """Asks with a bare bot. Like any bot it syncs all the time, for it cannot know when an answer comes."""

    def __init__(self, bot: Bot, person: str, sample: Sample) -> None:
        self._bot = bot
        self._person = person
        self._sample = sample
        self._answer: asyncio.Future[None] | None = None

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Bare]:
        """Sync in the background."""
        await self._bot.sync()
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._listen())
            yield self
            task.cancel()

    async def ask(self) -> None:
        """Send the question, and return when a sync brought the answer."""
        self._answer = asyncio.get_running_loop().create_future()
        await self._bot.send(self._sample.question)
        await self._answer

    async def close(self, question_id: str) -> None:
        """Send the edit."""
        await self._bot.send(self._sample.outcome_of(question_id))

    async def _listen(self) -> None:
        while True:
            for event in await self._bot.sync():
                if event["sender"] == self._person and self._answer is not None and not self._answer.done():
                    self._answer.set_result(None)


class RawBot:
    """Plain aiohttp calls, with the daemon's own sync filter so that the homeserver does the same work."""

    def __init__(self, client: Person, room_id: str) -> None:
        self._client = client
        self._room_id = room_id
        self._query = {"filter": json.dumps(SYNC_FILTER, separators=(",", ":")), "timeout": "0"}

    async def send(self, content: Mapping[str, Any]) -> str:
        """PUT."""
        return await self._client.send(self._room_id, content)

    async def sync(self) -> Iterable[Event]:
        """GET, waiting."""
        told = await self._client.call("GET", "sync", query=self._query)
        self._query |= {"since": told["next_batch"], "timeout": str(POLL_MS)}
        room: dict[str, Any] = told.get("rooms", {}).get("join", {}).get(self._room_id, {})
        events: list[Event] = room.get("timeline", {}).get("events", [])
        return events


class NioBot:
    """nio as it is used without a daemon: `room_send`, and `sync` with its own position.

    In an encrypted room it trusts every device, and does after each sync what nio leaves to whoever syncs.
    """

    def __init__(self, client: AsyncClient, room_id: str) -> None:
        self._client = client
        self._room_id = room_id
        self._wait_ms = 0

    async def send(self, content: Mapping[str, Any]) -> str:
        """`AsyncClient.room_send`."""
        match await self._client.room_send(self._room_id, MESSAGE, dict(content), ignore_unverified_devices=True):
            case RoomSendResponse(event_id=event_id):
                return str(event_id)
            case other:
                raise RuntimeError(f"nio could not send: {other}")

    async def sync(self) -> Iterable[Event]:
        """`AsyncClient.sync`."""
        match await self._client.sync(timeout=self._wait_ms, sync_filter=dict(SYNC_FILTER)):
            case SyncResponse(rooms=rooms):
                self._wait_ms = POLL_MS
                await self._keep_up()
                room = rooms.join.get(self._room_id)
                return [] if room is None else [event.source for event in room.timeline.events]
            case other:
                raise RuntimeError(f"nio could not sync: {other}")

    async def _keep_up(self) -> None:
        """Publish and fetch keys, where nio asks for it; it never does where it does not encrypt."""
        if self._client.should_upload_keys:
            await self._client.keys_upload()
        if self._client.should_query_keys:
            await self._client.keys_query()


@contextlib.asynccontextmanager
async def nio_client(url: str, account: Account, keys: Path | None = None) -> AsyncIterator[AsyncClient]:
    """A nio client that is logged in; `keys` is a folder for its device's, and without one it does not encrypt."""
    config = AsyncClientConfig(encryption_enabled=keys is not None, store=SqliteStore)
    client = AsyncClient(url, account.user_id, account.device_id, str(keys or ""), config)
    client.access_token = account.access_token
    client.user_id = account.user_id
    try:
        if keys is not None:
            client.load_store()
        yield client
    finally:
        await client.close()  # type: ignore[no-untyped-call]  # nio annotates only in part
        if client.store is not None:
            client.store.database.close()
