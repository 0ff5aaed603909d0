from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import Ask, End
from tests.unit.harness.acp_samples import Golden, answered, goldens, shown
from tests.unit.harness.codex_calls import (
    CALLS,
    MANNER,
    NON_DECISIONS,
    OF_ITEMS,
    OLDER,
    SECRET,
    URL,
    answer,
    asked,
    changed,
    ended,
    sent,
    settled,
    took,
)

Json = dict[str, Any]
SHARED = Path(__file__).resolve().parents[4] / "shared"
SCHEMAS = SHARED / "spec" / "harness" / "schemas" / "codex"
CAPTURES = SHARED / "tools" / "captures"
HISTORY = SCHEMAS / "review-decision-history"
BY_METHOD = {
    "execCommandApproval": "ExecCommandApproval",
    "applyPatchApproval": "ApplyPatchApproval",
    "item/commandExecution/requestApproval": "CommandExecutionRequestApproval",
    "item/fileChange/requestApproval": "FileChangeRequestApproval",
    "item/permissions/requestApproval": "PermissionsRequestApproval",
    "mcpServer/elicitation/request": "McpServerElicitationRequest",
    "item/tool/requestUserInput": "ToolRequestUserInput",
}
REVIEWED = {"execCommandApproval", "applyPatchApproval", "elicitation/create"}
OLDEST_WITH_STRINGS = "2026-02-23-c3048ff90-ExecCommandApprovalResponse.json"
OLD_WITH_TIME_OUT = "2026-04-10-37aac89a6-ExecCommandApprovalResponse.json"
NEWER = "2026-08-11-67afc7967-ExecCommandApprovalResponse.json"

ALL = pytest.mark.parametrize("golden", goldens("codex"), ids=lambda golden: golden.name)
BESIDE = pytest.mark.skipif(not SCHEMAS.exists(), reason="the specification's files are not beside the project")


@cache
def validator(file: Path) -> Any:
    """A validator for one of Codex's schemas."""
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415 - it is only needed where the schemas are

    return jsonschema.Draft7Validator(json.loads(file.read_text(encoding="utf-8")))


def fits(method: str, result: Json, *, older: bool = False) -> None:
    """Whether Codex can read a result: by every schema that may be in force at its end."""
    if method not in REVIEWED:
        validator(SCHEMAS / "current" / f"{BY_METHOD[method]}Response.json").validate(result)
    elif older:
        validator(HISTORY / OLDEST_WITH_STRINGS).validate(result)
        validator(HISTORY / OLD_WITH_TIME_OUT).validate(result)
    else:
        validator(HISTORY / NEWER).validate(result)
        validator(SCHEMAS / "current" / "ApplyPatchApprovalResponse.json").validate(result)


def fits_as_answer(call: Json, told: Json, *, older: bool = False) -> None:
    """Whether Codex can read what answers a call: a result of its method, or an error, and never both."""
    method = call["method"]
    if "error" in told:
        assert method in OF_ITEMS
        assert told.keys() == {"id", "error"} | ({"jsonrpc"} & call.keys())
        assert told["error"].keys() == {"code", "message"}
        validator(SCHEMAS / "current" / "JSONRPCError.json").validate(told)
    else:
        fits(method, told if call.get("id") is None else told["result"], older=older)


@ALL
def test_a_known_call_is_asked_and_answered_as_its_golden_file_says(golden: Golden) -> None:
    call = codex.parse(golden.body, MANNER)
    assert isinstance(call, Ask)
    assert shown(call.request) == golden.shown
    assert answered(codex, golden.body) == golden.answers


def test_every_kind_of_question_has_a_golden_file() -> None:
    assert {golden.call["method"] for golden in goldens("codex")} == {call["method"] for call in CALLS.values()}


@pytest.mark.shared
@BESIDE
@ALL
def test_every_known_call_and_answer_fits_the_schemas_of_its_version(golden: Golden) -> None:
    method = golden.call["method"]
    if method in BY_METHOD:
        validator(SCHEMAS / "current" / f"{BY_METHOD[method]}Params.json").validate(golden.call["params"])
    for told in golden.answers.values():
        fits_as_answer(golden.call, told, older=golden.name.endswith("before_0_145"))


@pytest.mark.shared
@BESIDE
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("manner", [MANNER, OLDER])
def test_every_end_of_every_question_is_said_as_the_schemas_allow(call: Json, manner: Any) -> None:
    ends = [*(took(option) for option in asked(call).options), *(ended(outcome) for outcome in NON_DECISIONS)]
    for end in ends:
        fits_as_answer(call, answer(call, end, manner), older=manner is OLDER)
    refused = codex.refuse(sent(call), End(None, "Nobody was asked."), manner)
    fits_as_answer(call, refused, older=manner is OLDER)


@pytest.mark.shared
@BESIDE
@pytest.mark.parametrize(
    "call",
    [URL, changed(CALLS["user_input"], questions=[SECRET]), changed(CALLS["permissions"], permissions={})],
)
def test_what_is_settled_at_once_is_said_as_the_schemas_allow(call: Json) -> None:
    fits(call["method"], settled(call)["result"])


@pytest.mark.shared
@BESIDE
@pytest.mark.parametrize("body", [b"", b"{}", sent({"id": 1, "method": "item/tool/call", "params": {}})])
def test_an_error_is_said_as_the_schemas_allow(body: bytes) -> None:
    refused = codex.refuse(body, End(None, "Nobody was asked."), MANNER)
    validator(SCHEMAS / "current" / "JSONRPCErrorError.json").validate(refused["error"])
    if "id" in refused:
        validator(SCHEMAS / "current" / "JSONRPCError.json").validate(refused)


@pytest.mark.shared
@pytest.mark.skipif(not CAPTURES.exists(), reason="the specification's files are not beside the project")
@pytest.mark.parametrize("name", ["item-commandExecution-requestApproval", "item-tool-requestUserInput"])
def test_what_the_real_program_sent_is_asked(name: str) -> None:
    body = (CAPTURES / f"codex-0.171.0-{name}.json").read_bytes()
    call = codex.parse(body, MANNER)
    assert isinstance(call, Ask)
    assert call.request.preview_complete
    for option in call.request.options:
        told = codex.answer(body, body, took(option), MANNER)
        assert told["id"] == 0
        fits(json.loads(body)["method"], told["result"])
