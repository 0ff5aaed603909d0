"""The evidence put in order: what each room showed, what each harness was told, what the audit has."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from chaos.checker.answers import OUTCOME, QUESTION, Question, Reading, read
from chaos.checker.sealed import MESSAGE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.checker.evidence import Audited, Event, Evidence, Room, View
    from chaos.checker.sealed import Sealed

Key = tuple[str, str, int]
"""Client, request id, revision."""
ENDS = frozenset({"selected", "expired", "cancelled", "superseded", "answered_elsewhere", "undeliverable"})


@dataclass(frozen=True)
class Said:
    """One event of somebody other than the bot, and what it says."""

    event: Event
    place: int
    reading: Reading

    @property
    def event_id(self) -> str:
        """Its id."""
        return str(self.event["event_id"])

    @property
    def sender(self) -> str:
        """Whose it is."""
        return str(self.event["sender"])

    @property
    def ts(self) -> int:
        """When it was sent, in UTC milliseconds."""
        return int(self.event["origin_server_ts"])


@dataclass(frozen=True)
class Ended:
    """An edit of the bot that says how a question ended."""

    place: int
    ts: int
    content: dict[str, Any] = field(repr=False)


class Shown:
    """One room as it shows itself."""

    def __init__(self, room: Room, bot: str, sealed: Sealed | None) -> None:
        """Read the whole history once; `sealed` where the room is encrypted."""
        self.room = room
        self.questions: list[Question] = []
        self.said: list[Said] = []
        self.ends: dict[str, list[Ended]] = defaultdict(list)
        """Outcome edits by the question's event id."""
        self.by_bot: list[Event] = []
        for place, came in enumerate(room.events):
            event = came if sealed is None else sealed.shown(came)
            if event["sender"] != bot:
                reading = read(event, self.questions)
                if sealed is not None and came["type"] == MESSAGE:  # clear text is no answer, whatever it says
                    reading = Reading(reading.question, heard=reading.heard)
                self.said.append(Said(event, place, reading))
                continue
            self.by_bot.append(event)
            content = event["content"]
            relation = content.get("m.relates_to", {})
            if content.get("suite_event_type") == QUESTION and relation.get("rel_type") != "m.replace":
                self.questions.append(Question.of(event, place))
            elif content.get("suite_event_type") == OUTCOME:
                self.ends[relation.get("event_id", "")].append(Ended(place, event["origin_server_ts"], content))

    def key(self, question: Question) -> Key:
        """Whose question it is."""
        return self.room.client, question.request_id, question.revision

    @cached_property
    def events(self) -> dict[str, Said]:
        """What people said, by event id."""
        return {said.event_id: said for said in self.said}

    @cached_property
    def by_key(self) -> dict[Key, Question]:
        """The first question of each key."""
        found: dict[Key, Question] = {}
        for question in self.questions:
            found.setdefault(self.key(question), question)
        return found

    @cached_property
    def valid(self) -> dict[str, list[Said]]:
        """By question: what approvers plainly answered, in the room's order."""
        found: dict[str, list[Said]] = defaultdict(list)
        for said in self.said:
            question = said.reading.question
            if question is not None and said.reading.option is not None and said.sender in self.room.approvers:
                found[question.event_id].append(said)
        return found


class Scene:
    """Everything at hand for the checks."""

    def __init__(self, evidence: Evidence) -> None:
        """Put it in order."""
        self.evidence = evidence
        self.rooms = [Shown(room, evidence.bot, evidence.sealed) for room in evidence.rooms]
        self.listed: dict[Key, View] = {key_of(client, view): view for client, view in evidence.listed}
        self.audited: dict[Key, list[Audited]] = defaultdict(list)
        for line in evidence.audit:
            if line.client is not None and line.request_id is not None:
                self.audited[line.client, line.request_id, line.revision or 0].append(line)
        self.log: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        for line_of_log in evidence.log:
            self.log[line_of_log["client"], line_of_log["request_id"]].append(line_of_log)

    @property
    def sealed(self) -> Sealed:
        """What people's devices tell. Raises `ValueError` where the rooms are not encrypted."""
        if self.evidence.sealed is None:
            raise ValueError("the rooms of this run are not encrypted")
        return self.evidence.sealed

    @cached_property
    def keyless(self) -> frozenset[str]:
        """Every event whose key was given to nobody."""
        return frozenset() if self.evidence.sealed is None else frozenset(self.evidence.sealed.keyless)

    @cached_property
    def unread(self) -> frozenset[str]:
        """Every event that the bot could not read when it came, as the audit tells."""
        lines = self.evidence.audit
        return frozenset(line.event_id for line in lines if line.what == "undecryptable" and line.event_id is not None)

    @cached_property
    def heard(self) -> frozenset[str]:
        """Every event that the audit names."""
        return frozenset(line.event_id for line in self.evidence.audit if line.event_id is not None)

    @cached_property
    def views(self) -> dict[Key, View]:
        """The last view of every revision: the daemon lists the newest, harnesses were told of earlier ones."""
        return {key: view for key, _, view in self.told() if view["decision"] is not None} | self.listed

    def told(self) -> Iterable[tuple[Key, dict[str, Any], View]]:
        """Every view that a harness was given: its key, the line of the log, the view."""
        for (client, _), lines in self.log.items():
            for line in lines:
                if line["did"] in ("told", "ended") and "decision" in line["view"]:
                    yield key_of(client, line["view"]), line, line["view"]

    def asked(self, client: str, request_id: str, version: int) -> dict[str, Any] | None:
        """What the harness asked under this id: the first time, or anew."""
        for line in self.log[client, request_id]:
            if line["did"] == "asks" and line["version"] == version:
                body: dict[str, Any] = line["body"]
                return body
        return None

    def room_of(self, route: str) -> Shown | None:
        """The room of a route."""
        return next((shown for shown in self.rooms if shown.room.route == route), None)


def key_of(client: str, view: View) -> Key:
    """A view's key."""
    return client, view["request_id"], view["subject"]["revision"]


def ms(instant: str) -> int:
    """RFC 3339 as UTC milliseconds."""
    return round(datetime.fromisoformat(instant).timestamp() * 1000)
