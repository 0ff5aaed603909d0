from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, Scope, TextPreview
from tests.unit.harness.codex_calls import (
    BOTS_REJECT,
    FORM,
    NON_DECISIONS,
    SECRET,
    TOOL_CALL,
    URL,
    answer,
    asked,
    changed,
    chose,
    ended,
    foreign,
    settled,
    took,
)

Json = dict[str, Any]
ACCEPTED: Json = {"action": "accept", "content": {}, "_meta": None}
DECLINED: Json = {"action": "decline", "content": None, "_meta": None}
CANCELLED: Json = {"action": "cancel", "content": None, "_meta": None}
META = TOOL_CALL["params"]["_meta"]
FIELD = {"type": "string", "enum": ["main", "archive"]}


def ids(call: Json) -> list[str]:
    return [each.option_id for each in asked(call).options]


def form(**schema: Any) -> Json:
    return changed(FORM, requestedSchema={"type": "object", **schema})


def test_a_call_of_a_tool_can_be_allowed_for_as_long_as_codex_offers_to_remember_it() -> None:
    assert [each.printed for each in offer(asked(TOOL_CALL).options, withhold=Withhold.NOTHING)] == [
        "Allow once",
        "Always allow this tool for this session",
        "Always allow this tool in every session",
        "Reject",
    ]
    assert chose(TOOL_CALL, "accept") == ACCEPTED
    assert chose(TOOL_CALL, "accept:session") == ACCEPTED | {"_meta": {"persist": "session"}}
    assert chose(TOOL_CALL, "accept:always") == ACCEPTED | {"_meta": {"persist": "always"}}


@pytest.mark.parametrize(
    ("persist", "lasting"),
    [
        ("session", ["accept:session"]),
        ("always", ["accept:always"]),
        (["always"], ["accept:always"]),
        (["always", "session"], ["accept:session", "accept:always"]),
        (["project", {"session": 1}], []),
        ("sessions", []),
        ({"session": True}, []),
        (None, []),
        ([], []),
    ],
)
def test_nothing_is_remembered_that_codex_does_not_offer_to(persist: Any, lasting: list[str]) -> None:
    call = changed(TOOL_CALL, _meta=META | {"persist": persist})
    assert ids(call) == ["accept", *lasting, "decline"]
    for name in {"accept:session", "accept:always"} - set(lasting):
        assert answer(call, took(foreign(name, scope=Scope.ALWAYS)))["result"] == CANCELLED


def test_nothing_is_left_out_of_what_a_tool_is_called_with() -> None:
    given = {"where": "", "ids": [], "filter": {}, "limit": None, "Message": "Allow", "force": "false"}
    preview = asked(changed(TOOL_CALL, _meta=META | {"tool_params": given})).preview
    for part in (
        FieldPreview("where", ""),
        FieldPreview("ids", "[]"),
        FieldPreview("filter", "{}"),
        FieldPreview("limit", "null"),
        FieldPreview("Input Message", "Allow"),
        FieldPreview("force", '"false"'),
    ):
        assert part in preview


@pytest.mark.parametrize(
    "meta", [None, [], {}, {"persist": "always"}, {"codex_approval_kind": "x", "persist": "always"}]
)
def test_what_is_no_call_of_a_tool_is_only_allowed_once(meta: Any) -> None:
    assert ids(changed(TOOL_CALL, _meta=meta)) == ["accept", "decline"]


def test_what_a_tool_is_called_with_is_shown_value_by_value() -> None:
    call = changed(TOOL_CALL, _meta=META | {"tool_params": {"command": "ls", "n": 1}, "tool_title": "Search"})
    assert asked(call).preview == (
        FieldPreview("MCP server", "docs"),
        FieldPreview("Message", "Allow docs to run tool search?"),
        TextPreview("Command", "ls", "bash"),
        FieldPreview("n", "1"),
        FieldPreview("tool_title", "Search"),
    )
    assert FieldPreview("tool_params", "[1]") in asked(changed(TOOL_CALL, _meta={"tool_params": [1]})).preview


@pytest.mark.parametrize("call", [TOOL_CALL, FORM])
def test_a_person_declines_and_whatever_else_ends_a_question_cancels(call: Json) -> None:
    assert chose(call, "decline") == DECLINED
    assert answer(call, took(BOTS_REJECT))["result"] == DECLINED
    assert answer(call, took(foreign("accept", Meaning.REJECT)))["result"] == DECLINED
    for outcome in NON_DECISIONS:
        assert answer(call, ended(outcome))["result"] == CANCELLED


@pytest.mark.parametrize("call", [TOOL_CALL, FORM])
@pytest.mark.parametrize(
    "taken",
    [
        foreign("accept", Meaning.CHOOSE, None),
        foreign("accept", scope=Scope.ALWAYS),
        foreign("accept:session"),
        foreign("choice:2", Meaning.CHOOSE, None),
        foreign("choice:0"),
        foreign("decline"),
    ],
)
def test_an_option_that_is_not_offered_so_accepts_nothing(call: Json, taken: Any) -> None:
    assert answer(call, took(taken))["result"] in (CANCELLED, DECLINED)


def test_one_choice_out_of_several_fills_the_form() -> None:
    assert chose(FORM, "choice:0") == {"action": "accept", "content": {"index": "main"}, "_meta": None}
    assert chose(FORM, "choice:1") == {"action": "accept", "content": {"index": "archive"}, "_meta": None}
    assert asked(FORM).preview[:2] == (FieldPreview("MCP server", "docs"), FieldPreview("Message", "Which index?"))


def test_yes_and_no_fill_a_form_with_what_they_are() -> None:
    call = form(properties={"really": {"type": "boolean"}})
    assert chose(call, "choice:0")["content"] == {"really": True}
    assert chose(call, "choice:1")["content"] == {"really": False}


def test_a_title_is_shown_and_its_value_is_sent() -> None:
    call = form(properties={"index": {"type": "string", "oneOf": [{"const": "m", "title": "Main"}]}})
    assert asked(call).options[0].label == "Main"
    assert chose(call, "choice:0")["content"] == {"index": "m"}


@pytest.mark.parametrize(
    "call",
    [
        URL,
        changed(FORM, mode="openai/form"),
        changed(TOOL_CALL, mode="openai/form"),
        changed(FORM, mode="later"),
        form(),
        form(properties=None),
        form(properties=[]),
        form(properties={}, required=["index"]),
        form(properties={"index": FIELD, "more": FIELD}),
        form(properties={"index": {"type": "string"}}),
        form(properties={"index": {"type": "number"}}),
        form(properties={"index": {"type": "string", "enum": []}}),
        form(properties={"index": {"type": "string", "enum": ["a", 1]}}),
        form(properties={"index": {"type": "array", "items": FIELD}}),
        form(properties={"index": 5}),
        changed(FORM, requestedSchema={"type": "object", "properties": {"t": {"type": "string", "title": "Password"}}}),
    ],
)
def test_what_cannot_be_given_from_a_room_is_declined_at_once(call: Json) -> None:
    assert settled(call)["result"] == DECLINED


def test_a_call_of_a_tool_that_wants_a_form_filled_in_is_no_plain_yes() -> None:
    schema = {"type": "object", "properties": {"index": FIELD}}
    assert "accept" not in ids(changed(TOOL_CALL, requestedSchema=schema))


def test_a_server_without_a_name_has_a_title_all_the_same() -> None:
    assert asked(changed(TOOL_CALL, serverName=" ")).title == "An MCP server: Allow docs to run tool search?"


def test_the_examples_are_what_they_claim_to_be() -> None:
    assert SECRET["isSecret"] is True
    assert "persist" in META
