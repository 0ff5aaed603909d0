"""What a homeserver does with keys, in memory, and devices that use it through the real cryptography."""

from __future__ import annotations

import copy
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import EventId, RoomId, UserId
from agentpod_bot.core.room import Encryption, RoomState
from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.e2e.crypto import Crypto
from agentpod_bot.matrix.e2e.thread import Keys
from agentpod_bot.matrix.e2e.vault import Vault
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from agentpod_bot.matrix.opened import Opening

ROOM = RoomId("!sealed:example.org")
POD, OWNER, MALLORY = (UserId(f"@{name}:example.org") for name in ("pod", "owner", "mallory"))
PICKLE_KEY = "a pickle key of forty characters at least"


@dataclass
class KeyServer:
    """Published keys by user and device, and what waits for each device."""

    devices: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    one_time: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    fallback: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    waiting: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The last part of each path that was asked for, in order."""
    faults: dict[str, list[Callable[[], None]]] = field(default_factory=dict)
    """By the last part of a path: what to do instead of answering, once each, in order. None of it happens then."""
    lost: dict[str, int] = field(default_factory=dict)
    """By the last part of a path: how many of the next answers are cut. Everything happens then."""
    txn_ids: list[str] = field(default_factory=list)
    """Of each request to send to devices, in order. The messages of one that was seen before do not come again."""
    unreachable: set[str] = field(default_factory=set)
    """Accounts whose homeserver is down."""
    new_keys: int = 0

    def fail(self, what: str, error: Exception, *, times: int = 1) -> None:
        """Have the next calls end in an error."""

        def fails() -> None:
            raise error

        self.faults.setdefault(what, []).extend([fails] * times)

    def of(self, user_id: str, device_id: str) -> Requests:
        """Requests as one device makes them."""
        return Requests(self, user_id, device_id)


@dataclass
class Requests:
    """One device's session."""

    server: KeyServer
    user_id: str
    device_id: str

    async def call(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """As the client has it."""
        return 200, await self.ask_for(method, path, body)

    async def ask_for(self, _method: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As the client has it."""
        parts = path.removeprefix("/_matrix/client/v3/").split("/")
        what = "sendToDevice" if parts[0] == "sendToDevice" else parts[1]
        self.server.asked.append(what)
        if self.server.faults.get(what):
            self.server.faults[what].pop(0)()
        answer = self._answer(what, parts, json.loads(json.dumps(body)))
        if self.server.lost.get(what):
            self.server.lost[what] -= 1
            raise HomeserverUnavailable("the answer was cut")
        return answer

    def _answer(self, what: str, parts: list[str], body: dict[str, Any]) -> dict[str, Any]:
        match what:
            case "upload":
                return self._upload(body)
            case "query":
                asked = set(body["device_keys"])
                found = {u: copy.deepcopy(self.server.devices.get(u, {})) for u in asked - self.server.unreachable}
                return {"device_keys": found, "failures": {u: {} for u in asked & self.server.unreachable}}
            case "claim":
                return self._claim(body)
            case "sendToDevice":
                self.server.txn_ids.append(parts[2])
                again = parts[2] in self.server.txn_ids[:-1]
                for user_id, devices in () if again else body["messages"].items():
                    for device_id, content in devices.items():
                        self._send(user_id, device_id, {"type": parts[1], "sender": self.user_id, "content": content})
                return {}
            case _:
                raise AssertionError(what)

    def _upload(self, body: dict[str, Any]) -> dict[str, Any]:
        own = (self.user_id, self.device_id)
        if "device_keys" in body:
            self.server.devices.setdefault(self.user_id, {})[self.device_id] = body["device_keys"]
        self.server.one_time.setdefault(own, {}).update(body.get("one_time_keys", {}))
        self.server.fallback.setdefault(own, {}).update(body.get("fallback_keys", {}))
        return {"one_time_key_counts": {"signed_curve25519": len(self.server.one_time[own])}}

    def _claim(self, body: dict[str, Any]) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for user_id, devices in body["one_time_keys"].items():
            for device_id in devices:
                own = (user_id, device_id)
                keys = self.server.one_time.get(own, {})
                fallback = self.server.fallback.get(own, {})
                if keys:
                    key_id = next(iter(keys))
                    given.setdefault(user_id, {})[device_id] = {key_id: keys.pop(key_id)}
                elif fallback:
                    given.setdefault(user_id, {})[device_id] = dict(fallback)
        return {"one_time_keys": given, "failures": {}}

    def _send(self, user_id: str, device_id: str, event: dict[str, Any]) -> None:
        there = self.server.devices.get(user_id, {}) if device_id == "*" else {device_id: None}
        for device in there:
            self.server.waiting.setdefault((user_id, device), []).append(event)


@dataclass
class Verdicts:
    """Devices that somebody verified, by their ed25519 key."""

    verified: set[str] = field(default_factory=set)

    def is_verified(self, _user_id: str, _device_id: str, ed25519: str) -> bool:
        """Whether it is one of them."""
        return ed25519 in self.verified

    async def learn(self, _answer: Mapping[str, Any]) -> None:
        """Nothing."""


class Device:
    """One device of an account, with everything real but the homeserver."""

    def __init__(self, server: KeyServer, keys: Keys, clock: FakeClock, *, verified_only: bool = False) -> None:
        self.server = server
        self.keys = keys
        self.verdicts = Verdicts()
        self.own = keys.own
        self.requests = server.of(self.own.user_id, self.own.device_id)
        self.crypto = Crypto(keys, self.requests, clock, verdicts=self.verdicts, verified_only=lambda: verified_only)
        self._said = 0

    async def sync(self, **more: Any) -> frozenset[tuple[RoomId, str]]:
        """Take what waits for the device, as a sync response brings it."""
        waiting = self.server.waiting.pop((self.own.user_id, self.own.device_id), [])
        return await self.crypto.take({"to_device": {"events": waiting}} | more)

    async def say(self, room: RoomState, body: str, **content: Any) -> dict[str, Any]:
        """An encrypted event of the device in a room."""
        self._said += 1
        said = {"msgtype": "m.text", "body": body} | content
        return self.event(await self.crypto.encrypted(room, "m.room.message", said))

    def event(self, content: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
        """An encrypted event as a timeline has it."""
        return {
            "event_id": EventId(f"${self.own.device_id}{self._said}"),
            "sender": self.own.user_id,
            "type": "m.room.encrypted",
            "origin_server_ts": 1_000,
            "content": dict(content),
        } | changes

    async def hear(self, event: Mapping[str, Any], room_id: RoomId = ROOM) -> Opening | None:
        """What an event is to the device, after a sync."""
        await self.sync()
        return await self.crypto.read(room_id, event)


def vault_of(folder: Path, user_id: UserId, device_id: str) -> Vault:
    """A vault for a device in a folder of its own."""
    return Vault(folder=folder / device_id, pickle_key=PICKLE_KEY, user_id=user_id, device_id=device_id)


@asynccontextmanager
async def device(
    server: KeyServer,
    folder: Path,
    user_id: UserId,
    device_id: str,
    *,
    clock: FakeClock | None = None,
    verified_only: bool = False,
    make: bool = True,
) -> AsyncIterator[Device]:
    """A device with published keys."""
    keys = await Keys.open(vault_of(folder, user_id, device_id), make=make)
    try:
        made = Device(server, keys, clock or FakeClock(), verified_only=verified_only)
        await made.crypto.publish()
        yield made
    finally:
        await keys.close()


def sealed_room(*joined: UserId, **encryption: Any) -> RoomState:
    """An encrypted room with these people."""
    return RoomState(
        room_id=ROOM,
        joined=frozenset(joined),
        bot_joined=True,
        encrypted=True,
        encryption=Encryption(**encryption),
    )
