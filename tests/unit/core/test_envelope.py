from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonpatch
import pytest
from pydantic import BaseModel, ValidationError

from agentpod_bot.core.envelope import Answer, Envelope, Receipt

SPEC = Path(__file__).resolve().parents[4] / "shared" / "spec"
QUESTION: dict[str, Any] = {
    "msgtype": "m.text",
    "body": "Permission needed: Build",
    "suite_event_type": "dev.agentpod.permission.v2",
    "schema_version": 1,
    "request_id": "s:1",
    "session_id": "s",
    "request_seq": 1,
    "title": "Build",
    "tool_kind": "execute",
    "options": [
        {"id": "a", "label": "Allow once", "meaning": "approve", "scope": "once"},
        {"id": "b", "label": "Other", "meaning": "choose"},
    ],
    "subject": {
        "id": "s:1",
        "digest": "ab",
        "schema": "harness-permission/v1",
        "revision": 1,
        "expires_at": "2030-01-01T09:30:00.000Z",
        "preview": [
            {"type": "text", "label": "Command", "text": "make"},
            {"type": "field", "label": "Where", "value": "."},
        ],
        "preview_complete": True,
    },
    "dev.agentpod.permission": {
        "schema_version": 1,
        "session_id": "s",
        "request_seq": 1,
        "title": "Build",
        "options": [{"option_id": "a", "name": "Allow once"}],
    },
}
RECEIPT: dict[str, Any] = {
    "suite_event_type": "dev.agentpod.permission.outcome.v2",
    "schema_version": 1,
    "request_id": "s:1",
    "session_id": "s",
    "request_seq": 1,
    "outcome": "selected",
    "option_id": "a",
    "meaning": "approve",
    "scope": "once",
    "decided_by": "@owner:example.org",
    "decided_at": "2030-01-01T09:12:00.000Z",
    "subject": {"id": "s:1", "digest": "ab", "revision": 1},
}
ANSWER: dict[str, Any] = {
    "suite_event_type": "dev.agentpod.permission.answer.v2",
    "schema_version": 1,
    "request_id": "s:1",
    "option_id": "a",
    "subject": {"digest": "ab", "revision": 1},
    "m.relates_to": {"rel_type": "m.reference", "event_id": "$question"},
}


