"""Whose devices are known, and whether what is known of them is still so.

https://spec.matrix.org/v1.14/client-server-api/#tracking-the-device-list-for-a-user
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import structlog

from agentpod_bot.errors import HomeserverUnavailable, Refused

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from agentpod_bot.core.ids import UserId
    from agentpod_bot.core.room import Device
    from agentpod_bot.matrix.e2e.device_keys import DeviceKeys
    from agentpod_bot.matrix.e2e.machine import Machine
    from agentpod_bot.matrix.e2e.ports import Requests

QUERY: Final = "/_matrix/client/v3/keys/query"
CLAIM: Final = "/_matrix/client/v3/keys/claim"
REMOTE_MS: Final = 10_000
"""How long the homeserver may wait for other homeservers."""
UNREACHABLE_S: Final = 60.0
FIRST_CLAIM_WAIT_S: Final = 30.0
LONGEST_CLAIM_WAIT_S: Final = 3_600.0

log = structlog.get_logger(__name__)


class Devices:
    """The devices of everybody whom we write to or hear, asked for where they are not known to be current."""

    def __init__(
        self,
        run: Callable[[Callable[[Machine], Any]], Awaitable[Any]],
        requests: Requests,
        monotonic: Callable[[], float],
        *,
        heed: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        """`heed` is given each answer to a query of keys, for the identities in it."""
        self._run = run
        self._requests = requests
        self._monotonic = monotonic
        self._heed = heed
        self._current: set[UserId] = set()
        self._there: dict[UserId, frozenset[Device]] = {}
        """The devices of accounts of which what is known is current. Each is replaced as a whole, for `has`."""
        self._asking: frozenset[UserId] = frozenset()
        """Accounts about which the homeserver is being asked: what is known of them is not current yet."""
        self._unreachable: dict[UserId, float] = {}
        """Accounts whose homeserver did not answer, and when to ask again."""
        self._querying = asyncio.Lock()
        self._claim_at: dict[DeviceKeys, tuple[float, float]] = {}
        """Devices without a one-time key left: when to ask again, and how long was waited for that."""

    def changed(self, user_ids: Collection[UserId]) -> None:
        """What is known of these is no longer so."""
        self._current.difference_update(user_ids)
        for user_id in user_ids:
            self._unreachable.pop(user_id, None)
            self._there.pop(user_id, None)

    def all_changed(self) -> None:
        """Nobody says of whom what is known is still so."""
        self.changed(self._current | self._there.keys() | self._unreachable.keys())

    def has(self, device: Device) -> bool:
        """Whether an account is known to have this device now; asked by other threads, too."""
        return device in self._there.get(device.user_id, frozenset())

    async def of(self, user_ids: Collection[UserId]) -> tuple[DeviceKeys, ...]:
        """The devices that these accounts have now; those of an account whose homeserver is down as they were.

        Raises a `MatrixError` where our own homeserver does not say.
        """
        if self._outdated(user_ids) or not self._asking.isdisjoint(user_ids):
            async with self._querying:
                await self._query(self._outdated(user_ids))
        found: tuple[DeviceKeys, ...] = await self._run(lambda machine: machine.devices(sorted(user_ids)))
        return found

    def _outdated(self, user_ids: Collection[UserId]) -> frozenset[UserId]:
        now = self._monotonic()
        return frozenset(u for u in user_ids if u not in self._current and self._unreachable.get(u, now) <= now)

    async def _query(self, user_ids: Collection[UserId]) -> None:
        if not user_ids:
            return
        self._current.update(user_ids)  # who changes from here on is asked for again
        self._asking = frozenset(user_ids)
        try:
            answer = await self._requests.ask_for(
                "POST", QUERY, {"timeout": REMOTE_MS, "device_keys": {user_id: [] for user_id in sorted(user_ids)}}
            )
            await self._run(lambda machine: machine.learn(answer))
            await self._heed(answer)
            found: tuple[DeviceKeys, ...] = await self._run(lambda machine: machine.devices(user_ids))
        except BaseException as error:
            self._current.difference_update(user_ids)
            if isinstance(error, Refused):
                raise HomeserverUnavailable(f"device keys could not be queried: {error}") from error
            raise
        finally:
            self._asking = frozenset()
        unknown = set(user_ids) - _keys(answer.get("device_keys"))
        for user_id in user_ids:
            self._unreachable.pop(user_id, None)
        if unknown:
            log.warning("devices_unknown", user_ids=sorted(unknown), again_s=UNREACHABLE_S)
            self._current.difference_update(unknown)
            self._unreachable |= dict.fromkeys(unknown, self._monotonic() + UNREACHABLE_S)
        for user_id in self._current.intersection(user_ids):  # and not of who changed meanwhile
            self._there[user_id] = frozenset(keys.named for keys in found if keys.user_id == user_id)

    async def with_session(self, devices: Collection[DeviceKeys]) -> None:
        """See that messages can be encrypted for these devices, as far as they left one-time keys.

        Raises `HomeserverUnavailable`, `RateLimited` or `TokenRefused` where the homeserver does not say.
        """
        lacking: tuple[DeviceKeys, ...] = await self._run(lambda machine: machine.without_session(devices))
        now = self._monotonic()
        due = [device for device in lacking if self._claim_at.get(device, (0.0, 0.0))[0] <= now]
        old: tuple[DeviceKeys, ...] = await self._run(lambda machine: machine.from_before(devices))
        await self.claim([*due, *old])
        await self._run(lambda machine: machine.renewed(old))
        still: tuple[DeviceKeys, ...] = await self._run(lambda machine: machine.without_session(lacking))
        for device in lacking:
            if device not in still:
                self._claim_at.pop(device, None)
        for device in still:
            at, waited = self._claim_at.get(device, (0.0, 0.0))
            if at <= now:
                wait_s = min(LONGEST_CLAIM_WAIT_S, waited * 2 or FIRST_CLAIM_WAIT_S)
                self._claim_at[device] = (now + wait_s, wait_s)
                log.warning("device_without_one_time_key", user_id=device.user_id, device_id=device.device_id)

    async def claim(self, devices: Collection[DeviceKeys]) -> None:
        """Begin a new session with each of these devices that has a one-time key."""
        if not devices:
            return
        wanted: dict[str, dict[str, str]] = {}
        for device in devices:
            wanted.setdefault(device.user_id, {})[device.device_id] = "signed_curve25519"
        try:
            answer = await self._requests.ask_for("POST", CLAIM, {"timeout": REMOTE_MS, "one_time_keys": wanted})
        except Refused as refused:
            raise HomeserverUnavailable(f"one-time keys could not be claimed: {refused}") from refused
        await self._run(lambda machine: machine.claimed(answer))


def _keys(value: object) -> set[Any]:
    return set(value) if isinstance(value, dict) else set()
