from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import Meaning, Option, Scope
from agentpod_bot.harness import hook_call, options
from agentpod_bot.harness.hook_call import ToolCall
from tests.unit.harness import hooks
from tests.unit.harness.hooks import DENY, TERMINAL, picked

OFFERED = (options.allow_once(), options.choose("SQLite", option_id=OptionId("choice:0")), options.reject_once())
CALL = ToolCall("qwen", "PreToolUse", "s1", "Bash", {"command": "ls"})


@pytest.mark.parametrize("body", [None, b"", b"[]", b"7", b"{", b"\xff", b'"x"', b"[" * 100_000, b"1" * 5_000])
def test_what_is_no_object_has_no_members(body: bytes | None) -> None:
    assert hook_call.read_leniently(body) == {}


def test_a_broken_object_is_read_as_far_as_it_says_one_thing() -> None:
    assert hook_call.read_leniently(b'{"a": 1, "a": 2, "hook_event_name": "x", "b": NaN}')["hook_event_name"] == "x"
    assert "hook_event_name" not in hook_call.read_leniently(b'{"hook_event_name": "x", "hook_event_name": "x"}')


@pytest.mark.parametrize("event", ["PermissionRequest", "PreToolUse", "BeforeTool"])
@pytest.mark.parametrize("rest", ['"x": ' + "[" * 5_000 + "]" * 5_000 + "}", '"tool_input": {"command": "rm'], ids=len)
def test_the_event_of_a_body_that_is_cut_or_too_deep_is_found(event: str, rest: str) -> None:
    body = f'{{"cwd": "/", "hook_event_name" : "{event}", {rest}'.encode()
    assert hook_call.read_leniently(body) == {"hook_event_name": event}


@pytest.mark.parametrize(
    "text",
    [
        '{"hook_event_name": "PostToolUse", "x": ',
        '{"hook_event_name": "PreToolUse", "tool_input": {"hook_event_name": "PermissionRequest", "x": ',
        r'{"tool_input": {"command": "\"hook_event_name\": \"PreToolUse\"", "x": ',
    ],
)
def test_no_event_is_found_that_does_not_ask_or_is_not_the_only_one(text: str) -> None:
    assert hook_call.read_leniently(text.encode()) == {}


@pytest.mark.parametrize(
    ("event", "content", "expected"),
    [
        ("Stop", {}, True),
        ("Told", {"tool_name": "Bash"}, True),
        ("Stop", {"tool_name": "Bash"}, False),
        ("Stop", {"tool_input": None}, False),
        ("Stop", {"command": "ls"}, False),
        ("PreTooluse", {}, False),
        ("\uff30\uff52\uff45\uff34\uff4f\uff4f\uff4c\uff35\uff53\uff45", {}, False),
        ("BeforePermission", {}, False),
    ],
)
def test_an_event_that_looks_like_a_tool_call_never_counts_as_one_that_decides_nothing(
    event: str, content: dict[str, Any], expected: bool
) -> None:
    assert hook_call.decides_nothing(event, content, frozenset({"Told"})) is expected


def test_a_chosen_option_is_one_of_those_that_were_offered() -> None:
    assert hook_call.chosen(OFFERED, picked(options.allow_once("another label"))) == OFFERED[0]
    assert hook_call.chosen(OFFERED, picked(OFFERED[1])) == OFFERED[1]


@pytest.mark.parametrize(
    "option",
    [
        OFFERED[2],
        Option(OptionId("allow_once"), "Allow once", Meaning.APPROVE, Scope.ALWAYS),
        Option(OptionId("allow_once"), "Allow once", Meaning.CHOOSE, Scope.ONCE),
        Option(OptionId("reject_once"), "Reject", Meaning.APPROVE, Scope.ONCE),
        Option(OptionId("other"), "Allow once", Meaning.APPROVE, Scope.ONCE),
    ],
)
def test_an_option_that_rejects_or_was_not_offered_is_not_chosen(option: Option) -> None:
    assert hook_call.chosen(OFFERED, picked(option)) is None


@pytest.mark.parametrize("end", hooks.NO_DECISIONS)
def test_nothing_is_chosen_where_nobody_decided(end: Any) -> None:
    assert hook_call.chosen(OFFERED, end) is None


@pytest.mark.parametrize("end", [*hooks.NO_DECISIONS, *hooks.REJECTIONS, hooks.ALLOWED])
def test_a_call_is_handed_back_only_where_that_is_configured_and_nobody_could_answer(end: Any) -> None:
    assert not hook_call.hands_back(end, DENY)
    assert hook_call.hands_back(end, TERMINAL) == (end in hooks.HANDED_BACK)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ("[1]", "[1]"),
        ("x", "x"),
        ('{"a": "\\ud800"}', '{"a": "\\ud800"}'),
        ("{" * 9, "{" * 9),
        (f'{{"a": {"1" * 41}}}', f'{{"a": {"1" * 41}}}'),
        (7, 7),
        (None, None),
        ({"a": 1}, {"a": 1}),
    ],
)
def test_only_a_text_that_is_a_json_object_is_read_as_one(value: Any, expected: Any) -> None:
    assert hook_call.unquoted(value) == expected


def test_the_twins_of_agents_begin_differently() -> None:
    main, sub = hook_call.agent_prefix("qwen", None), hook_call.agent_prefix("qwen", "a1")
    assert main == "qwen:main"
    assert sub.startswith("qwen:agent:")
    assert sub != hook_call.agent_prefix("qwen", "a2")
    assert hook_call.twin(CALL).startswith("qwen:main:")


def test_a_twin_differs_with_all_that_makes_two_calls_different() -> None:
    others = [
        ToolCall("qwen", "PermissionRequest", "s1", "Bash", {"command": "ls"}),
        ToolCall("qwen", "PreToolUse", "s2", "Bash", {"command": "ls"}),
        ToolCall("qwen", "PreToolUse", "s1", "Read", {"command": "ls"}),
        ToolCall("qwen", "PreToolUse", "s1", "Bash", {"command": "ls "}),
        ToolCall("qwen", "PreToolUse", "s1", "Bash", {"command": "ls"}, agent_id="a"),
    ]
    assert len({hook_call.twin(call) for call in (CALL, *others)}) == 6
    assert hook_call.twin(CALL) == hook_call.twin(ToolCall("qwen", "PreToolUse", "s1", "Bash", {"command": "ls"}, "/x"))
    assert hook_call.twin(CALL, "more") != hook_call.twin(CALL)
