"""What a tool is called with, as a preview: every value is shown, as it is, and nothing is explained away."""

from __future__ import annotations

import json
import re
from typing import Any

from agentpod_bot.core.model import FieldPreview, Preview, TextPreview

SHORT = 200
"""Characters of a text that still is a one-line value."""
MOST_PARTS = 100
"""Members shown apart; of an input with more, all is shown as one JSON text."""
COMMAND = "command"
COMMAND_LABEL = "Command"
SHELL = "bash"
WHOLE_LABEL = "Input"

# How every JSON value begins that is no text.
_LIKE_JSON = re.compile(r"true|false|null|[-\[{\"0-9]")


def preview_of(tool_input: Any) -> tuple[Preview, ...]:
    """Show a JSON value: an object member by member, in its order, anything else as one text.

    No member can pass for a line of ours: those begin with a capital letter, and the name
    of a member that does has "Input" before it. A short text that would read as another
    JSON value stands in quotation marks.
    """
    if tool_input is None or tool_input == {}:
        return ()
    if not isinstance(tool_input, dict) or len(tool_input) > MOST_PARTS:
        return (TextPreview(WHOLE_LABEL, as_text(tool_input), None if isinstance(tool_input, str) else "json"),)
    return tuple(
        _member(_name_of(str(name)), value if name == COMMAND else _unmistakable(value))
        for name, value in tool_input.items()
    )


def fields_of(said: dict[str, Any]) -> tuple[Preview, ...]:
    """Show values under labels of ours."""
    return tuple(_member(label, value) for label, value in said.items())


def as_text(value: Any) -> str:
    """A text as it is, anything else as indented JSON."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


def as_line(value: Any) -> str:
    """A text as it is, anything else as JSON in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def headline(tool_input: Any) -> str:
    """What a title says of an input: the command, path, address or query in it, or nothing."""
    if not isinstance(tool_input, dict):
        return ""
    for name in (COMMAND, "file_path", "path", "notebook_path", "url", "query", "pattern"):
        match tool_input.get(name):
            case str() as text if text.strip():
                return text
            case [*words] if words and all(isinstance(word, str) for word in words):
                return " ".join(words)
            case _:
                pass
    return ""


def _name_of(member: str) -> str:
    return f"{WHOLE_LABEL} {member}" if member[:1] != member[:1].lower() else member


def _unmistakable(value: Any) -> Any:
    if not isinstance(value, str) or len(value) > SHORT or _LIKE_JSON.match(value) is None:
        return value
    try:
        json.loads(value)
    except ValueError:
        return value
    return json.dumps(value, ensure_ascii=False)


def _member(name: str, value: Any) -> Preview:
    if name == COMMAND and isinstance(value, str):
        return TextPreview(COMMAND_LABEL, value, SHELL)
    match value:
        case str() if len(value) <= SHORT and "\n" not in value and "\r" not in value:
            return FieldPreview(name, value)
        case str():
            return TextPreview(name, value)
        case dict() | list():
            text = json.dumps(value, ensure_ascii=False)
            return FieldPreview(name, text) if len(text) <= SHORT else TextPreview(name, as_text(value), "json")
        case _:
            return FieldPreview(name, json.dumps(value, ensure_ascii=False))