def changed(content: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return a copy with one place, named by a JSON pointer, set (or removed: `...`)."""
    copied = copy.deepcopy(content)
    *way, last = (int(key) if key.isdigit() else key for key in path.split("/"))
    place: Any = copied
    for key in way:
        place = place[key]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return copied


def faults(model: type[BaseModel], content: dict[str, Any]) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(content)
    return ["/".join(map(str, error["loc"])) for error in refused.value.errors()]


def test_a_question_with_its_card_is_accepted() -> None:
    Envelope.model_validate(QUESTION)


@pytest.mark.parametrize(
    "path", ["msgtype", "body", "tool_kind", "dev.agentpod.permission", "options/0/scope", "subject/preview/0"]
)
def test_what_may_be_left_out_may_be_left_out(path: str) -> None:
    Envelope.model_validate(changed(QUESTION, path, ...))


@pytest.mark.parametrize("path", ["x", "options/0/x", "subject/x", "subject/preview/0/x", "dev.agentpod.permission/x"])
def test_unknown_properties_are_ignored_everywhere(path: str) -> None:
    Envelope.model_validate(changed(QUESTION, path, {"any": 1}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("suite_event_type", "dev.agentpod.permission.v1"),
        ("schema_version", 0),
        ("schema_version", "1"),
        ("schema_version", True),
        ("request_id", ...),
        ("request_id", ""),
        ("request_id", 7),
        ("session_id", ...),
        ("request_seq", -1),
        ("request_seq", 2**53),
        ("request_seq", 1.5),
        ("title", ...),
        ("title", None),
        ("tool_kind", ""),
        ("tool_kind", None),
        ("msgtype", "m.notice"),
        ("options", []),
        ("options/0/meaning", ...),
        ("options/0/meaning", "allow"),
        ("options/0/scope", "session"),
        ("options/0/scope", None),
        ("options/1/label", "x" * 201),
        ("options/1/id", ""),
        ("options/1/id", "a"),
        ("subject", ...),
        ("subject/schema", "deploy/v1"),
        ("subject/revision", 1.5),
        ("subject/preview_complete", "yes"),
        ("subject/digest", ""),
        ("subject/expires_at", "2030-01-01"),
        ("subject/expires_at", "1 January 2030, 09:30"),
        ("subject/expires_at", "2030-01-01T09:30:00"),
        ("subject/expires_at", "2030-01-01T09:30Z"),
        ("subject/expires_at", "2030-01-01 09:30:00Z"),
        ("subject/expires_at", "2030-01-01T09:30:00+0530"),
        ("subject/expires_at", "2030-01-01t09:30:00z"),
        ("subject/expires_at", "2030-02-30T09:30:00Z"),
        ("subject/expires_at", "2030-01-01T09:30:00Z\n"),
        ("subject/expires_at", "٢٠٣٠-01-01T09:30:00Z"),
        ("subject/expires_at", ""),
        ("subject/expires_at", 1893490200000),
    ],
)
def test_a_question_with_one_fault_is_refused_and_the_fault_named(path: str, value: Any) -> None:
    assert faults(Envelope, changed(QUESTION, path, value)) == [path]


@pytest.mark.parametrize("instant", ["2030-01-01T09:30:00Z", "2030-01-01T09:30:00.123456789+05:30"])
def test_real_instants_are_accepted(instant: str) -> None:
    Envelope.model_validate(changed(QUESTION, "subject/expires_at", instant))


def test_twenty_options_are_accepted_and_one_more_is_refused() -> None:
    options = [{"id": f"o{n}", "label": f"Option {n}", "meaning": "choose"} for n in range(21)]
    Envelope.model_validate(changed(QUESTION, "options", options[:20]))
    assert faults(Envelope, changed(QUESTION, "options", options)) == ["options"]


def test_a_card_of_five_options_is_refused() -> None:
    five = [{"option_id": f"o{n}", "name": "x"} for n in range(5)]
    path = "dev.agentpod.permission/options"
    assert faults(Envelope, changed(QUESTION, path, five)) == [path]


def test_a_preview_that_is_neither_field_nor_text_is_refused() -> None:
    assert faults(Envelope, changed(QUESTION, "subject/preview/0/type", "image")) == ["subject/preview/0"]


def test_a_receipt_of_a_selection_is_accepted() -> None:
    Receipt.model_validate(RECEIPT)


@pytest.mark.parametrize("outcome", ["expired", "cancelled", "superseded", "answered_elsewhere", "undeliverable"])
def test_no_other_outcome_names_an_option_or_a_person(outcome: str) -> None:
    bare = {key: RECEIPT[key] for key in RECEIPT if key not in {"option_id", "meaning", "scope", "decided_by"}}
    Receipt.model_validate(bare | {"outcome": outcome})
    for key in ("option_id", "meaning", "scope", "decided_by"):
        assert faults(Receipt, bare | {"outcome": outcome, key: RECEIPT[key]})


@pytest.mark.parametrize("path", ["option_id", "meaning", "decided_by"])
def test_a_selection_without_option_or_person_is_refused(path: str) -> None:
    assert faults(Receipt, changed(RECEIPT, path, ...))


def test_an_answer_is_accepted_and_one_without_its_option_refused() -> None:
    Answer.model_validate(ANSWER)
    assert faults(Answer, changed(ANSWER, "option_id", ...)) == ["option_id"]
    assert faults(Answer, changed(ANSWER, "subject/revision", "1")) == ["subject/revision"]


@pytest.mark.parametrize("model", [Envelope, Receipt, Answer])
def test_each_shape_has_a_json_schema_with_its_event_type(model: type[BaseModel]) -> None:
    schema = model.model_json_schema()
    assert schema["title"].startswith("dev.agentpod.permission.")
    assert "null" not in json.dumps(schema)


def cases(kind: str) -> list[dict[str, Any]]:
    path = SPEC / "permission.v2.cases.json"
    return list(json.loads(path.read_text())[kind]) if path.exists() else []


@pytest.mark.shared
@pytest.mark.skipif(not SPEC.exists(), reason="the specification's files are not beside the project")
def test_every_valid_case_of_the_specification_is_accepted() -> None:
    assert cases("valid")
    for case in cases("valid"):
        Envelope.model_validate(case["content"])


@pytest.mark.shared
@pytest.mark.skipif(not SPEC.exists(), reason="the specification's files are not beside the project")
@pytest.mark.parametrize("case", cases("refused"), ids=lambda case: case["why"])
def test_every_refused_case_of_the_specification_is_refused_at_its_field(case: dict[str, Any]) -> None:
    content = jsonpatch.apply_patch(cases("valid")[0]["content"], case["patch"])
    assert faults(Envelope, content) == [case["patch"][0]["path"].lstrip("/")]
