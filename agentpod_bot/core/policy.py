"""Who may answer, and what may be asked now: the configuration's rules as pure functions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from agentpod_bot.errors import (
    ApproverNotInRoom,
    NoApprover,
    NotInRoom,
    RoomEncryptedWithoutCrypto,
    RoomReplaced,
    TooManyPending,
    Unavailable,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.ids import ClientName, RoomId, RouteName, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.quiet import QuietHours
    from agentpod_bot.core.room import RoomState


class Reactions(StrEnum):
    """What a route does with reactions: offers keycaps itself, only heeds them, or neither."""

    SEED = "seed"
    ACCEPT = "accept"
    OFF = "off"


class Trust(StrEnum):
    """What an approver's answer needs in an encrypted room beside being encrypted by a device of theirs."""

    ALL = "all"
    """Nothing: the homeserver's word for whose devices there are is taken."""
    APPROVERS_VERIFIED = "approvers-verified"
    """The device was verified, and what approves names its question where nobody on the way can change it."""
    VERIFIED = "verified"
    """The same; and what the bot says is readable on verified devices only."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """After which time without an answer a question is also asked on another route."""

    after_ms: int
    to: RouteName


@dataclass(frozen=True, slots=True)
class Route:
    """A room, and who may answer there."""

    name: RouteName
    room_id: RoomId
    approvers: frozenset[UserId]
    harnesses: frozenset[str]
    reactions: Reactions
    max_pending: int
    mask_secrets: bool = True
    """Whether the room sees masks in place of tokens, passwords and keys."""
    approver_level: int | None = None
    """Joined members with at least this power level are approvers too; None: only those of the list."""
    quorum: int = 1
    """How many approvers it takes to choose an option that approves with scope always."""
    not_requester: bool = False
    """Whether the person for whom a client asks may reject, but not approve."""
    remind_before_ms: int | None = None
    """So long before its end people are reminded of a question, once; None: never."""
    escalation: Escalation | None = None
    """None: a question is asked in one room only."""
    quiet: QuietHours | None = None
    """When questions are asked without notifying anybody."""
    follow_upgrades: bool = False
    """Whether the route goes into the room that replaces its own, where `core.upgrades` allows it."""
    not_followed: str = ""
    """Why it has not, as the rest of a sentence; nothing where there is no reason."""
    hands_back: bool = False
    """Whether a harness's own question decides where nobody could be asked, or nobody answered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on requests; times in milliseconds."""

    ttl_ms: int
    max_ttl_ms: int
    retention_ms: int
    max_pending_per_session: int
    max_pending_per_token: int
    max_waits_per_token: int
    max_pending: int = 500
    """Of all clients together."""
    audit_retention_ms: int | None = None
    """How long a line of the audit is kept; None: for ever."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Everything of the configuration that decides. Replaced as a whole on a reload."""

    own: UserId
    agents: frozenset[UserId]
    routes: Mapping[RouteName, Route]
    limits: Limits
    called_back: frozenset[ClientName] = frozenset()
    """Clients that are posted each outcome."""
    trust: Trust = Trust.ALL

    def rooms(self) -> frozenset[RoomId]:
        """Every room that a route names."""
        return frozenset(route.room_id for route in self.routes.values())

    def rooms_beside(self, route: Route) -> frozenset[RoomId]:
        """Rooms in which questions of this route stand, or may stand one day, and of those that may come to its own."""
        escalations = [
            (each.room_id, self.routes[each.escalation.to].room_id)
            for each in self.routes.values()
            if each.escalation is not None and each.escalation.to in self.routes
        ]
        here = {route.room_id} | {there for room_id, there in escalations if room_id == route.room_id}
        return frozenset(here | {room_id for pair in escalations if pair[1] in here for room_id in pair})

    def may_answer(self, sender: UserId, question: Question, room: RoomState) -> bool:
        """Whether `sender` decides `question`: an approver of its route, joined, no bot; by exact id."""
        route = self.route_of(question)
        return route is not None and route.room_id == room.room_id and self.is_approver(sender, route, room)

    def may_approve(self, sender: UserId, question: Question, room: RoomState) -> bool:
        """Whether an approving answer of `sender` to `question` counts.

        Where the route keeps the requester from approving and nobody knows who that is,
        nobody's does.
        """
        route = self.route_of(question)
        return (
            route is not None
            and self.may_answer(sender, question, room)
            and sender in self.who_approve(self.on_behalf(route, question), room, requester=question.asked.requester)
        )

    def route_of(self, question: Question) -> Route | None:
        """The route whose approvers decide a question where it stands.

        One that left the configuration or moved to another room is none, and neither is
        one on which the question's own route no longer wants it asked.
        """
        route, own = self.routes.get(question.asked.route), self.routes.get(question.whole.asked.route)
        if route is None or own is None or route.room_id != question.asked.room_id:
            return None
        wanted = question.original is None or (own.escalation is not None and own.escalation.to == route.name)
        return route if wanted else None

    def has_lost(self, question: Question) -> bool:
        """Whether no route has a question any more where it stands; where its route went on from there, one has."""
        went_on = question.left_at_ms is not None and question.asked.route in self.routes
        return not went_on and self.route_of(question) is None

    def on_behalf(self, route: Route, question: Question) -> Route:
        """A route as it is for a question of another one, whose guards hold there too.

        Where that keeps the requester out, this one does, and it takes as many people.
        """
        own = self.routes.get(question.whole.asked.route)
        if own is None or own is route:
            return route
        not_requester, quorum = own.not_requester or route.not_requester, max(own.quorum, route.quorum)
        if (not_requester, quorum) == (route.not_requester, route.quorum):
            return route
        return replace(route, not_requester=not_requester, quorum=quorum)

    def is_approver(self, user_id: UserId, route: Route, room: RoomState) -> bool:
        """Whether an account may answer on a route now: in its list or with enough power, joined, no bot."""
        level = route.approver_level
        named = user_id in route.approvers or (level is not None and room.has_power(user_id, level))
        return named and user_id in room.joined and not self.is_bot(user_id)

    def who_approve(self, route: Route, room: RoomState, *, requester: UserId | None) -> frozenset[UserId]:
        """Everybody whose approving answer to a question of this requester counts on a route now."""
        if route.not_requester and requester is None:
            return frozenset()
        barred = {requester} if route.not_requester else set()
        return frozenset(user_id for user_id in room.joined - barred if self.is_approver(user_id, route, room))

    def is_strict(self, room: RoomState) -> bool:
        """Whether answers in a room count from verified devices alone; where it is not known to be clear, too."""
        return self.trust is not Trust.ALL and room.encrypted is not False

    def is_bot(self, sender: UserId) -> bool:
        """Whether nothing that `sender` says is ever an answer."""
        return sender == self.own or sender in self.agents

    def may_invite(self, sender: UserId, room_id: RoomId) -> bool:
        """Whether an invitation is followed: into a configured room, by an approver of its route."""
        return any(route.room_id == room_id and sender in route.approvers for route in self.routes.values())

    def heeds_reactions(self, question: Question) -> bool:
        """Whether reactions to this question are looked at; where it has no route any more, to say so."""
        route = self.routes.get(question.asked.route)
        return route is None or route.reactions is not Reactions.OFF

    def seeds_reactions(self, question: Question) -> bool:
        """Whether the bot offers keycaps under this question."""
        route = self.routes.get(question.asked.route)
        return route is not None and route.reactions is Reactions.SEED


