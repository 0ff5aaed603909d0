from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.lifecycle import Cancelled
from agentpod_bot.core.model import FieldPreview, Hold, Meaning, PermissionRequest, TextPreview
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import naming, open_science
from agentpod_bot.harness.adapter import Ask, Close, Settled
from tests.unit.harness.acp_samples import (
    BOTS_NO,
    DENY,
    MANNERS,
    UNDECIDED,
    Golden,
    answered,
    asked,
    foreign,
    goldens,
    selected,
    shown,
)

ONCE = {"optionId": "allow", "name": "Allow", "kind": "allow_once"}
ALWAYS = {"optionId": "always", "name": "Always allow", "kind": "allow_always"}
REJECT = {"optionId": "no", "name": "Deny", "kind": "reject_once"}
NEVER = {"optionId": "never", "name": "Reject", "kind": "reject_always"}
OTHER = {"optionId": "other", "name": "Ask later", "kind": "_later"}
REQUEST: dict[str, Any] = {"requestId": "r-1", "sessionId": "sess_1", "toolCallId": "call_1", "title": "Run bun test"}
CANCELLED = {"requestId": "r-1", "cancelled": True}


def body(*options: Any, **changes: Any) -> bytes:
    return json.dumps(REQUEST | {"options": options or (ONCE, REJECT)} | changes).encode()


def printed(request: PermissionRequest) -> list[str]:
    return [each.printed for each in offer(request.options, withhold=Withhold.NOTHING)]


def closed(**content: Any) -> Close:
    call = open_science.parse(json.dumps(content).encode(), DENY)
    assert isinstance(call, Close)
    return call


@pytest.mark.parametrize("golden", goldens("open-science"), ids=lambda golden: golden.name)
def test_a_known_call_is_asked_and_answered_as_its_golden_file_says(golden: Golden) -> None:
    assert shown(asked(open_science, golden.body)) == golden.shown
    assert answered(open_science, golden.body) == golden.answers


def test_options_stand_in_the_order_of_its_windows_whatever_order_they_came_in() -> None:
    request = asked(open_science, body(OTHER, NEVER, REJECT, ONCE, ALWAYS))
    assert [option.option_id for option in request.options] == ["always", "allow", "never", "no", "other"]


def test_options_are_called_as_in_its_windows_and_lasting_rejections_are_kept_apart() -> None:
    request = asked(open_science, body(ALWAYS, ONCE, REJECT, NEVER, OTHER))
    assert printed(request) == ["Always", "Allow once", "Reject", "Never allow", "Ask later (other)"]


def test_a_kind_is_read_in_any_case() -> None:
    request = asked(open_science, body(ONCE | {"kind": "Allow_Once"}, REJECT | {"kind": "REJECT_ONCE"}))
    assert [option.meaning for option in request.options] == [Meaning.APPROVE, Meaning.REJECT]


def test_two_options_of_one_kind_carry_the_providers_own_names() -> None:
    request = asked(open_science, body(ALWAYS | {"optionId": "a", "name": "npm"}, ALWAYS | {"optionId": "b"}, REJECT))
    assert printed(request) == ["Always · npm", "Always · Always allow", "Reject"]


def test_a_providers_name_never_stands_in_for_what_its_kind_does() -> None:
    request = asked(open_science, body(ALWAYS | {"name": "Reject"}, REJECT | {"name": "Allow once"}))
    assert printed(request) == ["Always", "Reject"]
    assert request.preview == (FieldPreview("Name of Always", "Reject"),)


@pytest.mark.parametrize("option", [ONCE, ALWAYS])
def test_a_providers_name_that_is_cut_beside_its_kind_stands_whole_in_the_preview(option: dict[str, str]) -> None:
    name = "word " * 29 + "last"
    sent = body(option | {"optionId": "a", "name": name}, option | {"optionId": "b"}, REJECT)
    request = asked(open_science, sent)
    assert request.options[0].label.endswith("…")
    assert request.preview == (FieldPreview("Option a", name),)
    told = open_science.answer(sent, sent, selected(request.options[0]), DENY)
    assert told == {"requestId": "r-1", "optionId": "a"}


def test_a_request_of_an_agent_that_gave_no_title_says_so() -> None:
    request = asked(open_science, body(title="call_1"))
    assert request.title == "Tool call, not described by the agent: call_1"
    assert (request.preview, request.preview_complete) == ((), False)
    assert asked(open_science, body()).preview_complete is True


def test_the_first_generation_shows_the_request_inside_of_it() -> None:
    call = {"toolCallId": "call_1", "kind": "execute", "rawInput": {"command": "bun test"}, "content": ["bad"]}
    request = asked(open_science, body(raw={"sessionId": "sess_1", "toolCall": call, "options": []}))
    assert request.preview == (TextPreview("Command", "bun test", "bash"),)
    assert (request.tool_kind, request.preview_complete) == ("execute", False)


def test_the_second_generation_shows_what_stands_beside_the_call() -> None:
    request = asked(
        open_science,
        body(
            rawInput={"command": "npm test"}, toolLocations=["/a"], commandPrefix=["npm"], isMcp=False, delegated=True
        ),
    )
    assert request.preview == (
        TextPreview("Command", "npm test", "bash"),
        FieldPreview("Location", "/a"),
        FieldPreview("commandPrefix", '["npm"]'),
        FieldPreview("delegated", "true"),
    )


def test_one_request_id_is_one_question() -> None:
    request = asked(open_science, body())
    assert request.request_id == asked(open_science, body(title="Other")).request_id
    assert request.request_id != asked(open_science, body(requestId="r-2")).request_id
    assert (request.session_id, request.hold) == ("sess_1", Hold())


