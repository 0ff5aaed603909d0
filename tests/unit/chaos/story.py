"""A run's room, in which everything went well, for tests to break."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from chaos.checker.checks import digest
from chaos.checker.evidence import Audited, Evidence, Room
from chaos.checker.verdict import judged

if TYPE_CHECKING:
    from chaos.checker.verdict import Verdict

BOT, OWNER, SECOND, MALLORY, AGENT = (f"@{name}:hs" for name in ("pod", "owner", "second", "mallory", "agent"))
NOW = 1_800_000_000_000
DEADLINE = NOW + 3_600_000


def at(ms: int) -> str:
    return (datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def body_of(request_id: str, **changes: Any) -> dict[str, Any]:
    asked = {
        "request_id": request_id,
        "session_id": "s",
        "route": "room0",
        "title": f"Run {request_id}",
        "tool_kind": "execute",
        "options": [
            {"id": "allow_once", "kind": "allow_once", "label": "Allow once"},
            {"id": "reject_once", "kind": "reject_once", "label": "Reject"},
        ],
        "preview": [{"type": "text", "label": "Command", "text": "make"}],
    }
    return asked | changes


@dataclass
class Story:
    """A room in which everything went well, and whose parts a test then changes."""

    events: list[dict[str, Any]] = field(default_factory=list)
    log: list[dict[str, Any]] = field(default_factory=list)
    listed: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    audit: list[Audited] = field(default_factory=list)
    now: int = NOW

    def event(self, sender: str, content: dict[str, Any], kind: str = "m.room.message") -> str:
        self.now += 1000
        event_id = f"$e{len(self.events)}"
        self.events.append(
            {"type": kind, "event_id": event_id, "sender": sender, "origin_server_ts": self.now, "content": content}
        )
        return event_id

    def asks(self, request_id: str, *, version: int = 1, revision: int = 1, deadline: int = DEADLINE) -> str:
        """The harness asks, and the question stands in the room."""
        body = body_of(request_id, title=f"Run {request_id} {version}")
        subject = {"id": request_id, "revision": revision, "salt": f"salt{revision}"}
        subject |= {"digest": digest(body, subject)}
        self.log.append({"did": "asks", "client": "laptop", "request_id": request_id, "version": version, "body": body})
        self.listed[request_id, revision] = {
            "request_id": request_id,
            "route": "room0",
            "status": "pending",
            "expires_at": at(deadline),
            "subject": subject,
            "decision": None,
        }
        self.audited("asked", request_id, revision)
        options = [
            {"id": option["id"], "label": option["label"], "meaning": meaning}
            for option, meaning in zip(body["options"], ("approve", "reject"), strict=True)
        ]
        event_id = self.event(
            BOT,
            {
                "msgtype": "m.text",
                "body": "Permission needed",
                "suite_event_type": "dev.agentpod.permission.v2",
                "request_id": request_id,
                "code": f"K{len(self.listed) + 2}",
                "options": options,
                "subject": {"revision": revision, "digest": subject["digest"], "expires_at": at(deadline)},
            },
        )
        self.audited("shown", request_id, revision, event_id=event_id)
        return event_id

    def says(self, sender: str, text: str, reply_to: str | None = None, **more: Any) -> str:
        """Somebody says something."""
        content: dict[str, Any] = {"msgtype": "m.text", "body": text, **more}
        if reply_to is not None:
            content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
        return self.event(sender, content)

    def reacts(self, sender: str, to: str, key: str) -> str:
        """Somebody reacts."""
        return self.event(
            sender, {"m.relates_to": {"rel_type": "m.annotation", "event_id": to, "key": key}}, "m.reaction"
        )

    def audited(
        self,
        what: str,
        request_id: str,
        revision: int = 1,
        *,
        sender: str | None = None,
        event_id: str | None = None,
        option: str | None = None,
    ) -> None:
        """A line of the audit."""
        self.audit.append(Audited(what, "laptop", request_id, revision, sender, event_id, option))

    def decided(
        self, request_id: str, by: str, option: str, event_id: str, *, revision: int = 1, comment: str | None = None
    ) -> None:
        """The answer counts, and everybody says so."""
        kind, scope = option.split("_")
        self.ended(
            request_id,
            revision,
            {
                "outcome": "selected",
                "option_id": option,
                "meaning": "approve" if kind == "allow" else "reject",
                "scope": scope,
                "answered_by": by,
                "answered_at": at(self.now + 500),
                "comment": comment,
                "event_id": event_id,
            },
        )

    def ended(self, request_id: str, revision: int, decision: dict[str, Any]) -> None:
        """It ends, and everybody says so."""
        view = self.listed[request_id, revision]
        view |= {"status": "over", "decision": decision}
        by, event_id = decision.get("answered_by"), decision.get("event_id")
        option = decision.get("option_id")
        self.audited(decision["outcome"], request_id, revision, sender=by, event_id=event_id, option=option)
        question = next(
            event["event_id"]
            for event in self.events
            if event["content"].get("request_id") == request_id and event["content"]["subject"]["revision"] == revision
        )
        receipt = {
            "suite_event_type": "dev.agentpod.permission.outcome.v2",
            "outcome": decision["outcome"],
            "subject": {"digest": view["subject"]["digest"], "revision": revision, "id": request_id},
        }
        if decision["outcome"] == "selected":
            receipt |= {name: decision[name] for name in ("option_id", "meaning", "scope")} | {"decided_by": by}
        words = "Allowed once by" if decision.get("meaning") == "approve" else "Closed:"
        self.event(
            BOT,
            {
                "msgtype": "m.text",
                "body": "* closed",
                "m.new_content": {"body": f"{words} …"},
                "m.relates_to": {"rel_type": "m.replace", "event_id": question},
                **receipt,
            },
        )
        told = {"did": "told", "client": "laptop", "request_id": request_id, "version": revision}
        self.log.append({**told, "by": "POST 200", "view": copy.deepcopy(view)})
        if decision["outcome"] != "superseded":
            self.log.append({**told, "did": "ended", "version": None, "view": copy.deepcopy(view)})

    def evidence(self) -> Evidence:
        """What the checker is given."""
        room = Room("!room", "room0", "laptop", (OWNER, SECOND), tuple(self.events))
        newest = {request_id: view for (request_id, _), view in sorted(self.listed.items(), key=lambda item: item[0])}
        listed = tuple(("laptop", view) for view in newest.values())
        return Evidence(BOT, (AGENT,), (room,), tuple(self.log), listed, tuple(self.audit))

    def verdict(self) -> Verdict:
        """What the checker makes of it."""
        return judged(self.evidence())

    def of_bot(self, kind: str) -> list[dict[str, Any]]:
        """Contents that the bot sent, of one type."""
        return [
            event["content"] for event in self.events if event["content"].get("suite_event_type", "").endswith(kind)
        ]


def lively() -> Story:
    """Everything that a run has, as it should be."""
    story = Story()
    question = story.asks("r1")
    story.audited("hint", "r1", sender=OWNER, event_id=story.says(OWNER, "9", question))
    story.audited("not_approver", "r1", sender=MALLORY, event_id=story.says(MALLORY, "1", question))
    story.says(AGENT, "1", question)
    answer = story.says(OWNER, "1", question)
    story.decided("r1", OWNER, "allow_once", answer)
    late = story.says(SECOND, "2", question)
    story.audited("late", "r1", sender=SECOND, event_id=late)
    story.event(BOT, {"msgtype": "m.notice", "body": "already", "m.relates_to": {"m.in_reply_to": {"event_id": late}}})
    second = story.asks("r2")
    story.decided("r2", SECOND, "reject_once", story.says(SECOND, "Reject: not now", second), comment="not now")
    story.asks("r3", deadline=story.now + 5_000)
    story.now += 6_000
    story.ended("r3", 1, {"outcome": "expired", "answered_at": at(story.now), "reason": "…"})
    fourth = story.asks("r4")
    story.asks("r4", version=2, revision=2)
    story.ended("r4", 1, {"outcome": "superseded", "answered_at": at(story.now), "reason": None})
    story.audited("late", "r4", sender=OWNER, event_id=story.says(OWNER, "1", fourth))
    new = story.events[-3]["event_id"]
    story.decided("r4", OWNER, "allow_once", story.reacts(OWNER, new, "1\ufe0f\u20e3"), revision=2)
    return story
