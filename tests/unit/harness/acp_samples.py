"""Ways in which a call ends, the golden files of harnesses, and ACP's own schemas where they lie beside the project."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import BOTS_OWN_REJECT, DiffPreview, FieldPreview, Meaning, Option, Outcome, Scope
from agentpod_bot.harness.adapter import Ask, End, Manner, WhenUnanswered
from agentpod_bot.harness.reasons import unasked
from tests.examples import OWNER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentpod_bot.core.model import PermissionRequest, Preview
    from agentpod_bot.harness.adapter import Harness

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "harness"
SHARED = Path(__file__).resolve().parents[4] / "shared"
SCHEMAS = SHARED / "spec" / "harness" / "schemas" / "acp"
CAPTURES = SHARED / "tools" / "captures"
DENY = Manner()
MANNERS = (DENY, Manner(when_unanswered=WhenUnanswered.TERMINAL))
BOTS_NO = Option(BOTS_OWN_REJECT, "Reject", Meaning.REJECT, Scope.ONCE)
UNDECIDED = (
    *(End(outcome, "Nothing was allowed.") for outcome in Outcome if outcome is not Outcome.SELECTED),
    unasked("Matrix is not there", unavailable=True),
    unasked("the body is too large"),
)


@dataclass(frozen=True, slots=True)
class Golden:
    """One call, what a room is asked, and what the harness is told for each end."""

    name: str
    call: Any
    shown: dict[str, Any]
    answers: dict[str, Any]

    @property
    def body(self) -> bytes:
        """The call as it is posted."""
        return json.dumps(self.call).encode()


def goldens(harness: str) -> list[Golden]:
    """The golden files of one harness."""
    files = sorted((GOLDEN / harness).glob("*.json"))
    return [Golden(file.stem, **json.loads(file.read_text(encoding="utf-8"))) for file in files]


def asked(harness: Harness, body: bytes) -> PermissionRequest:
    """The question of a call that asks one."""
    call = harness.parse(body, DENY)
    assert isinstance(call, Ask)
    assert call.request.raw == body
    return call.request


def selected(option: Option, comment: str | None = None) -> End:
    """A person's decision for this option."""
    told = "refused" if option.meaning is Meaning.REJECT else "took"
    said = f": {comment}" if comment else "."
    return End(Outcome.SELECTED, f"{OWNER} {told} this in Matrix{said}", option, OWNER, comment)


def endings(request: PermissionRequest) -> Iterator[tuple[str, End]]:
    """Every way in which a question can end, by the key that it has in a golden file."""
    for offered in offer(request.options, withhold=Withhold.NOTHING):
        yield offered.option.option_id, selected(offered.option)
        if offered.option.meaning is Meaning.REJECT:
            yield f"{offered.option.option_id} with a reason", selected(offered.option, "too early")
    for outcome in Outcome:
        if outcome is not Outcome.SELECTED:
            yield outcome.value, End(outcome, "Nothing was allowed.")


def shown(request: PermissionRequest) -> dict[str, Any]:
    """What a room is asked, as a golden file says it; options with their names as they are printed."""
    return {
        "title": request.title,
        "tool_kind": request.tool_kind,
        "session_id": request.session_id,
        "options": [
            f"{each.option.option_id}: {each.printed}" for each in offer(request.options, withhold=Withhold.NOTHING)
        ],
        "preview": [_part(part) for part in request.preview],
        "preview_complete": request.preview_complete,
    }


def answered(harness: Harness, body: bytes) -> dict[str, Any]:
    """What the harness is told for each end."""
    return {name: harness.answer(body, body, end, DENY) for name, end in endings(asked(harness, body))}


def foreign(option: Option) -> Option:
    """The option under an id that no harness has."""
    return Option(OptionId("nobody:has:this"), option.label, option.meaning, option.scope)


@cache
def validator(version: str, name: str) -> Any:
    """A validator for one definition of ACP's schema."""
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415 - it is only needed where the schemas are

    schema = json.loads((SCHEMAS / f"{version}.schema.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": schema["$defs"]})


def _part(part: Preview) -> list[str | None]:
    match part:
        case FieldPreview(label=label, value=value):
            return [label, value]
        case DiffPreview(path=path, old=old, new=new):
            return [path, old, new]
        case text:
            return [text.label, text.text, text.language]
