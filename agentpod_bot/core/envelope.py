"""The machine-readable parts of what the bot says and reads in a room, as strict models.

Shapes: `dev.agentpod.permission.v2` (question), `dev.agentpod.permission` (older card),
`dev.agentpod.permission.outcome.v2` (receipt), `dev.agentpod.permission.answer.v2`
(answer). Types are never converted; properties that are not named here are ignored.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic.json_schema import DEFAULT_REF_TEMPLATE, GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

QUESTION_TYPE = "dev.agentpod.permission.v2"
CARD_KEY = "dev.agentpod.permission"
RECEIPT_TYPE = "dev.agentpod.permission.outcome.v2"
SCHEMA_VERSION = 1
MAX_INTEGER = 2**53 - 1
"""Largest integer that homeservers take."""
CARD_OPTIONS = 4
_INSTANT = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$"


def _not_null(value: object) -> object:
    if value is None:
        raise PydanticCustomError("null", "may be left out, but not be null")
    return value


def _real_instant(value: str) -> str:
    try:
        datetime.fromisoformat(value)
    except ValueError:
        raise PydanticCustomError("instant", "is no date and time that exists") from None
    return value


NotNull = BeforeValidator(_not_null)
NonEmpty = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Instant = Annotated[
    str, Field(pattern=_INSTANT, json_schema_extra={"format": "date-time"}), AfterValidator(_real_instant)
]
"""An RFC 3339 date-time with seconds and offset, in capital letters."""


class _WithoutNull(GenerateJsonSchema):
    """Writes what may be left out as that, for `NotNull` refuses a null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])


class Shape(BaseModel):
    """Base of all: strict types, unknown properties ignored, and what may be left out is never null."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    @classmethod
    def model_json_schema(
        cls,
        by_alias: bool | None = True,  # noqa: FBT001, FBT002 -- pydantic's signature
        ref_template: str = DEFAULT_REF_TEMPLATE,
        schema_generator: type[GenerateJsonSchema] = _WithoutNull,
        mode: JsonSchemaMode = "validation",
        **options: Any,
    ) -> dict[str, Any]:
        """Return the shape as JSON Schema (draft 2020-12)."""
        return super().model_json_schema(by_alias, ref_template, schema_generator, mode, **options)


class EnvelopeOption(Shape):
    """One option as offered; `label` is the printed one."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    label: Annotated[str, Field(max_length=200)]
    meaning: Literal["approve", "reject", "choose"]
    scope: Annotated[Literal["once", "always"] | None, NotNull] = None


class EnvelopeField(Shape):
    """A labelled one-line value."""

    type: Literal["field"]
    label: str
    value: str


class EnvelopeText(Shape):
    """A labelled text."""

    type: Literal["text"]
    label: str
    text: str


class Subject(Shape):
    """What exactly is asked, until when, and how much of it is shown."""

    id: NonEmpty
    digest: NonEmpty
    schema_: Annotated[Literal["harness-permission/v1"], Field(alias="schema")]
    revision: Count
    expires_at: Instant
    preview: list[Annotated[EnvelopeField | EnvelopeText, Field(discriminator="type")]]
    preview_complete: bool


class CardOption(Shape):
    """One button of a card."""

    option_id: str
    name: str


class Card(Shape):
    """The older card; what it draws of the question is all that its readers see."""

    schema_version: Literal[1]
    session_id: str
    request_seq: Count
    title: str
    options: Annotated[list[CardOption], Field(min_length=1, max_length=CARD_OPTIONS)]


def _unique_ids(options: list[EnvelopeOption]) -> list[EnvelopeOption]:
    seen: set[str] = set()
    twice: list[InitErrorDetails] = []
    for index, option in enumerate(options):
        if option.id in seen:
            fault = PydanticCustomError("unique", "two options have this id")
            twice.append(InitErrorDetails(type=fault, loc=(index, "id"), input=option.id))
        seen.add(option.id)
    if twice:
        raise ValidationError.from_exception_data("options", twice)
    return options


class Envelope(Shape):
    """The question: the top level of its event's content."""

    model_config = ConfigDict(title=QUESTION_TYPE, json_schema_extra={"x-uniqueBy": ["options[].id"]})

    msgtype: Annotated[Literal["m.text"] | None, NotNull] = None
    body: Annotated[str | None, NotNull] = None
    suite_event_type: Literal["dev.agentpod.permission.v2"]
    schema_version: Annotated[int, Field(ge=1)]
    request_id: NonEmpty
    session_id: NonEmpty
    request_seq: Count
    title: str
    tool_kind: Annotated[NonEmpty | None, NotNull] = None
    options: Annotated[
        list[EnvelopeOption],
        Field(min_length=1, max_length=20),
        AfterValidator(_unique_ids),
    ]
    subject: Subject
    code: Annotated[str | None, NotNull] = None
    """The question's code in its room, so that other accounts there do not give it out too."""
    card: Annotated[Card | None, NotNull, Field(alias=CARD_KEY)] = None


class ReceiptSubject(Shape):
    """Which question ended."""

    id: NonEmpty
    digest: NonEmpty
    revision: Count


class Receipt(Shape):
    """How a question ended: the top level of the edit that closes it."""

    model_config = ConfigDict(title=RECEIPT_TYPE)

    suite_event_type: Literal["dev.agentpod.permission.outcome.v2"]
    schema_version: Literal[1]
    request_id: NonEmpty
    session_id: NonEmpty
    request_seq: Count
    outcome: Literal["selected", "expired", "cancelled", "superseded", "answered_elsewhere", "undeliverable"]
    option_id: Annotated[NonEmpty | None, NotNull] = None
    meaning: Annotated[Literal["approve", "reject", "choose"] | None, NotNull] = None
    scope: Annotated[Literal["once", "always"] | None, NotNull] = None
    decided_by: Annotated[NonEmpty | None, NotNull] = None
    decided_at: Instant
    subject: ReceiptSubject

    @model_validator(mode="after")
    def _only_a_selection_names_an_option(self) -> Self:
        named = (self.option_id, self.meaning, self.decided_by)
        if self.outcome == "selected" and None in named:
            raise PydanticCustomError("selection", "a selection names its option, its meaning and its person")
        if self.outcome != "selected" and any(field is not None for field in (*named, self.scope)):
            raise PydanticCustomError("selection", "only a selection names an option or a person")
        return self


class AnswerSubject(Shape):
    """What the answer says it was given to; each field that is present must agree."""

    digest: Annotated[str | None, NotNull] = None
    revision: Annotated[Count | None, NotNull] = None


class Answer(Shape):
    """A structured answer: the content of an `m.room.message`."""

    model_config = ConfigDict(title="dev.agentpod.permission.answer.v2")

    suite_event_type: Literal[
        "dev.agentpod.permission.answer.v2",
        "dev.agentpod.permission.answer.v1",
        "dev.agentpod.permission.decision.v2",
        "dev.agentpod.permission.decision.v1",
    ]
    schema_version: Literal[1]
    request_id: NonEmpty
    option_id: NonEmpty
    subject: Annotated[AnswerSubject | None, NotNull] = None
    comment: Annotated[str | None, NotNull] = None
    relates_to: Annotated[dict[str, Any] | None, NotNull, Field(alias="m.relates_to")] = None
    msgtype: Annotated[Literal["m.text"] | None, NotNull] = None
    body: Annotated[str | None, NotNull] = None
