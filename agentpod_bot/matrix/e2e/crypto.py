"""Encrypted rooms as the rest of `matrix` sees them: what to say is encrypted, what came is read."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import structlog

from agentpod_bot.core.ids import UserId
from agentpod_bot.core.room import Origin
from agentpod_bot.errors import (
    CryptoStoreRefused,
    HomeserverUnavailable,
    MatrixError,
    RateLimited,
    Refused,
    StoreUnavailable,
    TokenRefused,
)
from agentpod_bot.matrix.e2e.devices import QUERY, Devices
from agentpod_bot.matrix.e2e.key_requests import KEY_REQUEST
from agentpod_bot.matrix.e2e.machine import Machine
from agentpod_bot.matrix.e2e.room_sessions import Clear
from agentpod_bot.matrix.e2e.sharing import Sharing
from agentpod_bot.matrix.e2e.to_device import Outgoing, send
from agentpod_bot.matrix.e2e.vault import ANEW
from agentpod_bot.matrix.events import ENCRYPTED, is_verification
from agentpod_bot.matrix.opened import NoKey, Opened, Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from agentpod_bot.core.ids import RoomId
    from agentpod_bot.core.room import Device, RoomState
    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys, SenderKeys
    from agentpod_bot.matrix.e2e.olm_sessions import RoomKey
    from agentpod_bot.matrix.e2e.ports import Requests
    from agentpod_bot.matrix.e2e.thread import Keys
    from agentpod_bot.matrix.opened import Opening
    from agentpod_bot.ports import Clock

UPLOAD: Final = "/_matrix/client/v3/keys/upload"
CURVE: Final = "signed_curve25519"
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 60.0
TRIES: Final = 3
"""So often a sender's devices are asked for before an event of theirs is read."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Verdicts(Protocol):
    """Which devices were verified."""

    def is_verified(self, user_id: str, device_id: str, ed25519: str) -> bool:
        """Whether somebody made sure that this key is that person's. May be asked from any thread."""
        ...

    async def learn(self, answer: Mapping[str, Any]) -> None:
        """Take over what an answer to a query of keys says of identities."""
        ...


