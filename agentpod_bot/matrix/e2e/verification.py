"""Verifications that approvers ask for: who may, how many at once, how long; and what goes out and is kept.

One task does everything in order, so that no two messages of one verification overtake
each other. What each message means is decided in `exchange`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import structlog
import vodozemac

from agentpod_bot.errors import MatrixError, StoreUnavailable
from agentpod_bot.matrix.e2e.compared import ComparedKeys
from agentpod_bot.matrix.e2e.delivery import LIFETIME_S
from agentpod_bot.matrix.e2e.exchange import (
    CANCEL,
    READY,
    REQUEST,
    START,
    Cancelled,
    Code,
    Confirmed,
    Effect,
    Event,
    Finished,
    Given,
    Heard,
    Say,
    Shown,
    Trust,
    Waiting,
    cancelling,
    ready,
    step,
)
from agentpod_bot.matrix.e2e.incoming import Handled, InRoom, Message, Place, ToDevice, is_timely
from agentpod_bot.matrix.e2e.ongoing import Open, told
from agentpod_bot.matrix.e2e.sas import METHOD, Side, texts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agentpod_bot.core.ids import RoomId, UserId
    from agentpod_bot.matrix.e2e.cross_signing import CrossSigning
    from agentpod_bot.matrix.e2e.delivery import Delivery
    from agentpod_bot.matrix.e2e.device_keys import SenderKeys
    from agentpod_bot.matrix.e2e.identities import Identities
    from agentpod_bot.matrix.e2e.ports import Corresponding
    from agentpod_bot.ports import Clock

TICK_S: Final = 5.0
MOST_OPEN: Final = 5
MOST_ENDED: Final = 20
"""How many that ended are still shown."""
MOST_WAITING: Final = 500
"""Messages that wait to be looked at; more are dropped."""
REFUSALS: Final = (10, 60.0)
"""How many refusals are sent, in how many seconds, to those who may not verify."""
EVERY_DEVICE: Final = "*"

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Spoken:
    """The word of the person at this machine, and who waits to hear whether it was taken."""

    verification_id: str
    event: Event
    taken: asyncio.Future[bool] = field(repr=False)


@dataclass(slots=True)
class _Tick:
    """Time to see what is too old."""


class Verification:
    """Answers approvers who verify the bot; it asks nobody."""

    def __init__(
        self,
        device: Corresponding,
        delivery: Delivery,
        identities: Identities,
        cross_signing: CrossSigning,
        clock: Clock,
        *,
        is_approver: Callable[[UserId], bool],
    ) -> None:
        """`is_approver` says who may verify at all, as configured now."""
        self._device = device
        self._delivery = delivery
        self._keys = ComparedKeys(device, delivery, identities, cross_signing)
        self._clock = clock
        self._is_approver = is_approver
        self._waiting: asyncio.Queue[Message | _Spoken | _Tick] = asyncio.Queue()
        self._open: dict[str, Open] = {}
        self._handled = Handled()
        self._refused_at: deque[float] = deque()
        self._changed = asyncio.Condition()
        self.version = 0
        """Grows with every change of what `all` returns."""

    # what comes in: never waits, never raises

    def hear(self, sender: UserId, kind: str, content: Mapping[str, Any], keys: SenderKeys | None = None) -> None:
        """Take a to-device message, of whatever kind; those that are none of a verification are nothing.

        `keys` are of the device that encrypted it.
        """
        if kind.startswith("m.key.verification."):
            transaction_id = content.get("transaction_id")
            if isinstance(transaction_id, str):
                self._put(Message(sender, kind, content, ToDevice(sender, transaction_id), keys=keys))

    def hear_in_room(self, room_id: RoomId, event: Mapping[str, Any]) -> None:
        """Take a timeline event, decrypted where it was encrypted; what is of no verification is nothing."""
        message = Message.in_room(room_id, event)
        if message is not None:
            self._put(message)

    def _put(self, message: Message) -> None:
        if self._waiting.qsize() >= MOST_WAITING:
            log.warning("verification_message_dropped", sender=message.sender)
            return
        self._waiting.put_nowait(message)

    # what the person at this machine sees and says

    def all(self) -> tuple[Open, ...]:
        """The verifications of now, and those that ended a short while ago; oldest first."""
        return tuple(self._open.values())

    async def changes(self, version: int) -> None:
        """Return once `self.version` is another one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.version != version)

    async def confirm(self, verification_id: str) -> bool:
        """The emoji match. False where there is no such verification that shows any and was not confirmed yet."""
        return await self._say(verification_id, Confirmed())

    async def decline(self, verification_id: str, *, mismatch: bool) -> bool:
        """The emoji do not match, or it is not wanted. False where there is nothing to cancel."""
        return await self._say(verification_id, Given(Code.MISMATCHED_SAS if mismatch else Code.USER))

    async def _say(self, verification_id: str, event: Event) -> bool:
        spoken = _Spoken(verification_id, event, asyncio.get_running_loop().create_future())
        self._waiting.put_nowait(spoken)
        return await spoken.taken

    # the one task

    async def run(self) -> None:
        """Answer what comes, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._ticking(), name="verification-ticks")
            while True:
                await self.work(await self._waiting.get())

    async def _ticking(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            if self._waiting.empty():  # else there is work, and what is too old is seen with it
                self._waiting.put_nowait(_Tick())

    async def work(self, item: Message | _Spoken | _Tick) -> None:
        """Do one thing whole."""
        try:
            match item:
                case Message():
                    await self._message(item)
                case _Spoken(verification_id=verification_id, event=event):
                    item.taken.set_result(await self._word(verification_id, event))
                case _Tick():
                    await self._expire()
        except (MatrixError, StoreUnavailable) as error:
            log.warning("verification_given_up", error=error.code, reason=str(error))
        finally:
            if isinstance(item, _Spoken) and not item.taken.done():
                item.taken.set_result(False)

    async def _message(self, message: Message) -> None:
        if not self._handled.is_new(message):
            return
        found = next((each for each in self._open.values() if each.place == message.place), None)
        if message.sender == self._device.own.user_id:
            await self._own_message(message, found)
        elif found is not None and found.other.user_id == message.sender:
            if message.kind != REQUEST and await self._keys.is_of(message, found.other):
                await self._go_on(found, Heard(message.kind, message.content))
        elif found is not None:
            return  # somebody else's word in a room
        elif message.kind == REQUEST or (message.kind == START and isinstance(message.place, ToDevice)):
            await self._asked(message)
        elif message.kind != CANCEL and isinstance(message.place, ToDevice) and self._is_approver(message.sender):
            await self._delivery.tell(
                message.place,
                Side(user_id=message.sender, device_id=EVERY_DEVICE),
                cancelling(Code.UNKNOWN_TRANSACTION),
            )

    async def _own_message(self, message: Message, found: Open | None) -> None:
        """Another device of the bot's account took the verification over; what we said ourselves is nothing."""
        is_another = message.content.get("from_device") != self._device.own.device_id
        if found is not None and message.kind == READY and is_another and not found.is_over:
            await self._go_on(found, Heard(CANCEL, {"code": Code.ACCEPTED.value}))

    async def _asked(self, message: Message) -> None:
        device_id = message.content.get("from_device")
        if not isinstance(device_id, str) or not is_timely(message, self._clock.now_ms()):
            return
        if isinstance(message.place, InRoom) and message.content.get("to") != self._device.own.user_id:
            return
        other = Side(user_id=message.sender, device_id=device_id)
        if not self._is_approver(message.sender):
            await self._refuse(message.place, other)
            return
        before = [each for each in self._open.values() if each.other.user_id == message.sender and not each.is_over]
        if before:
            # As Matrix wants it: none of several attempts of one person is to be trusted.
            log.warning("verification_asked_twice", user_id=message.sender)
            for each in before:
                await self._go_on(each, Given(Code.USER))
            await self._delivery.tell(message.place, other, cancelling(Code.USER))
            return
        if sum(not each.is_over for each in self._open.values()) >= MOST_OPEN:
            log.warning("too_many_verifications", user_id=message.sender)
            await self._delivery.tell(message.place, other, cancelling(Code.USER))
            return
        if message.kind == REQUEST and METHOD not in texts(message.content, "methods"):
            await self._delivery.tell(message.place, other, cancelling(Code.UNKNOWN_METHOD))
            return
        terms = await self._keys.terms(message, other)
        if terms is None:
            log.warning("verification_with_unknown_device", user_id=message.sender)
            await self._delivery.tell(message.place, other, cancelling(Code.KEY_MISMATCH))
            return
        made = Open(
            verification_id=secrets.token_hex(4),
            place=message.place,
            other=other,
            ends_at=self._clock.monotonic() + LIFETIME_S,
            state=Waiting(terms=terms, secret=vodozemac.Sas()),
        )
        ended = [each.verification_id for each in self.all() if each.is_over]
        for verification_id in ended[:-MOST_ENDED]:
            del self._open[verification_id]
        self._open[made.verification_id] = made
        log.info("verification_asked", user_id=other.user_id, verification_id=made.verification_id)
        await self._note()
        if message.kind == REQUEST:
            await self._delivery.tell(
                message.place, other, ready(Side(user_id=terms.own.user_id, device_id=terms.own.device_id))
            )
        else:
            await self._go_on(made, Heard(message.kind, message.content))

    async def _word(self, verification_id: str, event: Event) -> bool:
        found = self._open.get(verification_id)
        if found is None or found.is_over:
            return False
        if isinstance(event, Confirmed) and not (isinstance(found.state, Shown) and not found.state.confirmed):
            return False
        await self._go_on(found, event)
        return True

    async def _expire(self) -> None:
        now = self._clock.monotonic()
        for each in self.all():
            if each.ends_at > now:
                continue
            if each.is_over:
                del self._open[each.verification_id]
                await self._note()
            else:
                each.ends_at = now + LIFETIME_S  # how long its end is told
                await self._go_on(each, Given(Code.TIMEOUT), anyway=True)

    async def _go_on(self, one: Open, event: Event, *, anyway: bool = False) -> None:
        """Take a verification one step further, and do what follows from that."""
        if not anyway and not one.is_over and one.ends_at <= self._clock.monotonic():
            event = Given(Code.TIMEOUT)
        before, (one.state, effects) = one.state, step(one.state, event)
        told(one, before)
        await self._note()
        try:
            await self._do(one, effects)
        except (MatrixError, StoreUnavailable) as error:
            # Half of what follows from a step is as good as nothing of it: the other side waits in vain.
            log.warning("verification_given_up", error=error.code, reason=str(error))
            if one.trusted is None:
                one.state = Cancelled(Code.USER.value, by_us=True)
                await self._note()
        if one.trusted is not None and one.state is not before and isinstance(one.state, Finished):
            await self._keys.sign(one)

    async def _do(self, one: Open, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            match effect:
                case Say():
                    await self._delivery.tell(one.place, one.other, effect)
                case Trust():
                    if await self._keys.keep(one, effect):
                        await self._note()
                    else:
                        one.state = Cancelled(Code.KEY_MISMATCH.value, by_us=True)
                        await self._note()
                        await self._delivery.tell(one.place, one.other, cancelling(Code.KEY_MISMATCH))
                        return

    async def _refuse(self, place: Place, other: Side) -> None:
        """Turn away who may not verify: always alike, and no more often than anybody could make us."""
        most, within_s = REFUSALS
        now = self._clock.monotonic()
        while self._refused_at and self._refused_at[0] <= now - within_s:
            self._refused_at.popleft()
        if len(self._refused_at) >= most:
            return
        self._refused_at.append(now)
        log.warning("verification_refused", user_id=other.user_id)
        await self._delivery.tell(place, other, cancelling(Code.USER))

    async def _note(self) -> None:
        async with self._changed:
            self.version += 1
            self._changed.notify_all()
