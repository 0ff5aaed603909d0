"""A broker in memory, with the promises that the HTTP endpoint relies on, and no room."""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from agentpod_bot.core.ids import Code, EventId, RequestId, RoomId, RouteName, Row, SessionId, UserId
from agentpod_bot.core.journal import UNKNOWN, Link
from agentpod_bot.core.kept import Page
from agentpod_bot.core.model import (
    Caller,
    Claim,
    Closing,
    Key,
    Listed,
    NewQuestion,
    Offered,
    Outcome,
    PermissionRequest,
    Progress,
    Question,
    Status,
    Submitted,
    Via,
)
from agentpod_bot.errors import (
    Conflict,
    Forbidden,
    NotFound,
    RequestClosed,
    RequestIdReused,
    ShuttingDown,
    TooManyWaits,
)
from tests.examples import OPS_ROUTE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from agentpod_bot.core.journal import Place
    from agentpod_bot.core.kept import Change
    from agentpod_bot.core.lifecycle import AnsweredElsewhere, Cancelled
    from agentpod_bot.core.policy import Route

CREATED_MS = 1_794_045_600_000
ROOM = RoomId("!room")
OWNER = UserId("@owner:example.org")


class FakeStream:
    """A stream of what a test tells."""

    def __init__(self, caller: Caller, place: Place | None) -> None:
        self.caller = caller
        self.place = place
        self.begins = Link(41, "ab" * 32)
        self.reset = place == UNKNOWN
        self._told: asyncio.Queue[tuple[Change, ...] | Exception] = asyncio.Queue()

    def tell(self, told: Exception | tuple[Change, ...]) -> None:
        """Give these changes to the reader, or fail."""
        self._told.put_nowait(told)

    async def next(self, *, up_to_s: float) -> tuple[Change, ...]:
        try:
            async with asyncio.timeout(up_to_s):
                told = await self._told.get()
        except TimeoutError:
            return ()
        if isinstance(told, Exception):
            raise told
        return told


