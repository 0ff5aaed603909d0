from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, Option, Outcome, PermissionRequest, TextPreview
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import langchain, strict_json
from agentpod_bot.harness.adapter import Ask, End, Settled
from agentpod_bot.harness.naming import NO_SESSION
from agentpod_bot.harness.opaque import fault_of_id
from agentpod_bot.harness.options import allow_once
from tests.unit.harness.acp_samples import (
    BOTS_NO,
    DENY,
    MANNERS,
    UNDECIDED,
    Golden,
    answered,
    asked,
    goldens,
    selected,
    shown,
)

YES = allow_once()


def action(name: str = "send_email", **args: Any) -> dict[str, Any]:
    return {"name": name, "args": args}


def config(*decisions: str, name: str = "send_email") -> dict[str, Any]:
    return {"action_name": name, "allowed_decisions": list(decisions)}


def request(*actions: Any, configs: Any = None, **more: Any) -> bytes:
    configs = [config("approve", "reject")] if configs is None else configs
    return json.dumps({"action_requests": actions or [action()], "review_configs": configs} | more).encode()


def listed(*flags: str, **args: Any) -> dict[str, Any]:
    return {"action_request": {"action": "send_email", "args": args}, "config": dict.fromkeys(flags, True)}


def interrupts(*items: Any) -> bytes:
    return json.dumps(items).encode()


def told(body: bytes, end: End) -> Any:
    return langchain.answer(body, body, end, DENY)


def faults(body: bytes) -> list[tuple[str | int, ...]]:
    with pytest.raises(Invalid) as refused:
        langchain.parse(body, DENY)
    return [refused.value.loc, *(loc for loc, _ in refused.value.more)]


def meanings(question: PermissionRequest) -> list[Meaning]:
    return [option.meaning for option in question.options]


@pytest.mark.parametrize("golden", goldens("langchain"), ids=lambda golden: golden.name)
def test_a_known_call_is_asked_and_answered_as_its_golden_file_says(golden: Golden) -> None:
    assert shown(asked(langchain, golden.body)) == golden.shown
    assert answered(langchain, golden.body) == golden.answers


def test_one_yes_answers_every_action_and_one_no_refuses_each_with_its_reason() -> None:
    body = request(action(), action(), action())
    yes, no = asked(langchain, body).options
    assert told(body, selected(yes)) == {"decisions": [{"type": "approve"}] * 3}
    reason = "@owner:hs.example refused this in Matrix: too early"
    assert told(body, selected(no, "too early")) == {"decisions": [{"type": "reject", "message": reason}] * 3}


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [
        (("approve", "edit", "reject", "respond"), [Meaning.APPROVE, Meaning.REJECT]),
        (("edit", "reject"), [Meaning.REJECT]),
        (("approve", "edit"), [Meaning.APPROVE]),
        (("Approve", "reject"), [Meaning.REJECT]),
    ],
)
def test_only_what_the_graph_takes_is_offered(allowed: tuple[str, ...], offered: list[Meaning]) -> None:
    assert meanings(asked(langchain, request(configs=[config(*allowed)]))) == offered


@pytest.mark.parametrize("allowed", [(), ("edit",), ("respond",), ("edit", "respond")])
def test_a_request_that_nobody_here_could_answer_is_refused(allowed: tuple[str, ...]) -> None:
    assert faults(request(configs=[config(*allowed)])) == [("review_configs",)]


def test_an_approval_that_one_action_does_not_take_is_given_to_none() -> None:
    body = request(
        action("a"), action("b"), configs=[config("approve", "reject", name="a"), config("reject", name="b")]
    )
    assert meanings(asked(langchain, body)) == [Meaning.REJECT]
    assert [each["type"] for each in told(body, selected(YES))["decisions"]] == ["reject", "reject"]


@pytest.mark.parametrize("decisions", [(("approve", "reject"), ("reject",)), (("reject",), ("approve", "reject"))])
def test_two_configs_for_one_action_allow_what_both_allow(decisions: tuple[tuple[str, ...], ...]) -> None:
    body = request(configs=[config(*each) for each in decisions])
    assert meanings(asked(langchain, body)) == [Meaning.REJECT]


def test_a_no_is_said_as_the_tools_result_where_it_cannot_be_said_otherwise() -> None:
    body = request(configs=[config("approve", "respond")])
    assert told(body, selected(BOTS_NO))["decisions"] == [
        {"type": "respond", "message": "@owner:hs.example refused this in Matrix."}
    ]


def test_a_no_that_the_graph_did_not_offer_is_still_a_no() -> None:
    body = request(configs=[config("approve")])
    assert [each["type"] for each in told(body, selected(BOTS_NO))["decisions"]] == ["reject"]


