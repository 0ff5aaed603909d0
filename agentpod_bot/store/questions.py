"""The questions and their decisions. `close` is the one statement that decides."""

from __future__ import annotations

from itertools import chain, combinations
from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, and_, bindparam, exists, func, insert, or_, select, text, union, union_all, update

from agentpod_bot.core.copies import places, seen_in
from agentpod_bot.core.ids import Row
from agentpod_bot.core.kept import OpenCounts, Page
from agentpod_bot.core.model import OPEN, Outcome, Question, Status
from agentpod_bot.store.documents import written_offers, written_progress
from agentpod_bot.store.listing import LISTED_COLUMNS, listed_of
from agentpod_bot.store.records import (
    QUESTION_COLUMNS,
    question_of,
    values_of_closing,
    values_of_question,
)
from agentpod_bot.store.tables import copies, decisions, foreign_questions, left_places, questions
from agentpod_bot.store.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import ColumnElement, Executable, FromClause

    from agentpod_bot.core.ids import ClientName, Code, EventId, RequestId, RoomId, RouteName, SessionId
    from agentpod_bot.core.model import Attachment, Closing, NewQuestion, Offered, Progress

_q = questions.c
_THIS = _q.row == bindparam("this")
_CLOSED = _q.closed_at_ms.is_not(None)
_STILL_OPEN = _q.closed_at_ms.is_(None)
_IN_ROOM = _q.room_id == bindparam("room_id")
_COPIED_THERE = _q.row.in_(select(copies.c.question_row).where(copies.c.room_id == bindparam("room_id")))
_ASKED_THERE = or_(_IN_ROOM, _COPIED_THERE)
_SINCE: BindParameter[int] = bindparam("since_ms")

_READ = select(*QUESTION_COLUMNS).select_from(questions.outerjoin(decisions).outerjoin(copies))
_OLDEST_FIRST = _READ.order_by(_q.row)

_INSERT = insert(questions)
_BY_ROW = _READ.where(_THIS)
_CURRENT = (
    _READ.where(_q.client == bindparam("client"), _q.request_id == bindparam("request_id"))
    .order_by(_q.revision.desc())
    .limit(1)
)
_LAST_REQUEST_SEQ = select(func.max(_q.request_seq)).where(
    _q.client == bindparam("client"), _q.session_id == bindparam("session_id")
)

_OPEN_FILTERS = ("client", "session_id", "route", "room_id")
_OPEN_QUESTIONS: Mapping[tuple[str, ...], Executable] = {
    names: _OLDEST_FIRST.where(
        _STILL_OPEN, *(_ASKED_THERE if name == "room_id" else _q[name] == bindparam(name) for name in names)
    )
    for names in chain.from_iterable(combinations(_OPEN_FILTERS, size) for size in range(len(_OPEN_FILTERS) + 1))
}


def _ended(place: FromClause) -> ColumnElement[bool]:
    """What closed since then, or was shown as closed there, or is not shown so yet."""
    event_id, shown_closed_ts = place.c.event_id, place.c.shown_closed_ts
    return or_(
        _q.closed_at_ms >= _SINCE,
        shown_closed_ts >= _SINCE,
        and_(_CLOSED, event_id.is_not(None), shown_closed_ts.is_(None), _q.expires_at_ms >= _SINCE),
    )


_CLOSED_QUESTIONS = union_all(
    _READ.where(_IN_ROOM, _ended(questions)), _READ.where(copies.c.room_id == bindparam("room_id"), _ended(copies))
)
_CODES = (
    select(_q.code)
    .where(_IN_ROOM, _STILL_OPEN)
    .union_all(
        select(_q.code).where(_IN_ROOM, _q.created_at_ms >= _SINCE),
        select(_q.code).where(_IN_ROOM, _q.closed_at_ms >= _SINCE),
        select(_q.code).where(_COPIED_THERE, or_(_STILL_OPEN, _q.closed_at_ms >= _SINCE)),
        select(foreign_questions.c.code).where(
            foreign_questions.c.room_id == bindparam("room_id"),
            foreign_questions.c.code.is_not(None),
            or_(
                foreign_questions.c.shown_ts >= _SINCE,
                and_(foreign_questions.c.closed_ts.is_(None), foreign_questions.c.expires_at_ms >= _SINCE),
            ),
        ),
    )
)
# The two ways to be among them are asked for by themselves: each has its index, and no index has both.
_ASKED_IN = union(
    *(
        select(room_id).select_from(stood).where(lately)
        for lately in (and_(_STILL_OPEN, _q.expires_at_ms > 0), and_(_CLOSED, _q.closed_at_ms >= _SINCE))
        for room_id, stood in (
            (_q.room_id, questions),
            (copies.c.room_id, questions.join(copies)),
            (left_places.c.room_id, questions.join(left_places)),
        )
    )
)
_BY_CODE = _READ.where(_ASKED_THERE, _q.code == bindparam("code")).order_by(_q.row.desc())
_BY_EVENT = _OLDEST_FIRST.where(
    or_(
        _q.event_id == bindparam("event_id"),
        _q.row.in_(select(copies.c.question_row).where(copies.c.event_id == bindparam("event_id"))),
    )
).limit(1)

