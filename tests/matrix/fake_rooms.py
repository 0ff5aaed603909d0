"""The memory of the fake homeserver: one numbered log of events, and what each account may see of it.

No sockets and no waiting here. A position is the number of log entries that a client
has been shown; tokens carry it with an epoch, so that a test can make old ones unknown.
"""

from __future__ import annotations

import bisect
import copy
import json
import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

Event = dict[str, Any]


@dataclass
class Entry:
    """One event of the log; `device` and `txn_id` where a client sent it with a transaction id."""

    number: int
    room_id: str
    event: Event
    device: str | None = None
    txn_id: str | None = None


@dataclass
class Room:
    """What stands in a room now, beside its events in the log."""

    room_id: str
    state: dict[tuple[str, str], Event] = field(default_factory=dict)
    member_at: dict[str, int] = field(default_factory=dict)
    """The log number of each account's latest membership event."""
    left_with: dict[str, dict[tuple[str, str], Event]] = field(default_factory=dict)
    """The state as it was when each account left, which it may go on reading."""

    def readable(self, user_id: str) -> Mapping[tuple[str, str], Event] | None:
        """The state that an account may read; None where it never was in the room."""
        match self.membership(user_id):
            case "join":
                return self.state
            case "leave" | "ban":
                return self.left_with.get(user_id)
            case _:
                return None

    def membership(self, user_id: str) -> str | None:
        member = self.state.get(("m.room.member", user_id))
        return None if member is None else member["content"]["membership"]

    @property
    def joined(self) -> list[str]:
        return [user for kind, user in self.state if kind == "m.room.member" and self.membership(user) == "join"]


