"""What holds for every harness's hook, whatever it is sent and however its question ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import Meaning, Outcome
from agentpod_bot.errors import Invalid, MalformedJson
from agentpod_bot.harness import claude_code, claude_prompt, codex_hook, copilot, cursor, gemini, qwen
from agentpod_bot.harness.adapter import Ask, Close, End, Settled
from agentpod_bot.harness.hook_exits import exit_of
from agentpod_bot.harness.opaque import fault_of_id
from tests.examples import OWNER
from tests.unit.harness import hooks
from tests.unit.harness.hooks import DENY, TERMINAL, allows, body_of, picked

if TYPE_CHECKING:
    from agentpod_bot.harness.adapter import Call, Harness

Json = dict[str, Any]

CALLS: tuple[tuple[Harness, Json], ...] = (
    (claude_code, hooks.PERMISSION),
    (claude_code, hooks.SUGGESTED),
    (claude_code, hooks.BEFORE_USE),
    (claude_code, hooks.ASKING),
    (claude_code, {**hooks.ASKING, "hook_event_name": "PreToolUse", "tool_use_id": "toolu_2"}),
    (claude_code, hooks.LEAVING_PLAN),
    (claude_code, {**hooks.ASKING, "tool_input": {"questions": [hooks.QUESTION, hooks.QUESTION]}}),
    (qwen, hooks.SUGGESTED),
    (qwen, hooks.BEFORE_USE),
    (codex_hook, hooks.CODEX),
    (codex_hook, hooks.CODEX_USE),
    (copilot, hooks.COPILOT),
    (copilot, hooks.COPILOT_USE),
    (copilot, hooks.COPILOT_UNNAMED),
    (gemini, hooks.GEMINI),
    (cursor, hooks.CURSOR),
    (cursor, hooks.CURSOR_MCP),
    (claude_prompt, hooks.PROMPT),
    (claude_prompt, {"tool_name": "AskUserQuestion", "input": {"questions": [hooks.QUESTION]}}),
)
every_call = pytest.mark.parametrize(("harness", "call"), CALLS)
UNHURRIED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
HOOKS = (claude_code, codex_hook, copilot, cursor, gemini, qwen)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
    | st.sampled_from(["allow", "Bash", "session", "default", "AskUserQuestion", " "]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
rules = st.fixed_dictionaries({"toolName": texts}, optional={"ruleContent": texts | st.none(), "more": values})
suggestions = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(["addRules", "replaceRules", "removeRules", "setMode", "addDirectories", "other"]),
            "destination": st.sampled_from(["session", "localSettings", "userSettings"]) | texts,
        },
        optional={
            "rules": st.lists(rules | values, max_size=3),
            "behavior": st.sampled_from(["allow", "deny", "ask"]) | values,
            "mode": st.sampled_from(["acceptEdits", "bypassPermissions", "plan"]) | texts,
            "directories": st.lists(texts | values, max_size=3),
        },
    )
    | values,
    max_size=25,
)
questions = st.lists(
    st.fixed_dictionaries(
        {"question": texts, "options": st.lists(st.fixed_dictionaries({"label": texts}) | values, max_size=21)},
        optional={"header": values, "multiSelect": values, "more": values},
    )
    | values,
    max_size=2,
)
inputs = st.fixed_dictionaries({"questions": questions}, optional={"answers": values, "plan": values}) | values


@st.composite
def called(draw: st.DrawFn) -> tuple[Harness, Json]:
    """A real call of which any member may be missing, another value or one more."""
    harness, call = draw(st.sampled_from(CALLS))
    changed = dict(call)
    for name in draw(st.sets(st.sampled_from(sorted(call)), max_size=2)):
        if draw(st.booleans()):
            del changed[name]
        else:
            changed[name] = draw(values)
    for name in ("tool_input", "input", "toolArgs"):
        if name in changed and draw(st.booleans()):
            changed[name] = draw(inputs)
    more = st.fixed_dictionaries({}, optional={"permission_suggestions": suggestions, "agent_id": values})
    return harness, {**changed, **draw(more), **draw(st.dictionaries(texts, values, max_size=2))}


def parsed(harness: Harness, body: bytes) -> Call | None:
    """What a body is read into; None where it cannot be read."""
    try:
        return harness.parse(body, DENY)
    except (Invalid, MalformedJson):
        return None


@UNHURRIED
@given(called(), st.sampled_from([DENY, TERMINAL]))
def test_a_tool_runs_only_where_a_person_chose_what_was_offered(call: tuple[Harness, Json], manner: Any) -> None:
    harness, content = call
    body = body_of(content)
    question = parsed(harness, body)
    if not isinstance(question, Ask):
        return
    for option in question.request.options:
        answer = harness.answer(body, body, picked(option), manner)
        assert allows(answer) == (option.meaning is not Meaning.REJECT), option
        assert answer
    for option in hooks.forged():
        assert not allows(harness.answer(body, body, picked(option), manner))
    for end in (*hooks.NO_DECISIONS, *hooks.REJECTIONS):
        assert not allows(harness.answer(body, body, end, manner))
    for end in (*hooks.NO_DECISIONS, *hooks.REJECTIONS):
        if end not in hooks.HANDED_BACK:
            assert harness.answer(body, body, end, manner), "nothing but an end of its own hands a call back"


@UNHURRIED
@given(called())
def test_whatever_is_asked_can_be_put_to_people_and_answered_in_json(call: tuple[Harness, Json]) -> None:
    harness, content = call
    body = body_of(content)
    question = parsed(harness, body)
    if not isinstance(question, Ask):
        return
    request = question.request
    assert offer(request.options, withhold=Withhold.NOTHING)
    assert any(option.meaning is Meaning.REJECT for option in request.options)
    assert request.title.strip()
    assert "\n" not in request.title.removeprefix(str(content.get("tool_name", content.get("toolName", ""))))
    assert request.preview
    assert fault_of_id(request.session_id) is None
    assert request.raw == body
    assert request.hold is not None
    names = [name for name in (request.request_id, request.hold.twin) if name is not None]
    assert len(names) == 1
    assert fault_of_id(names[0]) is None
    assert names[0].startswith(f"{harness.NAME}:")
    for option in request.options:
        json.dumps(harness.answer(body, body, picked(option), DENY), allow_nan=False)


@UNHURRIED
@given(called(), st.sampled_from([DENY, TERMINAL]), st.sampled_from([*hooks.NO_DECISIONS, *hooks.REJECTIONS]))
def test_a_call_that_nobody_was_asked_about_is_never_allowed(call: tuple[Harness, Json], manner: Any, end: Any) -> None:
    harness, content = call
    body = body_of(content)
    answer = harness.refuse(body, end, manner)
    assert not allows(answer)
    read = parsed(harness, body)
    if isinstance(read, Ask) and (end not in hooks.HANDED_BACK or manner is DENY):
        assert answer, "an empty answer is none, and lets the harness go on"
    if isinstance(read, Settled | Close):
        assert read.answer == {}


@UNHURRIED
@given(st.sampled_from([harness for harness, _ in CALLS]), st.binary(max_size=60), st.sampled_from([DENY, TERMINAL]))
def test_a_body_that_is_no_call_is_a_plain_no(harness: Harness, body: bytes, manner: Any) -> None:
    assert parsed(harness, body) is None
    for end in hooks.NO_DECISIONS:
        for call in (body, None):
            answer = harness.refuse(call, end, manner)
            assert answer
            assert not allows(answer)


@every_call
def test_an_answer_needs_no_more_than_the_body_of_the_question(harness: Harness, call: Json) -> None:
    """A repeat of a call may be anything that has the same id or the same twin."""
    body = body_of(call)
    for end in (hooks.ALLOWED, hooks.REFUSED, hooks.EXPIRED):
        assert harness.answer(body, b"", end, DENY) == harness.answer(body, body, end, DENY)


@every_call
@pytest.mark.parametrize("end", [*hooks.NO_DECISIONS, *hooks.REJECTIONS])
def test_a_no_says_why(harness: Harness, call: Json, end: Any) -> None:
    assert end.reason in json.dumps(hooks.told(harness, call, end))
    assert end.reason in json.dumps(harness.refuse(body_of(call), end, DENY))


@every_call
def test_a_no_without_a_reason_gets_one(harness: Harness, call: Json) -> None:
    end = End(Outcome.EXPIRED, " ")
    assert "Nothing was allowed." in json.dumps(hooks.told(harness, call, end))


@every_call
def test_a_no_to_an_option_that_was_not_offered_does_not_say_that_anybody_allowed_it(
    harness: Harness, call: Json
) -> None:
    for option in hooks.forged():
        answer = hooks.told(harness, call, picked(option))
        assert str(OWNER) not in json.dumps(answer)
        assert "Nothing was allowed" in json.dumps(answer)


@every_call
def test_the_room_reads_what_the_tool_is_called_with(harness: Harness, call: Json) -> None:
    shown = str(hooks.asked(harness, call).preview)
    given = call.get("tool_input", call.get("input", call.get("toolArgs", call.get("command"))))
    for value in given.values() if isinstance(given, dict) else [given]:
        for text in [value] if isinstance(value, str) else ["Which database should I use?", "Postgres", "Server"]:
            assert (json.loads(text)["query"] if text.startswith("{") else text) in shown.replace("\\n", "\n")


@pytest.mark.parametrize("harness", HOOKS)
def test_a_call_that_is_nested_without_end_is_refused(harness: Harness) -> None:
    deep = f"{'[' * 5_000}{']' * 5_000}".encode()
    with pytest.raises(MalformedJson):
        harness.parse(b'{"hook_event_name": "PreToolUse", "tool_name": "x", "tool_input": {"x": ' + deep + b"}}", DENY)
    with pytest.raises(MalformedJson):
        harness.parse(
            b'{"hook_event_name": "PreToolUse", "tool_name": "x", "tool_input": ' + deep[4_750:5_250] + b"}", DENY
        )


@pytest.mark.parametrize("harness", HOOKS)
@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"1" * 41, b"-" + b"9" * 60], ids=len)
def test_a_number_that_could_not_be_given_back_as_it_came_is_refused(harness: Harness, number: bytes) -> None:
    with pytest.raises(MalformedJson, match="large"):
        harness.parse(b'{"hook_event_name": "PreToolUse", "tool_input": {"n": ' + number + b"}}", DENY)


@every_call
def test_an_answer_can_be_printed_by_a_command(harness: Harness, call: Json) -> None:
    if not harness.HOOK:
        return
    for end in (hooks.ALLOWED, hooks.REFUSED, hooks.EXPIRED):
        answer = hooks.told(harness, call, end)
        ends = exit_of(harness.NAME, answer)
        assert (json.loads(ends.stdout), ends.stderr, ends.code) == (answer, "", 0)


@pytest.mark.parametrize("harness", HOOKS)
def test_an_event_that_does_not_ask_is_never_answered_with_an_allow(harness: Harness) -> None:
    for event in ("PostToolUse", "AfterTool", "afterShellExecution", "Stop", "Anything"):
        body = body_of({**hooks.BEFORE_USE, "hook_event_name": event, "command": "ls"})
        assert not allows(harness.answer(body, body, hooks.ALLOWED, DENY))
