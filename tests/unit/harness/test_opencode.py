from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.ids import OptionId, UserId
from agentpod_bot.core.labels import Withhold, check, offer
from agentpod_bot.core.lifecycle import AnsweredElsewhere
from agentpod_bot.core.model import (
    BOTS_OWN_REJECT,
    Claim,
    FieldPreview,
    Hold,
    Meaning,
    Option,
    Outcome,
    PermissionRequest,
    Scope,
    TextPreview,
)
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import opencode
from agentpod_bot.harness.adapter import Ask, Close, End, Harness, Manner, WhenUnanswered
from agentpod_bot.harness.naming import MOST_LABEL
from agentpod_bot.harness.reasons import EXPIRED, unasked

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "harness" / "opencode"
CASES = sorted(path.stem for path in GOLDEN.glob("*.json"))
GENERATIONS = {"first_generation": "response", "second_generation": "reply", "second_api": "reply"}
OWNER = UserId("@owner:example.org")
REFUSED = f"{OWNER} refused this in Matrix: use a branch"
MANNER = Manner()
NO_DECISION = [outcome for outcome in Outcome if outcome is not Outcome.SELECTED]

adapter: Harness = opencode


def golden(case: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))
    return content


def body(event: Any) -> bytes:
    return json.dumps(event).encode()


def call_of(case: str = "second_generation", **changes: Any) -> bytes:
    """The case's event with some members of its payload changed; None leaves one out."""
    event = golden(case)["call"]
    place = "data" if "data" in event else "properties"
    payload = {name: value for name, value in (event[place] | changes).items() if value is not None}
    return body(event | {place: payload})


def asked(sent: bytes) -> PermissionRequest:
    call = opencode.parse(sent, MANNER)
    assert isinstance(call, Ask)
    return call.request


def chosen(option: Option, reason: str = "") -> End:
    return End(Outcome.SELECTED, reason or f"{OWNER} decided.", option=option, by=OWNER)


def words(answer: dict[str, Any]) -> Any:
    return answer.get("reply", answer.get("response"))


@pytest.mark.parametrize("case", CASES)
def test_an_event_of_each_generation_is_asked_and_answered_as_its_server_takes_it(case: str) -> None:
    known = golden(case)
    sent = body(known["call"])
    request = asked(sent)
    assert request.title == known["title"]
    assert [option.label for option in request.options] == known["options"]
    for option in request.options:
        end = chosen(option, REFUSED if option.option_id == "reject" else "")
        assert opencode.answer(sent, sent, end, MANNER) == known["answers"][option.option_id]
    assert opencode.answer(sent, sent, End(Outcome.EXPIRED, EXPIRED), MANNER) == known["answers"]["expired"]


def test_what_is_shown_is_the_command_then_what_permission_is_asked_for() -> None:
    request = asked(call_of("two_commands"))
    assert request.preview == (
        TextPreview("Command", "mkdir -p out && touch out/x.txt", "bash"),
        FieldPreview("permission", "bash"),
        FieldPreview("patterns", '["mkdir -p out", "touch out/x.txt"]'),
    )
    assert (request.session_id, request.tool_kind, request.agent) == ("ses_02", "execute", "OpenCode")
    assert request.hold == Hold()
    assert request.preview_complete


def test_a_diff_is_shown_as_one_and_an_edit_without_its_diff_is_not_all() -> None:
    patch = "--- a.py\n+++ a.py\n-a\n+b\n"
    metadata = {"filepath": "src/a.py", "diff": patch}
    edit = asked(call_of(permission="edit", patterns=["src/a.py"], always=["*"], metadata=metadata))
    assert edit.preview[:2] == (FieldPreview("filepath", "src/a.py"), TextPreview("diff", patch, "diff"))
    assert edit.title == "edit: src/a.py"
    assert edit.tool_kind == "edit"
    assert edit.preview_complete
    for lacking in ({"filepath": "src/a.py"}, {"diff": " "}, {"diff": ["x"]}, None, "text"):
        assert not asked(call_of(permission="edit", metadata=lacking)).preview_complete


@pytest.mark.parametrize("metadata", [{}, None, [], ""])
@pytest.mark.parametrize("patterns", [["*"], "*", [], None, ["*", "*"]])
def test_a_tool_of_which_nothing_says_with_what_it_is_called_is_not_all(metadata: Any, patterns: Any) -> None:
    assert not asked(call_of(permission="docs_delete", patterns=patterns, metadata=metadata)).preview_complete
    assert asked(call_of(permission="docs_delete", patterns=patterns, metadata={"q": "x"})).preview_complete
    assert asked(call_of(permission="docs_delete", patterns=["docs/*"], metadata=metadata)).preview_complete


