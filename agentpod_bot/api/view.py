"""What a caller is shown of a question: the models of the view, and how one is made."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Literal, assert_never

from pydantic import BaseModel, ConfigDict, Field

from agentpod_bot.core.model import Claim, Listed, Meaning, Outcome, Scope, Status, Via

if TYPE_CHECKING:
    from agentpod_bot.core.kept import Change, Page
    from agentpod_bot.core.model import Closing, Question

NO_ANSWER = "nobody answered before the deadline; nobody refused, and nothing was allowed"
"""The reason of an expiry that has no other."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""RFC 3339 in UTC, with milliseconds and `Z`."""


class Shown(BaseModel):
    """A part of an answer. Each of its fields is always there, null where it says nothing."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid", hide_input_in_errors=True)


class Subject(Shown):
    """What was asked, in a form that the harness can check: the digest is over its own strings and the salt."""

    id: str
    revision: int
    digest: str
    salt: str


class SelectedOption(Shown):
    """A person selected an option: the only outcome that can allow anything."""

    outcome: Literal["selected"]
    option_id: str
    label: str = Field(description="The option as the room showed it.")
    meaning: Meaning
    scope: Scope | None
    answered_by: str
    answered_at: Time
    via: Via
    comment: str | None
    event_id: str
    voters: list[str] | None = Field(
        description="Everybody whose vote made the decision, `answered_by` last; null where one answer was enough."
    )


class Claimed(Shown):
    """What the client says was answered somewhere else."""

    option_id: str | None
    by: str | None


class AnsweredElsewhere(Shown):
    """The client says that it was answered elsewhere. It is a claim, and no decision."""

    outcome: Literal["answered_elsewhere"]
    claimed: Claimed
    answered_at: Time


class Unanswered(Shown):
    """It ended without an answer. Nothing was allowed, and nobody refused."""

    outcome: Literal["expired", "cancelled", "superseded", "undeliverable"]
    answered_at: Time = Field(description="When it ended.")
    reason: str | None


class View(Shown):
    """One request. `decision` is null while it is open."""

    request_id: str
    session_id: str
    request_seq: int
    status: Status
    route: str
    room_id: str
    event_id: str | None
    code: str
    created_at: Time
    expires_at: Time
    delivered_at: Time | None
    subject: Subject
    decision: Annotated[SelectedOption | AnsweredElsewhere | Unanswered, Field(discriminator="outcome")] | None


class Views(Shown):
    """One page of the caller's requests, newest first. `next_cursor` asks for the next; null at the end."""

    requests: list[View]
    next_cursor: str | None


class Cancelled(Shown):
    """The requests that this call cancelled."""

    cancelled: list[str]


class Alive(Shown):
    """The process answers."""

    status: Literal["alive"] = "alive"


class Ready(Shown):
    """Questions can be asked and answers be read."""

    status: Literal["ready"] = "ready"
    routes: dict[str, str]
    """Routes on which nothing can be asked all the same, each with the code of why."""


class NotReady(Shown):
    """Something keeps questions or answers from their way."""

    status: Literal["not_ready"] = "not_ready"
    problems: list[str]
    routes: dict[str, str]
    """Routes on which nothing can be asked, each with the code of why."""


class Changed(Shown):
    """What one event of the stream says: the new status of a request, and the request as it was right then."""

    request_id: str
    revision: int
    status: Status
    at: Time = Field(description="When the status changed.")
    request: View | None = Field(
        description="The request right after this change, whatever became of it since; null where it is forgotten."
    )


def changed(change: Change) -> Changed:
    """Show one change. Raises ValueError for a line that is about no request."""
    row = change.row
    if row.request_id is None or row.revision is None:
        raise ValueError(f"line {change.link.seq} of the audit tells of a status, and not of which request")
    return Changed(
        request_id=row.request_id,
        revision=row.revision,
        status=change.status,
        at=rfc3339(row.at_ms),
        request=None if change.question is None else _view(change.question),
    )


def view(question: Question) -> View:
    """Show one question."""
    return _view(Listed.of(question))


def views(page: Page) -> Views:
    """Show one page. Its cursor is a string, for whoever reads it should not count with it."""
    return Views(
        requests=[_view(question) for question in page.questions],
        next_cursor=None if page.cursor is None else str(page.cursor),
    )


def rfc3339(at_ms: int) -> str:
    """UTC milliseconds as `2026-11-07T10:30:00.000Z`."""
    at = _EPOCH + timedelta(milliseconds=at_ms)
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _view(listed: Listed) -> View:
    return View(
        request_id=listed.key.request_id,
        session_id=listed.session_id,
        request_seq=listed.request_seq,
        status=listed.status,
        route=listed.route,
        room_id=listed.room_id,
        event_id=listed.event_id,
        code=listed.code,
        created_at=rfc3339(listed.created_at_ms),
        expires_at=rfc3339(listed.expires_at_ms),
        delivered_at=None if listed.delivered_at_ms is None else rfc3339(listed.delivered_at_ms),
        subject=Subject(id=listed.key.request_id, revision=listed.key.revision, digest=listed.digest, salt=listed.salt),
        decision=_decision(listed),
    )


def _decision(listed: Listed) -> SelectedOption | AnsweredElsewhere | Unanswered | None:
    """How a question ended. A row that contradicts itself is an error here, and never an answer."""
    closing = listed.closing
    if listed.is_open:
        return None
    if closing is None or closing.outcome.status is not listed.status:
        raise ValueError(f"question {listed.row} is {listed.status}, and its end says otherwise")
    at = rfc3339(closing.at_ms)
    match closing.outcome:
        case Outcome.SELECTED:
            return _selected(closing, at)
        case Outcome.ANSWERED_ELSEWHERE:
            claim = closing.claim or Claim(option_id=None, by=None)
            claimed = Claimed(option_id=claim.option_id, by=claim.by)
            return AnsweredElsewhere(outcome="answered_elsewhere", claimed=claimed, answered_at=at)
        case Outcome.EXPIRED:
            return Unanswered(outcome="expired", answered_at=at, reason=closing.reason or NO_ANSWER)
        case Outcome.CANCELLED:
            return Unanswered(outcome="cancelled", answered_at=at, reason=closing.reason)
        case Outcome.SUPERSEDED:
            return Unanswered(outcome="superseded", answered_at=at, reason=closing.reason)
        case Outcome.UNDELIVERABLE:
            return Unanswered(outcome="undeliverable", answered_at=at, reason=closing.reason)
        case _:
            assert_never(closing.outcome)


def _selected(closing: Closing, at: str) -> SelectedOption:
    match closing:
        case _ if closing.option is None or closing.answered_by is None:
            raise ValueError("an answer without an option or a person is none")
        case _ if closing.via is None or closing.event_id is None:
            raise ValueError("an answer without a form or an event is none")
    option = closing.option.option
    return SelectedOption(
        outcome="selected",
        option_id=option.option_id,
        label=closing.option.printed,
        meaning=option.meaning,
        scope=option.scope,
        answered_by=closing.answered_by,
        answered_at=at,
        via=closing.via,
        comment=closing.comment,
        event_id=closing.event_id,
        voters=list(closing.voters) or None,
    )
