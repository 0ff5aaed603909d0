from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import Withhold, check, offer
from agentpod_bot.core.model import Meaning, Option, Outcome, Scope
from agentpod_bot.errors import Invalid, TooLarge
from agentpod_bot.harness import codex
from agentpod_bot.harness.adapter import Ask, End, Manner
from tests.unit.harness.codex_calls import CALLS, OF_ITEMS, Json, allows, permits, sent, undecided
from tests.unit.harness.test_codex_goldens import SCHEMAS, fits_as_answer

UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
"""Other tests may have the processor meanwhile."""

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WORDS = st.lists(st.sampled_from(["npm", "test", "reject", "", "a b", '"', "\u202e", "x" * 200]), max_size=3)
HOSTS = st.fixed_dictionaries({"host": st.sampled_from(["a.example", "no.example", "", "x" * 300]), "action": JSON})
RULED = st.fixed_dictionaries(
    {"host": st.sampled_from(["a.example", "no.example"]), "action": st.sampled_from(["allow", "deny"])}
)
DECISIONS = st.lists(
    st.sampled_from(["accept", "acceptForSession", "decline", "cancel", "approved", "later"])
    | st.builds(lambda words: {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": words}}, WORDS)
    | st.builds(
        lambda amendment: {"applyNetworkPolicyAmendment": {"network_policy_amendment": amendment}}, HOSTS | RULED
    )
    | JSON,
    max_size=30,
)
FILE_CHANGES = st.fixed_dictionaries(
    {"type": st.sampled_from(["add", "delete", "update"])},
    optional={"content": st.text(max_size=5), "unified_diff": st.text(max_size=5), "move_path": JSON},
)
ITEM_CHANGES = st.fixed_dictionaries(
    {"path": st.text(max_size=60), "kind": st.sampled_from(["add", {"type": "update"}, {"type": "x"}]), "diff": JSON}
)
PLACES = st.sampled_from(
    [
        {"type": "path", "path": "/a"},
        {"type": "glob_pattern", "pattern": "*"},
        {"type": "special", "value": {"kind": "root"}},
        {"type": "special", "value": {"kind": "unknown", "path": "/x", "subpath": None}},
        {"type": "later"},
    ]
)
ENTRIES = st.fixed_dictionaries({"access": st.sampled_from(["read", "write", "deny"]), "path": PLACES})
PROFILES = st.fixed_dictionaries(
    {},
    optional={
        "fileSystem": st.fixed_dictionaries(
            {},
            optional={
                "read": st.none() | st.lists(st.text(max_size=5), max_size=3),
                "write": st.none() | st.lists(st.text(max_size=5), max_size=3),
                "entries": st.none() | st.lists(ENTRIES, max_size=3),
                "globScanMaxDepth": st.none() | st.integers(0, 2**70),
                "more": JSON,
            },
        ),
        "network": st.fixed_dictionaries({}, optional={"enabled": st.none() | st.booleans(), "more": JSON}),
    },
)
FORMS = st.fixed_dictionaries(
    {"type": st.just("object")},
    optional={
        "properties": st.dictionaries(
            st.text(max_size=5),
            st.builds(lambda values: {"type": "string", "enum": values}, st.lists(st.text(max_size=200), max_size=25))
            | st.just({"type": "boolean"})
            | JSON,
            max_size=2,
        ),
        "required": JSON,
    },
)
QUESTIONS = st.lists(
    st.fixed_dictionaries(
        {"id": st.text(min_size=1, max_size=5), "question": st.text(max_size=20)},
        optional={
            "isSecret": st.booleans() | JSON,
            "header": st.text(max_size=5),
            "options": st.none()
            | st.lists(
                st.fixed_dictionaries({"label": st.text(max_size=200), "description": st.just("x")}), max_size=25
            ),
        },
    ),
    max_size=2,
)
PARTS: dict[str, st.SearchStrategy[Any]] = {
    "availableDecisions": DECISIONS | JSON,
    "proposedExecpolicyAmendment": WORDS | JSON,
    "proposedNetworkPolicyAmendments": st.lists(HOSTS | RULED, max_size=3) | JSON,
    "networkApprovalContext": st.just({"host": "a.example", "protocol": "https"}) | JSON,
    "additionalPermissions": PROFILES | JSON,
    "permissions": PROFILES,
    "command": st.text(max_size=20) | WORDS | JSON,
    "codex_command": WORDS | JSON,
    "fileChanges": st.dictionaries(st.text(max_size=60), FILE_CHANGES | JSON, max_size=3),
    "codex_changes": st.dictionaries(st.text(max_size=60), FILE_CHANGES | JSON, max_size=3),
    "changes": st.lists(ITEM_CHANGES | JSON, max_size=3) | JSON,
    "grantRoot": JSON,
    "requestedSchema": FORMS | JSON,
    "_meta": st.fixed_dictionaries({}, optional={"codex_approval_kind": st.just("mcp_tool_call"), "persist": JSON})
    | JSON,
    "questions": QUESTIONS | JSON,
    "threadId": st.text(min_size=1, max_size=300),
    "mode": st.sampled_from(["form", "url", "openai/form"]),
    "reason": JSON,
    "kind": JSON,
    "unheardOf": JSON,
}
ABOUT_ITEMS = tuple(call for call in CALLS.values() if call["method"] in OF_ITEMS)
VERSIONS = st.none() | st.sampled_from(["0.144.6", "0.145.0", "0.0.0", "x"])


@st.composite
def calls(draw: st.DrawFn, among: tuple[Json, ...] = tuple(CALLS.values())) -> Json:
    """A message of some kind, with some of its parts as they may come one day."""
    call = draw(st.sampled_from(among))
    names = draw(st.sets(st.sampled_from(sorted(PARTS)), max_size=6))
    params = call["params"] | {name: draw(PARTS[name]) for name in sorted(names)}
    return {**call, "params": params, "codex_version": draw(VERSIONS)}


def question(call: Json) -> Ask:
    """The question of a call that becomes one."""
    try:
        read = codex.parse(sent(call), Manner())
    except Invalid:
        read = None
    assume(isinstance(read, Ask))
    assert isinstance(read, Ask)
    return read


@st.composite
def ends(draw: st.DrawFn, options: tuple[Option, ...]) -> End:
    """An end with an option that was offered, or with another, and of any kind."""
    strange = st.builds(
        Option,
        st.sampled_from([OptionId("agentpod.reject"), *(each.option_id for each in options)])
        | st.builds(OptionId, st.sampled_from(["approved", "accept", "turn", "choice:0", "amendment:1", "zz"])),
        st.just("Allow once"),
        st.sampled_from(Meaning),
        st.none() | st.sampled_from(Scope),
    )
    outcome = draw(st.none() | st.sampled_from(Outcome) | st.just(Outcome.SELECTED))
    return End(outcome, draw(st.text(max_size=10)), option=draw(st.none() | st.sampled_from(options) | strange))


@UNHURRIED
@given(calls(), st.data())
def test_only_what_a_person_took_of_what_was_offered_ever_allows_anything(call: Json, data: st.DataObject) -> None:
    request = question(call).request
    end = data.draw(ends(request.options))
    told = codex.answer(sent(call), sent(call), end, Manner())
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert told["id"] == call["id"]
    if permits(told):
        assert end.approves or end.chooses
        assert end.option is not None
        [offered] = [each for each in request.options if each.option_id == end.option.option_id]
        assert offered.meaning is end.option.meaning
        assert offered.scope is end.option.scope or end.chooses


@UNHURRIED
@given(calls(ABOUT_ITEMS), st.data())
def test_codex_hears_that_a_person_refused_exactly_where_one_did(call: Json, data: st.DataObject) -> None:
    end = data.draw(ends(question(call).request.options))
    told = codex.answer(sent(call), sent(call), end, Manner())
    if end.rejects:
        assert not allows(told["result"])
    elif not permits(told):
        assert told == undecided(call, told["error"]["message"])
        assert end.outcome is Outcome.SELECTED or told["error"]["message"] == end.reason


@UNHURRIED
@given(calls())
def test_what_was_offered_allows_exactly_where_it_approves_or_is_chosen(call: Json) -> None:
    request = question(call).request
    for option in request.options:
        told = codex.answer(sent(call), sent(call), End(Outcome.SELECTED, "x", option=option), Manner())
        assert allows(told["result"]) is (option.meaning is not Meaning.REJECT)


@UNHURRIED
@given(calls())
def test_every_question_can_be_offered_in_a_room_and_refused_there(call: Json) -> None:
    request = question(call).request
    check(request.options)
    try:
        offered = offer(request.options, withhold=Withhold.NOTHING)
    except TooLarge:
        pytest.fail("a label is too long to be printed")
    meanings = {each.option.meaning for each in offered}
    assert meanings == {Meaning.CHOOSE} or Meaning.REJECT in meanings
    assert request.title.strip()


@UNHURRIED
@given(calls())
@example({**CALLS["exec"], "params": {}})
def test_every_call_can_be_refused(call: Json) -> None:
    told = codex.refuse(sent(call), End(None, "Nobody was asked."), Manner())
    assert not permits(told)
    assert told["id"] == call["id"]


@pytest.mark.shared
@pytest.mark.skipif(not SCHEMAS.exists(), reason="the specification's files are not beside the project")
@UNHURRIED
@given(calls(), st.data())
def test_whatever_codex_is_told_it_can_read(call: Json, data: st.DataObject) -> None:
    request = question(call).request
    end = data.draw(ends(request.options))
    told = codex.answer(sent(call), sent(call), end, Manner())
    fits_as_answer(call, told, older=call["codex_version"] == "0.144.6")


@UNHURRIED
@given(st.dictionaries(st.sampled_from(["id", "method", "params", "jsonrpc", "userAgent"]), JSON), JSON)
def test_no_message_is_too_strange_to_be_refused(message: Json, params: Any) -> None:
    for method in [*(call["method"] for call in CALLS.values()), "tool/requestUserInput"]:
        body = sent({**message, "method": method, "params": params})
        told = codex.refuse(body, End(None, "Nobody was asked."), Manner())
        assert not permits(told)
