"""What the state of rooms says of an upgrade: https://spec.matrix.org/v1.14/client-server-api/#room-upgrades. Pure.

Nothing of a content is trusted to have its type: what is no room id names no room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.core.upgrades import Origin, Successor
from agentpod_bot.matrix.events import identifier
from agentpod_bot.matrix.powers import creators_of, first_powers, level_to_send, powers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.room import Powers

CLIENT = "/_matrix/client/v3"
MESSAGE = "m.room.message"


def join_request(room_id: RoomId, servers: Sequence[str]) -> tuple[str, str]:
    """Method and path that join a room; by its id alone no server can tell where it is."""
    via = urlencode([(name, server) for server in servers for name in ("via", "server_name")])  # old servers know one
    path = f"{CLIENT}/join/{quote(room_id, safe='')}"
    return "POST", f"{path}?{via}" if via else path


def successor_in(tombstone: Mapping[str, Any] | None) -> Successor | None:
    """The room that a tombstone names, by its whole event; None where it names none."""
    content, sender = _event(tombstone)
    room_id = identifier(content.get("replacement_room"))
    return None if room_id is None else Successor(RoomId(room_id), None if sender is None else UserId(sender))


def origin_in(created: Mapping[str, Any] | None, levels: Mapping[str, Any] | None, *, own: UserId) -> Origin:
    """What a room's `m.room.create`, the whole event, and its power levels say of its beginning and of the bot."""
    content, sender = _event(created)
    predecessor = content.get("predecessor")
    room_id = identifier(predecessor.get("room_id")) if isinstance(predecessor, dict) else None
    outranking = creators_of(content, sender)
    powers = first_powers(content, sender) if levels is None else powers_of(levels)
    creators = {UserId(made) for made in (sender, identifier(content.get("creator"))) if made is not None}
    speaks = own in outranking or _level_of(own, powers) >= level_to_send(levels, MESSAGE)
    return Origin(None if room_id is None else RoomId(room_id), frozenset(creators | outranking), speaks)


def _level_of(user_id: UserId, powers: Powers) -> int:
    return powers.users.get(user_id, powers.default)


def _event(event: Mapping[str, Any] | None) -> tuple[Mapping[str, Any], str | None]:
    """Content and sender of a state event; a homeserver that does not know `format` sends the content alone."""
    if event is None:
        return {}, None
    content = event.get("content")
    return (content, identifier(event.get("sender"))) if isinstance(content, dict) else (event, None)
