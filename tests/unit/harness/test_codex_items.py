from __future__ import annotations

import json
from typing import Any

import pytest

from agentpod_bot.core.labels import MAX_OPTIONS, Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, Outcome, Scope, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import End
from agentpod_bot.harness.codex_review import NOT_OFFERED
from tests.unit.harness.codex_calls import (
    BOTS_REJECT,
    COMMAND,
    FILES,
    MANNER,
    NETWORK,
    NON_DECISIONS,
    allows,
    answer,
    asked,
    changed,
    chose,
    foreign,
    option,
    permits,
    sent,
    took,
    undecided,
    without,
)

Json = dict[str, Any]
ITEMS = pytest.mark.parametrize("call", [COMMAND, NETWORK, FILES])


def rule(*words: Any) -> Json:
    return {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": list(words)}}


def network(action: Any, host: Any = "example.com", **more: Any) -> Json:
    return {"applyNetworkPolicyAmendment": {"network_policy_amendment": {"host": host, "action": action, **more}}}


def offering(*decisions: Any) -> Json:
    return changed(COMMAND, availableDecisions=list(decisions))


def ids(call: Json) -> list[str]:
    return [each.option_id for each in asked(call).options]


def printed(call: Json) -> list[str]:
    return [each.printed for each in offer(asked(call).options, withhold=Withhold.NOTHING)]


def fields(call: Json) -> dict[str, str]:
    return {each.label: each.value for each in asked(call).preview if isinstance(each, FieldPreview)}


def test_the_choices_are_those_of_codex_in_its_order_and_a_no_that_lets_the_turn_go_on() -> None:
    assert printed(NETWORK) == [
        "Allow once",
        "Always allow this connection for this session",
        'Always allow connections to "example.com"',
        'Never allow connections to "example.com"',
        "Reject",
        "Reject and stop the turn",
    ]
    assert ids(offering("cancel", "decline", "acceptForSession", "accept")) == [
        "cancel",
        "decline",
        "acceptForSession",
        "accept",
    ]
    assert ids(offering("accept")) == ["accept", "decline"]


@pytest.mark.parametrize(
    ("params", "decisions"),
    [
        ({"proposedExecpolicyAmendment": None}, ["accept", "decline", "cancel"]),
        ({}, ["accept", rule("npm", "test"), "decline", "cancel"]),
        ({"additionalPermissions": {"network": {"enabled": True}}}, ["accept", "decline", "cancel"]),
        (
            {"networkApprovalContext": {"host": "a.example", "protocol": "http"}},
            ["accept", "acceptForSession", "decline", "cancel"],
        ),
        (
            {
                "networkApprovalContext": {"host": "a.example", "protocol": "http"},
                "additionalPermissions": {},
                "proposedNetworkPolicyAmendments": [
                    {"host": "a.example", "action": "deny"},
                    {"host": "a.example", "action": "allow"},
                ],
            },
            ["accept", "acceptForSession", network("allow", "a.example"), "decline", "cancel"],
        ),
    ],
)
@pytest.mark.parametrize("available", [{}, {"availableDecisions": None}])
def test_where_codex_names_no_choices_they_are_those_of_its_own_client(
    params: Json, decisions: list[Any], available: Json
) -> None:
    call = changed(without(COMMAND, "availableDecisions"), **params, **available)
    assert [chose(call, each)["decision"] for each in ids(call)] == decisions


@ITEMS
def test_each_choice_is_echoed_as_it_was_offered(call: Json) -> None:
    offered = call["params"].get("availableDecisions", [])
    told = [chose(call, each)["decision"] for each in ids(call)]
    assert [each for each in told if each in offered] == offered
    assert {"accept", "decline", "cancel"} <= {each for each in told if isinstance(each, str)}


def test_one_of_several_rules_is_known_by_its_place_in_the_message() -> None:
    call = offering("accept", {"new": 1}, rule("a"), "decline", rule("b"), rule("a", "b"))
    assert ids(call) == ["accept", "amendment:2", "decline", "amendment:4", "amendment:5"]
    assert chose(call, "amendment:4") == {"decision": rule("b")}


@pytest.mark.parametrize(
    "decision",
    [
        "acceptAlways",
        "Accept",
        "approved",
        "",
        None,
        True,
        1,
        [],
        ["accept"],
        {},
        {"accept": {}},
        rule(),
        rule(1),
        rule("npm", None),
        {"acceptWithExecpolicyAmendment": ["npm"]},
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": "npm"}},
        {"acceptWithExecpolicyAmendment": {"execpolicyAmendment": ["npm"]}},
        {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["npm"], "everywhere": True}},
        {**rule("npm"), "everywhere": True},
        network("ask"),
        network("allow", None),
        network("allow", " "),
        network("allow", port=443),
        network(None),
        {**network("allow"), "everywhere": True},
    ],
)
def test_a_choice_that_nobody_can_read_is_left_out_and_that_is_said(decision: Any) -> None:
    call = offering("accept", decision, "cancel")
    assert ids(call) == ["accept", "decline", "cancel"]
    assert fields(call)["Choices left out"] == "1 that Codex offers"
    for option_id in ("amendment:1", "amendment:0", str(decision)):
        taken = foreign(option_id, scope=Scope.ALWAYS)
        assert answer(call, took(taken)) == undecided(call, NOT_OFFERED)