def test_the_deprecated_list_is_answered_as_a_list() -> None:
    body = interrupts(listed("allow_accept", "allow_ignore"), listed("allow_accept", "allow_respond", "allow_ignore"))
    yes, no = asked(langchain, body).options
    assert told(body, selected(yes)) == [{"type": "accept", "args": None}] * 2
    assert told(body, selected(no)) == [{"type": "ignore", "args": None}] * 2
    reason = "@owner:hs.example refused this in Matrix: too early"
    assert told(body, selected(no, "too early")) == [
        {"type": "ignore", "args": None},
        {"type": "response", "args": reason},
    ]


def test_a_reason_of_the_deprecated_list_is_a_persons_and_silence_is_not() -> None:
    body = interrupts(listed("allow_accept", "allow_respond", "allow_ignore"))
    expired = End(Outcome.EXPIRED, "Nobody answered in time.", comment="too early")
    assert told(body, expired) == [{"type": "ignore", "args": None}]


@pytest.mark.parametrize("flags", [(), ("allow_accept",), ("allow_accept", "allow_edit")])
def test_a_list_that_leaves_no_way_to_refuse_is_not_asked(flags: tuple[str, ...]) -> None:
    assert faults(interrupts(listed("allow_accept", "allow_ignore"), listed(*flags))) == [()]


@pytest.mark.parametrize("value", [1, "true", [True], None, False])
def test_a_flag_allows_only_where_it_is_true(value: Any) -> None:
    item = listed("allow_ignore")
    item["config"]["allow_accept"] = value
    assert meanings(asked(langchain, interrupts(item))) == [Meaning.REJECT]


def test_an_interrupt_without_actions_is_settled_with_as_many_answers() -> None:
    for body, answer in ((b"[]", []), (b'{"action_requests":[],"review_configs":[]}', {"decisions": []})):
        call = langchain.parse(body, DENY)
        assert isinstance(call, Settled)
        assert call.answer == answer


def test_every_action_is_shown_with_its_arguments_and_whose_they_are() -> None:
    one = asked(langchain, request(action(to="a@b.example", text="Hi\nYou")))
    assert one.title == "send_email"
    assert one.preview == (
        FieldPreview("Tool", "send_email"),
        FieldPreview("to", "a@b.example"),
        TextPreview("text", "Hi\nYou"),
        FieldPreview("Allowed answers", "approve, reject"),
    )
    two = asked(langchain, request(action(command="ls"), action(to="x")))
    assert two.title == "2 actions: send_email (2)"
    assert two.preview == (
        FieldPreview("Action 1", "send_email"),
        TextPreview("Action 1 Command", "ls", "bash"),
        FieldPreview("Action 1 Allowed answers", "approve, reject"),
        FieldPreview("Action 2", "send_email"),
        FieldPreview("Action 2 to", "x"),
        FieldPreview("Action 2 Allowed answers", "approve, reject"),
    )


def test_one_action_is_asked_in_the_usual_words_and_several_in_words_for_all() -> None:
    assert [option.label for option in asked(langchain, request()).options] == ["Allow once", "Reject"]
    both = asked(langchain, request(action(), action()))
    assert [each.printed for each in offer(both.options, withhold=Withhold.NOTHING)] == ["Allow all", "Reject all"]


def test_a_thread_is_the_session_and_calls_that_say_the_same_are_twins() -> None:
    body = request(thread_id="thread-7")
    question = asked(langchain, body)
    assert (question.session_id, question.request_id) == ("thread-7", None)
    assert asked(langchain, request()).session_id == NO_SESSION
    assert question.hold is not None
    assert fault_of_id(question.hold.twin or "") is None
    assert question.hold == asked(langchain, body).hold
    assert question.hold != asked(langchain, request(thread_id="thread-8")).hold
    assert question.hold != asked(langchain, request(action(to="x"), thread_id="thread-7")).hold


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (b"{}", [("action_requests",)]),
        (b'{"action_requests":[]}', [("review_configs",)]),
        (request(configs=[]), [("action_requests", 0, "name")]),
        (request(configs=[config("approve", name="other")]), [("action_requests", 0, "name")]),
        (
            request(configs=[{"allowed_decisions": []}]),
            [("review_configs", 0, "action_name"), ("action_requests", 0, "name")],
        ),
        (request({"args": {}}), [("action_requests", 0, "name")]),
        (request({"name": "send_email"}), [("action_requests", 0, "args")]),
        (request("x"), [("action_requests", 0)]),
        (interrupts("x"), [(0, "action_request"), (0, "config")]),
        (interrupts({"action_request": {"action": "a", "args": {}}}), [(0, "config")]),
        (interrupts({"config": {}, "action_request": {"args": {}}}), [(0, "action_request", "action")]),
    ],
)
def test_what_is_required_and_missing_is_named(body: bytes, at: list[Any]) -> None:
    assert faults(body) == at


