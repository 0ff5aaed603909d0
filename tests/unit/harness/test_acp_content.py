from __future__ import annotations

import json
from typing import Any

import pytest

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import DiffPreview, FieldPreview, PermissionRequest, Preview, TextPreview
from agentpod_bot.harness import acp, naming
from tests.unit.harness.acp_samples import asked, goldens

OPTIONS = [
    {"optionId": "a", "name": "Allow", "kind": "allow_once"},
    {"optionId": "r", "name": "Reject", "kind": "reject_once"},
]


def first(**call: Any) -> PermissionRequest:
    """The question of a tool call as version 1 has it."""
    params = {"sessionId": "s", "toolCall": {"toolCallId": "call_1"} | call, "options": OPTIONS}
    return asked(acp, json.dumps(params).encode())


def second(**params: Any) -> PermissionRequest:
    """The question of parameters as version 2 has them."""
    return asked(acp, json.dumps({"sessionId": "s", "options": OPTIONS} | params).encode())


def content(*items: Any) -> tuple[tuple[Preview, ...], bool]:
    request = first(title="Do it", content=list(items))
    return request.preview, request.preview_complete


def block(**fields: Any) -> dict[str, Any]:
    return {"type": "content", "content": fields}


def test_a_call_that_only_names_itself_says_so_and_shows_nothing() -> None:
    request = first()
    assert request.title == "Tool call, not described by the agent: call_1"
    assert (request.preview, request.preview_complete, request.tool_kind) == ((), False, None)


@pytest.mark.parametrize("kind", [None, "execute", "fetch", "read", "other"])
def test_a_title_alone_is_not_all_that_a_call_will_do(kind: str | None) -> None:
    """It is written for people: what it would be to allow it always, nobody has seen."""
    request = first(title="npm test", kind=kind)
    assert (request.title, request.preview, request.preview_complete) == ("npm test", (), False)


@pytest.mark.parametrize(
    ("kind", "complete"), [("read", True), ("search", True), ("fetch", False), (None, False), ("shell", False)]
)
def test_where_something_happens_is_enough_only_of_what_looks(kind: str | None, complete: bool) -> None:
    assert first(title="Do it", kind=kind, locations=[{"path": "/a.txt"}]).preview_complete is complete


def test_what_is_known_by_its_title_alone_can_be_allowed_once_and_not_always() -> None:
    [golden] = [each for each in goldens("acp") if each.name == "gemini_cli"]
    request = asked(acp, golden.body)
    offered = offer(request.options, withhold=Withhold.NOTHING if request.preview_complete else Withhold.ALWAYS)
    assert [each.option.option_id for each in offered] == ["proceed_once", "cancel"]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"rawInput": {}},
        {"rawInput": {"description": "List files"}},
        {"rawInput": {"command": ""}},
        {"rawInput": {"command": []}},
        {"rawInput": {"command": None, "cwd": "/repo"}},
        {"content": [block(type="text", text="npm test")]},
        {"locations": [{"path": "/repo"}]},
        {"_meta": {"codex": {"params": {"cwd": "/repo"}}}},
    ],
)
def test_a_command_that_is_not_shown_is_not_complete(said: dict[str, Any]) -> None:
    assert first(title="npm test", kind="execute", **said).preview_complete is False
    subject = {"type": "tool_call", "toolCall": {"toolCallId": "c", "kind": "execute", **said}}
    assert second(title="npm test", subject=subject).preview_complete is False


@pytest.mark.parametrize(
    "said",
    [
        {"rawInput": "npm test"},
        {"rawInput": ["npm", "test"]},
        {"rawInput": {"command": "npm test"}},
        {"rawInput": {"command": ["npm", "test"]}},
        {"rawInput": {"cmd": "npm test"}},
        {"rawInput": {"code": "print()"}},
        {"_meta": {"codex": {"params": {"command": "npm test"}}}},
    ],
)
def test_a_command_that_is_shown_is_complete(said: dict[str, Any]) -> None:
    assert first(title="npm test", kind="execute", **said).preview_complete is True


