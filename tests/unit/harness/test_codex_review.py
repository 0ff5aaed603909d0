from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.model import DiffPreview, FieldPreview, Meaning, Outcome, Scope, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import End, Manner
from tests.unit.harness.codex_calls import (
    BOTS_REJECT,
    EXEC,
    MANNER,
    MCP_EXEC,
    MCP_PATCH,
    NON_DECISIONS,
    OLDER,
    PATCH,
    REFUSED,
    allows,
    answer,
    asked,
    changed,
    chose,
    ended,
    foreign,
    option,
    sent,
    took,
)

Json = dict[str, Any]
REVIEWED = pytest.mark.parametrize("call", [EXEC, PATCH, MCP_EXEC, MCP_PATCH])
OLD = "denied"
NEW = {"denied": {"rejection": REFUSED}}


def rejected(call: Json, manner: Manner = MANNER) -> Any:
    return chose(call, "denied", manner)["decision"]


@REVIEWED
@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("0.120.0", OLD),
        ("0.144.6", OLD),
        ("0.144.0-alpha.9", OLD),
        ("rust-v0.144.6", OLD),
        ("codex-cli 0.144.6", OLD),
        ("0.145.0", NEW),
        ("v0.145.0", NEW),
        ("0.145.0-alpha.3", NEW),
        ("0.171.0", NEW),
        ("1.0.0", NEW),
        ("0.0.0", NEW),
        ("0.1440", NEW),
        ("0.144", NEW),
        ("0.144.6000000", NEW),
        ("latest", NEW),
        ("", NEW),
        (None, NEW),
        (144, NEW),
    ],
)
def test_a_no_is_said_in_the_dialect_of_the_version(call: Json, version: Any, dialect: Any) -> None:
    assert rejected({**call, "codex_version": version}) == dialect
    assert rejected({**call, "userAgent": f"codex_cli_rs/{version} (Ubuntu 24.04; x86_64) unknown"}) == (
        dialect if isinstance(version, str) and version[:1].isdigit() else NEW
    )
    if not isinstance(version, int):
        assert rejected(call, Manner(codex_version=version)) == dialect


@REVIEWED
def test_what_a_call_says_of_its_version_goes_before_the_configuration(call: Json) -> None:
    assert rejected({**call, "codex_version": "0.171.0"}, OLDER) == NEW
    assert rejected({**call, "userAgent": "Codex Desktop/0.171.0 (Mac OS)"}, OLDER) == NEW
    assert rejected({**call, "codex_version": "0.144.0", "userAgent": "codex_cli_rs/0.171.0"}) == OLD
    assert rejected({**call, "codex_version": "main", "userAgent": "codex_cli_rs/0.144.0"}) == OLD
    assert rejected(call, OLDER) == OLD


@REVIEWED
def test_the_dialect_is_that_of_the_call_that_waits_and_not_of_the_one_that_asked(call: Json) -> None:
    waits = {**call, "codex_version": "0.144.6"}
    end = took(option(call, "denied"))
    assert codex.answer(sent(call), sent(waits), end, MANNER)["result"] == {"decision": OLD}


@REVIEWED
@pytest.mark.parametrize("manner", [MANNER, OLDER])
def test_what_is_allowed_is_said_alike_in_both_dialects(call: Json, manner: Manner) -> None:
    assert chose(call, "approved", manner) == {"decision": "approved"}
    assert chose(call, "approved_for_session", manner) == {"decision": "approved_for_session"}
    assert chose(call, "abort", manner) == {"decision": "abort"}


@REVIEWED
def test_a_time_out_is_told_as_one_where_the_dialect_knows_it(call: Json) -> None:
    assert answer(call, ended(Outcome.EXPIRED))["result"] == {"decision": "timed_out"}
    assert answer(call, ended(Outcome.EXPIRED), OLDER)["result"] == {"decision": "denied"}


@REVIEWED
@pytest.mark.parametrize("outcome", [each for each in NON_DECISIONS if each is not Outcome.EXPIRED])
def test_an_end_that_nobody_decided_says_why_and_does_not_stop_the_turn(call: Json, outcome: Outcome | None) -> None:
    told = answer(call, End(outcome, "The question was cancelled."))["result"]
    assert told == {"decision": {"denied": {"rejection": "The question was cancelled."}}}
    assert answer(call, End(outcome, "The question was cancelled."), OLDER)["result"] == {"decision": "denied"}


@REVIEWED
@pytest.mark.parametrize("manner", [MANNER, OLDER])
@pytest.mark.parametrize(
    "taken",
    [
        foreign("approved_mcp_policy_amendment"),
        foreign("amendment:0", scope=Scope.ALWAYS),
        foreign("amendment:1", scope=Scope.ALWAYS),
        foreign("approved", scope=None),
        foreign("approved", Meaning.CHOOSE, None),
        foreign("denied"),
        foreign("abort"),
        foreign("allow_once"),
    ],
)
def test_an_option_that_the_call_does_not_offer_allows_nothing(call: Json, manner: Manner, taken: Any) -> None:
    told = answer(call, took(taken, "@owner:hs.example allowed this in Matrix."), manner)["result"]
    assert not allows(told)
    assert "allowed this" not in str(told)