def check_reachable(policy: Policy, route: Route, room: RoomState | None, *, can_encrypt: bool) -> RoomState:
    """Return the room if a question of this route reaches an approver there; raise the reason why there is none.

    `can_encrypt` says whether the bot has keys to encrypt with.
    """
    if not route.approvers:
        raise NoApprover(f"route {route.name} has no approver")
    if room is None:
        raise Unavailable(f"the state of the room of route {route.name} is not known yet")
    if room.replaced:
        why = f", and it is not followed there, for {route.not_followed}" if route.not_followed else ""
        raise RoomReplaced(f"the room of route {route.name} was replaced by another one{why}", retry_after_s=60)
    if not room.bot_joined:
        raise NotInRoom(
            f"the bot is not in the room of route {route.name}: an approver has to invite it there, or, "
            "if another room replaced it, the configuration to name that one",
            retry_after_s=60,
        )
    match room.encrypted:
        case None:
            raise Unavailable(f"whether the room of route {route.name} is encrypted is not known yet")
        case True if not (can_encrypt and room.encryption.is_megolm):
            raise RoomEncryptedWithoutCrypto(
                f"the room of route {route.name} is encrypted, and this bot cannot encrypt", retry_after_s=60
            )
        case True | False:
            pass
    if not any(policy.is_approver(user_id, route, room) for user_id in room.joined):
        raise ApproverNotInRoom(f"no approver of route {route.name} is in its room", retry_after_s=60)
    return room


def check_caps(
    limits: Limits,
    route: Route,
    *,
    of_session: int,
    of_token: int,
    of_route: int,
    of_all: int,
) -> None:
    """Raise `TooManyPending` where one more open question, beside those that there are, would pass a cap."""
    for scope, open_now, cap in (
        ("session", of_session, limits.max_pending_per_session),
        ("token", of_token, limits.max_pending_per_token),
        ("route", of_route, route.max_pending),
        ("daemon", of_all, limits.max_pending),
    ):
        if open_now >= cap:
            raise TooManyPending(scope, cap)