@pytest.mark.parametrize("kind", ["edit", "delete", "move"])
def test_a_change_of_files_that_is_not_shown_is_not_complete(kind: str) -> None:
    assert first(title="Change a.txt", kind=kind).preview_complete is False
    assert first(title="Change a.txt", kind=kind, locations=[{"path": "/a.txt"}]).preview_complete is False
    assert first(title="Change a.txt", kind=kind, rawInput={"file_path": "/a.txt"}).preview_complete is True


@pytest.mark.parametrize(
    ("call", "title"),
    [
        ({"kind": "execute", "rawInput": {"command": "bun test\nrm x"}}, "Run: bun test"),
        ({"kind": "execute", "rawInput": {"command": ["bun", "test"]}}, "Run: bun test"),
        ({"kind": "edit", "rawInput": {"path": "/a.txt"}}, "Edit: /a.txt"),
        ({"rawInput": {"url": "https://docs.example/"}}, "Use a tool: https://docs.example/"),
        ({"kind": "fetch"}, "Fetch, not described by the agent: call_1"),
        ({"title": " ", "kind": "execute"}, "Run, not described by the agent: call_1"),
        ({"title": 7}, "Tool call, not described by the agent: call_1"),
    ],
)
def test_a_call_without_a_title_is_called_after_what_it_would_do(call: dict[str, Any], title: str) -> None:
    assert first(**call).title == title


def test_a_title_too_long_to_be_read_stands_whole_in_the_preview_unless_it_does_already() -> None:
    title = "echo " + "x" * 300
    request = first(title=title)
    assert len(request.title) <= naming.MOST_TITLE
    assert request.preview == (TextPreview("Title", title),)
    assert first(title=title, rawInput={"command": title}).preview == (TextPreview("Command", title, "bash"),)


def test_every_part_of_the_input_is_shown_verbatim() -> None:
    request = first(title="x", rawInput={"command": "a && b", "cwd": "/repo", "deep": {"n": [1, None]}})
    assert request.preview == (
        TextPreview("Command", "a && b", "bash"),
        FieldPreview("cwd", "/repo"),
        FieldPreview("deep", '{"n": [1, null]}'),
    )
    assert first(title="x", rawInput="as text").preview == (TextPreview("Input", "as text"),)


def test_every_member_of_the_input_is_shown_even_where_two_say_the_same() -> None:
    long = "rm -rf /\n" * 3
    parts = first(rawInput={"a": long, "text": long, "Text": long}).preview
    assert parts == (TextPreview("a", long), TextPreview("text", long), TextPreview("Input Text", long))


def test_a_text_that_the_input_says_already_is_not_said_twice() -> None:
    says = block(type="text", text="Create a file")
    request = first(title="x", rawInput={"description": "Create a file"}, content=[says, says])
    assert request.preview == (FieldPreview("description", "Create a file"),)
    other = block(type="text", text="Create a file ")
    assert len(first(title="x", rawInput={"description": "Create a file"}, content=[other]).preview) == 2


@pytest.mark.parametrize(
    ("item", "part"),
    [
        (block(type="text", text="Hi\n"), TextPreview("Text", "Hi\n")),
        ({"type": "terminal", "terminalId": "t1"}, FieldPreview("Terminal", "t1")),
        ({"type": "diff", "path": "/a", "oldText": "x", "newText": "y"}, DiffPreview("/a", "x", "y")),
        ({"type": "diff", "path": "/a", "newText": ""}, DiffPreview("/a", None, "")),
        ({"type": "diff", "path": "", "newText": "y"}, DiffPreview("(no path)", None, "y")),
        (block(type="resource_link", name="G", uri="file:///g"), FieldPreview("Resource", "G: file:///g")),
    ],
)
def test_what_can_be_shown_is_shown_and_complete(item: Any, part: Preview) -> None:
    assert content(item) == ((part,), True)


