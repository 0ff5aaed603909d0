"""A homeserver in this process, for real Matrix clients: scripted by a test, with faults on demand.

    async with FakeHomeserver() as hs:
        pod, owner = hs.user("pod"), hs.user("owner")
        room = hs.room(owner, pod)
        client = MatrixClient(hs.url, UserId(pod), hs.token(pod))
        question = await client.send(room, "m.room.message", {...}, TxnId("t1"))
        hs.say(room, owner, "1", reply_to=question)

*Script* (synchronous, at once visible to every long poll): `user`, `token`, `revoke`,
`delete_device`, `room`, `invite`, `join`, `leave`, `kick`, `say`, `react`, `edit`, `redact`, `post`,
`inject`, `encrypt`, `replace`, `upgrade`, `create`, `power`, `forget_positions`.

*Keys* (fake_key_routes): `drop_to_device`, `send_to_device`, `use_up_keys`, `lose_server`,
`find_server`, `signing_needs_password`; to look at: `to_device`, `one_time_keys`, `identity_keys`.

*Look*: `timeline(room)`, `devices(user)`, `sent_by(user)`, `calls`, `count(method, path)`, `await until(predicate)`.

*Faults* for the next `times` calls whose method and path fit (a regular expression, searched in the
decoded path): `answer_with` (status, body, headers), `cut` (no answer, nothing done), `swallow` (done,
but no answer), `cut_body` (half an answer), `amend` (done, and another answer), `hold` (done only
once an event is set). Faults queue up: the first that fits and is not used up is taken.

Nothing sleeps; a long poll ends at news, at its timeout, or with the server. A cut comes after the
headers, because aiohttp silently repeats once what is cut before them: so each fault is seen by the
client as exactly one failure. Events are dated by `now_ms`; without it each is a second after the one
before it.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from aiohttp import web

from tests.matrix.fake_accounts import CLIENT, PASSWORD, SERVER, Refusal
from tests.matrix.fake_key_routes import KeyRoutes
from tests.matrix.fake_rooms import Event, Room, Rooms, has_float, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.matrix.fake_faults import Handler

__all__ = ["PASSWORD", "SERVER", "FakeHomeserver", "Refusal"]
FIRST_TS = 1_800_000_000_000
WORTH_TELLING = {"to_device", "device_lists"}
"""What of a sync response without rooms ends a long poll."""


@dataclass(frozen=True)
class Call:
    """One request as it came. `path` is decoded; `body` is None where there was no JSON."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any
    token: str | None