@pytest.mark.parametrize("decisions", [[], ["later"], [None]])
def test_where_no_choice_can_be_read_only_a_no_is_offered(decisions: list[Any]) -> None:
    call = offering(*decisions)
    assert ids(call) == ["decline"]
    assert answer(call, took(foreign("accept"))) == undecided(call, NOT_OFFERED)


@pytest.mark.parametrize("available", ["accept", {}, 5, False])
def test_choices_that_are_no_list_are_not_taken_for_none(available: Any) -> None:
    with pytest.raises(Invalid) as caught:
        codex.parse(sent(changed(COMMAND, availableDecisions=available)), MANNER)
    assert caught.value.loc == ("params", "availableDecisions")


@pytest.mark.parametrize("rejecting", ["decline", "cancel"])
def test_too_many_choices_lose_those_that_approve_and_no_plain_no(rejecting: str) -> None:
    call = offering("accept", *(rule(str(number)) for number in range(40)), rejecting)
    options = asked(call).options
    assert len(options) == MAX_OPTIONS
    assert {"decline", rejecting} <= {each.option_id for each in options}
    assert options[0].option_id == "accept"
    dropped = 42 + (rejecting == "cancel") - MAX_OPTIONS
    assert fields(call)["Choices left out"] == f"{dropped} that Codex offers"
    assert offer(options, withhold=Withhold.NOTHING)


def test_refusals_that_are_remembered_stay_before_what_approves() -> None:
    call = offering("accept", *(network("deny", f"{number}.example") for number in range(30)))
    options = asked(call).options
    assert len(options) == MAX_OPTIONS
    assert options[-1].option_id == "decline"
    assert {each.meaning for each in options} == {Meaning.REJECT}


def test_no_more_choices_are_read_than_could_ever_be_shown() -> None:
    call = offering(*(rule("x" * 5) for _ in range(2_000)), "accept")
    assert "accept" not in ids(call)
    assert fields(call)["Choices left out"] == f"{2_001 - (MAX_OPTIONS - 1)} that Codex offers"


def test_the_words_of_a_rule_are_kept_apart() -> None:
    assert printed(offering(rule("npm", "test"), rule("npm test")))[:2] == [
        'Always allow commands that start with "npm" "test"',
        'Always allow commands that start with "npm test"',
    ]


@pytest.mark.parametrize("words", [["gh", "reject"], ["x" * 200], ["npm", "no"], ["\x07" * 30], ["a\u202eb" * 20]])
def test_a_rule_that_a_label_cannot_say_plainly_is_said_whole_in_the_preview(words: list[str]) -> None:
    call = offering("accept", rule(*words), "cancel")
    spelling = " ".join(json.dumps(word, ensure_ascii=False) for word in words)
    assert printed(call)[1] == "Always allow commands that start as Rule 2 says"
    assert fields(call)["Rule 2"] == f"commands that start with {spelling}"
    assert chose(call, "amendment:1") == {"decision": rule(*words)}


@pytest.mark.parametrize(("action", "verb"), [("allow", "Always"), ("deny", "Never")])
def test_a_host_that_a_label_cannot_say_plainly_is_said_whole_in_the_preview(action: str, verb: str) -> None:
    host = f"no.{'x' * 200}.example"
    call = offering("accept", network(action, host), "cancel")
    assert printed(call)[1] == f"{verb} allow connections to the host of Rule 2"
    assert fields(call)["Rule 2"] == f'connections to "{host}"'


def test_a_refusal_that_is_remembered_is_one() -> None:
    taken = option(NETWORK, "amendment:3")
    assert (taken.meaning, taken.scope) == (Meaning.REJECT, Scope.ALWAYS)
    assert chose(NETWORK, "amendment:3") == {"decision": network("deny")}


