"""Direct chats, in which clients verify another account: entered and heard for that, and for nothing else.

Many clients know no other way: they open a direct chat with whom they verify, and ask
there. Nothing that is said in one is an answer, or is answered.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, NoReturn, Protocol

import structlog

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.errors import MatrixError, RateLimited, Refused, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from agentpod_bot.matrix.opened import Opening
    from agentpod_bot.matrix.sync import Opener, RoomKey
    from agentpod_bot.ports import Clock

MEMBER: Final = "m.room.member"
AGAIN_S: Final = 5.0
MOST_INVITED: Final = 20
"""Invitations that wait to be followed; more are let be."""

log = structlog.get_logger(__name__)


class Joining(Protocol):
    """What enters rooms; `MatrixClient` fits it."""

    @property
    def user_id(self) -> UserId:
        """The bot's account."""
        ...

    async def join(self, room_id: RoomId) -> None:
        """Accept an invitation; raises a `MatrixError`."""
        ...


class DirectChats:
    """Fits `matrix.sync.Opener`: `opener` with direct chats beside the configured rooms."""

    def __init__(
        self,
        opener: Opener,
        homeserver: Joining,
        clock: Clock,
        *,
        is_approver: Callable[[UserId], bool],
        configured: Callable[[], frozenset[RoomId]],
    ) -> None:
        """`configured` are the rooms that are read anyway."""
        self._opener = opener
        self._homeserver = homeserver
        self._clock = clock
        self._is_approver = is_approver
        self._configured = configured
        self._invited: dict[RoomId, None] = {}
        self._news = asyncio.Event()

    async def take(self, response: Mapping[str, Any], *, anew: bool = False) -> frozenset[RoomKey]:
        """Take over what a response says of keys; then see what approvers say in rooms that are not configured."""
        keys = await self._opener.take(response, anew=anew)
        rooms, configured = _object(response, "rooms"), self._configured()
        for room_id, room in _objects(_object(rooms, "invite")):
            if room_id not in configured and self._is_wanted(_object(room, "invite_state").get("events")):
                self._invite(room_id)
        for room_id, room in _objects(_object(rooms, "join")):
            if room_id in configured:
                continue
            events = _object(room, "timeline").get("events")
            for event in events if isinstance(events, list) else []:
                if isinstance(event, dict) and self._is_approvers(event.get("sender")):
                    await self._hear(room_id, event)
        return keys

    async def _hear(self, room_id: RoomId, event: Mapping[str, Any]) -> None:
        """Read one event. Where that fails a verification has to be begun anew; no answer waits for it.

        The keys that came with the response must not be lost by it: they come only once.
        """
        try:
            await self._opener.read(room_id, event)
        except (MatrixError, StoreUnavailable) as error:
            log.warning("direct_chat_unreadable", room_id=room_id, error=error.code)

    async def expect(self, events: Collection[Mapping[str, Any]]) -> None:
        """Prepare for raw events that will be read next."""
        await self._opener.expect(events)

    async def read(self, room_id: RoomId, event: Mapping[str, Any]) -> Opening | None:
        """What became of a raw event; None for one that came in clear."""
        return await self._opener.read(room_id, event)

    async def run(self) -> NoReturn:
        """Follow invitations, until cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            for room_id in tuple(self._invited):
                await self._join(room_id)

    def _invite(self, room_id: RoomId) -> None:
        if room_id in self._invited or len(self._invited) < MOST_INVITED:
            self._invited[room_id] = None
            self._news.set()

    def _is_wanted(self, state: object) -> bool:
        """Whether an approver invites the bot into a direct chat, by the state that comes with an invitation."""
        for event in state if isinstance(state, list) else []:
            if isinstance(event, dict) and (event.get("type"), event.get("state_key")) == (
                MEMBER,
                self._homeserver.user_id,
            ):
                content = _object(event, "content")
                is_direct = content.get("membership") == "invite" and content.get("is_direct") is True
                return is_direct and self._is_approvers(event.get("sender"))
        return False

    def _is_approvers(self, sender: object) -> bool:
        return isinstance(sender, str) and self._is_approver(UserId(sender))

    async def _join(self, room_id: RoomId) -> None:
        try:
            await self._homeserver.join(room_id)
        except Refused as refused:
            log.warning("direct_chat_refused", room_id=room_id, errcode=refused.errcode)
        except MatrixError as error:
            log.warning("direct_chat_postponed", room_id=room_id, error=error.code)
            asked_s = error.retry_after_ms / 1000 if isinstance(error, RateLimited) else 0.0
            self._news.set()
            await self._clock.sleep(max(AGAIN_S, asked_s))
            return
        else:
            log.info("direct_chat_joined", room_id=room_id)
        self._invited.pop(room_id, None)


def _object(value: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = value.get(key)
    return found if isinstance(found, dict) else {}


def _objects(value: Mapping[str, Any]) -> Iterator[tuple[RoomId, dict[str, Any]]]:
    for key, found in value.items():
        if isinstance(found, dict):
            yield RoomId(key), found