def test_a_config_that_does_not_say_what_it_allows_allows_nothing() -> None:
    places = faults(request(configs=[{"action_name": "send_email", "allowed_decisions": "approve"}]))
    assert places[0] == ("review_configs", 0, "allowed_decisions")


@pytest.mark.parametrize("body", [b"3", b'"text"', b"null", b"true"])
def test_a_body_that_is_neither_object_nor_list_is_refused(body: bytes) -> None:
    assert faults(body) == [()]
    with pytest.raises(Invalid):
        strict_json.read(body)


@pytest.mark.parametrize("body", [b"", b"[", b"\xff", b'[{"a":1,"a":2}]', b"[NaN]", b"\xef\xbb\xbf[]"])
def test_a_list_is_read_as_strictly_as_an_object(body: bytes) -> None:
    with pytest.raises(MalformedJson):
        langchain.parse(body, DENY)


def test_a_lone_surrogate_in_a_list_is_refused_at_its_place() -> None:
    assert faults(b'[1,{"x":["\\ud800"]}]') == [(1, "x", 0)]


def test_an_object_is_still_all_that_other_harnesses_read() -> None:
    with pytest.raises(Invalid):
        strict_json.read(b"[]")


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("end", UNDECIDED)
def test_what_nobody_decided_refuses_each_action(end: End, manner: Any) -> None:
    ended = replace(end, option=YES)
    no = {"type": "reject", "message": end.reason}
    for answer in (langchain.answer(request(), b"", ended, manner), langchain.refuse(request(), ended, manner)):
        assert answer == {"decisions": [no]}
    answered_list: Any = langchain.answer(interrupts(listed("allow_accept", "allow_ignore")), b"", ended, manner)
    assert answered_list == [{"type": "ignore", "args": None}]


@pytest.mark.parametrize("call", [None, b"", b"{}", b"[1]"])
def test_a_call_that_cannot_be_read_is_refused_without_a_single_decision(call: bytes | None) -> None:
    assert langchain.refuse(call, UNDECIDED[-1], DENY) == {"decisions": []}
    assert langchain.answer(call or b"", b"", selected(YES), DENY) == {"decisions": []}


TEXT = st.text(max_size=8)
ARGS = st.dictionaries(TEXT, st.none() | TEXT | st.integers(-5, 5) | st.lists(TEXT, max_size=2), max_size=3)
NAME = st.sampled_from(["a", "b"])
DECISIONS = st.lists(st.sampled_from(["approve", "edit", "reject", "respond", "accept"]), max_size=4)
REQUESTS = st.fixed_dictionaries(
    {
        "action_requests": st.lists(st.fixed_dictionaries({"name": NAME, "args": ARGS}), max_size=3),
        "review_configs": st.lists(
            st.fixed_dictionaries({"action_name": NAME, "allowed_decisions": DECISIONS}), max_size=3
        ),
    }
)
FLAG = st.sampled_from([True, False, None, "true"])
INTERRUPTS = st.lists(
    st.fixed_dictionaries(
        {
            "action_request": st.fixed_dictionaries({"action": NAME, "args": ARGS}),
            "config": st.fixed_dictionaries(
                {}, optional=dict.fromkeys(("allow_accept", "allow_ignore", "allow_respond", "allow_edit"), FLAG)
            ),
        }
    ),
    max_size=3,
)


@given(content=REQUESTS | INTERRUPTS, data=st.data())
@settings(deadline=None)
def test_only_a_persons_approval_lets_anything_run_and_every_action_has_its_answer(
    content: Any, data: st.DataObject
) -> None:
    body = json.dumps(content).encode()
    try:
        call = langchain.parse(body, DENY)
    except Invalid:
        return
    actions = content if isinstance(content, list) else content["action_requests"]
    if isinstance(call, Settled):
        assert not actions
        return
    assert isinstance(call, Ask)
    options = [each.option for each in offer(call.request.options, withhold=Withhold.NOTHING)]
    option: Option = data.draw(st.sampled_from(options))
    for end in (
        *UNDECIDED,
        *(replace(end, option=YES) for end in UNDECIDED),
        selected(option),
        selected(BOTS_NO, "no"),
    ):
        answer: Any = told(body, end)
        decisions = answer if isinstance(content, list) else answer["decisions"]
        assert len(decisions) == len(actions)
        kinds = {decision["type"] for decision in decisions}
        assert (kinds <= {"approve", "accept"}) == end.approves
        assert end.approves or kinds <= {"reject", "respond", "ignore", "response"}
