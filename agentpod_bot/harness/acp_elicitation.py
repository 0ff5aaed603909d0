"""`elicitation/create` of ACP: a form with one choice in it is a question for people; any other is declined at once.

Format: https://agentclientprotocol.com/protocol/elicitation. The choices of a form neither approve nor reject;
the bot's "Decline" beside them rejects. Nobody types into a form from a room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import MAX_OPTIONS
from agentpod_bot.core.model import FieldPreview, TextPreview
from agentpod_bot.harness import naming
from agentpod_bot.harness.acp_options import LEFT_OUT
from agentpod_bot.harness.options import choose, reject_once
from agentpod_bot.harness.strict_json import invalid
from agentpod_bot.harness.tool_input import as_text

if TYPE_CHECKING:
    from agentpod_bot.core.model import Option, Preview
    from agentpod_bot.harness.adapter import End, Json
    from agentpod_bot.harness.strict_json import Loc

METHOD = "elicitation/create"
FORM = "form"
DECLINE = reject_once("Decline", option_id=OptionId("decline"))
MOST_CHOICES = MAX_OPTIONS - 1
EMPTY = "(an empty text)"
UNDESCRIBED = "A choice that the agent did not describe"


@dataclass(frozen=True, slots=True)
class Choice:
    """One value that the form takes."""

    value: str | bool
    label: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of one property with a few values."""

    session: str | None
    tool_call_id: str | None
    title: str
    preview: tuple[Preview, ...]
    name: str
    """Of the property."""
    choices: tuple[Choice, ...]

    @property
    def options(self) -> tuple[Option, ...]:
        """What a room is offered: the form's choices, and last to decline."""
        return (
            *(choose(naming.label_of(each.label), option_id=_id(index)) for index, each in enumerate(self.choices)),
            DECLINE,
        )


@dataclass(frozen=True, slots=True)
class Unaskable:
    """A form that cannot be filled in from a room."""

    why: str


def read(params: Json, at: Loc) -> Form | Unaskable:
    """Read the parameters, which stand at `at`. Raises `Invalid` with every required field that is missing."""
    faults: list[tuple[Loc, str]] = []
    mode, message = params.get("mode"), params.get("message")
    if not isinstance(mode, str):
        faults.append(((*at, "mode"), "is required, and must be a text"))
    if not isinstance(message, str):
        faults.append(((*at, "message"), "is required, and must be a text"))
    schema = params.get("requestedSchema")
    if mode == FORM and not isinstance(schema, dict):
        faults.append(((*at, "requestedSchema"), "is required, and must be an object"))
    if faults:
        raise invalid(faults)
    if mode != FORM or not isinstance(schema, dict):
        return Unaskable("an elicitation that is no form")
    return _form(params, str(message), schema)


def result(params: Json, at: Loc, end: End) -> Json:
    """Say how the elicitation ended: what a person chose or declined, else `cancel`. Raises as `read` does."""
    form = read(params, at)
    if end.rejects:
        return declined()
    if isinstance(form, Unaskable) or end.option is None or not end.chooses:
        return cancelled()
    for index, choice in enumerate(form.choices):
        if end.option.option_id == _id(index):
            return {"action": "accept", "content": {form.name: choice.value}}
    return cancelled()


def declined() -> Json:
    """Say that there will be no answer to this."""
    return {"action": "decline"}


def cancelled() -> Json:
    """Say that nobody answered."""
    return {"action": "cancel"}


def _form(params: Json, message: str, schema: Json) -> Form | Unaskable:
    properties = schema.get("properties")
    if not isinstance(properties, dict) or len(properties) != 1:
        return Unaskable("a form that has not exactly one field")
    ((name, field),) = properties.items()
    required = schema.get("required") or []
    if not isinstance(required, list) or any(other != name for other in required):
        return Unaskable("a form that requires a field which it does not have")
    choices = _choices(field) if isinstance(field, dict) else None
    if not choices:
        return Unaskable("a form whose field is no single choice")
    offered = choices[:MOST_CHOICES]
    session = params.get("sessionId")
    title = naming.title_of(next((line for line in message.splitlines() if line.strip()), UNDESCRIBED))
    preview: list[Preview] = [] if title == message else [TextPreview("Message", message)]
    preview += [
        FieldPreview(label, text)
        for source in (schema, field)
        for label, key in (("Form" if source is schema else "Field", "title"), ("Description", "description"))
        if (text := naming.text_of(source.get(key)))
    ]
    preview.append(FieldPreview("Field name", name))
    if isinstance(field.get("default"), str | bool):
        preview.append(FieldPreview("Default", as_text(field["default"])))
    preview += [part for number, each in enumerate(offered, 1) for part in _said(number, each)]
    if len(choices) > len(offered):
        preview.append(FieldPreview(LEFT_OUT, str(len(choices) - len(offered))))
    return Form(
        session=session if isinstance(session, str) else None,
        tool_call_id=naming.text_of(params.get("toolCallId")) or None,
        title=title,
        preview=tuple(preview),
        name=name,
        choices=offered,
    )


def _choices(field: Json) -> tuple[Choice, ...] | None:
    """Return the values of a field of one choice; None for any other field."""
    match field:
        case {"type": "boolean"}:
            return Choice(value=True, label="Yes"), Choice(value=False, label="No")
        case {"type": "string", "enum": list() as values, "oneOf": list()} if values:
            return None  # two lists, of which nobody can say which one holds
        case {"type": "string", "enum": list() as values} if values:
            found = [Choice(value, value or EMPTY) for value in values if isinstance(value, str)]
            return _once(found) if len(found) == len(values) else None
        case {"type": "string", "oneOf": list() as values}:
            titled = [_titled(value) for value in values]
            known = [choice for choice in titled if choice is not None]
            return _once(known) if len(known) == len(titled) else None
        case _:
            return None


def _titled(value: Any) -> Choice | None:
    match value:
        case {"const": str() as const, "title": str() as title}:
            return Choice(const, title if title.strip() else const or EMPTY, naming.text_of(value.get("description")))
        case _:
            return None


def _once(choices: list[Choice]) -> tuple[Choice, ...]:
    """Drop a value that stands there twice."""
    first: dict[str | bool, Choice] = {}
    for choice in choices:
        first.setdefault(choice.value, choice)
    return tuple(first.values())


def _said(number: int, choice: Choice) -> list[Preview]:
    """Say of a choice what its label does not: all of it, what is sent, what it means."""
    parts: list[Preview] = []
    if naming.label_of(choice.label) != choice.label:
        parts.append(FieldPreview(f"Choice {number}", choice.label))
    if isinstance(choice.value, str) and choice.value not in ("", choice.label):
        parts.append(FieldPreview(f"Choice {number} sends", choice.value))
    if choice.description:
        parts.append(FieldPreview(f"Choice {number} means", choice.description))
    return parts


def _id(index: int) -> OptionId:
    return OptionId(f"choice:{index}")