@ITEMS
@pytest.mark.parametrize("option_id", ["accept", "acceptForSession", "amendment:0", "amendment:1", "amendment:2", "zz"])
@pytest.mark.parametrize("meaning", [Meaning.REJECT, Meaning.CHOOSE])
@pytest.mark.parametrize("scope", [Scope.ONCE, Scope.ALWAYS, None])
def test_only_an_approval_by_a_person_is_told_as_one(
    call: Json, option_id: str, meaning: Meaning, scope: Scope | None
) -> None:
    told = answer(call, took(foreign(option_id, meaning, scope)))
    if meaning is Meaning.REJECT:
        assert told == {"id": call["id"], "result": {"decision": "decline"}}
    else:
        assert told == undecided(call, NOT_OFFERED)


@ITEMS
def test_an_approval_of_what_was_not_offered_is_no_refusal_and_allows_nothing(call: Json) -> None:
    told = answer(call, took(foreign("zz"), "@owner:hs.example allowed this in Matrix."))
    assert told == undecided(call, "The answer is none that this request offers. Nothing was allowed.")
    without_id = {name: value for name, value in call.items() if name != "id"}
    assert answer(without_id, took(foreign("zz"))) == {"decision": "decline"}


@ITEMS
def test_a_decision_that_names_no_option_is_nobodys(call: Json) -> None:
    assert answer(call, End(Outcome.SELECTED, "x")) == undecided(call, NOT_OFFERED)


@ITEMS
@pytest.mark.parametrize("outcome", NON_DECISIONS)
def test_nothing_but_a_person_stops_a_turn_or_allows_anything(call: Json, outcome: Outcome | None) -> None:
    for taken in asked(call).options:
        assert answer(call, End(outcome, "x", option=taken)) == undecided(call, "x")


@ITEMS
def test_the_rejection_of_the_bot_is_a_no(call: Json) -> None:
    assert answer(call, took(BOTS_REJECT))["result"] == {"decision": "decline"}


@ITEMS
def test_a_person_may_stop_the_turn(call: Json) -> None:
    assert chose(call, "cancel") == {"decision": "cancel"}


def test_a_command_is_shown_as_it_came() -> None:
    request = asked(COMMAND)
    assert request.preview == (
        TextPreview("Command", "/bin/zsh -lc 'npm test'", "bash"),
        FieldPreview("Working directory", "/repo"),
        FieldPreview("Reason", "needs network"),
    )
    assert request.preview_complete
    assert (request.title, request.tool_kind) == ("Run: /bin/zsh -lc 'npm test'", "execute")


def test_a_command_that_is_not_told_is_said_to_be_missing() -> None:
    assert asked(without(COMMAND, "command")).preview[0] == FieldPreview("Command", "Codex did not say which")


@pytest.mark.parametrize("command", [None, "", "  "])
def test_a_question_without_a_command_is_not_complete(command: Any) -> None:
    request = asked(changed(COMMAND, command=command))
    assert not request.preview_complete
    assert request.title == "Run"
    assert request.tool_kind is None


def test_a_command_in_another_form_is_shown_and_said_to_be_unclear() -> None:
    request = asked(changed(COMMAND, command=["npm", "test"]))
    assert FieldPreview("command", '["npm", "test"]') in request.preview
    assert not request.preview_complete


def test_a_connection_is_shown_with_its_host_and_protocol() -> None:
    request = asked(NETWORK)
    assert request.preview[:2] == (FieldPreview("Connection to", "example.com"), FieldPreview("Protocol", "https"))
    assert (request.title, request.tool_kind, request.preview_complete) == ("Connect: example.com", None, True)


@pytest.mark.parametrize("context", ["x", {"host": 5, "protocol": "http"}, {"host": "a", "protocol": "b", "port": 1}])
def test_a_connection_in_another_form_is_shown_as_it_came(context: Any) -> None:
    shown = fields(changed(NETWORK, networkApprovalContext=context))["Connection"]
    assert shown == (context if isinstance(context, str) else json.dumps(context))


def test_permissions_that_a_command_wants_besides_are_shown_whole() -> None:
    call = changed(
        COMMAND,
        additionalPermissions={
            "fileSystem": {"write": ["/a"], "entries": [{"access": "run", "path": 1}], "more": [1]},
            "network": {"enabled": True, "hosts": ["b"]},
            "macos": {"automation": True},
        },
    )
    assert fields(call) | {
        "May write": "/a",
        "Entry": '{"access": "run", "path": 1}',
        "more": "[1]",
        "Network access": "yes",
        "hosts": '["b"]',
        "macos": '{"automation": true}',
    } == fields(call)


def test_what_codex_reads_in_a_command_is_shown_where_it_reads_anything() -> None:
    call = changed(COMMAND, commandActions=[{"type": "read", "command": "cat a", "name": "a", "path": "a"}])
    assert "cat a" in fields(call)["Codex reads it as"]
    assert "Codex reads it as" not in fields(COMMAND)


