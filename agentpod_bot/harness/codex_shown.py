"""What the room is shown of a message of Codex: its members under plain names, and whatever else it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentpod_bot.harness import tool_input

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import Json

READ_AS = "Codex reads it as"


def members(said: Json) -> tuple[Preview, ...]:
    """Show the members that hold something, under the names that they have here."""
    return tool_input.fields_of({name: value for name, value in said.items() if not _is_nothing(value)})


def unknown(params: Json, known: AbstractSet[str]) -> tuple[Preview, ...]:
    """Show what a message holds besides: a member that nobody knows yet may change what is allowed."""
    return members({name: value for name, value in params.items() if name not in known})


def actions(value: Any) -> Any:
    """What Codex says that a command does, where it says more than the command itself."""
    if not isinstance(value, list):
        return value
    return [each for each in value if not (isinstance(each, dict) and each.get("type") == "unknown")]


def _is_nothing(value: Any) -> bool:
    return value is None or (isinstance(value, str | list | dict) and not value)
