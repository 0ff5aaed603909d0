"""What `doctor` makes of what it sees: a line each, good or bad, and what to do. Nothing is looked at here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentpod_bot.core.policy import Policy, Route
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.store.examination import Examined

LITTLE_SPACE = 100 * 1024 * 1024
SKEW_WARN_MS = 5_000
SKEW_FAIL_MS = 60_000
MINUTE_MS = 60_000


class Grade(StrEnum):
    """How bad it is. Only `FAIL` keeps questions from being asked or answered."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `remedy` says what to do, where something is to be done."""

    grade: Grade
    what: str
    said: str
    remedy: str | None = None

    def __str__(self) -> str:
        """The line as it is printed."""
        said = self.said if self.remedy is None else f"{self.said}; {self.remedy}"
        return f"{self.grade:<5} {self.what}: {said}"


def ok(what: str, said: str) -> Finding:
    """All is well."""
    return Finding(Grade.OK, what, said)


def warn(what: str, said: str, remedy: str) -> Finding:
    """It works, but not as it should."""
    return Finding(Grade.WARN, what, said, remedy)


def fail(what: str, said: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(Grade.FAIL, what, said, remedy)


def of_store(path: Path, found: Examined, now_ms: int) -> Iterator[Finding]:
    """The store's folder, files, space, soundness, schema, and what stands in it."""
    if found.folder_fault is not None:
        yield Finding(Grade.FAIL, "store folder", found.folder_fault)
    else:
        yield ok(
            "store folder", f"{path.parent} is for its owner alone" if found.free_bytes is not None else "none yet"
        )
    for name, mode in sorted(found.file_modes.items()):
        yield warn("store files", f"{name} has mode {mode:04o}", "the next start makes it 0600")
    if found.free_bytes is not None and found.free_bytes < LITTLE_SPACE:
        grade = Grade.WARN if found.free_bytes else Grade.FAIL
        left = f"{found.free_bytes // 1024} KiB are left on the disk of {path.parent}"
        yield Finding(grade, "disk space", left, "make room: without it nothing can be asked, and no answer is kept")
    if not found.exists:
        yield warn(
            "store", f"{path} is not there", "the first start makes it; if it was there before, restore a backup"
        )
        return
    if found.fault is not None:
        yield fail("store", f"{path}: {found.fault}", "restore a backup, see docs/store.md")
        return
    if found.checked_whole:
        yield ok("store", f"{path} is sound, its schema is {found.schema}")
    else:
        yield warn("store", f"{path} is too large to be checked in time", "back it up: that checks all of the copy")
    if found.schema != found.newest_schema:
        yield warn("store schema", f"{found.schema}, not {found.newest_schema}", "the next start brings it up to date")
    running = "no daemon has it open" if found.held_by is None else f"process {found.held_by} has it open"
    oldest = (
        ""
        if found.oldest_open_ms is None
        else f", the oldest {max(0, now_ms - found.oldest_open_ms) // MINUTE_MS} min old"
    )
    yield ok("open questions", f"{found.open_questions}{oldest}; {found.unsent} events are to be sent; {running}")


def of_clock(skew_ms: int | None) -> Finding:
    """How far our clock and the homeserver's are apart: deadlines go by the one, answers are dated by the other."""
    if skew_ms is None:
        return warn("clock", "the homeserver does not say what time it is", "compare the clocks yourself")
    said = f"{abs(skew_ms) / 1000:.0f} s {'behind' if skew_ms > 0 else 'ahead of'} the homeserver's"
    if abs(skew_ms) >= SKEW_FAIL_MS:
        return fail("clock", said, "set the clocks (NTP): answers are judged by the homeserver's time of them")
    if abs(skew_ms) >= SKEW_WARN_MS:
        return warn("clock", said, "set the clocks (NTP)")
    return ok("clock", "agrees with the homeserver's")


@dataclass(frozen=True, slots=True)
class Levels:
    """The power levels that it takes in a room to send what the bot sends."""

    message: int
    reaction: int


def of_room(
    policy: Policy, route: Route, room: RoomState, levels: Levels | None, *, can_encrypt: bool = False
) -> Iterator[Finding]:
    """Whether questions of a route reach somebody who can answer. `levels` None: they could not be read."""
    what = f"route {route.name}"
    if room.replaced and route.follow_upgrades:
        yield warn(
            what,
            f"the room {room.room_id} was replaced by another, which the route follows",
            "the running daemon's /readyz says whether it is there",
        )
        return
    if room.replaced:
        yield fail(what, f"the room {room.room_id} was replaced by another", "name the new room in the configuration")
    elif not room.bot_joined:
        yield fail(
            what,
            f"{policy.own} is not in the room {room.room_id}",
            "have an approver invite it there: the daemon joins when it runs; if another room replaced it, name that",
        )
    if not room.bot_joined:
        return
    match room.encrypted:
        case True if not room.encryption.is_megolm:
            yield fail(what, "its room is encrypted in a way that this bot does not know", "use another room")
        case True if can_encrypt:
            yield ok(what, "its room is encrypted")
        case True:
            remedy = "get it keys: agentpod-bot login with the extra e2e, or use a room without encryption"
            yield fail(what, "its room is encrypted, and this bot cannot encrypt", remedy)
        case None:
            yield fail(what, "whether its room is encrypted is not known", "see the homeserver's answers above")
        case False:
            pass
    yield from _of_approvers(policy, route, room)
    yield from _of_escalations(policy, route, room)
    if levels is None or room.powers is None:
        yield warn(what, "the room's power levels could not be read", "see to it that the bot may send messages there")
        return
    if not room.has_power(policy.own, levels.message):
        yield fail(what, f"sending messages takes power level {levels.message}", f"give it to {policy.own}")
    elif route.reactions == "seed" and not room.has_power(policy.own, levels.reaction):
        remedy = f"give it to {policy.own}, or set routes.{route.name}.reactions to accept"
        yield warn(what, f"sending reactions takes power level {levels.reaction}", remedy)
    else:
        yield ok(what, f"the bot is in {room.room_id} and may send there")


def _of_escalations(policy: Policy, route: Route, room: RoomState) -> Iterator[Finding]:
    """Routes whose questions come to this one where nobody answers them, but never can."""
    there = sum(policy.is_approver(user_id, route, room) for user_id in room.joined)
    for own in policy.routes.values():
        if own.escalation is None or own.escalation.to != route.name:
            continue
        what, needed = f"route {own.name}", max(own.quorum, route.quorum)
        if own.room_id == route.room_id:
            remedy = f"have routes.{own.name}.escalate name a route with another room"
            yield fail(what, f"asks next on route {route.name}, which has the same room", remedy)
        elif there < needed:
            said = f"asks next on route {route.name}, in whose room are {there} of the {needed} approvers that it takes"
            yield fail(what, said, f"have more of them join {room.room_id}, or lower the quorum")


def _of_approvers(policy: Policy, route: Route, room: RoomState) -> Iterator[Finding]:
    what = f"route {route.name}"
    there = sorted(user_id for user_id in room.joined if policy.is_approver(user_id, route, room))
    absent = sorted(route.approvers - room.joined)
    counted = f"{len(there)} {'approver is' if len(there) == 1 else 'approvers are'}"
    if not there:
        yield fail(what, "none of its approvers is in the room", f"have them join: {', '.join(absent)}")
    elif len(there) < route.quorum:
        said = f"{counted} in the room, and some options need {route.quorum}"
        yield fail(what, said, "have more of them join, or lower the quorum")
    else:
        yield ok(what, f"{counted} in the room")
        if absent:
            yield warn(
                what, f"not in the room: {', '.join(absent)}", "invite them: whoever is not joined cannot answer"
            )
