"""What must hold whatever happened, one function for each promise. Pure.

Each yields what breaks it: an id, and in a few words how. `CHECKS` says which sort of
fault that is.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from chaos.checker.scene import ENDS, Scene, ms

if TYPE_CHECKING:
    from chaos.checker.answers import Question
    from chaos.checker.evidence import View
    from chaos.checker.scene import Key, Said, Shown

Found = Iterator[tuple[str, str]]

IN_TIME_MS = 60_000
"""An answer so long before the end of its question was in time, however slow everything was."""
QUIET_MS = 30_000
OWN_QUIET_MS = 2_000
NOT_FOUND = 404


def name(key: Key) -> str:
    """A request as it is printed."""
    return "{}/{} revision {}".format(*key)


# lost


def no_end_told(scene: Scene) -> Found:
    """Every request that was asked comes to an end, and its harness is told."""
    for (client, request_id), lines in scene.log.items():
        did = [line["did"] for line in lines]
        if "asks" in did and "ended" not in did:
            yield f"{client}/{request_id}", "the harness was never told an end"


def forgotten(scene: Scene) -> Found:
    """What a harness was told of once is known for good."""
    for (client, request_id), lines in scene.log.items():
        known = False
        for line in lines:
            known = known or line["did"] == "told"
            if known and line["did"] == "refused" and line["status"] == NOT_FOUND:
                yield f"{client}/{request_id}", "was known, and then was not found"
    newest = {key[:2]: key[2] for key in scene.listed}
    for key in {key for key, _, _ in scene.told()}:
        if newest.get(key[:2], 0) < key[2]:
            yield name(key), "is not in the daemon's list"


def left_open(scene: Scene) -> Found:
    """Nothing is open in the end, and each question in a room shows how it ended."""
    for key, view in scene.listed.items():
        if view["decision"] is None:
            yield name(key), f"is still {view['status']}"
    for shown in scene.rooms:
        for question in shown.questions:
            if not shown.ends[question.event_id]:
                yield name(shown.key(question)), f"{question.event_id} still looks open in the room"


def never_asked_in_the_room(scene: Scene) -> Found:
    """What was decided, or what the audit says was shown, stands in the room."""
    for key, view in scene.views.items():
        shown = scene.room_of(view["route"])
        said_shown = any(line.what == "shown" for line in scene.audited[key])
        decided = view["decision"] is not None and view["decision"]["outcome"] == "selected"
        if (said_shown or decided) and (shown is None or key not in shown.by_key):
            yield name(key), "has no question in its room"


def answer_passed_over(scene: Scene) -> Found:
    """The first plain answer of an approver that is in time decides."""
    for shown, question, view in _ended_questions(scene):
        decision = view["decision"]
        unread = scene.unread | scene.keyless
        for first in [said for said in shown.valid[question.event_id] if said.event_id not in unread][:1]:
            if decision["outcome"] != "selected":
                if first.ts + IN_TIME_MS < ms(decision["answered_at"]):
                    yield first.event_id, f"answered {name(shown.key(question))} in time, which then {view['status']}"
                continue
            taken = shown.events.get(decision["event_id"])
            if taken is not None and taken.place > first.place:
                yield first.event_id, f"was first to answer {name(shown.key(question))}; {taken.event_id} decided"


def unheard(scene: Scene) -> Found:
    """Whatever plainly tries to answer a question is in the audit: it decided, or was refused for a reason."""
    known = scene.heard | scene.keyless
    for shown in scene.rooms:
        for said in shown.said:
            if said.reading.heard and said.sender not in scene.evidence.agents and said.event_id not in known:
                yield said.event_id, f"{said.sender} was not heard in {shown.room.route}"


# doubled


def asked_twice(scene: Scene) -> Found:
    """One question in the room for each revision."""
    for shown in scene.rooms:
        for key, count in Counter(map(shown.key, shown.questions)).items():
            if count > 1:
                yield name(key), f"stands in the room {count} times"


def ended_twice(scene: Scene) -> Found:
    """One end for each revision, in the audit, in what harnesses were told, and in the room."""
    for key, lines in scene.audited.items():
        for what, most in (("asked", 1), ("shown", 1)):
            if (count := sum(line.what == what for line in lines)) > most:
                yield name(key), f"was {what} {count} times, says the audit"
        if (count := sum(line.what in ENDS for line in lines)) > 1:
            yield name(key), f"ended {count} times, says the audit"
    ends: dict[Key, set[str]] = {}
    for key, _, view in scene.told():
        if view["decision"] is not None:
            ends.setdefault(key, set()).add(json.dumps(view["decision"], sort_keys=True))
    for key, told in ends.items():
        if len(told) > 1:
            yield name(key), f"its harness was told {len(told)} different ends"
    for shown in scene.rooms:
        for question in shown.questions:
            receipts = {json.dumps(_receipt(end.content), sort_keys=True) for end in shown.ends[question.event_id]}
            if len(receipts) > 1:
                yield name(shown.key(question)), f"its room shows {len(receipts)} different ends"


def noticed_twice(scene: Scene) -> Found:
    """Nobody is told the same thing about the same message twice."""
    for shown in scene.rooms:
        notices: Counter[tuple[str, str]] = Counter()
        for event in shown.by_bot:
            content = event["content"]
            if content.get("msgtype") == "m.notice":
                to = content.get("m.relates_to", {}).get("m.in_reply_to", {}).get("event_id", "")
                notices[to, content["body"].splitlines()[0]] += 1
        for (to, _), count in notices.items():
            if to and count > 1:
                yield to, f"was replied to {count} times in {shown.room.route}"


# wrong


def not_what_was_asked(scene: Scene) -> Found:
    """Each call is answered about what it asked itself, and the room shows exactly that."""
    for key, line, view in scene.told():
        body = None if line.get("version") is None else scene.asked(key[0], key[1], line["version"])
        if body is not None and view["subject"]["digest"] != digest(body, view["subject"]):
            yield name(key), "its harness was told about something that it had not asked"
    for key, view in scene.views.items():
        shown = scene.room_of(view["route"])
        question = None if shown is None else shown.by_key.get(key)
        body = scene.asked(key[0], key[1], min(key[2], 2))
        if body is None or body["route"] != view["route"] or view["subject"]["digest"] != digest(body, view["subject"]):
            yield name(key), "the daemon lists something that nobody asked"
        elif question is not None:
            offered = [(option_id, meaning) for option_id, _, meaning in question.options]
            if offered != [(option["id"], _meaning(option)) for option in body["options"]]:
                yield name(key), "the room offers other options"
            if question.digest != view["subject"]["digest"]:
                yield name(key), "the room's digest is another one"


def not_what_was_said(scene: Scene) -> Found:
    """An answer is exactly what the person wrote, to the question that they meant, and in time."""
    for shown, question, view in _ended_questions(scene):
        decision, key = view["decision"], shown.key(question)
        if decision["outcome"] != "selected":
            continue
        said = shown.events.get(decision["event_id"])
        if said is None:
            yield name(key), f"was decided by {decision['event_id']}, which is not in its room"
        elif said.reading.bare:
            yield from (
                (name(key), why) for why in _not_plainly_meant(scene, shown, question, said, decision["option_id"])
            )
        elif said.reading.question != question or said.reading.option != decision["option_id"]:
            yield name(key), f"was decided as {decision['option_id']}; {said.event_id} does not say that"
        elif (said.reading.comment or None) != decision["comment"]:
            yield name(key), "the reason is not what the person wrote"
        if ms(decision["answered_at"]) >= ms(view["expires_at"]) or (said and said.place < question.place):
            yield name(key), "was decided outside its time"


def ended_for_no_reason(scene: Scene) -> Found:
    """Nothing expires early, and nothing is cancelled or replaced but by its harness."""
    for key, view in scene.views.items():
        decision = view["decision"]
        outcome = None if decision is None else decision["outcome"]
        did = {(line["did"], line.get("version")) for line in scene.log[key[0], key[1]]}
        if outcome == "expired" and ms(decision["answered_at"]) < ms(view["expires_at"]):
            yield name(key), "expired before its time"
        elif outcome == "cancelled" and ("cancels", None) not in did:
            yield name(key), "was cancelled by nobody"
        elif outcome == "superseded" and ("asks", key[2] + 1) not in did:
            yield name(key), "was replaced by nothing"
        elif outcome in ("answered_elsewhere", "undeliverable"):
            yield name(key), f"is {outcome}, which nothing here makes it"


def disagreeing(scene: Scene) -> Found:
    """Harness, list, audit and room say the same of every end."""
    for key, _, view in scene.told():
        if view["decision"] is not None and key in scene.views and view["decision"] != scene.views[key]["decision"]:
            yield name(key), "its harness was told another end than the daemon lists"
    for key, view in scene.views.items():
        decision = view["decision"]
        if decision is None:
            continue
        wanted_line = tuple(decision.get(each) for each in ("outcome", "answered_by", "event_id", "option_id"))
        ends = [line for line in scene.audited[key] if line.what in ENDS]
        if [(line.what, line.sender, line.event_id, line.option_id) for line in ends[:1]] != [wanted_line]:
            yield name(key), "the audit has another end than the daemon lists"
    for shown, question, view in _ended_questions(scene):
        decision, key = view["decision"], shown.key(question)
        wanted = {"outcome": decision["outcome"]}
        for mine, theirs in (
            ("option_id", "option_id"),
            ("meaning", "meaning"),
            ("scope", "scope"),
            ("decided_by", "answered_by"),
        ):
            wanted |= {mine: decision[theirs]} if theirs in decision else {}
        for end in shown.ends[question.event_id]:
            receipt = _receipt(end.content)
            if {mine: receipt.get(mine) for mine in wanted} != wanted or receipt.keys() - wanted.keys() - PLAIN:
                yield name(key), "its room shows another end than the daemon lists"
            if end.content["subject"]["digest"] != view["subject"]["digest"]:
                yield name(key), "its room shows the end of something else"


def said_to_be_allowed(scene: Scene) -> Found:
    """No sentence of the bot says that something was allowed which was not."""
    for shown in scene.rooms:
        for event in shown.by_bot:
            content = event["content"]
            body = content.get("m.new_content", content).get("body", "")
            if body.startswith(("Allowed", "Approved")) and content.get("meaning") != "approve":
                yield event["event_id"], f"says in {shown.room.route} that something was allowed"


# unauthorised


def by_no_approver(scene: Scene) -> Found:
    """Whoever decided is an approver of that room, and wrote the event that decided."""
    for key, view in _every_view(scene):
        decision = view["decision"]
        if decision is None or decision["outcome"] != "selected":
            continue
        shown = scene.room_of(view["route"])
        said = None if shown is None else shown.events.get(decision.get("event_id", ""))
        if shown is None or decision.get("answered_by") not in shown.room.approvers:
            yield name(key), f"was decided by {decision.get('answered_by')}"
        elif said is None or said.sender != decision["answered_by"]:
            yield name(key), f"was decided in the name of {decision['answered_by']}"
    approvers = {shown.room.client: set[str]() for shown in scene.rooms}
    for shown in scene.rooms:
        approvers[shown.room.client] |= set(shown.room.approvers)
    for key, lines in scene.audited.items():
        for line in lines:
            if line.what == "selected" and line.sender not in approvers.get(key[0], set()):
                yield name(key), f"was decided by {line.sender}, says the audit"


def allowed_by_nobody(scene: Scene) -> Found:
    """Nothing is allowed, to a harness or in a room, without an approver's event that allows it."""
    for key, view in _every_view(scene):
        decision = view["decision"]
        if decision is None or decision.get("meaning") != "approve":
            continue
        shown = scene.room_of(view["route"])
        said = None if shown is None else shown.events.get(decision.get("event_id", ""))
        if shown is None or said is None or said.sender not in shown.room.approvers:
            yield name(key), "was allowed to its harness by nobody"
    for shown in scene.rooms:
        for question in shown.questions:
            for end in shown.ends[question.event_id]:
                if (
                    end.content.get("meaning") == "approve"
                    and end.content.get("decided_by") not in shown.room.approvers
                ):
                    yield name(shown.key(question)), "was allowed in the room by nobody"


