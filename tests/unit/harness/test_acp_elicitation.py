from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import MAX_OPTIONS, Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import acp
from agentpod_bot.harness.adapter import Ask, Settled
from agentpod_bot.harness.naming import NO_SESSION
from tests.unit.harness.acp_samples import BOTS_NO, DENY, UNDECIDED, asked, foreign, selected

CANCEL = {"action": "cancel"}
DECLINE = {"action": "decline"}
LEVELS: dict[str, Any] = {"type": "string", "title": "Strategy", "enum": ["low", "high"]}


def form(field: Any = LEVELS, *, schema: dict[str, Any] | None = None, **params: Any) -> bytes:
    whole = {"type": "object", "properties": {"strategy": field}} | (schema or {})
    fields = {"sessionId": "s", "mode": "form", "message": "Which way?", "requestedSchema": whole} | params
    return json.dumps({"jsonrpc": "2.0", "id": 43, "method": "elicitation/create", "params": fields}).encode()


def told(body: bytes, end: Any) -> Any:
    return acp.answer(body, body, end, DENY)["result"]


def settled(body: bytes) -> Any:
    call = acp.parse(body, DENY)
    assert isinstance(call, Settled)
    assert call.why
    return call.answer["result"]


def test_each_choice_is_sent_as_the_value_that_the_form_names() -> None:
    options = asked(acp, form()).options
    assert [option.label for option in options] == ["low", "high", "Decline"]
    assert [told(form(), selected(option)) for option in options] == [
        {"action": "accept", "content": {"strategy": "low"}},
        {"action": "accept", "content": {"strategy": "high"}},
        DECLINE,
    ]


def test_no_choice_is_an_approval_and_declining_is_a_rejection() -> None:
    assert [option.meaning for option in asked(acp, form()).options] == [
        Meaning.CHOOSE,
        Meaning.CHOOSE,
        Meaning.REJECT,
    ]


def test_a_yes_or_no_is_sent_as_a_boolean() -> None:
    body = form({"type": "boolean"})
    yes, no, _ = asked(acp, body).options
    assert told(body, selected(yes))["content"] == {"strategy": True}
    assert told(body, selected(no))["content"] == {"strategy": False}


def test_a_title_is_shown_together_with_the_value_that_it_stands_for() -> None:
    values = [{"const": "rm -rf", "title": "Clean", "description": "All of it"}, {"const": "", "title": " "}]
    body = form({"type": "string", "oneOf": values})
    request = asked(acp, body)
    assert [option.label for option in request.options] == ["Clean", "(an empty text)", "Decline"]
    assert FieldPreview("Choice 1 sends", "rm -rf") in request.preview
    assert FieldPreview("Choice 1 means", "All of it") in request.preview
    assert told(body, selected(request.options[1]))["content"] == {"strategy": ""}


def test_a_long_choice_is_named_whole_in_the_preview_and_sent_whole() -> None:
    value = "word " * 60
    body = form({"type": "string", "enum": [value]})
    request = asked(acp, body)
    assert FieldPreview("Choice 1", value) in request.preview
    assert told(body, selected(request.options[0]))["content"] == {"strategy": value}
    assert offer(request.options, withhold=Withhold.NOTHING)


def test_more_choices_than_a_room_offers_are_counted_and_never_cost_the_way_out() -> None:
    body = form({"type": "string", "enum": [f"v{number}" for number in range(40)]})
    request = asked(acp, body)
    assert len(request.options) == MAX_OPTIONS
    assert request.options[-1].label == "Decline"
    assert request.preview[-1] == FieldPreview("Options left out", "21")
    assert told(body, selected(replace(request.options[0], option_id=OptionId("choice:19")))) == CANCEL


def test_a_value_that_stands_there_twice_is_offered_once() -> None:
    request = asked(acp, form({"type": "string", "enum": ["b", "a", "b"]}))
    assert [option.label for option in request.options] == ["b", "a", "Decline"]


def test_the_whole_message_is_shown_where_the_title_is_not_all_of_it() -> None:
    assert asked(acp, form()).title == "Which way?"
    assert not any(isinstance(part, TextPreview) for part in asked(acp, form()).preview)
    request = asked(acp, form(message="\nWhich way?\nThink."))
    assert request.title == "Which way?"
    assert request.preview[0] == TextPreview("Message", "\nWhich way?\nThink.")
    assert asked(acp, form(message=" ")).title == "A choice that the agent did not describe"


