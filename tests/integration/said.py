"""What stands in a room, picked out of its events as they came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.demo.person import Person

Event = dict[str, Any]

QUESTION = "dev.agentpod.permission.v2"
OUTCOME = "dev.agentpod.permission.outcome.v2"
UNREADABLE = "could not be decrypted"
"""In the notice about a message for which the bot has no key."""


def questions(events: Iterable[Event]) -> list[Event]:
    """The questions among them."""
    return [event for event in events if event["content"].get("suite_event_type") == QUESTION]


def outcomes(events: Iterable[Event], question_id: str) -> list[Event]:
    """The edits that close one question."""
    return [event for event in events if closes(event, question_id)]


def notices(events: Iterable[Event]) -> list[str]:
    """Bodies of the notices."""
    return [event["content"]["body"] for event in events if event["content"].get("msgtype") == "m.notice"]


def keys(events: Iterable[Event], sender: str, question_id: str) -> list[str]:
    """The keys with which `sender` reacted to one question."""
    relations = [
        event["content"].get("m.relates_to", {})
        for event in events
        if event["type"] == "m.reaction" and event["sender"] == sender
    ]
    return [relation["key"] for relation in relations if relation.get("event_id") == question_id]


def is_outcome(event: Event) -> bool:
    """Whether an event is the outcome of some question."""
    return bool(event["content"].get("suite_event_type") == OUTCOME)


def closes(event: Event, question_id: str) -> bool:
    """Whether an event is an outcome of that question."""
    relation = event["content"].get("m.relates_to", {})
    return is_outcome(event) and bool(relation == {"rel_type": "m.replace", "event_id": question_id})


async def question(reader: Person, room_id: str, request_id: str) -> Event:
    """The question of a request, once it is in the room."""
    return await reader.until(
        room_id,
        lambda event: (
            event["content"].get("suite_event_type") == QUESTION and event["content"]["request_id"] == request_id
        ),
    )


async def outcome(reader: Person, room_id: str, question_id: str) -> Event:
    """The edit that closes a question, once it is in the room."""
    return await reader.until(room_id, lambda event: closes(event, question_id))


async def notice(reader: Person, room_id: str, part: str = "") -> Event:
    """The first notice that holds `part`, once it is in the room."""
    return await reader.until(
        room_id,
        lambda event: event["content"].get("msgtype") == "m.notice" and part in event["content"]["body"],
    )


async def reaction(reader: Person, room_id: str, key: str) -> Event:
    """The first reaction with this key, once it is in the room."""
    return await reader.until(room_id, lambda event: event["content"].get("m.relates_to", {}).get("key") == key)
