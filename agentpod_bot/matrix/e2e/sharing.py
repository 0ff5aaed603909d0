"""Who is given the key to what we say in a room: before it is said, and with every answer looked at.

A session of a room is for the devices of those who are joined now. A device that is new
gets its key from the next message on; once one is gone, or the room's settings say so, a
new session begins. What a device was not given counts as not given until the homeserver
took it, so that nothing that fails here is ever taken for done.

What verifies devices is for all of them, also where the rest is for verified ones only, and
so is what tells one that it has to be: a device would never come to be verified by what it
cannot read. It reads from there on, and
what is said next that is not for it begins a new session.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog

from agentpod_bot.errors import HomeserverUnavailable, Refused
from agentpod_bot.matrix.e2e.device_keys import MEGOLM
from agentpod_bot.matrix.e2e.to_device import Outgoing, send
from agentpod_bot.matrix.events import ENCRYPTED, is_for_every_device

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
    from agentpod_bot.matrix.e2e.devices import Devices
    from agentpod_bot.matrix.e2e.machine import Machine
    from agentpod_bot.matrix.e2e.ports import Requests

AT_ONCE: Final = 50
"""Messages to devices in one request."""
WITHHELD: Final = "m.room_key.withheld"
DEADLINE_S: Final = 90.0
"""How long all of it may take for one room."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """Messages that the homeserver may have taken, or not: its answer did not come."""

    outgoing: Outgoing
    devices: Mapping[DeviceKeys, int]
    """Whom they are for, and from which message on they can read by it."""


@dataclass(slots=True)
class Session:
    """What we speak in a room with, and who can read it."""

    session_id: str
    has_key: dict[DeviceKeys, int] = field(default_factory=dict)
    """Devices that were given the key, and from which message on."""
    giving: OnTheWay | None = None
    refused: set[DeviceKeys] = field(default_factory=set)
    """Devices whose key the homeserver did not take, as it says: it had it in its hands."""
    given_again: set[DeviceKeys] = field(default_factory=set)
    told: set[DeviceKeys] = field(default_factory=set)
    """Devices that were told that they do not get it."""
    telling: OnTheWay | None = None

    @property
    def readers(self) -> AbstractSet[DeviceKeys]:
        """Devices that may have the key."""
        on_the_way = set() if self.giving is None else self.giving.devices.keys()
        return self.has_key.keys() | on_the_way | self.refused


@dataclass(slots=True)
class Again:
    """A device that asked for a key which it was given."""

    room_id: RoomId
    session: Session
    device: DeviceKeys
    outgoing: Outgoing | None = None
    """What it is sent, once that was encrypted."""


class Sharing:
    """Sessions of rooms, made known to devices."""

    def __init__(
        self,
        run: Callable[[Callable[[Machine], Any]], Awaitable[Any]],
        requests: Requests,
        devices: Devices,
        *,
        may_read: Callable[[DeviceKeys], bool],
    ) -> None:
        """`may_read` says whether a device is given keys to more than what is for every device."""
        self._run = run
        self._requests = requests
        self._devices = devices
        self._may_read = may_read
        self._sessions: dict[RoomId, Session] = {}
        self._sharing: defaultdict[RoomId, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._asked: deque[Again] = deque()

    async def encrypted(self, room: RoomState, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content of an `m.room.encrypted` event that everybody in the room can read who may.

        Raises `HomeserverUnavailable`, `RateLimited` or `TokenRefused`: then nothing of it
        was said, and it can be tried again as often as one likes.
        """
        try:
            async with self._sharing[room.room_id], asyncio.timeout(DEADLINE_S):
                session = await self._shared(room, for_all=is_for_every_device({"type": kind, "content": content}))
                room_id, session_id = room.room_id, session.session_id
                said: dict[str, Any] = await self._run(lambda m: m.encrypt(room_id, session_id, kind, content))
                return said
        except TimeoutError as error:
            raise HomeserverUnavailable("the room's devices could not be given the key in time") from error
        except Refused as refused:
            raise HomeserverUnavailable(f"the homeserver took no message to devices: {refused}") from refused

    async def _shared(self, room: RoomState, *, for_all: bool) -> Session:
        devices = await self._devices.of(room.joined)
        readers = {device for device in devices if for_all or self._may_read(device)}
        session = await self._session(room, readers)
        lacking = readers - session.has_key.keys()
        if lacking:
            await self._devices.with_session(lacking)
            await self._give(
                room.room_id, session, sorted(lacking, key=lambda device: (device.user_id, device.device_id))
            )
            if not session.has_key:
                log.warning("nobody_can_read", room_id=room.room_id, devices=len(devices))
        await self._tell(room.room_id, session, [device for device in devices if device not in readers | session.told])
        return session

    async def _session(self, room: RoomState, readers: AbstractSet[DeviceKeys]) -> Session:
        current: str | None = await self._run(lambda machine: machine.outbound(room.room_id))
        session = self._sessions.get(room.room_id)
        if session is None or session.session_id != current or not session.readers <= readers:
            made: str = await self._run(lambda machine: machine.new_outbound(room.room_id, room.encryption))
            session = self._sessions[room.room_id] = Session(made)
        return session

    async def _give(self, room_id: RoomId, session: Session, devices: Sequence[DeviceKeys]) -> None:
        """Send the session's key to those of the devices for which it can be encrypted."""
        await self._hand_over(session)
        lacking = [device for device in devices if device not in session.has_key]
        key: dict[str, Any]
        index: int
        key, index = await self._run(lambda machine: (machine.room_key(room_id), machine.next_index(room_id)))
        for begin in range(0, len(lacking), AT_ONCE):
            part = lacking[begin : begin + AT_ONCE]

            def encrypt(machine: Machine, part: Sequence[DeviceKeys] = part) -> dict[str, Any]:
                return machine.encrypt_for(part, "m.room_key", key)

            messages = await self._run(encrypt)
            if not messages:
                continue
            given = {device: index for device in part if device.device_id in messages.get(device.user_id, {})}
            session.giving = OnTheWay(Outgoing(ENCRYPTED, messages), given)
            await self._hand_over(session)

    async def _hand_over(self, session: Session) -> None:
        """Send what is on the way, once more where it is not known whether it went."""
        if session.giving is None:
            return
        try:
            await send(self._requests, session.giving.outgoing)
        except Refused:
            session.refused |= session.giving.devices.keys()
            session.giving = None
            raise
        session.has_key |= session.giving.devices
        session.giving = None

    def asked_for(self, sender: UserId, content: Mapping[str, Any]) -> None:
        """A device asks for a room key. One that was given it already is given it again, once: it may have been lost.

        https://spec.matrix.org/v1.14/client-server-api/#key-requests
        """
        body = content.get("body")
        if content.get("action") != "request" or not isinstance(body, dict):
            return
        for room_id, session in self._sessions.items():
            if (body.get("room_id"), body.get("session_id")) != (room_id, session.session_id):
                continue
            for device in session.has_key.keys() - session.given_again:
                if (device.user_id, device.device_id) == (sender, content.get("requesting_device_id")):
                    session.given_again.add(device)
                    self._asked.append(Again(room_id, session, device))

    async def give_again(self) -> None:
        """Give room keys to the devices that asked for them again."""
        while self._asked:
            again = self._asked[0]
            if again.outgoing is None:
                again.outgoing = await self._encrypted_again(again)
            try:
                if again.outgoing is not None:
                    await send(self._requests, again.outgoing)
            except Refused as refused:
                log.warning("key_not_given_again", user_id=again.device.user_id, errcode=refused.errcode)
            self._asked.popleft()

    async def _encrypted_again(self, again: Again) -> Outgoing | None:
        """A device's key from where it was first given it; None where it is gone, or cannot be encrypted for it."""
        room_id, session_id = again.room_id, again.session.session_id

        def encrypt(machine: Machine) -> dict[str, Any]:
            key = machine.forwarded(room_id, session_id, again.session.has_key[again.device])
            return {} if key is None else machine.encrypt_for([again.device], "m.forwarded_room_key", key)

        messages = await self._run(encrypt)
        return Outgoing(ENCRYPTED, messages) if messages else None

    async def _tell(self, room_id: RoomId, session: Session, devices: Sequence[DeviceKeys]) -> None:
        """Tell devices that get no key why they see nothing.

        https://spec.matrix.org/v1.14/client-server-api/#reporting-that-decryption-keys-are-withheld
        """
        if not devices:
            return
        if session.telling is None or session.telling.devices.keys() != set(devices):
            session.telling = await self._withheld(room_id, session, devices)
        await send(self._requests, session.telling.outgoing)
        session.told |= session.telling.devices.keys()
        session.telling = None

    async def _withheld(self, room_id: RoomId, session: Session, devices: Sequence[DeviceKeys]) -> OnTheWay:
        own: str = await self._run(lambda machine: machine.own.curve25519)
        content = {
            "algorithm": MEGOLM,
            "room_id": room_id,
            "session_id": session.session_id,
            "code": "m.unverified",
            "reason": "the bot gives keys to verified devices only",
            "sender_key": own,
        }
        messages: dict[str, dict[str, Any]] = {}
        for device in devices:
            messages.setdefault(device.user_id, {})[device.device_id] = content
        return OnTheWay(Outgoing(WITHHELD, messages), dict.fromkeys(devices, 0))
