from __future__ import annotations

from typing import Any

from agentpod_bot.demo.person import shown


def message(event_id: str, body: str, *, sender: str = "@pod:x", **content: Any) -> dict[str, Any]:
    return {
        "type": "m.room.message",
        "event_id": event_id,
        "sender": sender,
        "content": {"msgtype": "m.text", "body": body, **content},
    }


def edit(event_id: str, target: str, body: str, *, sender: str = "@pod:x") -> dict[str, Any]:
    relation = {"rel_type": "m.replace", "event_id": target}
    return message(event_id, f"* {body}", sender=sender, **{"m.new_content": {"body": body}, "m.relates_to": relation})


def reaction(target: str, key: str) -> dict[str, Any]:
    relation = {"rel_type": "m.annotation", "event_id": target, "key": key}
    return {"type": "m.reaction", "event_id": "$r", "sender": "@a:x", "content": {"m.relates_to": relation}}


def test_the_newest_edit_is_what_is_shown() -> None:
    [only] = shown([message("$1", "a"), edit("$2", "$1", "b"), edit("$3", "$1", "c")])
    assert (only.event_id, only.body, only.edited) == ("$1", "c", True)


def test_an_edit_by_another_sender_is_not_shown() -> None:
    assert [m.body for m in shown([message("$1", "a"), edit("$2", "$1", "b", sender="@mallory:x")])] == ["a"]


def test_reactions_stand_with_their_message() -> None:
    first, second = shown([message("$1", "a"), message("$2", "b"), reaction("$1", "1️⃣"), reaction("$1", "2️⃣")])
    assert (first.reactions, second.reactions) == (("1️⃣", "2️⃣"), ())


def test_a_redacted_message_and_state_are_not_shown() -> None:
    redacted = {"type": "m.room.message", "event_id": "$1", "sender": "@a:x", "content": {}}
    joined = {"type": "m.room.member", "event_id": "$2", "sender": "@a:x", "content": {"membership": "join"}}
    assert shown([redacted, joined]) == []