@pytest.mark.parametrize(
    ("item", "value"),
    [
        (block(type="image", data="aGVsbG8=", mimeType="image/png"), "image/png, 5 bytes, not shown"),
        (block(type="audio", data="aGVs", mimeType="audio/wav"), "audio/wav, 3 bytes, not shown"),
        (
            block(type="resource", resource={"uri": "file:///c", "blob": "aA=="}),
            "file:///c (unknown type, 1 bytes, not shown)",
        ),
    ],
)
def test_what_cannot_be_shown_is_named_with_its_size_and_is_not_complete(item: Any, value: str) -> None:
    (part,), complete = content(item)
    assert isinstance(part, FieldPreview)
    assert (part.value, complete) == (value, False)


@pytest.mark.parametrize("item", [{"type": "future", "x": 1}, block(type="future", x=1)])
def test_content_of_an_unknown_type_is_shown_as_it_came_and_is_not_complete(item: Any) -> None:
    (part,), complete = content(item)
    assert isinstance(part, TextPreview)
    assert json.loads(part.text)["type"] == "future"
    assert complete is False


@pytest.mark.parametrize(
    "item",
    [
        None,
        "text",
        {},
        {"type": 1},
        {"type": "content"},
        {"type": "content", "content": "text"},
        block(type="text"),
        block(type="image", data="aGVs"),
        block(type="resource", resource={"uri": "file:///c"}),
        {"type": "diff", "path": "/a"},
        {"type": "diff", "path": "/a", "newText": None},
        {"type": "terminal"},
    ],
)
def test_a_bad_item_is_skipped_and_what_is_left_is_not_complete(item: Any) -> None:
    good = {"type": "terminal", "terminalId": "t1"}
    assert content(item, good) == ((FieldPreview("Terminal", "t1"),), False)


def test_a_diff_whose_old_text_cannot_be_read_is_not_complete() -> None:
    item = {"type": "diff", "path": "/a", "oldText": 5, "newText": "y"}
    assert content(item) == ((DiffPreview("/a", None, "y"),), False)


@pytest.mark.parametrize("value", ["text", 5, {"type": "diff"}])
def test_content_or_places_that_are_no_list_are_absent_and_what_is_left_is_not_complete(value: Any) -> None:
    for name in ("content", "locations"):
        request = first(title="x", **{name: value})
        assert (request.preview, request.preview_complete) == ((), False)


def test_a_second_diff_shows_each_change_and_the_patch() -> None:
    changes = [{"operation": "add", "path": "/a"}, {"operation": "move", "path": "/c", "oldPath": "/b"}]
    item = {"type": "diff", "changes": changes, "patch": {"format": "git_patch", "text": "+x\n"}}
    assert content(item) == (
        (
            FieldPreview("Change", "add /a"),
            FieldPreview("Change", "move /b to /c"),
            TextPreview("Patch", "+x\n", "diff"),
        ),
        True,
    )


@pytest.mark.parametrize("patch", [None, "text", {"format": "git_patch"}])
def test_a_second_diff_without_a_patch_is_not_complete(patch: Any) -> None:
    item = {"type": "diff", "changes": [{"operation": "modify", "path": "/a"}], "patch": patch}
    assert content(item) == ((FieldPreview("Change", "modify /a"),), False)


def test_a_change_that_cannot_be_read_is_not_complete() -> None:
    patch = {"format": "other", "text": "p"}
    parts, complete = content({"type": "diff", "changes": [3, {"operation": "_new", "to": "x"}], "patch": patch})
    assert [type(part) for part in parts] == [TextPreview, TextPreview]
    assert parts[1] == TextPreview("Patch", "p")
    assert complete is False