class FakeBroker:
    """Questions are pending at once; tests decide them."""

    def __init__(self, *, max_waits: int = 10) -> None:
        self.questions: dict[Row, Question] = {}
        self.delivered: set[Row] = set()
        self.streams: list[FakeStream] = []
        self.asked: list[PermissionRequest] = []
        self.waits = 0
        self.max_waits = max_waits
        self.stopping = False
        self.failure: BaseException | None = None
        self.leaving_failure: Exception | None = None
        self.hands_back = False
        self.patience_ms: int | None = None
        self.held_as: str | None = None
        self.closings: list[object] = []
        self.pause: asyncio.Event | None = None
        """Holds every change in its middle, until set."""
        self.paused = asyncio.Event()
        self.changes = 0
        self._changed = asyncio.Condition()

    async def submit(self, asked: PermissionRequest, caller: Caller) -> Submitted:
        self._fail()
        self.asked.append(asked)
        session = [q for q in self.questions.values() if q.asked.session_id == asked.session_id]
        seq = asked.request_seq if asked.request_seq is not None else len(session) + 1
        request_id = asked.request_id or RequestId(f"{asked.session_id}:{seq}")
        content = repr((asked.title, asked.options, asked.preview))
        for question in self.questions.values():
            if question.key[:2] == (caller.client, request_id):
                if question.asked.content_key == content:
                    return Submitted(question, created=False)
                fault = RequestIdReused if question.is_open else RequestClosed
                raise fault(question.row, "this id has other content")
        offered = tuple(
            Offered(n, option, option.label, frozenset(), id_matches=False) for n, option in enumerate(asked.options, 1)
        )
        new = NewQuestion(
            key=Key(caller.client, request_id, 1),
            session_id=asked.session_id,
            request_seq=seq,
            title=asked.title,
            tool_kind=asked.tool_kind,
            agent=asked.agent,
            options=asked.options,
            preview=asked.preview,
            preview_complete=asked.preview_complete,
            route=asked.route or RouteName("ops"),
            room_id=ROOM,
            code=Code("K7"),
            salt="00" * 16,
            digest=hashlib.sha256(content.encode()).hexdigest(),
            content_key=content,
            offered=offered,
            created_at_ms=CREATED_MS,
            expires_at_ms=asked.expires_at_ms or CREATED_MS + 1_800_000,
            raw=asked.raw,
        )
        row = Row(len(self.questions) + 1)
        question = Question(row, new, Status.PENDING, event_id=EventId(f"$question{row}"))
        await self._change(question)
        return Submitted(question, created=True)

    def route(self, caller: Caller, name: RouteName | None, harness: str) -> Route:
        if harness not in caller.harnesses:
            raise Forbidden(f"this token may not ask in the form of {harness}")
        if name is not None and name not in caller.routes:
            raise Forbidden("this token may not use that route")
        (only,) = caller.routes
        return replace(OPS_ROUTE, name=name or only, hands_back=self.hands_back)

    @asynccontextmanager
    async def held(
        self, asked: PermissionRequest, caller: Caller, *, harness: str, patience_ms: int | None
    ) -> AsyncIterator[Question]:
        self.held_as = harness
        self.patience_ms = patience_ms
        submitted = await self.submit(asked, caller)
        async with self.waiting(submitted.question, up_to_s=None) as question:
            yield question

    async def close_held(
        self,
        caller: Caller,
        *,
        harness: str,
        session_id: SessionId | None,
        prefixes: tuple[str, ...],
        every: bool,
        event: AnsweredElsewhere | Cancelled,
    ) -> tuple[RequestId, ...]:
        self._fail()
        self.closings.append((caller.client, harness, session_id, prefixes, every, event))
        return ()

    @asynccontextmanager
    async def waiting(self, question: Question, *, up_to_s: float | None) -> AsyncIterator[Question]:
        self._fail()
        row = question.row
        if self.waits >= self.max_waits and up_to_s != 0 and self.questions[row].is_open:
            raise TooManyWaits("too many waiting calls")
        await self._count(1)
        try:
            await self._closed(row, up_to_s)
            if self.stopping and self.questions[row].is_open:
                raise ShuttingDown(row)
            yield self.questions[row]
            if self.pause is not None:
                self.paused.set()
                await self.pause.wait()
            if self.leaving_failure is not None:
                raise self.leaving_failure
            if not self.questions[row].is_open:
                self.delivered.add(row)
        finally:
            await self._count(-1)

    async def get(self, caller: Caller, request_id: RequestId) -> Question:
        self._fail()
        for question in self.questions.values():
            if question.key[:2] == (caller.client, request_id):
                return question
        raise NotFound("there is no such request")

    async def page(
        self, caller: Caller, *, status: Status | None, session_id: SessionId | None, limit: int, cursor: int | None
    ) -> Page:
        self._fail()
        found = [
            q
            for q in sorted(self.questions.values(), key=lambda q: -q.row)
            if q.key.client == caller.client
            and status in {None, q.status}
            and session_id in {None, q.asked.session_id}
            and (cursor is None or q.row < cursor)
        ]
        return Page(
            questions=tuple(map(Listed.of, found[:limit])), cursor=found[limit - 1].row if len(found) > limit else None
        )

    @asynccontextmanager
    async def follow(self, caller: Caller, place: Place | None) -> AsyncIterator[FakeStream]:
        self._fail()
        if self.waits >= self.max_waits:
            raise TooManyWaits("too many waiting calls")
        stream = FakeStream(caller, place)
        self.streams.append(stream)
        await self._count(1)
        try:
            yield stream
        finally:
            await self._count(-1)

    async def cancel(self, caller: Caller, request_id: RequestId) -> Question:
        return await self._close(await self.get(caller, request_id), Closing(Outcome.CANCELLED, CREATED_MS + 1))

    async def answered_elsewhere(self, caller: Caller, request_id: RequestId, claim: Claim) -> Question:
        closing = Closing(Outcome.ANSWERED_ELSEWHERE, CREATED_MS + 1, claim=claim)
        return await self._close(await self.get(caller, request_id), closing)

    async def progress(self, caller: Caller, request_id: RequestId, progress: Progress) -> Question:
        question = await self.get(caller, request_id)
        if question.status is not Status.DECIDED:
            raise Conflict(question.row, "only a decided request has progress")
        return await self._change(replace(question, progress=progress))

    async def cancel_session(self, caller: Caller, session_id: SessionId) -> tuple[RequestId, ...]:
        return await self._cancel([q for q in self._open(caller) if q.asked.session_id == session_id])

    async def cancel_all(self, caller: Caller) -> tuple[RequestId, ...]:
        return await self._cancel(self._open(caller))

    async def question(self, row: Row) -> Question:
        return self.questions[row]

    # what tests do
    async def decide(self, row: int, position: int = 1, comment: str | None = None) -> None:
        """Answer a question as its approver."""
        question = self.questions[Row(row)]
        closing = Closing(
            Outcome.SELECTED,
            CREATED_MS + 2_000,
            option=question.asked.offered[position - 1],
            answered_by=OWNER,
            via=Via.NUMBER,
            comment=comment,
            event_id=EventId("$answer"),
            answer_ts=CREATED_MS + 1_900,
        )
        await self._close(question, closing)

    async def end(self, row: int, closing: Closing) -> None:
        """End a question otherwise."""
        await self._close(self.questions[Row(row)], closing)

    async def release(self) -> None:
        """Stop: every waiting call ends with `ShuttingDown`."""
        self.stopping = True
        async with self._changed:
            self._changed.notify_all()

    async def until_waiting(self, calls: int) -> None:
        """Return when this many calls wait."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.waits == calls)

    async def _close(self, question: Question, closing: Closing) -> Question:
        if not question.is_open:
            raise RequestClosed(question.row, "the request is closed")
        return await self._change(replace(question, status=closing.outcome.status, closing=closing))

    async def _cancel(self, questions: list[Question]) -> tuple[RequestId, ...]:
        for question in questions:
            await self._close(question, Closing(Outcome.CANCELLED, CREATED_MS + 1))
        return tuple(question.key.request_id for question in questions)

    async def _change(self, question: Question) -> Question:
        if self.pause is not None:
            self.paused.set()
            await self.pause.wait()
        self.questions[question.row] = question
        async with self._changed:
            self._changed.notify_all()
        self.changes += 1
        return question

    async def _closed(self, row: Row, up_to_s: float | None) -> None:
        try:
            async with asyncio.timeout(up_to_s), self._changed:
                await self._changed.wait_for(lambda: self.stopping or not self.questions[row].is_open)
        except TimeoutError:
            return

    async def _count(self, step: int) -> None:
        self.waits += step
        async with self._changed:
            self._changed.notify_all()

    def _open(self, caller: Caller) -> list[Question]:
        return [q for q in self.questions.values() if q.key.client == caller.client and q.is_open]

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure
