"""Between stored records and the values of `core.model`; nothing is judged here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Text, cast

from agentpod_bot.core.model import (
    Attachment,
    Claim,
    Closing,
    Copy,
    Hold,
    Key,
    NewQuestion,
    Outcome,
    Question,
    Status,
    Via,
)
from agentpod_bot.store.documents import (
    read_offered,
    read_offers,
    read_options,
    read_preview,
    read_progress,
    written_offered,
    written_offers,
    written_option,
    written_preview,
)
from agentpod_bot.store.tables import copies, decisions, questions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy import Row as Record

CLOSING_COLUMNS = (
    decisions.c.outcome,
    decisions.c.at_ms,
    decisions.c.option,
    decisions.c.answered_by,
    decisions.c.via,
    decisions.c.comment,
    decisions.c.event_id.label("answer_event_id"),
    decisions.c.answer_ts,
    decisions.c.claim,
    decisions.c.reason,
    decisions.c.voters,
)
"""What `closing_of` reads, in its order."""

COPY_COLUMNS = (
    copies.c.route.label("copy_route"),
    copies.c.room_id.label("copy_room_id"),
    copies.c.asked_at_ms.label("copy_asked_at_ms"),
    copies.c.event_id.label("copy_event_id"),
    copies.c.shown_ts.label("copy_shown_ts"),
    copies.c.shown_closed_ts.label("copy_shown_closed_ts"),
    copies.c.withdrawn_at_ms.label("copy_withdrawn_at_ms"),
    cast(copies.c.offered, Text).label("copy_offered"),
    copies.c.masked.label("copy_masked"),
    copies.c.attachment.label("copy_attachment"),
    copies.c.file.label("copy_file"),
)
"""What `copy_of` reads, in its order."""

QUESTION_COLUMNS = (
    questions.c.row,
    questions.c.client,
    questions.c.request_id,
    questions.c.revision,
    questions.c.session_id,
    questions.c.request_seq,
    questions.c.status,
    questions.c.route,
    questions.c.room_id,
    questions.c.code,
    questions.c.event_id,
    questions.c.created_at_ms,
    questions.c.expires_at_ms,
    questions.c.delivered_at_ms,
    questions.c.shown_ts,
    questions.c.shown_closed_ts,
    questions.c.gave_up,
    questions.c.requester,
    questions.c.salt,
    questions.c.digest,
    questions.c.content_key,
    questions.c.title,
    questions.c.tool_kind,
    questions.c.agent,
    cast(questions.c.options, Text).label("options"),
    cast(questions.c.offered, Text).label("offered"),
    questions.c.preview,
    questions.c.preview_complete,
    questions.c.progress,
    questions.c.raw,
    questions.c.masked,
    questions.c.attachment,
    questions.c.file,
    questions.c.harness,
    questions.c.held,
    questions.c.twin,
    *CLOSING_COLUMNS,
    *COPY_COLUMNS,
)
"""What `question_of` reads, in its order."""


def values_of_question(question: NewQuestion) -> dict[str, Any]:
    """Every column of a question that is queued; `row` is the database's to give."""
    return {
        "client": question.key.client,
        "request_id": question.key.request_id,
        "revision": question.key.revision,
        "session_id": question.session_id,
        "request_seq": question.request_seq,
        "status": Status.QUEUED.value,
        "route": question.route,
        "room_id": question.room_id,
        "code": question.code,
        "created_at_ms": question.created_at_ms,
        "expires_at_ms": question.expires_at_ms,
        "gave_up": False,
        "requester": question.requester,
        "salt": question.salt,
        "digest": question.digest,
        "content_key": question.content_key,
        "title": question.title,
        "tool_kind": question.tool_kind,
        "agent": question.agent,
        "options": [written_option(option) for option in question.options],
        "offered": written_offers(question.offered),
        "preview": [written_preview(preview) for preview in question.preview],
        "preview_complete": question.preview_complete,
        "raw": question.raw,
        "masked": question.masked,
        "attachment": question.attachment.value,
        "file": question.file,
        "harness": question.harness,
        "held": question.hold is not None,
        "twin": None if question.hold is None else question.hold.twin,
    }