def test_an_elicitation_outside_of_a_session_is_asked_too() -> None:
    request = asked(acp, form(sessionId=None, requestId=12))
    assert request.session_id == NO_SESSION
    assert request.request_id != asked(acp, form()).request_id


@pytest.mark.parametrize(
    "body",
    [
        form(mode="url", url="https://example.org/connect", elicitationId="el_1", requestedSchema=None),
        form(mode="_new"),
        form({"type": "string"}),
        form({"type": "string", "enum": []}),
        form({"type": "string", "enum": ["a", 1]}),
        form({"type": "string", "enum": ["a"], "oneOf": [{"const": "b", "title": "a"}]}),
        form({"type": "string", "oneOf": [{"const": "b"}]}),
        form({"type": "string", "oneOf": []}),
        form({"type": "array", "items": {"type": "string", "enum": ["a"]}}),
        form({"type": "integer"}),
        form({"enum": ["a"]}),
        form("text"),
        form(schema={"properties": {}}),
        form(schema={"properties": {"a": LEVELS, "note": {"type": "string"}}}),
        form(schema={"required": ["strategy", "other"]}),
        form(schema={"required": "strategy"}),
        form(schema={"properties": []}),
    ],
)
def test_a_form_that_is_not_one_choice_is_declined_at_once(body: bytes) -> None:
    assert settled(body) == DECLINE


@pytest.mark.parametrize(
    ("params", "name"),
    [({"mode": None}, "mode"), ({"message": 5}, "message"), ({"requestedSchema": None}, "requestedSchema")],
)
def test_what_a_form_lacks_is_named(params: dict[str, Any], name: str) -> None:
    with pytest.raises(Invalid) as refused:
        acp.parse(form(**params), DENY)
    assert refused.value.loc == ("params", name)


@pytest.mark.parametrize("end", UNDECIDED)
def test_what_nobody_decided_is_cancelled_and_not_declined(end: Any) -> None:
    first = asked(acp, form()).options[0]
    assert told(form(), end) == CANCEL
    assert told(form(), replace(end, option=first)) == CANCEL
    assert acp.refuse(form(), end, DENY)["result"] == CANCEL


def test_a_choice_that_the_form_does_not_have_is_never_sent() -> None:
    first = asked(acp, form()).options[0]
    assert told(form(), selected(foreign(first))) == CANCEL
    assert told(form(), selected(replace(first, meaning=Meaning.APPROVE))) == CANCEL
    assert told(form(), selected(BOTS_NO)) == DECLINE


def test_parameters_alone_are_known_as_a_form_by_what_they_hold() -> None:
    params = json.loads(form())["params"]
    body = json.dumps(params).encode()
    end = selected(asked(acp, body).options[0])
    assert acp.answer(body, body, end, DENY) == {"action": "accept", "content": {"strategy": "low"}}


VALUES = st.lists(st.text(max_size=8), max_size=4)
FIELD = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "boolean", "integer"])},
    optional={
        "enum": VALUES,
        "oneOf": st.lists(
            st.fixed_dictionaries({"const": st.text(max_size=5), "title": st.text(max_size=5)}), max_size=3
        ),
        "title": st.text(max_size=5),
        "default": st.text(max_size=5) | st.booleans() | st.none(),
    },
)


@given(field=FIELD, message=st.text(max_size=20), data=st.data())
@settings(deadline=None)
def test_only_a_choice_of_a_person_is_accepted_and_it_is_one_of_the_forms_own(
    field: dict[str, Any], message: str, data: st.DataObject
) -> None:
    body = form(field, message=message)
    call = acp.parse(body, DENY)
    if isinstance(call, Settled):
        assert call.answer["result"] == DECLINE
        return
    assert isinstance(call, Ask)
    own = [*field.get("enum", []), *(each["const"] for each in field.get("oneOf", [])), True, False]
    option = data.draw(
        st.sampled_from([each.option for each in offer(call.request.options, withhold=Withhold.NOTHING)])
    )
    for end in (*UNDECIDED, selected(option), selected(BOTS_NO)):
        answer = told(body, end)
        assert (answer["action"] == "accept") == end.chooses
        assert (answer["action"] == "decline") == end.rejects
        if end.chooses:
            (value,) = answer["content"].values()
            assert value in own
