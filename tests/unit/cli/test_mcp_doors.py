from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.cli.mcp_doors import DaemonDoors
from agentpod_bot.proxy.client import connected
from agentpod_bot.proxy.endpoint import Endpoint
from agentpod_bot.system import SystemClock
from tests.unit.cli.test_calls import CANCEL, POST, allowed, ends, view

if TYPE_CHECKING:
    from agentpod_bot.proxy.mcp_server import Told
    from tests.unit.cli.conftest import FakeDaemon


async def ask(daemon: FakeDaemon, arguments: dict[str, Any], **options: Any) -> Told:
    """What the tool `ask` tells."""
    async with connected(Endpoint(daemon.url, token="made-up-token")) as client:
        settings = {"route": None, "timeout_s": None} | options
        return await DaemonDoors(client, SystemClock(), note=lambda _: None, **settings).ask(arguments)


async def test_ask_says_what_was_chosen_and_by_whom(daemon: FakeDaemon) -> None:
    ends(daemon, "decided", **allowed("option:2", "choose", label="SQLite", scope=None, comment="it is small"))
    arguments = {"title": "Which database?", "details": "For tests", "options": ["Postgres", "SQLite"]}
    told = await ask(daemon, arguments, route="ops", timeout_s=60)
    assert told.sentence == "Chosen: SQLite, by @owner:example.org: it is small"
    assert told.decision == {
        "meaning": "choose",
        "option_id": "option:2",
        "label": "SQLite",
        "answered_by": "@owner:example.org",
        "comment": "it is small",
    }
    posted = daemon.posted
    assert (posted["title"], posted["route"], posted["ttl_s"]) == ("Which database?", "ops", 60)
    assert posted["preview"] == [{"type": "text", "label": "Details", "text": "For tests"}]


async def test_whatever_may_be_chosen_a_person_can_reject_it(daemon: FakeDaemon) -> None:
    ends(daemon, "decided", **allowed("reject_once", "reject", label="Reject", comment="neither"))
    told = await ask(daemon, {"title": "Which database?", "options": ["Postgres", "SQLite"]})
    assert told.sentence == "Rejected: Reject, by @owner:example.org: neither"
    assert told.decision is not None
    assert daemon.posted["options"] == [
        {"id": "option:1", "meaning": "choose", "label": "Postgres"},
        {"id": "option:2", "meaning": "choose", "label": "SQLite"},
        {"id": "reject_once", "kind": "reject_once"},
    ]


@pytest.mark.parametrize(
    ("status", "decision", "words"),
    [
        ("expired", {"outcome": "expired"}, "Nobody answered in time"),
        ("answered_elsewhere", {"outcome": "answered_elsewhere"}, "no decision"),
        ("decided", allowed("option:9", "choose"), "no answer to this question"),
        ("decided", allowed("allow_once", "choose"), "no answer to this question"),
    ],
)
async def test_every_other_end_is_no_decision(
    daemon: FakeDaemon, *, status: str, decision: dict[str, Any], words: str
) -> None:
    ends(daemon, status, **decision)
    told = await ask(daemon, {"title": "Deploy?"})
    assert told.decision is None
    assert words in told.sentence


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "title"),
        ({"title": ""}, "title"),
        ({"title": 3}, "title"),
        ({"title": "x", "options": []}, "options"),
        ({"title": "x", "options": ["a"] * 20}, "options"),
        ({"title": "x", "options": [{"label": "a", "kind": "allow_always"}]}, "options"),
    ],
)
async def test_a_question_that_is_none_asks_nobody(daemon: FakeDaemon, arguments: dict[str, Any], words: str) -> None:
    told = await ask(daemon, arguments)
    assert told.decision is None
    assert words in told.sentence
    assert daemon.calls == []


async def test_what_the_daemon_does_not_take_is_said(daemon: FakeDaemon) -> None:
    daemon.will(*POST, (422, {"code": "invalid", "detail": "options: two labels look alike"}))
    told = await ask(daemon, {"title": "x", "options": ["a", "A"]})
    assert told.decision is None
    assert "two labels look alike" in told.sentence


async def test_an_answer_to_another_question_is_taken_back_and_counts_for_nothing(daemon: FakeDaemon) -> None:
    """Whatever took the call showed something else to people than what was asked here."""
    daemon.will(*POST, lambda body: (201, view(body | {"title": "Say hello?"}, "decided", **allowed())))
    daemon.will(*CANCEL, (200, {}))
    told = await ask(daemon, {"title": "Deploy?"})
    assert told.decision is None
    assert "another question" in told.sentence
    assert any(path.endswith("/cancel") for _, path, *_ in daemon.calls)