def test_with_what_a_tool_of_an_mcp_server_is_called_is_shown_where_the_plugin_knows_it() -> None:
    said = {"path": "a/b", "permission": "read", "force": "true", "Note": "x"}
    request = asked(call_of(permission="docs_delete", patterns=["*"], metadata={}, input=said))
    assert request.title == "docs_delete: a/b"
    assert request.preview == (
        FieldPreview("Input path", "a/b"),
        FieldPreview("Input permission", "read"),
        FieldPreview("Input force", '"true"'),
        FieldPreview("Input Note", "x"),
        FieldPreview("permission", "docs_delete"),
        FieldPreview("patterns", '["*"]'),
    )
    assert request.preview_complete


@pytest.mark.parametrize(("said", "complete"), [({}, True), (None, False), ("rm", True), ([1], True)])
@pytest.mark.parametrize("case", ["first_generation", "second_generation", "second_api"])
def test_a_tool_that_is_known_to_be_called_with_nothing_lacks_nothing(case: str, said: Any, *, complete: bool) -> None:
    names = {"first_generation": "pattern", "second_generation": "patterns", "second_api": "resources"}
    request = asked(call_of(case, metadata={}, input=said, **{names[case]: ["*"]}))
    assert request.preview_complete is complete
    assert (str(said) in str(request.preview)) is (said == "rm")


def test_of_an_input_only_that_is_shown_which_the_metadata_do_not_say() -> None:
    said = {"command": "ls", "timeout": 1, "n": True}
    request = asked(call_of(metadata={"command": "ls", "n": 1}, input=said))
    assert [getattr(part, "label", "") for part in request.preview] == [
        "Command",
        "n",
        "Input timeout",
        "Input n",
        "permission",
        "patterns",
    ]
    other = asked(call_of(metadata={"command": "ls"}, input={"command": "rm"}))
    assert other.preview[:2] == (TextPreview("Command", "ls", "bash"), TextPreview("Input Command", "rm", "bash"))


def test_an_edit_without_its_diff_lacks_it_whatever_it_is_called_with() -> None:
    said = {"filePath": "a", "newString": "x"}
    assert not asked(call_of(permission="edit", metadata={}, input=said)).preview_complete


def test_a_short_diff_is_a_text_of_its_own_too() -> None:
    request = asked(call_of(permission="edit", metadata={"diff": "+b"}))
    assert request.preview[0] == TextPreview("diff", "+b", "diff")


@pytest.mark.parametrize("metadata", ["rm -rf /", ["rm", 1], 5, {"n": 1.5, "x": {"y": None}}, {"diff": 5}])
def test_metadata_of_any_shape_is_shown(metadata: Any) -> None:
    text = str(asked(call_of(metadata=metadata)).preview)
    for word in ("rm", "5", "y"):
        assert (word in str(metadata)) <= (word in text)


@pytest.mark.parametrize("saved", [[], "", " ", None, ["git *", 5], ["git *", ""], {"git *": True}, 5])
@pytest.mark.parametrize(("case", "name"), [("second_generation", "always"), ("second_api", "save")])
def test_always_is_not_offered_where_it_is_not_clear_what_it_would_save(case: str, name: str, saved: Any) -> None:
    sent = call_of(case, **{name: saved})
    assert [option.option_id for option in asked(sent).options] == ["once", "reject"]
    always = Option(OptionId("always"), "Always allow", Meaning.APPROVE, Scope.ALWAYS)
    answer = opencode.answer(sent, sent, chosen(always), MANNER)
    assert answer == {"reply": "reject", "message": opencode.NOT_OFFERED}


def test_always_is_not_offered_where_it_is_not_clear_for_which_permission() -> None:
    assert len(asked(call_of(permission=None)).options) == 2
    assert len(asked(call_of(permission=7)).options) == 2


@pytest.mark.parametrize(("pattern", "label"), [("git push *", "`git push *`"), (["a *", "b *"], "`a *`, `b *`")])
def test_a_pattern_of_the_first_generation_may_be_one_text(pattern: Any, label: str) -> None:
    assert asked(call_of("first_generation", pattern=pattern)).options[1].label == f"Always allow bash {label}"
    assert len(asked(call_of("first_generation", pattern=None)).options) == 2


def test_patterns_that_a_label_has_no_place_for_are_counted_there_and_all_named_in_the_preview() -> None:
    saved = [f"program-number-{number} *" for number in range(12)]
    request = asked(call_of(always=saved))
    label = request.options[1].label
    assert label.startswith("Always allow bash `program-number-0 *`, `")
    assert label.endswith(" more")
    shown = label.count("`") // 2
    assert label.endswith(f"` and {12 - shown} more")
    assert len(label) <= MOST_LABEL
    last = request.preview[-1]
    assert isinstance(last, TextPreview)
    assert (last.label, json.loads(last.text)) == (opencode.LISTED, saved)