class Rooms:
    """The log and its rooms. `now_ms` dates what is posted without a time of its own."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.log: list[Entry] = []
        self._by_room: dict[str, list[Entry]] = {}
        self.rooms: dict[str, Room] = {}
        self.epoch = 1

    # writing
    def append(self, room_id: str, event: Event, *, device: str | None = None, txn_id: str | None = None) -> Entry:
        """Put one event at the end, whatever it holds; a state event also changes the room."""
        entry = Entry(len(self.log) + 1, room_id, event, device, txn_id)
        self.log.append(entry)
        self._by_room.setdefault(room_id, []).append(entry)
        room = self.rooms[room_id]
        if isinstance(event.get("state_key"), str) and isinstance(event.get("type"), str):
            room.state[event["type"], event["state_key"]] = event
            if event["type"] == "m.room.member":
                room.member_at[event["state_key"]] = entry.number
                room.left_with[event["state_key"]] = dict(room.state)
        return entry

    def tick(self) -> int:
        """The number of something that stands in no room, but that a position counts, too."""
        self.log.append(Entry(len(self.log) + 1, "", {}))
        return len(self.log)

    def make(self, kind: str, sender: str, content: Mapping[str, Any], *, ts: int | None, **extra: Any) -> Event:
        return {
            "type": kind,
            "event_id": f"$event{len(self.log) + 1}",
            "sender": sender,
            "origin_server_ts": self.now_ms() if ts is None else ts,
            "content": dict(content),
            "unsigned": {},
            **extra,
        }

    def strike(self, room_id: str, target: str, redaction: Event) -> None:
        """Empty an event as a redaction does."""
        for entry in self.log:
            if entry.room_id == room_id and entry.event.get("event_id") == target:
                entry.event["content"] = {}
                entry.event["unsigned"] = {"redacted_because": copy.deepcopy(redaction)}
                entry.device = entry.txn_id = None

    # tokens
    def token(self, number: int) -> str:
        return f"s{self.epoch}_{number}"

    def number(self, token: str) -> int | None:
        """The position that a token means; None where it is none of this epoch's."""
        match re.fullmatch(r"s(\d+)_(\d+)", token):
            case re.Match() as found if int(found[1]) == self.epoch and int(found[2]) <= len(self.log):
                return int(found[2])
            case _:
                return None

    # reading
    def shown(self, entry: Entry, device: str) -> Event:
        """The event as this device sees it: with the transaction id where it sent it itself."""
        event = copy.deepcopy(entry.event)
        if entry.txn_id is not None and entry.device == device:
            event.setdefault("unsigned", {})["transaction_id"] = entry.txn_id
        return event

    def sync(self, user_id: str, device: str, since: int | None, sync_filter: Mapping[str, Any]) -> dict[str, Any]:
        """A sync response; its `rooms` is empty where there is nothing new."""
        room_filter = sync_filter.get("room", {})
        rooms: dict[str, dict[str, Any]] = {}
        for room in self.rooms.values():
            membership, at = room.membership(user_id), room.member_at.get(user_id, 0)
            news = since is None or at > since
            if membership == "join":
                start = since if since is not None and at <= since else None
                part = self._part(room, device, start, len(self.log), room_filter)
                if since is None or news or part["timeline"]["events"] or part["state"]["events"]:
                    rooms.setdefault("join", {})[room.room_id] = part
            elif membership == "invite" and news:
                rooms.setdefault("invite", {})[room.room_id] = {
                    "invite_state": {"events": self._stripped(room, user_id)}
                }
            elif membership in ("leave", "ban") and since is not None and news:
                rooms.setdefault("leave", {})[room.room_id] = self._part(room, device, since, at, room_filter)
        return {"next_batch": self.token(len(self.log)), "rooms": rooms}

    def _between(self, room_id: str, after: int, until: int) -> list[Entry]:
        """A room's entries after one number, up to and with another."""
        entries = self._by_room.get(room_id, [])
        first, last = (
            bisect.bisect_right(entries, number, key=lambda entry: entry.number) for number in (after, until)
        )
        return entries[first:last]

    def _part(
        self, room: Room, device: str, since: int | None, until: int, room_filter: Mapping[str, Any]
    ) -> dict[str, Any]:
        timeline_filter = room_filter.get("timeline", {})
        limit = timeline_filter.get("limit", 10)
        new = self._between(room.room_id, since or 0, until)
        wanted = [e for e in new if _passes(e.event, timeline_filter)]
        cut = wanted[-limit:] if limit else []
        limited = len(wanted) > len(cut)
        first = cut[0].number if limited and cut else (since or 0) + 1
        before: dict[tuple[Any, Any], Event] = {}
        for entry in new:
            if (
                entry.number < first
                and "state_key" in entry.event
                and _passes(entry.event, room_filter.get("state", {}))
            ):
                before[entry.event["type"], entry.event["state_key"]] = entry.event
        return {
            "state": {"events": copy.deepcopy(list(before.values()))},
            "timeline": {
                "events": [self.shown(e, device) for e in cut],
                "limited": limited,
                "prev_batch": self.token(first - 1),
            },
        }

    @staticmethod
    def _stripped(room: Room, user_id: str) -> list[Event]:
        invite = room.state["m.room.member", user_id]
        wanted = [room.state.get(("m.room.member", invite["sender"])), invite]
        keys = ("type", "state_key", "sender", "content")
        return [copy.deepcopy({key: event[key] for key in keys}) for event in wanted if event is not None]

    def page(
        self, room_id: str, device: str, start: int, stop: int, *, limit: int, event_filter: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Events at and before `start`, newest first, down to (not including) `stop`."""
        past = self._between(room_id, stop, start)[::-1]
        wanted = [e for e in past if _passes(e.event, event_filter)]
        chunk = wanted[:limit]
        page: dict[str, Any] = {"chunk": [self.shown(e, device) for e in chunk], "start": self.token(start)}
        if len(wanted) > len(chunk):
            page["end"] = self.token(chunk[-1].number - 1)
        return page


def _passes(event: Event, event_filter: Mapping[str, Any]) -> bool:
    types: Sequence[str] | None = event_filter.get("types")
    return types is None or any(fnmatchcase(str(event.get("type")), wanted) for wanted in types)


def has_float(value: object) -> bool:
    """Whether JSON holds a number that a homeserver refuses."""
    match value:
        case float():
            return True
        case dict():
            return any(has_float(inner) for inner in value.values())
        case list():
            return any(has_float(inner) for inner in value)
        case _:
            return False


def size_of(content: object) -> int:
    return len(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())
