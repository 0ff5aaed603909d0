"""A person in a room, by plain calls of the Matrix client-server API: what a simple client does.

For the demo, the tests and the benchmarks. It shares no code with the daemon's own Matrix
side, so that what one of them gets wrong the other does not hide.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from agentpod_bot.errors import HomeserverUnavailable, Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

POLL_MS = 30_000
PAGE = 100
FILTER = json.dumps({"room": {"timeline": {"limit": PAGE}, "ephemeral": {"types": []}}, "presence": {"types": []}})

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """One message as a client shows it: the newest edit's text, and the reactions to it."""

    event_id: str
    sender: str
    body: str
    msgtype: str
    edited: bool = False
    reactions: tuple[str, ...] = field(default=())


class Person:
    """One account's eyes and hands; use it with `async with`, in one event loop.

    Homeserver errors are `Refused` (with the errcode), a homeserver that does not answer
    is `HomeserverUnavailable`.
    """

    def __init__(self, url: str, user_id: str, access_token: str) -> None:
        """Nothing is sent before the first call."""
        self.user_id = user_id
        self.seen: list[tuple[str, Event]] = []
        """Every timeline event that the syncs so far brought, as (room id, event)."""
        self._url = url
        self._token = access_token
        self._since: str | None = None
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._token}"}, timeout=aiohttp.ClientTimeout(total=90)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    # rooms
    async def create_room(self, name: str, *, invite: Sequence[str] = (), alias: str | None = None) -> str:
        """Make a private room; return its id. `alias` is the local part of its address."""
        body: dict[str, Any] = {"name": name, "preset": "private_chat", "invite": list(invite)}
        if alias is not None:
            body["room_alias_name"] = alias
        room_id: str = (await self.call("POST", "createRoom", body))["room_id"]
        return room_id

    async def invite(self, room_id: str, user_id: str) -> None:
        """Invite somebody."""
        await self.call("POST", f"rooms/{quote(room_id, safe='')}/invite", {"user_id": user_id})

    async def join(self, room_id: str) -> None:
        """Join, by id or alias."""
        await self.call("POST", f"join/{quote(room_id, safe='')}", {})

    async def leave(self, room_id: str) -> None:
        """Leave."""
        await self.call("POST", f"rooms/{quote(room_id, safe='')}/leave", {})

    # saying something
    async def send(self, room_id: str, content: str | Mapping[str, Any], *, event_type: str = "m.room.message") -> str:
        """Send a text, or any content; return the event's id."""
        if isinstance(content, str):
            content = {"msgtype": "m.text", "body": content}
        path = f"rooms/{quote(room_id, safe='')}/send/{event_type}/{uuid.uuid4().hex}"
        event_id: str = (await self.call("PUT", path, content))["event_id"]
        return event_id

    async def reply(self, room_id: str, event_id: str, text: str) -> str:
        """Reply to an event."""
        relation = {"m.in_reply_to": {"event_id": event_id}}
        return await self.send(room_id, {"msgtype": "m.text", "body": text, "m.relates_to": relation})

    async def react(self, room_id: str, event_id: str, key: str) -> str:
        """React to an event."""
        relation = {"rel_type": "m.annotation", "event_id": event_id, "key": key}
        return await self.send(room_id, {"m.relates_to": relation}, event_type="m.reaction")

    async def edit(self, room_id: str, event_id: str, text: str) -> str:
        """Edit an own message."""
        content = {
            "msgtype": "m.text",
            "body": f"* {text}",
            "m.new_content": {"msgtype": "m.text", "body": text},
            "m.relates_to": {"rel_type": "m.replace", "event_id": event_id},
        }
        return await self.send(room_id, content)

    # reading
    async def sync(self, *, wait_ms: int = POLL_MS) -> list[tuple[str, Event]]:
        """Fetch what is new (waiting up to `wait_ms` for it) as (room id, event), in order."""
        query = {"filter": FILTER, "timeout": str(wait_ms)}
        if self._since is None:
            query["timeout"] = "0"
        else:
            query["since"] = self._since
        told = await self.call("GET", "sync", query=query)
        self._since = told["next_batch"]
        await self.arrived(told)
        joined = told.get("rooms", {}).get("join", {})
        new = [
            (room_id, await self.opened(room_id, event))
            for room_id, room in joined.items()
            for event in room["timeline"]["events"]
        ]
        self.seen += new
        return new

    async def arrived(self, told: Mapping[str, Any]) -> None:
        """What a sync brought, before its events are read; nothing to do for who does not encrypt."""

    async def opened(self, _room_id: str, event: Event) -> Event:
        """An event as a client shows it: as it came, for who does not encrypt."""
        return event

    async def until(self, room_id: str, wanted: Callable[[Event], bool], *, within_s: float = 20.0) -> Event:
        """The room's first timeline event that is wanted, of all that this person has seen or comes to see.

        Raises TimeoutError where none comes in time.
        """
        deadline = time.monotonic() + within_s
        looked = 0
        while True:
            for where, event in self.seen[looked:]:
                if where == room_id and wanted(event):
                    return event
            looked = len(self.seen)
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no such event in {room_id} within {within_s} s")
            await self.sync(wait_ms=min(POLL_MS, int(left * 1000) + 1))

    async def read(self, room_id: str) -> list[Message]:
        """The whole room as a client shows it, oldest first: edits applied, reactions counted in."""
        return shown(await self.history(room_id))

    async def history(self, room_id: str) -> list[Event]:
        """Every event of the room that this person may see, oldest first."""
        newest_first: list[Event] = []
        query = {"dir": "b", "limit": str(PAGE)}
        while True:
            page = await self.call("GET", f"rooms/{quote(room_id, safe='')}/messages", query=query)
            newest_first += page["chunk"]
            if "end" not in page:
                return newest_first[::-1]
            query["from"] = page["end"]

    async def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """One call of the client-server API; `path` is what follows `/_matrix/client/v3/`."""
        if self._session is None:
            raise RuntimeError("a Person is used inside `async with`")
        # the path is escaped already; aiohttp must not do it again
        url = URL(f"{self._url}/_matrix/client/v3/{path}", encoded=True)
        if query is not None:
            url = url.update_query(query)
        try:
            async with self._session.request(method, url, json=body) as response:
                told: dict[str, Any] = await response.json(content_type=None)
                if response.status == HTTPStatus.OK:
                    return told
                raise Refused(told.get("errcode", "M_UNKNOWN"), told.get("error", ""), status=response.status)
        except (aiohttp.ClientError, TimeoutError, json.JSONDecodeError) as error:
            raise HomeserverUnavailable(f"{method} {path}: {error!r}") from error


def shown(events: Sequence[Event]) -> list[Message]:
    """What a client shows of a room's events, given oldest first.

    An edit counts only from the sender of what it edits, and its `m.new_content` is all
    that remains; reactions stand with the message that they are about.
    """
    messages: dict[str, Message] = {}
    for event in events:
        content = event.get("content", {})
        relation = content.get("m.relates_to", {})
        target = messages.get(relation.get("event_id", ""))
        match event.get("type"), relation.get("rel_type"):
            case "m.room.message", "m.replace":
                if target is not None and target.sender == event["sender"]:
                    body = content.get("m.new_content", {}).get("body", "")
                    messages[target.event_id] = replace(target, body=body, edited=True)
            case "m.room.message", _:
                if "body" in content:  # a redacted message has none
                    messages[event["event_id"]] = Message(
                        event["event_id"], event["sender"], content["body"], content.get("msgtype", "")
                    )
            case "m.reaction", "m.annotation":
                if target is not None:
                    messages[target.event_id] = replace(target, reactions=(*target.reactions, relation["key"]))
            case _:
                pass
    return list(messages.values())
