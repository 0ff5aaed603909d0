"""Rooms that were upgraded, and when a route follows into the room that replaced its own. Pure.

A homeserver replaces a room by a new one: the old one has a tombstone that names the new,
the new one names the old as its predecessor
(https://spec.matrix.org/v1.14/client-server-api/#room-upgrades). Each may lie alone, and
both together say nothing of who is in the new room, so a route follows only where all of
what stands here holds. Until then it stays closed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from agentpod_bot.core.policy import check_reachable
from agentpod_bot.errors import RoomEncryptedWithoutCrypto, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from agentpod_bot.core.ids import RoomId, RouteName, UserId
    from agentpod_bot.core.policy import Policy, Route
    from agentpod_bot.core.room import RoomState

Moves = dict[tuple["RouteName", "RoomId"], "RoomId"]
"""Of each route, the rooms that it left, and into which room it went from each."""


@dataclass(frozen=True, slots=True)
class Successor:
    """The room that a tombstone names."""

    room_id: RoomId
    sender: UserId | None
    """Who sent the tombstone; None where the homeserver does not say."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Servers over which it may be joined: that of whoever named it surely knows it."""
        _, _, server = (self.sender or "").partition(":")
        return (server,) if server else ()


@dataclass(frozen=True, slots=True)
class Tombstone:
    """What a tombstone said when it was processed: later the bot may be out of the room, and cannot read it."""

    successor: Successor | None
    """None where it named none."""
    encrypted: bool | None
    """Whether the room was; None where that was not known."""


@dataclass(frozen=True, slots=True)
class Origin:
    """What a room says of its beginning, and whether the bot may speak there now."""

    predecessor: RoomId | None
    creators: frozenset[UserId]
    """Everybody whom its `m.room.create` makes powerful, in every room version."""
    speaks: bool


class NotFollowed(StrEnum):
    """Why a route does not follow into the room that replaced its own."""

    UNREACHABLE = "homeserver_unreachable"
    NOT_CAUGHT_UP = "not_caught_up"
    UNNAMED = "no_successor_named"
    CYCLE = "upgrades_in_a_circle"
    NOT_JOINED = "successor_not_joined"
    PREDECESSOR = "predecessor_differs"
    ENCRYPTION_UNKNOWN = "encryption_unknown"
    ENCRYPTION_LOST = "successor_not_encrypted"
    CANNOT_ENCRYPT = "successor_encrypted_without_crypto"
    POWERS = "more_approvers_there"
    NOT_SPEAKING = "may_not_speak_there"
    ASKED_THERE = "asked_there_already"
    APPROVERS = "approvers_not_there"
    ELSEWHERE = "leads_elsewhere"

    @property
    def said(self) -> str:
        """The rest of a sentence that begins: it is not followed, for."""
        return _SAID[self]


_SAID: Mapping[NotFollowed, str] = {
    NotFollowed.UNREACHABLE: "the homeserver did not say enough about the new room",
    NotFollowed.NOT_CAUGHT_UP: "not all that was said in the old room has been read",
    NotFollowed.UNNAMED: "its tombstone names no new room",
    NotFollowed.CYCLE: "the upgrades lead back to a room that was left",
    NotFollowed.NOT_JOINED: "the bot could not join the new room; an approver has to invite it",
    NotFollowed.PREDECESSOR: "the new room does not name this one as its predecessor",
    NotFollowed.ENCRYPTION_UNKNOWN: "it is not known whether the rooms are encrypted",
    NotFollowed.ENCRYPTION_LOST: "the old room is encrypted and the new one is not",
    NotFollowed.CANNOT_ENCRYPT: "the new room is encrypted and this bot cannot encrypt",
    NotFollowed.POWERS: "its power levels would make approvers there of people who were none here",
    NotFollowed.NOT_SPEAKING: "the bot may not send messages in the new room",
    NotFollowed.ASKED_THERE: "questions of this route are asked in the new room by another route",
    NotFollowed.APPROVERS: "fewer approvers are in the new room than a decision needs",
    NotFollowed.ELSEWHERE: "its upgrades do not lead to the room of this route",
}


def settled(policy: Policy, moves: Moves, not_followed: Mapping[RouteName, NotFollowed]) -> Policy:
    """The policy with each route that follows in the room in which it lives now.

    `policy` is as it was configured: it may name a room that was left long ago.
    """
    routes = {
        name: replace(
            route,
            room_id=stations(route, moves)[-1],
            not_followed=not_followed[name].said if name in not_followed else "",
        )
        if route.follow_upgrades
        else route
        for name, route in policy.routes.items()
    }
    return replace(policy, routes=routes)


def stations(route: Route, moves: Moves) -> tuple[RoomId, ...]:
    """The room that a route is configured with, and each into which it went from there, the last one last."""
    rooms = [route.room_id]
    while (following := moves.get((route.name, rooms[-1]))) is not None and following not in rooms:
        rooms.append(following)
    return tuple(rooms)


def link_fault(
    route: Route, old: RoomState, new: RoomState, origin: Origin, tombstone: Successor
) -> NotFollowed | None:
    """Why one step of an upgrade is not followed, whoever is in the new room.

    Who may upgrade a room has all power in the new one. Where approvers go by their power,
    nobody may gain it by that.
    """
    if origin.predecessor != old.room_id:
        return NotFollowed.PREDECESSOR
    if old.encrypted is None or new.encrypted is None:
        return NotFollowed.ENCRYPTION_UNKNOWN
    if old.encrypted and not new.encrypted:
        return NotFollowed.ENCRYPTION_LOST
    level = route.approver_level
    makers = {tombstone.sender} | origin.creators | new.creators
    if level is not None and (None in makers or _makes_approvers(route, level, old, new, makers)):
        return NotFollowed.POWERS
    return None


def target_fault(policy: Policy, route: Route, new: RoomState, *, can_encrypt: bool) -> NotFollowed | None:
    """Why questions of a route cannot be asked in a room; `route` is as it would be there.

    `can_encrypt` says whether the bot has keys to encrypt with.
    """
    partners = {each.name for each in policy.routes.values() if each.escalation and each.escalation.to == route.name}
    partners |= {route.escalation.to} if route.escalation else set()
    if any(policy.routes[name].room_id == new.room_id for name in partners & policy.routes.keys()):
        return NotFollowed.ASKED_THERE
    try:
        check_reachable(policy, route, new, can_encrypt=can_encrypt)
    except RoomEncryptedWithoutCrypto:
        return NotFollowed.CANNOT_ENCRYPT
    except Unavailable:
        return NotFollowed.APPROVERS
    there = sum(policy.is_approver(user_id, route, new) for user_id in new.joined)
    return NotFollowed.APPROVERS if there < route.quorum else None


def _makes_approvers(
    route: Route, level: int, old: RoomState, new: RoomState, makers: AbstractSet[UserId | None]
) -> bool:
    if old.powers is None or new.powers is None:
        return True  # not known, so perhaps
    if new.powers.default >= level > old.powers.default:
        return True
    strong = {user_id for user_id in new.powers.users if new.has_power(user_id, level)}
    powerful = strong | {user_id for user_id in makers if user_id is not None}
    return any(user_id not in route.approvers and not old.has_power(user_id, level) for user_id in powerful)