_newer = questions.alias("newer")
_PAGE = (
    select(*LISTED_COLUMNS)
    .select_from(questions.outerjoin(decisions))
    .where(
        _q.client == bindparam("client"),
        _q.row < bindparam("before"),
        ~exists().where(
            _newer.c.client == _q.client, _newer.c.request_id == _q.request_id, _newer.c.revision > _q.revision
        ),
    )
    .order_by(_q.row.desc())
    .limit(bindparam("at_most"))
)
_PAGE_FILTERS = ("status", "session_id")
_PAGES: Mapping[tuple[str, ...], Executable] = {
    names: _PAGE.where(*(_q[name] == bindparam(name) for name in names))
    for names in chain.from_iterable(combinations(_PAGE_FILTERS, size) for size in range(len(_PAGE_FILTERS) + 1))
}
_NO_ROW_IS_HIGHER = 2**63 - 1

_POST = (
    update(questions)
    .where(_THIS, _q.status == Status.QUEUED.value)
    .values(status=Status.PENDING.value, event_id=func.coalesce(_q.event_id, bindparam("posted")))
)
_POST_CLOSED = update(questions).where(_THIS, _CLOSED, _q.event_id.is_(None)).values(event_id=bindparam("posted"))
_SHOW = (
    update(questions)
    .where(_THIS, _q.shown_ts.is_(None))
    .values(event_id=func.coalesce(_q.event_id, bindparam("seen")), shown_ts=bindparam("at_ts"))
)
_SHOW_CLOSED = update(questions).where(_THIS, _q.shown_closed_ts.is_(None)).values(shown_closed_ts=bindparam("at_ts"))
_CLOSE = (
    update(questions)
    .where(
        _THIS,
        _q.revision == bindparam("the_revision"),
        _q.status.in_(bindparam("from_status", expanding=True)),
    )
    .values(status=bindparam("to_status"), closed_at_ms=bindparam("at_ms"))
)
_SELECT = _CLOSE.where(_q.status == Status.PENDING.value, _q.expires_at_ms > bindparam("now_ms"))
_DECISION = insert(decisions)
_DELIVER = (
    update(questions).where(_THIS, _CLOSED, _q.delivered_at_ms.is_(None)).values(delivered_at_ms=bindparam("at_ms"))
)
_ATTACH = update(questions).where(_THIS).values(attachment=bindparam("to_attachment"))
_KEEP_FILE = update(questions).where(_THIS).values(file=bindparam("to_file"))
_OFFER = update(questions).where(_THIS).values(offered=bindparam("to_offered"))
_GIVE_UP = update(questions).where(_THIS).values(gave_up=True)
_PROGRESS = update(questions).where(_THIS, _q.status == Status.DECIDED.value).values(progress=bindparam("latest"))
# Written as the index has it: a library's own way to say it would not be matched with the index.
_HELD = _OLDEST_FIRST.where(
    text("questions.held AND questions.delivered_at_ms IS NULL AND NOT questions.gave_up"),
    or_(_STILL_OPEN, _q.status == Status.DECIDED.value),
)
_of_route, _of_all = questions.alias("of_route").c, questions.alias("of_all").c
_OPEN_COUNTS = select(
    func.count().filter(_q.session_id == bindparam("session_id")),
    func.count(),
    select(func.count())
    .where(_of_route.closed_at_ms.is_(None), _of_route.route == bindparam("route"))
    .scalar_subquery(),
    # Every deadline is later than that: asked so, SQLite reads the index over the open ones, and no closed one.
    select(func.count()).where(_of_all.closed_at_ms.is_(None), _of_all.expires_at_ms > 0).scalar_subquery(),
).where(_STILL_OPEN, _q.client == bindparam("client"))
_DUE = _READ.where(_STILL_OPEN, _q.expires_at_ms <= bindparam("now_ms")).order_by(_q.expires_at_ms, _q.row)
_NEXT_DEADLINE = select(func.min(_q.expires_at_ms)).where(_STILL_OPEN)