@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("end", UNDECIDED)
def test_what_nobody_decided_is_cancelled(end: Any, manner: Any) -> None:
    once = asked(open_science, body()).options[0]
    assert open_science.answer(body(), body(), end, manner) == CANCELLED
    assert open_science.answer(body(), body(), replace(end, option=once), manner) == CANCELLED
    assert open_science.refuse(body(), end, manner) == CANCELLED


def test_an_option_that_was_not_offered_is_cancelled() -> None:
    for option in asked(open_science, body()).options:
        assert open_science.answer(body(), body(), selected(foreign(option)), DENY) == CANCELLED
    assert open_science.answer(body(ONCE), body(ONCE), selected(BOTS_NO), DENY) == CANCELLED


def test_the_answer_goes_to_the_call_that_is_answered() -> None:
    once = asked(open_science, body()).options[0]
    again = body(requestId="r-9")
    assert open_science.answer(body(), again, selected(once), DENY) == {"requestId": "r-9", "optionId": "allow"}


@pytest.mark.parametrize("call", [None, b"{", b"[]", b"{}"])
def test_a_call_that_cannot_be_read_is_refused_as_cancelled(call: bytes | None) -> None:
    assert open_science.refuse(call, UNDECIDED[-1], DENY) == {"requestId": None, "cancelled": True}


def test_a_stored_body_that_this_version_cannot_read_is_answered_as_cancelled() -> None:
    once = asked(open_science, body()).options[0]
    for stored in (b"", b"{}", b'{"requestId":"r-1","options":[1]}'):
        assert open_science.answer(stored, body(), selected(once), DENY) == CANCELLED


def test_a_request_without_options_is_settled_as_cancelled() -> None:
    call = open_science.parse(json.dumps(REQUEST | {"options": []}).encode(), DENY)
    assert isinstance(call, Settled)
    assert call.answer == CANCELLED


def test_a_cancelled_session_closes_its_own_questions_and_everything_closes_all() -> None:
    close = closed(cancelForSession="sess_1")
    assert isinstance(close.event, Cancelled)
    assert (close.session_id, close.prefixes, close.every) == (naming.session_id("sess_1"), ("",), True)
    for name in ("cancelAll", "cancelAllPending"):
        close = closed(**{name: True})
        assert isinstance(close.event, Cancelled)
        assert (close.session_id, close.prefixes, close.every, close.answer) == (None, ("",), True, {})


@pytest.mark.parametrize("content", [{"cancelForSession": ""}, {"cancelForSession": 1}, {"cancelAll": False}])
def test_a_cancellation_that_is_not_plainly_one_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(Invalid) as refused:
        open_science.parse(json.dumps(content).encode(), DENY)
    assert refused.value.loc == (*content,)


def test_a_request_that_also_says_cancel_is_asked() -> None:
    assert asked(open_science, body(cancelAll=True)).title == "Run bun test"


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"requestId": None}, [("requestId",)]),
        ({"requestId": 4, "options": None}, [("requestId",), ("options",)]),
        ({"options": [{"optionId": "a"}]}, [("options", 0)]),
        ({"options": [ONCE, ONCE]}, [("options",)]),
    ],
)
def test_what_is_required_and_missing_is_named(changes: dict[str, Any], at: list[Any]) -> None:
    with pytest.raises(Invalid) as refused:
        open_science.parse(body(**changes), DENY)
    assert [refused.value.loc, *(loc for loc, _ in refused.value.more)] == at


def test_a_body_that_two_readers_could_read_differently_is_no_call() -> None:
    with pytest.raises(MalformedJson):
        open_science.parse(b'{"requestId":"a","requestId":"b"}', DENY)


TEXT = st.text(max_size=10)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
KIND = st.sampled_from(["allow_once", "ALLOW_ALWAYS", "reject_once", "reject_always", "_other"])
OPTIONS = st.lists(
    st.fixed_dictionaries({"optionId": TEXT, "name": TEXT, "kind": KIND}),
    min_size=1,
    max_size=6,
    unique_by=lambda option: option["optionId"],
)
NAMES = ("sessionId", "toolCallId", "title", "raw", "rawInput", "toolKind", "toolLocations", "mcpIdentity", "durable")


@given(options=OPTIONS, more=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, ANYTHING)), data=st.data())
@settings(deadline=None)
def test_whatever_was_asked_only_the_option_that_a_person_selected_goes_back(
    options: list[Any], more: dict[str, Any], data: st.DataObject
) -> None:
    sent = json.dumps({"requestId": "r-1", "options": options} | more).encode()
    try:
        call = open_science.parse(sent, DENY)
    except Invalid:
        return
    assert isinstance(call, Ask)
    option = data.draw(
        st.sampled_from([each.option for each in offer(call.request.options, withhold=Withhold.NOTHING)])
    )
    kinds = {each["optionId"]: each["kind"].lower() for each in options}
    for end in (*UNDECIDED, *(replace(end, option=option) for end in UNDECIDED), selected(option), selected(BOTS_NO)):
        told = open_science.answer(sent, sent, end, DENY)
        if "optionId" in told:
            assert end.option == option
            assert kinds[told["optionId"]].startswith("allow") == end.approves
            assert kinds[told["optionId"]].startswith("reject") == end.rejects
        else:
            assert told == CANCELLED
            assert end.outcome is None or end.option in (None, BOTS_NO) or not (end.approves or end.chooses)