class FakeHomeserver(KeyRoutes):
    """See the module's text. `url` is set once it runs."""

    def __init__(self, *, now_ms: Callable[[], int] | None = None) -> None:
        seconds = itertools.count()
        self._rooms = Rooms(now_ms or (lambda: FIRST_TS + 1000 * next(seconds)))
        super().__init__(self._rooms.tick)
        self._aliases: dict[str, str] = {}
        self._open: set[str] = set()
        self._txns: dict[tuple[str, str], str] = {}
        self._closing = False
        self.calls: list[Call] = []
        self.files: dict[str, tuple[str, str, bytes]] = {}
        """Uploaded files by content URI: name, content type, bytes."""
        self.url = ""

    async def __aenter__(self) -> Self:
        """Listen on a free port of the loopback interface."""
        app = web.Application(middlewares=[self._middleware])
        app.add_routes(
            [
                *self._account_routes(),
                *self._key_routes(),
                web.get(f"{CLIENT}/sync", self._sync),
                web.get(f"{CLIENT}/directory/room/{{alias}}", self._alias),
                web.post(f"{CLIENT}/join/{{room}}", self._join),
                web.get(f"{CLIENT}/rooms/{{room}}/joined_members", self._joined_members),
                web.get(f"{CLIENT}/rooms/{{room}}/messages", self._messages),
                web.get(f"{CLIENT}/rooms/{{room}}/state/{{type}}", self._state),
                web.get(f"{CLIENT}/rooms/{{room}}/state/{{type}}/{{key:.*}}", self._state),
                web.put(f"{CLIENT}/rooms/{{room}}/send/{{type}}/{{txn}}", self._send),
                web.post("/_matrix/media/v3/upload", self._upload),
                web.put(f"{CLIENT}/rooms/{{room}}/redact/{{target}}/{{txn}}", self._redact),
            ]
        )
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *exc: object) -> None:
        """End the long polls and stop."""
        self._closing = True
        self._notify()
        await self._runner.cleanup()

    # Script: the rooms.

    def room(self, *members: str, alias: str | None = None, room_id: str | None = None) -> str:
        """A new room with these accounts joined; its id has no server part, as in room version 12."""
        room_id = room_id or f"!room{next(self._numbers)}"
        self._rooms.rooms[room_id] = Room(room_id)
        for member in members:
            self.join(room_id, member)
        if alias is not None:
            self._aliases[alias] = room_id
        return room_id

    def invite(self, room_id: str, user_id: str, *, by: str) -> str:
        """Invite an account; it may then join."""
        return self._member(room_id, user_id, "invite", by)

    def join(self, room_id: str, user_id: str) -> str:
        """Join an account, invited or not."""
        return self._member(room_id, user_id, "join", user_id)

    def leave(self, room_id: str, user_id: str) -> str:
        """The account leaves by itself."""
        return self._member(room_id, user_id, "leave", user_id)

    def kick(self, room_id: str, user_id: str, *, by: str) -> str:
        """Another account makes it leave."""
        return self._member(room_id, user_id, "leave", by)

    def encrypt(self, room_id: str, *, by: str, **settings: Any) -> str:
        """Switch encryption on; `settings` are those of its rotation."""
        content = {"algorithm": "m.megolm.v1.aes-sha2", **settings}
        return self.post(room_id, by, content, kind="m.room.encryption", state_key="")

    def create(self, room_id: str, *, by: str, version: str = "12", **more: Any) -> str:
        """Say who created the room, and in which version."""
        return self.post(room_id, by, {"room_version": version, **more}, kind="m.room.create", state_key="")

    def power(self, room_id: str, *, by: str, users: Mapping[str, Any], **more: Any) -> str:
        """Set the power levels of the room."""
        return self.post(room_id, by, {"users": dict(users), **more}, kind="m.room.power_levels", state_key="")

    def replace(self, room_id: str, *, by: str, replacement: str = "!new") -> str:
        """Upgrade the room: a tombstone."""
        content = {"body": "replaced", "replacement_room": replacement}
        return self.post(room_id, by, content, kind="m.room.tombstone", state_key="")

    def upgrade(
        self,
        room_id: str,
        *members: str,
        by: str,
        predecessor: str | None = None,
        encrypted: bool = False,
        is_open: bool = True,
    ) -> str:
        """Upgrade a room as its homeserver does: a new one, with these members, and a tombstone in the old one.

        It names the old one as its predecessor, or another where one is given; `is_open` says
        whether one joins it without an invitation.
        """
        new = self.room()
        self.create(new, by=by, predecessor={"room_id": predecessor or room_id})
        for member in (by, *members):
            self.join(new, member)
        if encrypted:
            self.encrypt(new, by=by)
        if is_open:
            self._open.add(new)
        self.replace(room_id, by=by, replacement=new)
        return new

    # Script: the events.

    def say(
        self, room_id: str, sender: str, body: str, *, reply_to: str | None = None, ts: int | None = None, **more: Any
    ) -> str:
        """An `m.text`, as a reply where `reply_to` is given; `more` goes into the content."""
        content: dict[str, Any] = {"msgtype": "m.text", "body": body, **more}
        if reply_to is not None:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        return self.post(room_id, sender, content, ts=ts)

    def react(self, room_id: str, sender: str, target: str, key: str) -> str:
        """A reaction."""
        relation = {"rel_type": "m.annotation", "event_id": target, "key": key}
        return self.post(room_id, sender, {"m.relates_to": relation}, kind="m.reaction")

    def edit(self, room_id: str, sender: str, target: str, body: str) -> str:
        """An edit of a message."""
        new = {"msgtype": "m.text", "body": body}
        relation = {"rel_type": "m.replace", "event_id": target}
        content = {"msgtype": "m.text", "body": f"* {body}", "m.new_content": new, "m.relates_to": relation}
        return self.post(room_id, sender, content)

    def redact(self, room_id: str, sender: str, target: str) -> str:
        """Redact an event: it is emptied, and the redaction is an event of its own."""
        event = self._rooms.make("m.room.redaction", sender, {"redacts": target}, ts=None, redacts=target)
        self._rooms.strike(room_id, target, event)
        return self._append(room_id, event)

    def post(
        self,
        room_id: str,
        sender: str,
        content: Mapping[str, Any],
        *,
        kind: str = "m.room.message",
        ts: int | None = None,
        **extra: Any,
    ) -> str:
        """Any event; `extra` are further keys of the event (`state_key`, `unsigned` …)."""
        return self._append(room_id, self._rooms.make(kind, sender, content, ts=ts, **extra))

    def inject(self, room_id: str, event: Event) -> None:
        """Put an event into the timeline exactly as given, however broken."""
        self._rooms.append(room_id, event)
        self._notify()

    def forget_positions(self) -> None:
        """Every `since` and `from` given out so far is unknown from now on (a restored database)."""
        self._rooms.epoch += 1
        self._notify()

    # Look.

    def timeline(self, room_id: str) -> list[Event]:
        """Every event of a room, oldest first."""
        return [entry.event for entry in self._rooms.log if entry.room_id == room_id]

    def sent_by(self, user_id: str, *, kind: str = "m.room.message") -> list[Event]:
        """Every event of this type that an account sent, in any room, oldest first."""
        events = [entry.event for entry in self._rooms.log]
        return [event for event in events if event.get("sender") == user_id and event.get("type") == kind]

    def room_of(self, event_id: str) -> str | None:
        """The room in which an event stands."""
        return next((e.room_id for e in self._rooms.log if e.event.get("event_id") == event_id), None)

    def count(self, method: str, path: str) -> int:
        """How many calls came with this method and a path that fits, faulty ones included."""
        return sum(call.method == method and re.search(path, call.path) is not None for call in self.calls)

    async def until(self, predicate: Callable[[], object]) -> None:
        """Return once `predicate` holds; it is asked again after every call and every event."""
        while not predicate():
            await self._changed.wait()

    def _member(self, room_id: str, user_id: str, membership: str, by: str) -> str:
        return self.post(room_id, by, {"membership": membership}, kind="m.room.member", state_key=user_id)

    def _append(self, room_id: str, event: Event, *, device: str | None = None, txn_id: str | None = None) -> str:
        self._rooms.append(room_id, event, device=device, txn_id=txn_id)
        self._notify()
        event_id: str = event["event_id"]
        return event_id

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        raw = await request.read()
        token = request.headers.get("Authorization", "").removeprefix("Bearer ") or None
        body = json.loads(raw) if raw and not request.path.startswith("/_matrix/media/") else None
        self.calls.append(Call(request.method, request.path, dict(request.query), body, token))
        self._notify()
        response = await self.through_faults(request, self._answered(handler))
        self._notify()
        return response

    @staticmethod
    def _answered(handler: Handler) -> Handler:
        async def answered(request: web.Request) -> web.StreamResponse:
            try:
                return await handler(request)
            except Refusal as refusal:
                return web.json_response(refusal.body, status=refusal.status)
            except web.HTTPNotFound:
                return web.json_response({"errcode": "M_UNRECOGNIZED", "error": "no such route"}, status=404)

        return answered

    def _joined(self, request: web.Request) -> tuple[Room, str, str]:
        user_id, device = self._who(request)
        room = self._rooms.rooms.get(request.match_info["room"])
        if room is None or room.membership(user_id) != "join":
            raise Refusal(403, "M_FORBIDDEN")
        return room, user_id, device

    async def _sync(self, request: web.Request) -> web.Response:
        user_id, device = self._who(request)
        since = self._position(request.query.get("since"))
        sync_filter = json.loads(request.query.get("filter", "{}"))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + int(request.query.get("timeout", "0")) / 1000
        while True:
            response = self._rooms.sync(user_id, device, since, sync_filter) | self._key_news((user_id, device), since)
            if (
                response["rooms"]
                or response.keys() & WORTH_TELLING
                or since is None
                or self._closing
                or loop.time() >= deadline
            ):
                return web.json_response(response)
            try:
                async with asyncio.timeout_at(deadline):
                    await self._changed.wait()
            except TimeoutError:
                continue
            self._who(request)  # a token that was revoked meanwhile ends the wait

    def _position(self, token: str | None) -> int | None:
        number = None if token is None else self._rooms.number(token)
        if token is not None and number is None:
            raise Refusal(400, "M_UNKNOWN")
        return number

    async def _alias(self, request: web.Request) -> web.Response:
        room_id = self._aliases.get(request.match_info["alias"])
        if room_id is None:
            raise Refusal(404, "M_NOT_FOUND")
        return web.json_response({"room_id": room_id, "servers": [SERVER]})

    async def _join(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        name = request.match_info["room"]
        room = self._rooms.rooms.get(self._aliases.get(name, name))
        if room is None or not (room.membership(user_id) in ("invite", "join") or room.room_id in self._open):
            raise Refusal(403, "M_FORBIDDEN")
        if room.membership(user_id) != "join":
            self.join(room.room_id, user_id)
        return web.json_response({"room_id": room.room_id})

    async def _joined_members(self, request: web.Request) -> web.Response:
        room, _, _ = self._joined(request)
        return web.json_response({"joined": {user: {"display_name": None, "avatar_url": None} for user in room.joined}})

    async def _messages(self, request: web.Request) -> web.Response:
        _, device = self._who(request)
        room_id = request.match_info["room"]
        if room_id not in self._rooms.rooms:
            raise Refusal(403, "M_FORBIDDEN")
        page = self._rooms.page(
            room_id,
            device,
            self._position(request.query.get("from", self._rooms.token(len(self._rooms.log)))) or 0,
            self._position(request.query.get("to")) or 0,
            limit=int(request.query.get("limit", "10")),
            event_filter=json.loads(request.query.get("filter", "{}")),
        )
        return web.json_response(page)

    async def _state(self, request: web.Request) -> web.Response:
        user_id, _ = self._who(request)
        room = self._rooms.rooms.get(request.match_info["room"])
        state = None if room is None else room.readable(user_id)
        if state is None:
            raise Refusal(403, "M_FORBIDDEN")
        event = state.get((request.match_info["type"], request.match_info.get("key", "")))
        if event is None:
            raise Refusal(404, "M_NOT_FOUND")
        return web.json_response(event if request.query.get("format") == "event" else event["content"])

    async def _send(self, request: web.Request) -> web.Response:
        room, user_id, device = self._joined(request)
        content = await request.json()
        txn_id = request.match_info["txn"]
        if has_float(content):
            raise Refusal(400, "M_BAD_JSON")
        if size_of(content) > 65_000:
            raise Refusal(413, "M_TOO_LARGE")
        key = (device, request.path)
        if key not in self._txns:
            event = self._rooms.make(request.match_info["type"], user_id, content, ts=None)
            self._txns[key] = self._append(room.room_id, event, device=device, txn_id=txn_id)
        return web.json_response({"event_id": self._txns[key]})

    async def _upload(self, request: web.Request) -> web.Response:
        self._who(request)
        uri = f"mxc://{SERVER}/file{next(self._numbers)}"
        self.files[uri] = (request.query.get("filename", ""), request.content_type, await request.read())
        return web.json_response({"content_uri": uri})

    async def _redact(self, request: web.Request) -> web.Response:
        room, user_id, device = self._joined(request)
        key = (device, request.path)
        if key not in self._txns:
            self._txns[key] = self.redact(room.room_id, user_id, request.match_info["target"])
        return web.json_response({"event_id": self._txns[key]})
