"""What a tool is called with, as a preview: every value is shown, as it is, and nothing is explained away."""

from __future__ import annotations

import json
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


def preview_of(tool_input: Any) -> tuple[Preview, ...]:
    """Show a JSON value: an object member by member, in its order, anything else as one text."""
    if tool_input is None or tool_input == {}:
        return ()
    if not isinstance(tool_input, dict) or len(tool_input) > MOST_PARTS:
        return (TextPreview(WHOLE_LABEL, as_text(tool_input), None if isinstance(tool_input, str) else "json"),)
    return tuple(_member(str(name), value) for name, value in tool_input.items())


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
