"""A question as the broker hands it to the renderer, and ways in which it ended."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from agentpod_bot.core.ids import ClientName, EventId, Row, UserId
from agentpod_bot.core.model import Closing, FieldPreview, NewQuestion, Outcome, Question, Status, TextPreview, Via
from agentpod_bot.render.question import compose
from tests.examples import question

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
OWNER = UserId("@owner:example.org")
ASKED_MS = int(datetime(2026, 11, 7, 10, 0, tzinfo=UTC).timestamp()) * 1000
MINUTE = 60_000
ASKED = replace(
    question(12).asked,
    preview=(
        FieldPreview("Tool", "Run the test suite"),
        FieldPreview("Kind", "execute"),
        TextPreview("Command", "bun test"),
        FieldPreview("Location", "apps/hub"),
    ),
    offered=(),
    created_at_ms=ASKED_MS,
    expires_at_ms=ASKED_MS + 30 * MINUTE,
)


def composed(asked: NewQuestion = ASKED, *, other_codes: frozenset[Any] = frozenset()) -> dict[str, Any]:
    """The content of the question, mentioning one approver."""
    return compose(asked, mentions=(OWNER,), other_codes=other_codes)[1]


def posted(asked: NewQuestion = ASKED) -> Question:
    """The question in its room."""
    new, _ = compose(asked, mentions=(OWNER,), other_codes=frozenset())
    return Question(row=Row(1), asked=new, status=Status.PENDING, event_id=EventId("$question"))


def ended(outcome: Outcome, asked: NewQuestion = ASKED, *, minutes: int = 12, **closing: Any) -> Question:
    """The question, closed so many minutes after it was asked."""
    open_one = posted(asked)
    end = Closing(outcome, at_ms=ASKED_MS + minutes * MINUTE, **closing)
    return replace(open_one, status=outcome.status, closing=end)


def selected(position: int, asked: NewQuestion = ASKED, *, minutes: int = 12, comment: str | None = None) -> Question:
    """The question, answered by its approver with this number."""
    offered = posted(asked).asked.offered[position - 1]
    return ended(
        Outcome.SELECTED, asked, minutes=minutes, option=offered, answered_by=OWNER, via=Via.NUMBER, comment=comment
    )


def of_client(name: str) -> NewQuestion:
    """The question of a client with this name."""
    return replace(ASKED, key=ASKED.key._replace(client=ClientName(name)))


def golden(name: str) -> dict[str, Any]:
    """The expected content of an event."""
    content: dict[str, Any] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return content
