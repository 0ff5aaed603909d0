"""A homeserver in memory that takes and shows nothing before it is told to: no sockets, no waiting.

It fits `ports.Homeserver` and the sync loop's source. What the bot sends stands in `sending`
until a test says what becomes of it; a sync is answered when the test says so.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import EventId, RoomId, TxnId, UserId
from agentpod_bot.core.room import RoomState
from agentpod_bot.errors import HomeserverUnavailable
from tests.matrix.fake_rooms import Event, Room, Rooms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from agentpod_bot.core.room import Device
    from agentpod_bot.core.upgrades import Origin, Successor
    from agentpod_bot.errors import MatrixError

DEVICE = "POD"


@dataclass(eq=False)
class Sending:
    """One event on its way from the bot to the homeserver."""

    room_id: RoomId
    event_type: str
    content: Mapping[str, Any]
    txn_id: TxnId
    reply: asyncio.Future[EventId] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class GatedHomeserver:
    """One room, with the bot and these people joined."""

    def __init__(self, own: UserId, people: tuple[UserId, ...], *, now_ms: Callable[[], int]) -> None:
        self._own = own
        self._rooms = Rooms(now_ms)
        self._taken: dict[TxnId, EventId] = {}
        self.room_id = RoomId("!ops:hs.example")
        self._rooms.rooms[self.room_id] = Room(self.room_id)
        for user_id in (own, *people):
            self.post(user_id, {"membership": "join"}, kind="m.room.member", state_key=user_id)
        self.sending: list[Sending] = []
        self.lost: list[Sending] = []
        """On the wire when the bot died: the homeserver may take them all the same, some time later."""
        self._poll: asyncio.Future[None] | None = None

    # the bot's side
    @property
    def user_id(self) -> UserId:
        return self._own

    @property
    def can_encrypt(self) -> bool:
        return False

    async def know_devices(self, user_ids: Collection[UserId]) -> None:
        raise AssertionError(user_ids)  # no device has to be verified

    def vouches(self, device: Device) -> bool:
        raise AssertionError(device)

    async def send(self, room: RoomState, event_type: str, content: Mapping[str, Any], txn_id: TxnId) -> EventId:
        assert room.encrypted is False
        sending = Sending(room.room_id, event_type, content, txn_id)
        self.sending.append(sending)
        return await sending.reply

    async def upload(self, room: RoomState, filename: str, content_type: str, content: bytes) -> Mapping[str, Any]:
        raise AssertionError((room, filename, content_type, len(content)))  # no question of the machine is that long

    async def join(self, room_id: RoomId, servers: Sequence[str] = ()) -> None:
        raise AssertionError((room_id, servers))

    async def successor(self, room_id: RoomId) -> Successor | None:
        raise AssertionError(room_id)

    async def origin(self, room_id: RoomId) -> Origin:
        raise AssertionError(room_id)

    async def room_state(self, room_id: RoomId) -> RoomState:
        joined = frozenset(UserId(user) for user in self._rooms.rooms[room_id].joined)
        return RoomState(room_id=room_id, joined=joined, bot_joined=True, encrypted=False)

    async def sync(self, since: str | None, *, timeout_ms: int, sync_filter: Mapping[str, Any]) -> dict[str, Any]:
        assert timeout_ms >= 0
        self._poll = asyncio.get_running_loop().create_future()
        await self._poll
        position = None if since is None else self._rooms.number(since)
        return self._rooms.sync(self._own, DEVICE, position, sync_filter)

    async def messages(
        self,
        room_id: RoomId,
        from_token: str,
        *,
        limit: int,
        to_token: str | None = None,
        event_filter: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        start, stop = self._rooms.number(from_token) or 0, self._rooms.number(to_token or "") or 0
        return self._rooms.page(room_id, DEVICE, start, stop, limit=limit, event_filter=event_filter or {})

    # the test's side
    def take(self, sending: Sending) -> EventId:
        """Put what was sent into the room, once for each transaction id, and do not say so yet."""
        if sending.txn_id not in self._taken:
            event = self._rooms.make(sending.event_type, self._own, sending.content, ts=None)
            self._rooms.append(sending.room_id, event, device=DEVICE, txn_id=sending.txn_id)
            self._taken[sending.txn_id] = EventId(event["event_id"])
        return self._taken[sending.txn_id]

    def reply(self, sending: Sending, with_error: MatrixError | None = None) -> None:
        """Answer what was sent; without an error it is in the room then."""
        self.sending.remove(sending)
        if sending.reply.done():
            return  # whoever sent it is gone
        if with_error is None:
            sending.reply.set_result(self.take(sending))
        else:
            sending.reply.set_exception(with_error)

    def show(self, *, fails: bool = False) -> bool:
        """Answer the sync that waits, if one does, with all that is new or with a failure."""
        poll, self._poll = self._poll, None
        if poll is None or poll.done():
            return False
        if fails:
            poll.set_exception(HomeserverUnavailable("scripted"))
        else:
            poll.set_result(None)
        return True

    def bot_died(self) -> None:
        """What it had sent is on the wire still; what it asked for nobody waits for."""
        self.lost += self.sending
        self.sending = []
        self._poll = None

    def post(
        self, sender: UserId, content: Mapping[str, Any], *, kind: str = "m.room.message", **extra: Any
    ) -> EventId:
        """Somebody sends an event, now."""
        event = self._rooms.make(kind, sender, content, ts=None, **extra)
        self._rooms.append(self.room_id, event)
        return EventId(event["event_id"])

    def timeline(self) -> list[Event]:
        """Every event of the room, oldest first."""
        return [entry.event for entry in self._rooms.log]
