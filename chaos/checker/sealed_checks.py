"""What must hold in encrypted rooms besides, one function for each promise. Pure; see `checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chaos.checker.sealed import ENCRYPTED, ENCRYPTION, MESSAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chaos.checker.scene import Said, Scene, Shown

    Found = Iterator[tuple[str, str]]

CLEAR = frozenset({"m.reaction"})
"""What Matrix has in clear text in encrypted rooms."""
OUTSIDE = frozenset({"algorithm", "ciphertext", "session_id", "device_id", "sender_key", "m.relates_to"})
"""What stands outside the ciphertext."""
MOST_NOTICES = 10
"""Notices that a room gets in a minute; who speaks then is told nothing."""
MINUTE_MS = 60_000
LONGEST_WAIT_MS = 60_000
"""So long a notice may wait for the key that is missing: ten seconds, and however long the bot is away."""
UNREADABLE = "undecryptable"
"""The audit's word for what the bot could not read."""


def in_clear(scene: Scene) -> Found:
    """Whatever the bot says in an encrypted room is encrypted, all of it, but for reactions."""
    for shown in scene.rooms:
        began = next((place for place, event in enumerate(shown.room.events) if event["type"] == ENCRYPTION), None)
        if began is None:
            yield shown.room.room_id, "was never encrypted"
            continue
        for event in shown.room.events[began:]:
            if event["sender"] != scene.evidence.bot or "state_key" in event or event["type"] in CLEAR:
                continue
            if event["type"] != ENCRYPTED:
                yield event["event_id"], f"is a {event['type']} in clear in {shown.room.route}"
            elif more := event["content"].keys() - OUTSIDE:
                yield event["event_id"], f"has {sorted(more)} in clear in {shown.room.route}"


def unread_by_people(scene: Scene) -> Found:
    """Everybody in the room can read all that the bot says."""
    by_bot = {event["event_id"]: shown for shown in scene.rooms for event in shown.by_bot}
    for person, events in scene.sealed.unread.items():
        for event_id in events:
            if event_id in by_bot:
                yield event_id, f"cannot be read by {person} in {by_bot[event_id].room.route}"


def unread_by_the_bot(scene: Scene) -> Found:
    """What the bot could not read though it was given the key was said again, and the bot had asked for that."""
    kept_back = {*scene.sealed.keyless, *scene.sealed.late_keys}
    for shown, said in _by_approvers(scene):
        if said.event_id in scene.unread and said.event_id not in kept_back:
            if not _is_told(scene, shown, said):
                yield said.event_id, f"of {said.sender} could not be read, and they were not told"
            elif not _is_heard_after_all(scene, shown, said):
                yield said.event_id, f"of {said.sender} could not be read, and decided nothing later either"


def nobody_told(scene: Scene) -> Found:
    """Whoever answers an open question with a key that nobody has is told so."""
    for shown, said in _by_approvers(scene):
        if said.event_id in scene.unread and not _is_told(scene, shown, said):
            yield said.event_id, f"of {said.sender} could not be read, and they were not told"
        elif said.event_id in scene.sealed.keyless and said.event_id not in scene.heard:
            decided = _decision(scene, shown, said)
            if decided is not None and decided.place > said.place:
                yield said.event_id, f"of {said.sender} was not heard in {shown.room.route}"


def late_key_without_effect(scene: Scene) -> Found:
    """What is readable once its key comes is handled then: it decides, or is refused for a reason."""
    handled = {line.event_id for line in scene.evidence.audit if line.what != UNREADABLE}
    for shown, said in _by_approvers(scene):
        if said.event_id in scene.sealed.late_keys and said.event_id not in handled:
            yield said.event_id, f"of {said.sender} had no effect in {shown.room.route} though its key came"


SEALED_CHECKS: dict[str, tuple[Callable[[Scene], Found], ...]] = {
    "clear": (in_clear,),
    "unreadable": (unread_by_people, unread_by_the_bot, nobody_told, late_key_without_effect),
}


def looked_at(scene: Scene) -> dict[str, int]:
    """What there was of it."""
    events = [event for shown in scene.rooms for event in shown.room.events]
    encrypted = [event for event in events if event["type"] == ENCRYPTED]
    return {
        "encrypted events": len(encrypted),
        "of the bot": sum(event["sender"] == scene.evidence.bot for event in encrypted),
        "in clear": sum(event["type"] == MESSAGE for event in events),
        "without a key": len(scene.sealed.keyless),
        "with a late key": len(scene.sealed.late_keys),
        "not read by the bot at first": len(scene.unread - {*scene.sealed.keyless}),
    }


def _by_approvers(scene: Scene) -> Iterator[tuple[Shown, Said]]:
    for shown in scene.rooms:
        for said in shown.said:
            if said.sender in shown.room.approvers:
                yield shown, said


def _is_told(scene: Scene, shown: Shown, said: Said) -> bool:
    """Whether the bot replied to this or to something else that it could not read of theirs about the same question.

    Nor need it where the room had all the notices that a minute may have, or where the bot
    waited for the key and it came, or heard the same person in another way meanwhile.
    """
    if _is_read_later(scene, said) or _decided_it(scene, shown, said):
        return True
    same = {
        other.event_id
        for other in shown.said
        if other.sender == said.sender
        and other.event_id in scene.unread
        and other.reading.question == said.reading.question
    }
    notices = [event for event in shown.by_bot if event["content"].get("msgtype") == "m.notice"]
    replied = {event["content"].get("m.relates_to", {}).get("m.in_reply_to", {}).get("event_id") for event in notices}
    lately = [event for event in notices if abs(event["origin_server_ts"] - said.ts) < MINUTE_MS]
    return bool(same & replied) or len(lately) >= MOST_NOTICES


def _is_heard_after_all(scene: Scene, shown: Shown, said: Said) -> bool:
    """Whether it was read later, or said again by the same person, or the question ended by other means."""
    if _is_read_later(scene, said):
        return True
    again = [
        other
        for other in shown.said
        if other.sender == said.sender
        and other.place > said.place
        and other.reading.question == said.reading.question
        and other.event_id not in scene.unread
    ]
    return bool(again)


def _is_read_later(scene: Scene, said: Said) -> bool:
    return any(line.event_id == said.event_id and line.what != UNREADABLE for line in scene.evidence.audit)


def _decided_it(scene: Scene, shown: Shown, said: Said) -> bool:
    """Whether who said it decided its question in another way, before the bot could tell them."""
    taken = _decision(scene, shown, said)
    return taken is not None and taken.sender == said.sender and taken.ts - said.ts < LONGEST_WAIT_MS


def _decision(scene: Scene, shown: Shown, said: Said) -> Said | None:
    """The event that decided the question which this names."""
    question = said.reading.question
    view = None if question is None else scene.views.get(shown.key(question))
    decision = None if view is None else view["decision"]
    return None if decision is None else shown.events.get(decision.get("event_id", ""))
