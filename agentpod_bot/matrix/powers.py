"""Who has which power in a room, read from its state: https://spec.matrix.org/latest/client-server-api/#mroompower_levels.

Nothing of a content is trusted to have its type: a level that is no whole number is 0.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import UserId
from agentpod_bot.core.room import Powers

if TYPE_CHECKING:
    from collections.abc import Mapping

CREATORS_OUTRANK = 12
"""Since this room version creators outrank every level, and power levels do not name them."""
CREATOR_LEVEL = 100
"""The creator's level in an older room that has no power levels."""
LARGEST = 2**53 - 1
_VERSION = re.compile(r"[1-9][0-9]{0,5}", re.ASCII)


def powers_of(content: Mapping[str, Any]) -> Powers:
    """The levels in the content of an `m.room.power_levels`."""
    users = content.get("users")
    return Powers(
        users={UserId(user_id): _level(level) for user_id, level in users.items()} if isinstance(users, dict) else {},
        default=_level(content.get("users_default", 0)),
    )


def level_to_send(content: Mapping[str, Any] | None, event_type: str) -> int:
    """The level that it takes to send an event of this type (no state event), by the content of the power levels."""
    if content is None:
        return 0
    events = content.get("events")
    wanted = events.get(event_type) if isinstance(events, dict) else None
    return _level(content.get("events_default", 0) if wanted is None else wanted)


def creators_of(content: Mapping[str, Any], sender: str | None) -> frozenset[UserId]:
    """Those who outrank every level, by the content and sender of an `m.room.create`: none in an older room."""
    if not _creators_outrank(content):
        return frozenset()
    more = content.get("additional_creators")
    named = [user_id for user_id in more if isinstance(user_id, str)] if isinstance(more, list) else []
    return frozenset(UserId(user_id) for user_id in (sender, *named) if user_id is not None)


def first_powers(content: Mapping[str, Any], sender: str | None) -> Powers:
    """The levels of a room that has no `m.room.power_levels`, by its `m.room.create`."""
    creator = content.get("creator", sender)
    if _creators_outrank(content) or not isinstance(creator, str):
        return Powers(users={})
    return Powers(users={UserId(creator): CREATOR_LEVEL})


def _creators_outrank(content: Mapping[str, Any]) -> bool:
    version = content.get("room_version")
    return isinstance(version, str) and bool(_VERSION.fullmatch(version)) and int(version) >= CREATORS_OUTRANK


def _level(value: object) -> int:
    is_level = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST
    return value if is_level else 0  # type: ignore[return-value]  # a whole number, as the line above found
