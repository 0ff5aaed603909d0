from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentpod_bot.core.model import FieldPreview, Hold, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import codex_hook
from agentpod_bot.harness.adapter import Settled
from tests.unit.harness import hooks
from tests.unit.harness.hooks import ALLOWED, CODEX, CODEX_USE, DENY, REFUSED, TERMINAL, asked, body_of, told

SCHEMAS = Path(__file__).resolve().parents[4] / "shared" / "spec" / "harness" / "schemas" / "codex" / "hooks"
CAPTURES = Path(__file__).resolve().parents[4] / "shared" / "tools" / "captures"
FILES = {"PermissionRequest": "permission-request", "PreToolUse": "pre-tool-use"}
PATCH = "*** Begin Patch\n*** Add File: a.txt\n+new\n*** Update File: b.txt\n@@\n-old\n+new\n*** End Patch"
ENDS = (ALLOWED, REFUSED, hooks.OWN_REJECT, *hooks.NO_DECISIONS)


def test_an_allow_of_a_permission_request_holds_nothing_else() -> None:
    """One member more and Codex takes it for no answer."""
    assert told(codex_hook, CODEX, ALLOWED) == {
        "hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
    }


def test_an_allow_before_use_carries_the_input_to_go_on_with() -> None:
    assert told(codex_hook, CODEX_USE, ALLOWED)["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "allow",
        "updatedInput": hooks.BASH,
    }


@pytest.mark.parametrize("given", [None, [], "ls", 7, {"command": ["ls"]}])
def test_the_input_goes_back_whatever_it_is(given: Any) -> None:
    call = {**CODEX_USE, "tool_input": given}
    output = told(codex_hook, call, ALLOWED)["hookSpecificOutput"]
    assert (output["permissionDecision"], output["updatedInput"]) == ("allow", given)
    assert len(asked(codex_hook, call).preview) == 3


@pytest.mark.parametrize("call", [CODEX, CODEX_USE])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("manner", [DENY, TERMINAL])
@pytest.mark.shared
@pytest.mark.skipif(not SCHEMAS.exists(), reason="the specification's files are not beside the project")
def test_every_answer_fits_the_schema_of_its_event(call: dict[str, Any], end: Any, manner: Any) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    name = FILES[call["hook_event_name"]]
    schema = json.loads((SCHEMAS / f"{name}.command.output.schema.json").read_text())
    for answer in (told(codex_hook, call, end, manner), codex_hook.refuse(body_of(call), end, manner)):
        jsonschema.validate(answer, schema)
        # What the schema takes and Codex all the same reads as no answer.
        decision = answer.get("hookSpecificOutput", {}).get("decision", {})
        assert decision.keys() <= {"behavior", "message"}
    jsonschema.validate(call, json.loads((SCHEMAS / f"{name}.command.input.schema.json").read_text()))


@pytest.mark.shared
@pytest.mark.skipif(not CAPTURES.exists(), reason="the specification's files are not beside the project")
def test_what_the_real_program_sent_is_read() -> None:
    body = (CAPTURES / "codex-0.171.0-hook-PermissionRequest.json").read_bytes()
    request = asked(codex_hook, json.loads(body))
    assert request.title == "Bash: touch /home/dev/marker.txt"
    assert FieldPreview("description", "Need to write outside the workspace") in request.preview


@pytest.mark.parametrize("end", [*hooks.NO_DECISIONS, *hooks.REJECTIONS])
def test_every_no_is_a_denial_with_its_reason(end: Any) -> None:
    assert told(codex_hook, CODEX, end)["hookSpecificOutput"]["decision"] == {
        "behavior": "deny",
        "message": end.reason,
    }
    assert told(codex_hook, CODEX_USE, end)["hookSpecificOutput"] == {
        "hookEventName": "PreToolUse",
        "permissionDecision": "deny",
        "permissionDecisionReason": end.reason,
    }


@pytest.mark.parametrize("end", hooks.HANDED_BACK)
def test_a_permission_request_goes_back_to_codexs_own_question(end: Any) -> None:
    assert told(codex_hook, CODEX, end, TERMINAL) == {}
    assert codex_hook.refuse(body_of(CODEX), end, TERMINAL) == {}


@pytest.mark.parametrize("end", hooks.HANDED_BACK)
def test_a_call_before_use_never_goes_back_for_codex_need_not_ask_anybody_about_it(end: Any) -> None:
    assert told(codex_hook, CODEX_USE, end, TERMINAL) == told(codex_hook, CODEX_USE, end, DENY)
    assert codex_hook.refuse(body_of(CODEX_USE), end, TERMINAL) != {}


def test_a_patch_is_shown_as_one_and_its_first_file_in_the_title() -> None:
    call = {**CODEX, "tool_name": "apply_patch", "tool_input": {"command": PATCH, "description": "Fix"}}
    request = asked(codex_hook, call)
    assert request.title == "apply_patch: Add File: a.txt"
    assert request.tool_kind == "edit"
    assert request.preview[2:] == (TextPreview("Patch", PATCH), FieldPreview("description", "Fix"))


@pytest.mark.parametrize("given", [{}, {"command": ""}, {"command": ["x"]}, None, "*** Begin Patch"])
def test_a_patch_in_another_form_is_shown_as_any_input(given: Any) -> None:
    shown = asked(codex_hook, {**CODEX, "tool_name": "apply_patch", "tool_input": given}).preview[2]
    assert isinstance(shown, FieldPreview | TextPreview)
    assert shown.label != "Patch"


def test_a_patch_that_names_no_file_has_the_tools_name_for_a_title() -> None:
    call = {**CODEX, "tool_name": "apply_patch", "tool_input": {"command": "nothing"}}
    assert asked(codex_hook, call).title == "apply_patch"


def test_a_permission_request_is_known_by_its_turn_and_what_it_asks() -> None:
    holds = [asked(codex_hook, call).hold for call in (CODEX, dict(CODEX), {**CODEX, "turn_id": "t2"})]
    assert holds[0] == holds[1] != holds[2]


def test_a_call_before_use_is_known_by_its_id() -> None:
    request = asked(codex_hook, CODEX_USE)
    assert request.hold == Hold()
    assert request.request_id is not None


@pytest.mark.parametrize("missing", ["tool_name", "tool_input", "hook_event_name"])
def test_a_call_without_what_it_asks_is_not_asked(missing: str) -> None:
    call = body_of({name: value for name, value in CODEX.items() if name != missing})
    with pytest.raises(Invalid):
        codex_hook.parse(call, DENY)
    assert codex_hook.refuse(call, hooks.NOT_READABLE, TERMINAL) != {}


@pytest.mark.parametrize("event", ["PostToolUse", "SessionStart", "UserPromptSubmit", "Stop"])
def test_an_event_that_only_tells_something_gets_no_decision(event: str) -> None:
    call = body_of({**hooks.COMMON, "hook_event_name": event})
    assert isinstance(codex_hook.parse(call, DENY), Settled)
    assert codex_hook.refuse(call, hooks.UNAVAILABLE, DENY) == {}


def test_an_unknown_event_with_a_tool_is_refused() -> None:
    call = body_of({**CODEX, "hook_event_name": "pretooluse"})
    with pytest.raises(Invalid):
        codex_hook.parse(call, DENY)
    assert codex_hook.refuse(call, hooks.NOT_READABLE, DENY) == {
        "continue": False,
        "stopReason": hooks.NOT_READABLE.reason,
    }