def test_what_is_typed_into_a_running_command_is_not_called_a_command_to_run() -> None:
    request = asked(changed(COMMAND, kind="writeStdin", command="y"))
    assert request.title == "Type into a running command: y"
    assert FieldPreview("Kind", "writeStdin") in request.preview
    assert "Kind" not in fields(changed(COMMAND, kind="command"))


def test_what_the_session_would_allow_is_said() -> None:
    assert printed(offering("acceptForSession"))[0] == "Always allow this command for this session"
    more = changed(offering("acceptForSession"), additionalPermissions={"network": {"enabled": True}})
    assert printed(more)[0] == "Always allow this command with these permissions for this session"


def test_changes_to_files_are_shown_as_the_item_began_with_them() -> None:
    request = asked(FILES)
    assert request.preview == (
        TextPreview("Changes to /repo/a.py", "@@ -1 +1 @@\n-a\n+b\n", "diff"),
        FieldPreview("Moved to", "/repo/b.py"),
        TextPreview("New file /repo/new.txt", "hello\n"),
        TextPreview("Deleted file /repo/old.txt", "gone\n"),
    )
    assert request.preview_complete
    assert request.title == "Change files: /repo/a.py, /repo/new.txt, /repo/old.txt"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("add", {"New file": "a.bin", "Content": "too large to show: 9 bytes"}),
        ({"type": "delete"}, {"Deleted file": "a.bin", "Content": "too large to show: 9 bytes"}),
        ({"type": "update"}, {"Changes to": "a.bin", "Changes": "too large to show: 9 bytes"}),
        (
            {"type": "update", "move_path": "b.bin"},
            {"Changes to": "a.bin", "Changes": "too large to show: 9 bytes", "Moved to": "b.bin"},
        ),
        ("new", {"Change 0": '{"path": "a.bin", "kind": "new", "diffBytes": 9}'}),
    ],
)
def test_a_change_whose_diff_was_too_large_is_told_without_it_and_is_not_all(kind: Any, shown: dict[str, str]) -> None:
    request = asked(changed(FILES, changes=[{"path": "a.bin", "kind": kind, "diffBytes": 9}]))
    assert request.title == "Change files: a.bin"
    assert request.preview[: len(shown)] == tuple(FieldPreview(label, value) for label, value in shown.items())
    assert not request.preview_complete


@pytest.mark.parametrize("changes", [None, [], "x", {}])
def test_changes_that_were_not_sent_are_said_to_be_missing(changes: Any) -> None:
    request = asked(changed(FILES, changes=changes))
    assert request.preview == (FieldPreview("Changes", "Codex did not send them with this question"),)
    assert not request.preview_complete
    assert request.title == "Change files"


@pytest.mark.parametrize(
    "change", [5, {"path": "a", "kind": "chmod", "diff": ""}, {"path": "a", "kind": "add"}, {"kind": "add", "diff": ""}]
)
def test_a_change_to_a_file_of_an_unknown_kind_is_shown_as_it_came(change: Any) -> None:
    request = asked(changed(FILES, changes=[change]))
    assert request.preview == (FieldPreview("Change 0", json.dumps(change)),)
    assert not request.preview_complete


def test_with_a_folder_to_write_in_no_choice_allows_only_once() -> None:
    call = changed(FILES, grantRoot="/repo")
    assert fields(call)["Folder to write in"] == "/repo"
    assert printed(call)[:2] == [
        "Always allow: these changes, and writes in the whole folder for this session",
        "Always allow: changes to these files in this session, and writes in the whole folder for this session",
    ]
    assert chose(call, "accept") == {"decision": "accept"}


def test_an_answer_allows_nothing_that_the_test_would_not_see() -> None:
    assert allows({"decision": "accept"})
    assert allows({"decision": network("allow")})
    assert not allows({"decision": network("deny")})
    refused: Json = {"code": -32_000, "message": "x"}
    assert not permits({"id": 0, "error": refused})
    assert permits({"id": 0, "error": {**refused, "data": {"decision": "accept"}}})
    assert permits({"id": 0, "error": {**refused, "code": 0}})
    assert permits({"id": 0, "error": refused, "result": {"decision": "decline"}})
    assert permits({"id": 0, "error": refused, "decision": "accept"})
    assert permits({"id": 0, "decision": "decline"})
    assert permits({"id": 0, "result": {"decision": "accept"}})
    assert not permits({"id": 0, "result": {"decision": "decline"}})
    assert not permits({"decision": "decline"})