class Crypto:
    """What the device's keys are used for."""

    def __init__(
        self,
        keys: Keys,
        requests: Requests,
        clock: Clock,
        *,
        verdicts: Verdicts,
        verified_only: Callable[[], bool] = lambda: False,
    ) -> None:
        """`verified_only` says whether room keys are for verified devices only."""
        self._keys = keys
        self._requests = requests
        self._clock = clock
        self._verdicts = verdicts
        self.own = keys.own
        self._devices = Devices(self.run, requests, clock.monotonic, heed=verdicts.learn)
        self._sharing = Sharing(
            self.run,
            requests,
            self._devices,
            may_read=lambda device: not verified_only() or self.is_verified(device),
        )
        self._one_time_keys: int | None = None
        self._has_fallback_key: bool | None = None
        self._work = asyncio.Event()
        self._unknown: Counter[UserId] = Counter()
        self.on_to_device: Callable[[UserId, str, Mapping[str, Any], SenderKeys | None], None] = _nothing
        """Told of each message to this device that is not about keys of rooms: sender, type, content, who encrypted it.

        Nothing of it is an answer.
        """
        self.on_verification: Callable[[RoomId, Mapping[str, Any], Origin], None] = _nothing
        """Told of each event with which devices verify each other in a room; one may come more than once."""

    async def run(self, work: Callable[[Machine], T]) -> T:
        """Run `work` on the keys' thread."""
        return await self._keys.run(work)

    async def sign(self, text: str) -> str:
        """The device's signature of a text, in unpadded base64."""
        return await self.run(lambda machine: machine.sign(text))

    def is_verified(self, device: DeviceKeys) -> bool:
        """Whether somebody made sure that a device's key is its owner's."""
        return self._verdicts.is_verified(device.user_id, device.device_id, device.ed25519)

    async def devices_of(self, user_id: UserId) -> tuple[DeviceKeys, ...]:
        """An account's devices as they are now."""
        return await self._devices.of({user_id})

    async def send_to_device(self, outgoing: Outgoing) -> None:
        """Send messages to devices, as they are."""
        await send(self._requests, outgoing)

    async def publish(self) -> None:
        """See that the homeserver has this device's keys, and no other ones for it (`check`)."""
        await self.check()
        await self._upload()

    async def check(self) -> None:
        """Raise `CryptoStoreRefused` where the homeserver has other keys for this device, or lost those that it had.

        Nobody could tell this device from a stranger's then.
        """
        own = self.own
        answer = await self._requests.ask_for("POST", QUERY, {"device_keys": {own.user_id: [own.device_id]}})
        stands = _object(_object(_object(answer.get("device_keys")).get(own.user_id)).get(own.device_id))
        keys = _object(stands.get("keys"))
        found = (keys.get(f"ed25519:{own.device_id}"), keys.get(f"curve25519:{own.device_id}"))
        is_published = await self.run(lambda machine: machine.is_published)
        if stands and found != (own.ed25519, own.curve25519):
            raise CryptoStoreRefused(
                f"the homeserver has other keys for device {own.device_id} than its crypto store: "
                f"bring back the folder that belongs to it, or {ANEW}"
            )
        if is_published and not stands:
            raise CryptoStoreRefused(f"the homeserver no longer has the keys of device {own.device_id}; {ANEW}")

    async def _upload(self) -> None:
        counted, has_fallback = self._one_time_keys, self._has_fallback_key
        body = await self.run(lambda machine: machine.to_upload(counted, has_fallback_key=has_fallback))
        if body is None:
            return
        answer = await self._requests.ask_for("POST", UPLOAD, body)
        await self.run(Machine.uploaded)
        count = _object(answer.get("one_time_key_counts")).get(CURVE)
        self._one_time_keys = count if isinstance(count, int) else None
        self._has_fallback_key = True if "fallback_keys" in body else self._has_fallback_key

    async def take(self, response: Mapping[str, Any], *, anew: bool = False) -> frozenset[RoomKey]:
        """Take over what a sync response says of keys and devices, before its rooms are read.

        Returns the room keys that came. Raises `StoreUnavailable` where they cannot be
        kept; the same response may come again. One that begins `anew` does not tell whose
        devices changed before.
        """
        if anew:
            self._devices.all_changed()
        lists = _object(response.get("device_lists"))
        changed = (*_list(lists.get("changed")), *_list(lists.get("left")))
        self._devices.changed({UserId(user_id) for user_id in changed if isinstance(user_id, str)})
        counts = response.get("device_one_time_keys_count")
        if isinstance(counts, dict):
            count = counts.get(CURVE, 0)
            self._one_time_keys = count if isinstance(count, int) else None
        unused = response.get("device_unused_fallback_key_types")
        if isinstance(unused, list):
            self._has_fallback_key = CURVE in unused
        events = _list(_object(response.get("to_device")).get("events"))
        received = await self.run(lambda machine: machine.receive(events))
        for told in received.others:
            if told.kind == KEY_REQUEST:
                self._sharing.asked_for(told.sender, told.content)
            else:
                self.on_to_device(told.sender, told.kind, told.content, told.keys)
        self._work.set()
        return frozenset(received.room_keys)

    async def expect(self, events: Collection[Mapping[str, Any]]) -> None:
        """Have the devices of all who sent encrypted events asked for in one query.

        The homeserver waits for others that are down, and would do so for one sender after
        the other. Where it does not answer, each is asked for where their event is read.
        """
        senders = (event.get("sender") for event in events if event.get("type") == ENCRYPTED)
        wanted = {UserId(sender) for sender in senders if isinstance(sender, str)} - {self.own.user_id}
        try:
            await self._devices.of(wanted)
        except MatrixError as error:
            log.warning("devices_not_current", error=error.code)

    async def read(self, room_id: RoomId, event: Mapping[str, Any]) -> Opening | None:
        """What became of an event of a room; None for one that came in clear.

        What cannot be read for want of its key has that asked for.
        """
        opening = await self._open(room_id, event) if event.get("type") == ENCRYPTED else None
        clear, origin = (opening.event, opening.origin) if isinstance(opening, Opened) else (event, Origin.CLEAR)
        if is_verification(clear):
            self.on_verification(room_id, clear, origin)
        return opening

    async def _open(self, room_id: RoomId, event: Mapping[str, Any]) -> Opening:
        content, sender = event.get("content"), event.get("sender")
        if not isinstance(content, dict) or not isinstance(sender, str):
            return Unreadable()
        await self._know(UserId(sender))
        found = await self.run(
            lambda machine: machine.decrypt(room_id, UserId(sender), content, is_verified=self.is_verified)
        )
        match found:
            case NoKey():
                now_ms = self._clock.now_ms()
                if await self.run(lambda machine: machine.request_key(room_id, UserId(sender), content, now_ms)):
                    self._work.set()
                return found
            case Unreadable():
                return found
            case Clear():
                clear = _in_clear(event, content, found)
                device = None if found.device is None else found.device.named
                return Opened(event=clear, origin=self._origin(found), device=device, ciphertext=found.ciphertext)

    async def know(self, user_ids: Collection[UserId]) -> None:
        """Have the devices of these accounts known as they are now, as far as the homeserver says it."""
        for user_id in sorted(user_ids):
            await self._know(user_id)

    def vouches(self, device: Device) -> bool:
        """Whether a device is known to be one that its account has now, and is verified; from any thread."""
        is_verified = self._verdicts.is_verified(device.user_id, device.device_id, device.ed25519)
        return is_verified and self._devices.has(device)

    async def _know(self, sender: UserId) -> None:
        """Have the sender's devices known as they are now: they alone say whose session it is.

        Where the homeserver does not say, again and again, what was known before must do:
        a device that is not known then is a stranger's, and nothing else waits for it.
        """
        if sender == self.own.user_id:
            return
        try:
            await self._devices.of({sender})
        except TokenRefused:
            raise
        except MatrixError as error:
            self._unknown[sender] += 1
            if self._unknown[sender] < TRIES:
                raise HomeserverUnavailable(f"the devices of a sender are not known: {error}") from error
            log.warning("devices_not_current", user_id=sender, error=error.code)
        self._unknown.pop(sender, None)

    def _origin(self, clear: Clear) -> Origin:
        if clear.device is None:
            return Origin.STRANGER
        is_own = clear.device == self.own
        return Origin.VERIFIED if is_own or self.is_verified(clear.device) else Origin.DEVICE

    async def encrypted(self, room: RoomState, kind: str, content: Mapping[str, Any]) -> dict[str, Any]:
        """The content of the `m.room.encrypted` event that says it in a room (`Sharing.encrypted`)."""
        return await self._sharing.encrypted(room, kind, content)

    async def upkeep(self) -> None:
        """Publish keys as they are used up, mend sessions, send what keeps them alive; until cancelled."""
        wait_s = FIRST_RETRY_S
        while True:
            await self._work.wait()
            self._work.clear()
            try:
                await self._keep_up()
            except (MatrixError, StoreUnavailable) as error:
                asked_s = error.retry_after_ms / 1000 if isinstance(error, RateLimited) else 0.0
                log.warning("keys_not_kept_up", error=error.code, wait_s=max(wait_s, asked_s))
                self._work.set()
                await self._clock.sleep(max(wait_s, asked_s))
                wait_s = min(LONGEST_RETRY_S, wait_s * 2)
            else:
                wait_s = FIRST_RETRY_S

    async def _keep_up(self) -> None:
        """Do what is due. What fails, and what was not come to, is due still."""
        refused: Refused | None = None
        try:
            await self._upload()
        except Refused as error:  # these keys for good, perhaps: what is due besides does not wait for them
            refused = error
        await self._devices.claim(await self.run(Machine.wedged))
        await self._sharing.give_again()
        for outgoing in await self.run(Machine.outgoing):
            await self._send(outgoing)
        if refused is not None:
            raise refused

    async def _send(self, outgoing: Outgoing) -> None:
        try:
            await send(self._requests, outgoing)
        except Refused as refused:
            log.warning("to_device_refused", kind=outgoing.kind, errcode=refused.errcode)
        await self.run(lambda machine: machine.sent(outgoing.txn_id))


def _in_clear(event: Mapping[str, Any], content: Mapping[str, Any], clear: Clear) -> dict[str, Any]:
    """The event as it would have come without encryption. Its relation is the one outside, which servers read too."""
    said = {key: value for key, value in clear.content.items() if key != "m.relates_to"}
    if "m.relates_to" in content:
        said["m.relates_to"] = content["m.relates_to"]
    return {**event, "type": clear.kind, "content": said}


def _nothing(*_: object) -> None:
    """Nobody listens."""


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