def test_a_diff_that_both_versions_could_read_shows_what_both_would_do() -> None:
    item = {
        "type": "diff",
        "changes": [{"operation": "add", "path": "/a"}],
        "patch": {"format": "git_patch", "text": "+x\n"},
        "path": "/b",
        "newText": "y",
    }
    parts, _ = content(item)
    assert DiffPreview("/b", None, "y") in parts
    assert FieldPreview("Change", "add /a") in parts


def test_places_are_fields_with_their_lines() -> None:
    places = [{"path": "/a", "line": 3}, {"path": "/b", "line": "x"}, {"path": "/c", "line": True}, {"line": 1}]
    request = first(title="x", locations=places)
    assert request.preview == tuple(FieldPreview("Location", text) for text in ("/a, line 3", "/b", "/c"))
    assert request.preview_complete is False


def test_a_kind_that_acp_does_not_know_is_shown_and_not_claimed() -> None:
    request = first(title="x", kind="_teleport")
    assert (request.tool_kind, request.preview) == (None, (FieldPreview("Kind", "_teleport"),))
    assert first(title="x", kind=["edit"]).tool_kind is None


def test_what_codex_acp_adds_is_shown_but_for_names_and_repeats() -> None:
    added = {"threadId": "t", "command": "ls", "cwd": "/elsewhere", "grantRoot": "/etc", "reason": None}
    request = first(rawInput={"command": "ls", "cwd": "/repo"}, _meta={"codex": {"params": added}})
    assert request.title == "Use a tool: ls"
    assert request.preview == (
        TextPreview("Command", "ls", "bash"),
        FieldPreview("cwd", "/repo"),
        FieldPreview("cwd", "/elsewhere"),
        FieldPreview("grantRoot", "/etc"),
    )


def test_a_second_command_shows_command_and_directory() -> None:
    subject = {"type": "command", "command": "bun test", "cwd": "/repo", "terminalId": "t1"}
    request = second(title="Test it", description="All of it", subject=subject)
    assert (request.title, request.tool_kind, request.preview_complete) == ("Test it", "execute", True)
    assert request.preview == (
        TextPreview("Description", "All of it"),
        TextPreview("Command", "bun test", "bash"),
        FieldPreview("Directory", "/repo"),
        FieldPreview("Terminal", "t1"),
    )
    assert second(title="", subject=subject).title == "Run: bun test"


def test_a_second_request_about_a_tool_call_shows_both_titles() -> None:
    call = {"toolCallId": "c", "title": "Bash", "kind": "execute", "rawInput": {"command": "ls"}}
    request = second(title="List", subject={"type": "tool_call", "toolCall": call})
    assert (request.title, request.tool_kind) == ("List", "execute")
    assert request.preview == (FieldPreview("Tool call", "Bash"), TextPreview("Command", "ls", "bash"))


@pytest.mark.parametrize("subject", [{"type": "_new", "x": 1}, "text", [1]])
def test_a_subject_of_an_unknown_type_is_shown_as_it_came_and_is_not_complete(subject: Any) -> None:
    request = second(title="Do it", subject=subject)
    (part,) = request.preview
    assert isinstance(part, TextPreview)
    assert request.preview_complete is False


def test_a_second_request_that_says_nothing_is_not_complete() -> None:
    request = second(title="")
    assert (request.title, request.preview_complete) == ("Something that the agent did not describe", False)
    assert second(title="Do it").preview_complete is True


def test_a_request_in_both_versions_shows_what_both_say() -> None:
    call = {"toolCallId": "c", "title": "Read a file", "rawInput": {"path": "/a"}}
    subject = {"type": "command", "command": "rm -rf /", "cwd": "/"}
    request = second(toolCall=call, title="Look", subject=subject)
    assert request.title == "Look"
    assert FieldPreview("Tool call", "Read a file") in request.preview
    assert TextPreview("Command", "rm -rf /", "bash") in request.preview
    assert FieldPreview("path", "/a") in request.preview