class Questions(Transaction):
    """The part of a transaction that is about questions; promises stand in `ports.Tx`."""

    def insert(self, question: NewQuestion) -> Question:
        """Store a new question as `queued`. Raises ValueError where its key is not new."""
        row = Row(self._insert(_INSERT, values_of_question(question)))
        return Question(row=row, asked=question, status=Status.QUEUED)

    def question(self, row: Row) -> Question | None:
        """Read one question."""
        return self._question(_BY_ROW, {"this": row})

    def current(self, client: ClientName, request_id: RequestId) -> Question | None:
        """The highest revision of a request, open or closed."""
        return self._question(_CURRENT, {"client": client, "request_id": request_id})

    def next_request_seq(self, client: ClientName, session_id: SessionId) -> int:
        """One more than the session's highest number that is stored, 1 where there is none."""
        highest: int | None = self._value(_LAST_REQUEST_SEQ, {"client": client, "session_id": session_id})
        return 1 if highest is None else highest + 1

    def open_questions(
        self,
        *,
        client: ClientName | None = None,
        session_id: SessionId | None = None,
        route: RouteName | None = None,
        room_id: RoomId | None = None,
    ) -> tuple[Question, ...]:
        """Every queued or pending question that fits all that is given, in the order they were asked."""
        given = _given(client=client, session_id=session_id, route=route, room_id=room_id)
        found = self._questions(_OPEN_QUESTIONS[tuple(given)], given)
        return found if room_id is None else tuple(each for each in _seen(found, room_id) if each.is_open)

    def open_counts(self, *, client: ClientName, session_id: SessionId, route: RouteName) -> OpenCounts:
        """How many queued or pending questions the client's session, the client, the route, and all have."""
        values = {"client": client, "session_id": session_id, "route": route}
        [counted] = self._rows(_OPEN_COUNTS, values)
        return OpenCounts(*counted)

    def closed_questions(self, room_id: RoomId, *, since_ms: int) -> tuple[Question, ...]:
        """Those that closed since then or whose end the room does not show yet, in the order they were asked."""
        found = self._questions(_CLOSED_QUESTIONS, {"room_id": room_id, "since_ms": since_ms})
        closed = (each for each in _seen(found, room_id) if not each.is_open)
        return tuple(sorted(closed, key=lambda each: each.row))

    def asked_in(self, *, since_ms: int) -> frozenset[RoomId]:
        """Every room in which a question stands or stood that is open or closed since then."""
        return frozenset(room_id for (room_id,) in self._rows(_ASKED_IN, {"since_ms": since_ms}))

    def codes(self, room_id: RoomId, *, since_ms: int) -> frozenset[Code]:
        """Codes that may not be given again: of open and recent questions, also of other accounts."""
        return frozenset(code for (code,) in self._rows(_CODES, {"room_id": room_id, "since_ms": since_ms}))

    def by_code(self, room_id: RoomId, code: Code) -> tuple[Question, ...]:
        """The room's own questions with this code, newest first."""
        return tuple(_seen(self._questions(_BY_CODE, {"room_id": room_id, "code": code}), room_id))

    def by_event(self, event_id: EventId) -> Question | None:
        """The question that this event is."""
        question = self._question(_BY_EVENT, {"event_id": event_id})
        return None if question is None else next(each for each in places(question) if each.event_id == event_id)

    def page(
        self,
        client: ClientName,
        *,
        status: Status | None,
        session_id: SessionId | None,
        limit: int,
        before: int | None,
    ) -> Page:
        """A client's current revisions, newest first; the cursor is the lowest row of the page."""
        given = _given(status=None if status is None else status.value, session_id=session_id)
        asked = {
            **given,
            "client": client,
            "before": _NO_ROW_IS_HIGHER if before is None else before,
            "at_most": limit + 1,
        }
        found = tuple(listed_of(record) for record in self._rows(_PAGES[tuple(given)], asked))
        shown = found[:limit]
        return Page(questions=shown, cursor=shown[-1].row if shown and len(found) > limit else None)

    def post(self, row: Row, event_id: EventId) -> bool:
        """Queued → pending; where it was closed meanwhile only the event id is kept."""
        values = {"this": row, "posted": event_id}
        if self._change(_POST, values):
            return True
        self._change(_POST_CLOSED, values)
        return False

    def show(self, row: Row, event_id: EventId, shown_ts: int) -> None:
        """Note that the timeline showed the question, once."""
        self._change(_SHOW, {"this": row, "seen": event_id, "at_ts": shown_ts})

    def show_closed(self, row: Row, shown_ts: int) -> None:
        """Note that the timeline showed an edit that closes the question; the first one counts."""
        self._change(_SHOW_CLOSED, {"this": row, "at_ts": shown_ts})

    def close(self, row: Row, closing: Closing, *, from_status: frozenset[Status], revision: int, now_ms: int) -> bool:
        """Close a question, exactly once; a status in `from_status` that is not open counts for nothing.

        Raises ValueError, before anything is changed, for a `SELECTED` without option or
        person and for any other outcome with one of them.
        """
        selected = closing.outcome is Outcome.SELECTED
        if (closing.option is not None, closing.answered_by is not None) != (selected, selected):
            raise ValueError("an option and a person belong to a selected outcome, and to no other")
        values = {
            "this": row,
            "the_revision": revision,
            "from_status": [status.value for status in from_status & OPEN],
            "to_status": closing.outcome.status.value,
            "at_ms": closing.at_ms,
        }
        closed = self._change(_SELECT, {**values, "now_ms": now_ms}) if selected else self._change(_CLOSE, values)
        if closed != 1:
            return False
        self._change(_DECISION, {"question_row": row, **values_of_closing(closing)})
        return True

    def deliver(self, row: Row, at_ms: int) -> bool:
        """Set when the harness fetched the outcome of a closed question; False where it was set before."""
        return self._change(_DELIVER, {"this": row, "at_ms": at_ms}) == 1

    def give_up(self, row: Row) -> None:
        """Note that the harness had stopped waiting."""
        self._change(_GIVE_UP, {"this": row})

    def progress(self, row: Row, progress: Progress) -> None:
        """Keep the latest progress of a decided question."""
        self._change(_PROGRESS, {"this": row, "latest": written_progress(progress)})

    def attach(
        self,
        row: Row,
        attachment: Attachment,
        *,
        file: Mapping[str, Any] | None = None,
        offered: tuple[Offered, ...] | None = None,
    ) -> None:
        """Note where the file of a question is, and what the question offers because of that."""
        self._change(_ATTACH, {"this": row, "to_attachment": attachment.value})
        if file is not None:
            self._change(_KEEP_FILE, {"this": row, "to_file": dict(file)})
        if offered is not None:
            self._change(_OFFER, {"this": row, "to_offered": written_offers(offered)})

    def due(self, now_ms: int) -> tuple[Question, ...]:
        """Open questions whose deadline is reached, the earliest deadline first."""
        return self._questions(_DUE, {"now_ms": now_ms})

    def held(self) -> tuple[Question, ...]:
        """Held questions that are open, or decided and neither delivered nor given up, oldest first."""
        return self._questions(_HELD, {})

    def next_deadline(self) -> int | None:
        """The earliest deadline of an open question."""
        deadline: int | None = self._value(_NEXT_DEADLINE)
        return deadline

    def _question(self, statement: Executable, values: Mapping[str, Any]) -> Question | None:
        record = self._first(statement, values)
        return None if record is None else question_of(record)

    def _questions(self, statement: Executable, values: Mapping[str, Any]) -> tuple[Question, ...]:
        return tuple(question_of(record) for record in self._rows(statement, values))


def _seen(questions: Iterable[Question], room_id: RoomId) -> Iterator[Question]:
    """Questions as the room has them."""
    for question in questions:
        place = seen_in(question, room_id)
        if place is not None:
            yield place


def _given(**filters: str | None) -> dict[str, str]:
    return {name: value for name, value in filters.items() if value is not None}
