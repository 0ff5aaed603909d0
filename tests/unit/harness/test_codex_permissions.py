from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, Scope
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import codex
from tests.unit.harness.codex_calls import (
    BOTS_REJECT,
    MANNER,
    NON_DECISIONS,
    PERMISSIONS,
    answer,
    asked,
    changed,
    chose,
    ended,
    foreign,
    sent,
    settled,
    took,
)

Json = dict[str, Any]
WANTED = PERMISSIONS["params"]["permissions"]


def wanting(**permissions: Any) -> Json:
    return changed(PERMISSIONS, permissions=permissions)


def test_what_was_asked_for_is_granted_as_it_was_asked_for() -> None:
    assert chose(PERMISSIONS, "turn") == {"permissions": WANTED, "scope": "turn"}
    assert chose(PERMISSIONS, "session") == {"permissions": WANTED, "scope": "session"}


def test_a_no_grants_nothing() -> None:
    assert chose(PERMISSIONS, "reject_once") == {"permissions": {}}
    assert answer(PERMISSIONS, took(BOTS_REJECT))["result"] == {"permissions": {}}
    for outcome in NON_DECISIONS:
        assert answer(PERMISSIONS, ended(outcome))["result"] == {"permissions": {}}


@pytest.mark.parametrize(
    "taken",
    [
        foreign("turn", scope=Scope.ALWAYS),
        foreign("session"),
        foreign("session", Meaning.CHOOSE, None),
        foreign("turn", Meaning.REJECT),
        foreign("strictAutoReview"),
        foreign("accept"),
    ],
)
def test_an_option_that_is_not_offered_so_grants_nothing(taken: Any) -> None:
    assert answer(PERMISSIONS, took(taken))["result"] == {"permissions": {}}


def test_the_choices_say_how_long_a_grant_lasts() -> None:
    assert [each.printed for each in offer(asked(PERMISSIONS).options, withhold=Withhold.NOTHING)] == [
        "Allow for this turn",
        "Always allow these permissions for this session",
        "Reject",
    ]


def test_every_path_and_the_network_are_shown() -> None:
    assert asked(PERMISSIONS).preview == (
        FieldPreview("May write", "/repo/a"),
        FieldPreview("May write", "/repo/b"),
        FieldPreview("May read", "/etc/hosts"),
        FieldPreview("Must not access", '{"type": "glob_pattern", "pattern": "**/.env"}'),
        FieldPreview("May write", '{"type": "special", "value": {"kind": "tmpdir"}}'),
        FieldPreview("Levels of folders that patterns look into", "4"),
        FieldPreview("Network access", "yes"),
        FieldPreview("Working directory", "/repo"),
        FieldPreview("Environment", "local"),
        FieldPreview("Reason", "Select a workspace root"),
    )
    assert asked(PERMISSIONS).title == "Grant permissions: Select a workspace root"


@pytest.mark.parametrize(
    "permissions",
    [
        {},
        {"fileSystem": None, "network": None},
        {"fileSystem": {}, "network": {}},
        {"fileSystem": {"read": None, "write": [], "entries": []}, "network": {"enabled": False}},
        {"fileSystem": {"globScanMaxDepth": 3}, "network": {"enabled": None}},
    ],
)
def test_where_nothing_is_asked_for_nobody_is_asked(permissions: Json) -> None:
    assert settled(wanting(**permissions))["result"] == {"permissions": {}}


@pytest.mark.parametrize(
    ("permissions", "label"),
    [
        ({"fileSystem": {"execute": ["/bin"]}}, "execute"),
        ({"network": {"enabled": False, "hosts": ["a.example"]}}, "hosts"),
        ({"microphone": True}, "microphone"),
        ({"fileSystem": {"entries": [{"access": "read", "path": {"type": "path", "path": "/a"}, "x": 1}]}}, "Entry"),
    ],
)
def test_a_permission_that_nobody_knows_yet_is_shown_and_granted_only_as_it_came(permissions: Json, label: str) -> None:
    call = wanting(**permissions)
    assert label in {each.label for each in asked(call).preview if isinstance(each, FieldPreview)}
    assert chose(call, "turn") == {"permissions": permissions, "scope": "turn"}


def test_a_path_with_more_to_it_is_shown_whole() -> None:
    place = {"type": "path", "path": "/a", "but": "/a/b"}
    call = wanting(fileSystem={"entries": [{"access": "write", "path": place}]})
    assert asked(call).preview[0] == FieldPreview("May write", '{"type": "path", "path": "/a", "but": "/a/b"}')


@pytest.mark.parametrize(
    ("permissions", "place"),
    [
        ({"fileSystem": []}, ("fileSystem",)),
        ({"network": True}, ("network",)),
        ({"network": {"enabled": "yes"}}, ("network", "enabled")),
        ({"fileSystem": {"read": "/a"}}, ("fileSystem", "read")),
        ({"fileSystem": {"write": [1]}}, ("fileSystem", "write", 0)),
        ({"fileSystem": {"globScanMaxDepth": 0}}, ("fileSystem", "globScanMaxDepth")),
        (
            {"fileSystem": {"entries": [{"access": "run", "path": {"type": "path", "path": "/a"}}]}},
            ("fileSystem", "entries", 0, "access"),
        ),
        (
            {"fileSystem": {"entries": [{"access": "read", "path": {"type": "regex", "regex": "."}}]}},
            ("fileSystem", "entries", 0, "path"),
        ),
        ({"fileSystem": {"entries": [{"access": "read"}]}}, ("fileSystem", "entries", 0, "path")),
    ],
)
def test_a_permission_in_a_form_that_could_not_be_granted_is_not_asked(permissions: Json, place: Any) -> None:
    with pytest.raises(Invalid) as caught:
        codex.parse(sent(wanting(**permissions)), MANNER)
    assert caught.value.loc[: len(place) + 2] == ("params", "permissions", *place)


@pytest.mark.parametrize("number", ["9" * 30, "-" + "9" * 40])
def test_a_number_that_could_not_be_echoed_as_it_came_is_refused(number: str) -> None:
    body = sent(wanting(network={"enabled": True, "limit": "NUMBER"})).replace(b'"NUMBER"', number.encode())
    with pytest.raises(Invalid) as caught:
        codex.parse(body, MANNER)
    assert caught.value.loc == ("params", "permissions")
