"""How messages of verifications go out: to a device or into a room, and again where they did not go at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from agentpod_bot.errors import HomeserverUnavailable, RateLimited, StoreUnavailable, TokenRefused
from agentpod_bot.matrix.e2e.incoming import InRoom, ToDevice
from agentpod_bot.matrix.e2e.to_device import Outgoing, new_txn_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentpod_bot.matrix.e2e.exchange import Say
    from agentpod_bot.matrix.e2e.incoming import Place
    from agentpod_bot.matrix.e2e.ports import Corresponding, Speaker
    from agentpod_bot.matrix.e2e.sas import Side
    from agentpod_bot.ports import Clock

LIFETIME_S: Final = 600.0
"""From the request on; a verification that is not finished then never is."""
FIRST_RETRY_S: Final = 1.0
LONGEST_RETRY_S: Final = 30.0
TRANSIENT: Final = (HomeserverUnavailable, RateLimited, TokenRefused, StoreUnavailable)

T = TypeVar("T")


class Delivery:
    """Sends what verifications say."""

    def __init__(self, device: Corresponding, speaker: Speaker, clock: Clock) -> None:
        self._device = device
        self._speaker = speaker
        self._clock = clock

    async def tell(self, place: Place, other: Side, said: Say) -> None:
        """Tell the other side, for as long as it can matter. Raises what stood in the way to the end."""
        content = place.content(said.content)
        match place:
            case ToDevice():
                outgoing = Outgoing(said.kind, {other.user_id: {other.device_id: content}})
                await self.until(lambda: self._device.send_to_device(outgoing))
            case InRoom(room_id=room_id):
                txn_id = new_txn_id()
                await self.until(lambda: self._speaker.say(room_id, said.kind, content, txn_id))

    async def until(self, call: Callable[[], Awaitable[T]], *, within_s: float = LIFETIME_S) -> T:
        """Call until it succeeds, or for good fails, or it is too late. Raises what the last call raised."""
        end, wait_s = self._clock.monotonic() + within_s, FIRST_RETRY_S
        while True:
            try:
                return await call()
            except TRANSIENT as error:
                asked_s = error.retry_after_ms / 1000 if isinstance(error, RateLimited) else 0.0
                if self._clock.monotonic() + max(wait_s, asked_s) >= end:
                    raise
                await self._clock.sleep(max(wait_s, asked_s))
                wait_s = min(LONGEST_RETRY_S, wait_s * 2)