def question_of(record: Record[*tuple[Any, ...]]) -> Question:
    """The question in a record of `QUESTION_COLUMNS`."""
    (
        row,
        client,
        request_id,
        revision,
        session_id,
        request_seq,
        status,
        route,
        room_id,
        code,
        event_id,
        created_at_ms,
        expires_at_ms,
        delivered_at_ms,
        shown_ts,
        shown_closed_ts,
        gave_up,
        requester,
        salt,
        digest,
        content_key,
        title,
        tool_kind,
        agent,
        options,
        offered,
        preview,
        preview_complete,
        progress,
        raw,
        masked,
        attachment,
        file,
        harness,
        held,
        twin,
        *rest,
    ) = record
    asked = NewQuestion(
        key=Key(client, request_id, revision),
        session_id=session_id,
        request_seq=request_seq,
        title=title,
        tool_kind=tool_kind,
        agent=agent,
        options=read_options(options),
        preview=tuple(read_preview(written) for written in preview),
        preview_complete=preview_complete,
        route=route,
        room_id=room_id,
        code=code,
        salt=salt,
        digest=digest,
        content_key=content_key,
        offered=read_offers(offered),
        created_at_ms=created_at_ms,
        expires_at_ms=expires_at_ms,
        raw=raw,
        masked=masked,
        attachment=Attachment(attachment),
        file=file,
        requester=requester,
        harness=harness,
        hold=Hold(twin) if held else None,
    )
    return Question(
        row=row,
        asked=asked,
        status=Status(status),
        event_id=event_id,
        shown_ts=shown_ts,
        shown_closed_ts=shown_closed_ts,
        closing=closing_of(*rest[: len(CLOSING_COLUMNS)]),
        delivered_at_ms=delivered_at_ms,
        gave_up=gave_up,
        progress=None if progress is None else read_progress(progress),
        copy=copy_of(*rest[len(CLOSING_COLUMNS) :]),
    )


def copy_of(  # noqa: PLR0917 - one argument for each column of a copy, in their order
    route: Any,
    room_id: Any,
    asked_at_ms: int,
    event_id: Any,
    shown_ts: int | None,
    shown_closed_ts: int | None,
    withdrawn_at_ms: int | None,
    offered: str,
    masked: bool,  # noqa: FBT001 - as above
    attachment: str,
    file: Mapping[str, Any] | None,
) -> Copy | None:
    """The copy in the values of `COPY_COLUMNS`; None where the question has none."""
    if route is None:
        return None
    return Copy(
        route=route,
        room_id=room_id,
        asked_at_ms=asked_at_ms,
        event_id=event_id,
        shown_ts=shown_ts,
        shown_closed_ts=shown_closed_ts,
        withdrawn_at_ms=withdrawn_at_ms,
        offered=read_offers(offered),
        masked=masked,
        attachment=Attachment(attachment),
        file=file,
    )


def values_of_copy(copy: Copy) -> dict[str, Any]:
    """Every column of a copy but the question's row."""
    return {
        "route": copy.route,
        "room_id": copy.room_id,
        "asked_at_ms": copy.asked_at_ms,
        "event_id": copy.event_id,
        "shown_ts": copy.shown_ts,
        "shown_closed_ts": copy.shown_closed_ts,
        "withdrawn_at_ms": copy.withdrawn_at_ms,
        "offered": written_offers(copy.offered),
        "masked": copy.masked,
        "attachment": copy.attachment.value,
        "file": copy.file,
    }


def closing_of(  # noqa: PLR0917 - one argument for each column of a decision, in their order
    outcome: str | None,
    at_ms: int,
    option: Mapping[str, Any] | None,
    answered_by: Any,
    via: str | None,
    comment: str | None,
    event_id: Any,
    answer_ts: int | None,
    claim: Mapping[str, Any] | None,
    reason: str | None,
    voters: list[Any] | None,
) -> Closing | None:
    """The decision in the values of `CLOSING_COLUMNS`; None where the question has none."""
    if outcome is None:
        return None
    return Closing(
        outcome=Outcome(outcome),
        at_ms=at_ms,
        option=None if option is None else read_offered(option),
        answered_by=answered_by,
        via=None if via is None else Via(via),
        comment=comment,
        event_id=event_id,
        answer_ts=answer_ts,
        claim=None if claim is None else Claim(claim["option_id"], claim["by"]),
        reason=reason,
        voters=tuple(voters or ()),
    )


def values_of_closing(closing: Closing) -> dict[str, Any]:
    """Every column of a decision but the question's row."""
    claim = closing.claim
    return {
        "outcome": closing.outcome.value,
        "at_ms": closing.at_ms,
        "option": None if closing.option is None else written_offered(closing.option),
        "answered_by": closing.answered_by,
        "via": None if closing.via is None else closing.via.value,
        "comment": closing.comment,
        "event_id": closing.event_id,
        "answer_ts": closing.answer_ts,
        "claim": None if claim is None else {"option_id": claim.option_id, "by": claim.by},
        "reason": closing.reason,
        "voters": list(closing.voters) or None,
    }