@REVIEWED
@pytest.mark.parametrize("manner", [MANNER, OLDER])
def test_every_rejection_is_a_no_whatever_its_id(call: Json, manner: Manner) -> None:
    for taken in (BOTS_REJECT, foreign("approved", Meaning.REJECT), foreign("approved", Meaning.REJECT, Scope.ALWAYS)):
        assert answer(call, took(taken), manner)["result"] == {"decision": NEW if manner is MANNER else OLD}


@REVIEWED
def test_an_approved_option_without_a_decision_allows_nothing(call: Json) -> None:
    for outcome in NON_DECISIONS:
        assert not allows(answer(call, End(outcome, "x", option=option(call, "approved")))["result"])


def test_a_command_is_shown_with_the_limits_of_its_words() -> None:
    one = asked(changed(EXEC, command=["npm", "test"]))
    other = asked(changed(EXEC, command=["npm test"]))
    assert one.preview[0] == TextPreview("Command", "npm test", "bash")
    assert other.preview[0] == TextPreview("Command", "'npm test'", "bash")


def test_a_command_is_shown_with_all_that_is_said_about_it() -> None:
    shown = {each.label: each.value for each in asked(EXEC).preview if isinstance(each, FieldPreview)}
    assert shown["Working directory"] == "/repo"
    assert shown["Reason"] == "needs network"
    assert '"rg x"' in shown["Codex reads it as"]
    assert (asked(EXEC).title, asked(EXEC).tool_kind) == ("Run: bash -lc 'npm test'", "execute")


def test_a_rule_that_a_command_comes_with_is_offered_and_echoed() -> None:
    call = changed(EXEC, proposedExecpolicyAmendment=["npm", "test"])
    assert option(call, "amendment:0").label == 'Always allow commands that start with "npm" "test"'
    assert chose(call, "amendment:0") == {
        "decision": {"approved_execpolicy_amendment": {"proposed_execpolicy_amendment": ["npm", "test"]}}
    }


@pytest.mark.parametrize("words", [None, [], "npm", [1], ["npm", None], {"npm": 1}])
def test_a_rule_that_nobody_can_read_or_that_fits_every_command_is_not_offered(words: Any) -> None:
    ids = [each.option_id for each in asked(changed(EXEC, proposedExecpolicyAmendment=words)).options]
    assert ids == ["approved", "approved_for_session", "denied", "abort"]


def test_an_mcp_question_never_offers_a_rule() -> None:
    assert "amendment:0" not in {
        each.option_id for each in asked(changed(MCP_EXEC, proposedExecpolicyAmendment=["npm"])).options
    }


def test_changes_to_files_are_shown_as_what_they_do() -> None:
    assert asked(PATCH).preview == (
        DiffPreview("README.md", None, "hello\n"),
        DiffPreview("old.txt", "gone\n", None),
        TextPreview("Changes to a.py", "@@ -1 +1 @@\n-a\n+b\n", "diff"),
        FieldPreview("Moved to", "b.py"),
    )
    assert asked(PATCH).preview_complete
    assert (asked(PATCH).title, asked(PATCH).tool_kind) == ("Change files: README.md, old.txt, a.py", "edit")


def test_a_long_path_stands_in_a_field_of_its_own() -> None:
    path = "src/" * 20 + "a.py"
    shown = asked(changed(PATCH, fileChanges={path: {"type": "update", "unified_diff": "@@"}})).preview
    assert shown == (FieldPreview("Changes to", path), TextPreview("Changes", "@@", "diff"))


@pytest.mark.parametrize(
    "change",
    [
        None,
        "add",
        {"type": "chmod", "mode": 7},
        {"type": "add"},
        {"type": "add", "content": None},
        {"type": "update", "unified_diff": 5},
    ],
)
def test_a_change_of_an_unknown_kind_is_shown_as_it_came_and_said_to_be_unclear(change: Any) -> None:
    request = asked(changed(PATCH, fileChanges={"a.py": change}))
    assert len(request.preview) == 1
    assert not request.preview_complete
    assert not isinstance(request.preview[0], DiffPreview)
    assert request.preview[0].label == "Change a.py"


def test_a_patch_without_changes_is_not_complete() -> None:
    request = asked(changed(PATCH, fileChanges={}))
    assert request.preview == (FieldPreview("Changes", "Codex did not send them with this question"),)
    assert not request.preview_complete


@pytest.mark.parametrize("root", ["/repo", "", 5, ["/"]])
@pytest.mark.parametrize(("call", "name"), [(PATCH, "grantRoot"), (MCP_PATCH, "codex_grant_root")])
def test_with_a_folder_to_write_in_no_choice_allows_only_once(call: Json, name: str, root: Any) -> None:
    request = asked(changed(call, **{name: root}))
    assert {each.scope for each in request.options if each.meaning is Meaning.APPROVE} == {Scope.ALWAYS}
    assert request.preview[0].label == "Folder to write in"  # type: ignore[union-attr]


def test_without_one_the_first_choice_allows_once() -> None:
    assert asked(PATCH).options[0].scope is Scope.ONCE


@pytest.mark.parametrize("kind", ["allow", "", None, 5, "exec"])
def test_an_mcp_question_of_an_unknown_kind_is_not_asked(kind: Any) -> None:
    with pytest.raises(Invalid) as caught:
        codex.parse(sent(changed(MCP_EXEC, codex_elicitation=kind)), MANNER)
    assert caught.value.loc == ("params", "codex_elicitation")


def test_an_mcp_question_of_a_server_that_names_no_thread_has_no_session() -> None:
    assert asked(changed(MCP_EXEC, threadId=None)).session_id == "none"