CHECKS: dict[str, tuple[Callable[[Scene], Found], ...]] = {
    "lost": (no_end_told, forgotten, left_open, never_asked_in_the_room, answer_passed_over, unheard),
    "doubled": (asked_twice, ended_twice, noticed_twice),
    "wrong": (not_what_was_asked, not_what_was_said, ended_for_no_reason, disagreeing, said_to_be_allowed),
    "unauthorised": (by_no_approver, allowed_by_nobody),
}
PLAIN = {"outcome", "subject"}


def digest(body: dict[str, Any], subject: dict[str, Any]) -> str:
    """The subject's digest, from the specification: SHA-256 over the canonical JSON of what was asked.

    What a run asks is ASCII without numbers that RFC 8785 would write otherwise than `json` does.
    """
    options = [
        {
            "id": option["id"],
            "label": option["label"],
            "meaning": _meaning(option),
            "scope": option["kind"].split("_")[1],
        }
        for option in body["options"]
    ]
    content = {
        "schema": "harness-permission/v1",
        "id": body["request_id"],
        "revision": subject["revision"],
        "session_id": body["session_id"],
        "title": body["title"],
        "tool_kind": body["tool_kind"],
        "options": options,
        "preview": body["preview"],
        "salt": subject["salt"],
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _meaning(option: dict[str, Any]) -> str:
    return "approve" if option["kind"].startswith("allow") else "reject"


def _receipt(content: dict[str, Any]) -> dict[str, Any]:
    names = ("outcome", "option_id", "meaning", "scope", "decided_by", "decided_at")
    return {each: content[each] for each in names if each in content and each != "decided_at"}


def _ended_questions(scene: Scene) -> Iterator[tuple[Shown, Question, View]]:
    for shown in scene.rooms:
        for key, question in shown.by_key.items():
            view = scene.views.get(key)
            if view is not None and view["decision"] is not None:
                yield shown, question, view


def _every_view(scene: Scene) -> Iterator[tuple[Key, View]]:
    yield from scene.views.items()
    for key, _, view in scene.told():
        yield key, view


def _not_plainly_meant(scene: Scene, shown: Shown, question: Question, said: Said, option_id: str) -> Iterator[str]:
    """Why a bare answer cannot have decided this question: no other may have been open then, or just before."""
    text = said.event["content"]["body"].strip()
    if text not in {str(n) for n, option in enumerate(question.options, 1) if option[0] == option_id}:
        yield f"was decided as {option_id}; {said.event_id} does not say that"
    if said.ts < question.ts:
        yield f"was decided by {said.event_id}, which is older than it"
    for other in shown.questions:
        if other == question or other.place > said.place:
            continue
        # The room shows it as open until its edit, or until the time that it names.
        edits = [end.ts for end in shown.ends[other.event_id] if end.place < said.place]
        quiet = said.ts - min([*edits, ms(other.expires_at)]) > QUIET_MS
        own = _own_answer(scene, shown, other, said)
        if not quiet and (own is None or said.ts - max(own.ts, question.ts) < OWN_QUIET_MS):
            yield f"was decided by the bare {said.event_id}, which may have been for {other.event_id}"


def _own_answer(scene: Scene, shown: Shown, other: Question, said: Said) -> Said | None:
    """The earlier answer by which the same person closed another question: they know that it is closed."""
    view = scene.views.get(shown.key(other))
    decision = None if view is None else view["decision"]
    answer = None if decision is None else shown.events.get(decision.get("event_id", ""))
    return answer if answer is not None and answer.sender == said.sender and answer.place < said.place else None
