"""Room keys that were asked for: of whom, since when, and what is to be said of it next.

https://spec.matrix.org/v1.14/client-server-api/#key-requests
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.matrix.e2e.device_keys import MEGOLM
from agentpod_bot.matrix.e2e.to_device import Outgoing

if TYPE_CHECKING:
    from collections.abc import Iterable

KEY_REQUEST: Final = "m.room_key_request"
MOST_KEPT: Final = 1_000
KEPT_MS: Final = 24 * 60 * 60_000
"""Who did not answer in a day is asked anew, if it still matters."""
WITHIN_MS: Final = 60 * 60_000
MOST_OF_SENDER: Final = 30
MOST_OF_ROOM: Final = 150
LEAST_OF_SENDER: Final = 3
"""So many keys are asked for `WITHIN_MS`: anybody in a room can say as much as they like that cannot be read.

Whatever others there send, a few are asked for of each.
"""

Key = tuple[str, str, str]
"""A room, the id of a session in it, and the account that used it: who claims another one's changes nothing of that."""

log = structlog.get_logger(__name__)


class Stage(StrEnum):
    """How far a request is."""

    WANTED = "wanted"
    """The homeserver did not take it yet."""
    ASKED = "asked"
    OVER = "over"
    """It is to be cancelled: the key came, or is no longer waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRequest:
    """One key, asked for at all devices of the account that used it."""

    request_id: str
    room_id: RoomId
    session_id: str
    user_id: UserId
    sender_key: str | None
    """As the event has it that could not be read."""
    asked_at_ms: int
    stage: Stage

    @property
    def key(self) -> Key:
        """Which key it is about, and who has it."""
        return self.room_id, self.session_id, self.user_id

    @property
    def txn_id(self) -> TxnId:
        """Of the message that is next; the same also after a restart."""
        return TxnId(f"{self.request_id}-{self.stage.value}")

    def outgoing(self, own_device_id: str) -> Outgoing:
        """The message that is next."""
        said: dict[str, Any] = {"request_id": self.request_id, "requesting_device_id": own_device_id}
        if self.stage is Stage.OVER:
            said |= {"action": "request_cancellation"}
        else:
            body = {"algorithm": MEGOLM, "room_id": self.room_id, "session_id": self.session_id}
            said |= {
                "action": "request",
                "body": body if self.sender_key is None else body | {"sender_key": self.sender_key},
            }
        return Outgoing(KEY_REQUEST, {self.user_id: {"*": said}}, self.txn_id)


class Kept(Protocol):
    """Where requests are kept; `KeysStore` fits it."""

    def load_key_requests(self) -> Iterable[KeyRequest]:
        """Every request, the oldest first."""
        ...

    def save_key_request(self, request: KeyRequest) -> None:
        """Keep one as it is now."""
        ...

    def remove_key_request(self, request_id: str) -> None:
        """Nothing more is to be said of it."""
        ...


class KeyRequests:
    """The requests of one device. What changes them belongs into a transaction of where they are kept."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._open: dict[Key, KeyRequest] = {}
        self._over: dict[str, KeyRequest] = {}
        for request in kept.load_key_requests():
            if request.stage is Stage.OVER:
                self._over[request.request_id] = request
            else:
                self._open[request.key] = request

    def open(self, key: Key) -> KeyRequest | None:
        """The request for this key that is not over."""
        return self._open.get(key)

    def add(self, request: KeyRequest) -> None:
        """Ask for one more. Those that are too old by then are over, and of too many the oldest of whom has most."""
        if (before := self._open.get(request.key)) is not None:
            self._end(before)
        self._kept.save_key_request(request)
        self._open[request.key] = request
        for each in tuple(self._open.values()):
            if abs(request.asked_at_ms - each.asked_at_ms) >= KEPT_MS:  # a clock may have been set back
                self._end(each)
        while len(self._open) > MOST_KEPT:
            [(most, _)] = Counter(each.user_id for each in self._open.values()).most_common(1)
            self._end(next(each for each in self._open.values() if each.user_id == most))

    def came(self, key: Key) -> None:
        """The key is here."""
        request = self._open.get(key)
        if request is not None:
            self._end(request)

    def unsaid(self) -> tuple[KeyRequest, ...]:
        """Those of which something is to be said."""
        return (*self._over.values(), *(each for each in self._open.values() if each.stage is Stage.WANTED))

    def said(self, txn_id: TxnId) -> None:
        """What was to be said with this transaction id is said."""
        request = next((each for each in self.unsaid() if each.txn_id == txn_id), None)
        if request is None:
            return  # it is over meanwhile
        if request.stage is Stage.OVER:
            self._forget(request)
        else:
            asked = replace(request, stage=Stage.ASKED)
            self._kept.save_key_request(asked)
            self._open[request.key] = asked

    def _end(self, request: KeyRequest) -> None:
        over = replace(request, stage=Stage.OVER)
        self._kept.save_key_request(over)
        del self._open[request.key]
        self._over[over.request_id] = over
        for each in tuple(self._over.values())[:-MOST_KEPT]:
            self._forget(each)

    def _forget(self, request: KeyRequest) -> None:
        self._kept.remove_key_request(request.request_id)
        del self._over[request.request_id]


class Rate:
    """How often keys are asked for, by sender and by room. For one run: nobody in a room can end one."""

    def __init__(self) -> None:
        self._asked: deque[tuple[int, UserId, RoomId]] = deque()
        self._counted: Counter[str] = Counter()
        self._refused: set[UserId] = set()

    def allows(self, user_id: UserId, room_id: RoomId, now_ms: int) -> bool:
        """Whether one more may be asked for; that none may is logged once in a while."""
        while self._asked and abs(now_ms - self._asked[0][0]) >= WITHIN_MS:
            _, sender, room = self._asked.popleft()
            self._counted -= Counter((sender, room))
            self._refused.discard(sender)
        most = MOST_OF_SENDER if self._counted[room_id] < MOST_OF_ROOM else LEAST_OF_SENDER
        if self._counted[user_id] < most:
            return True
        if user_id not in self._refused and len(self._refused) < MOST_KEPT:
            self._refused.add(user_id)
            log.warning("too_many_keys_missing", user_id=user_id, room_id=room_id)
        return False

    def count(self, user_id: UserId, room_id: RoomId, now_ms: int) -> None:
        """One more was asked for."""
        self._asked.append((now_ms, user_id, room_id))
        self._counted.update((user_id, room_id))