@pytest.mark.parametrize(("saved", "count"), [(["x" * 300], "1 pattern"), (["\u202e" * 40, "y" * 300], "2 patterns")])
def test_a_pattern_is_never_cut_in_a_label(saved: list[str], count: str) -> None:
    request = asked(call_of(always=saved))
    assert request.options[1].label == f"Always allow what is listed above ({count})"
    assert json.loads(str(getattr(request.preview[-1], "text", ""))) == saved


def test_a_label_of_very_many_patterns_costs_no_more_than_one_of_a_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One call must not keep the others waiting."""
    tried: list[str] = []
    monkeypatch.setattr(opencode, "fits", lambda label, _limit: tried.append(label))
    request = asked(call_of(always=["a"] * 20_000))
    assert request.options[1].label == "Always allow what is listed above (20000 patterns)"
    assert len(tried) == MOST_LABEL


def test_a_rejection_without_words_has_a_message_all_the_same() -> None:
    sent = call_of()
    answer = opencode.answer(sent, sent, End(Outcome.EXPIRED, ""), MANNER)
    assert answer == {"reply": "reject", "message": "Nothing was allowed."}


def test_a_label_that_fits_is_not_said_again_in_the_preview() -> None:
    assert opencode.LISTED not in [getattr(part, "label", "") for part in asked(call_of()).preview]


@pytest.mark.parametrize("case", CASES)
def test_labels_are_printed_as_they_are(case: str) -> None:
    options = asked(call_of(case)).options
    assert [each.printed for each in offer(options, withhold=Withhold.NOTHING)] == [each.label for each in options]


@pytest.mark.parametrize("case", GENERATIONS)
@pytest.mark.parametrize("outcome", NO_DECISION)
def test_an_end_without_a_decision_is_a_rejection_that_says_why(case: str, outcome: Outcome) -> None:
    """A rejection without a message would reject what others of the session ask."""
    sent = call_of(case)
    answer = opencode.answer(sent, sent, End(outcome, "why"), Manner(when_unanswered=WhenUnanswered.TERMINAL))
    expected = {"response": "reject"} if case == "first_generation" else {"reply": "reject", "message": "why"}
    assert answer == expected


def test_a_rejection_that_the_bot_itself_offered_is_one() -> None:
    sent = call_of()
    own = Option(BOTS_OWN_REJECT, "Reject", Meaning.REJECT, Scope.ONCE)
    assert opencode.answer(sent, sent, chosen(own, "why"), MANNER) == {"reply": "reject", "message": "why"}


@pytest.mark.parametrize("name", ["Once", "once ", "allow_once", "approve", "", "agentpod.reject"])
def test_an_option_that_was_not_offered_never_allows(name: str) -> None:
    sent = call_of()
    odd = Option(OptionId(name), "Allow once", Meaning.APPROVE, Scope.ONCE)
    assert opencode.answer(sent, sent, chosen(odd), MANNER) == {"reply": "reject", "message": opencode.NOT_OFFERED}


@pytest.mark.parametrize("stored", [b"", b"{}", b'{"type":"permission.replied","properties":{}}'])
def test_always_is_never_said_for_a_stored_call_that_does_not_offer_it(stored: bytes) -> None:
    always = asked(call_of()).options[1]
    assert words(opencode.answer(stored, call_of(), chosen(always), MANNER)) == "reject"


def test_the_reply_is_in_the_words_of_the_call_that_is_answered_now() -> None:
    asked_first, repeat = call_of(), call_of("first_generation")
    once = asked(asked_first).options[0]
    assert opencode.answer(asked_first, repeat, chosen(once), MANNER) == {"response": "once"}


@pytest.mark.parametrize(
    ("event", "reply"),
    [
        ({"type": "permission.replied", "properties": {"requestID": "per_02", "reply": "once"}}, "once"),
        ({"type": "permission.replied", "properties": {"permissionID": "per_02", "response": "always"}}, "always"),
        ({"type": "permission.v2.replied", "data": {"requestID": "per_02", "reply": "reject"}}, "reject"),
        ({"type": "permission.replied", "properties": {"requestID": "per_02", "reply": "maybe"}}, None),
        ({"type": "permission.replied", "properties": {"requestID": "per_02"}}, None),
    ],
)
def test_a_reply_in_opencode_closes_exactly_its_question_and_decides_nothing(event: Any, reply: str | None) -> None:
    place = "data" if "data" in event else "properties"
    event[place]["sessionID"] = "ses_01"
    request = asked(call_of())
    call = opencode.parse(body(event), MANNER)
    assert isinstance(call, Close)
    assert call.prefixes == (request.request_id,)
    assert (call.session_id, call.every, call.answer) == (request.session_id, True, {})
    assert call.event == AnsweredElsewhere(Claim(reply, "OpenCode"))


def test_permissions_are_told_apart_by_session_and_id_in_every_generation() -> None:
    ids = {asked(call_of(id=name, sessionID=session)).request_id for name in ("a", "b") for session in ("a", "b")}
    assert len(ids) == 4
    same = {asked(call_of(case, id="a", sessionID="b")).request_id for case in GENERATIONS}
    assert len(same) == 1


@pytest.mark.parametrize("name", ["id", "sessionID"])
@pytest.mark.parametrize("value", [None, "", 5, ["x"]])
def test_an_event_without_its_ids_is_refused_with_the_path(name: str, value: Any) -> None:
    with pytest.raises(Invalid) as refused:
        asked(call_of(**{name: value}))
    assert refused.value.loc == ("properties", name)


@pytest.mark.parametrize(
    ("event", "loc"),
    [
        ({}, ("type",)),
        ({"type": ["permission.asked"], "properties": {}}, ("type",)),
        ({"type": "permission.ask", "properties": {}}, ("type",)),
        ({"type": "question.asked", "properties": {}}, ("type",)),
        ({"type": "permission.asked"}, ("properties",)),
        ({"type": "permission.asked", "properties": []}, ("properties",)),
        ({"type": "permission.v2.asked", "data": "x"}, ("data",)),
        ({"type": "permission.asked", "properties": {"id": "a"}, "data": {"id": "b"}}, ("data",)),
        ({"type": "permission.replied", "properties": {"sessionID": "s"}}, ("properties", "requestID")),
    ],
)
def test_any_other_event_is_refused_with_the_path(event: Any, loc: tuple[str, ...]) -> None:
    with pytest.raises(Invalid) as refused:
        opencode.parse(body(event), MANNER)
    assert refused.value.loc == loc


@pytest.mark.parametrize("sent", [b"", b"{", b'{"type":"a","type":"a"}', b"\xff", b'{"type":NaN}'])
def test_what_is_no_plain_json_is_refused(sent: bytes) -> None:
    with pytest.raises(MalformedJson):
        opencode.parse(sent, MANNER)


@pytest.mark.parametrize("sent", [None, b"", b"[]", b"{}", b'{"type":5}', call_of("second_api")])
def test_a_call_that_cannot_be_asked_is_rejected_with_the_reason(sent: bytes | None) -> None:
    end = unasked("the daemon stops")
    assert opencode.refuse(sent, end, MANNER) == {"reply": "reject", "message": end.reason}
    assert opencode.refuse(call_of("first_generation"), end, MANNER) == {"response": "reject"}


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
PATTERNS = st.lists(TEXTS, max_size=20) | TEXTS | JSON
EVENTS = st.builds(
    lambda kind, place, payload, ids: {"type": kind, place: payload | ids},
    st.sampled_from(["permission.updated", "permission.asked", "permission.v2.asked"]),
    st.sampled_from(["properties", "data"]),
    st.fixed_dictionaries(
        {},
        optional={
            **dict.fromkeys(("permission", "type", "action"), st.sampled_from(["bash", "edit"]) | TEXTS | JSON),
            **dict.fromkeys(("pattern", "patterns", "resources", "always", "save"), PATTERNS),
            "metadata": st.dictionaries(st.sampled_from(["command", "diff", "filepath"]), JSON) | JSON,
            "title": TEXTS | JSON,
        },
    ),
    st.fixed_dictionaries({"id": TEXTS.filter(bool), "sessionID": TEXTS.filter(bool)}),
)
OPTIONS = st.builds(
    Option,
    st.sampled_from(["once", "always", "reject", "agentpod.reject", "x"]).map(OptionId),
    st.just("Allow once"),
    st.sampled_from(Meaning),
    st.sampled_from([Scope.ONCE, Scope.ALWAYS, None]),
)
ENDS = st.builds(End, st.none() | st.sampled_from(Outcome), TEXTS, st.none() | OPTIONS)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(EVENTS, ENDS)
def test_whatever_is_asked_can_be_shown_and_is_allowed_by_a_persons_choice_alone(event: Any, end: End) -> None:
    sent = body(event)
    request = asked(sent)
    check(request.options)
    offer(request.options, withhold=Withhold.NOTHING)
    assert request.title.strip()
    answer = opencode.answer(sent, sent, end, MANNER)
    offers = {option.option_id for option in request.options}
    word = words(answer)
    if word == "reject":
        assert answer.keys() == ({"response"} if event["type"] == "permission.updated" else {"reply", "message"})
    else:
        assert answer.keys() == ({"response"} if event["type"] == "permission.updated" else {"reply"})
        assert end.approves
        assert end.option is not None
        assert word == end.option.option_id
        assert word in offers & {"once", "always"}
