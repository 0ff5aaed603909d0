"""The use cases of the HTTP side: ask, wait, read, cancel. A person's answers come in by `inbox`."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from agentpod_bot.broker.change import audit, change, edit_again
from agentpod_bot.broker.commit import LATER_S
from agentpod_bot.broker.submit import NATIVE, submit
from agentpod_bot.core.lifecycle import AnsweredElsewhere, Cancelled
from agentpod_bot.core.model import Meaning, Outcome, Status
from agentpod_bot.errors import AgentpodError, Forbidden, Invalid, NotDecided, NotFound, RequestClosed, ShuttingDown

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from agentpod_bot.broker.change import After, Means
    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.broker.deadlines import Deadlines
    from agentpod_bot.broker.holds import Dropped, Holds
    from agentpod_bot.broker.outbox import Outbox, Ready
    from agentpod_bot.broker.streams import Stream, Streams
    from agentpod_bot.broker.waiters import Waiters
    from agentpod_bot.core.ids import ClientName, RequestId, RouteName, Row, SessionId
    from agentpod_bot.core.journal import Place
    from agentpod_bot.core.kept import Page
    from agentpod_bot.core.lifecycle import Event
    from agentpod_bot.core.model import Caller, Claim, PermissionRequest, Progress, Question, Submitted
    from agentpod_bot.core.policy import Route
    from agentpod_bot.ports import Meter, Store, Tx

log = structlog.get_logger(__name__)


class Broker:
    """Everything that a client may do. It reads and writes only its own requests."""

    def __init__(
        self,
        store: Store,
        means: Means,
        *,
        waiters: Waiters,
        commit: Commit,
        outbox: Outbox,
        deadlines: Deadlines,
        holds: Holds,
        streams: Streams,
        meter: Meter,
    ) -> None:
        self._store = store
        self._means = means
        self._waiters = waiters
        self._commit = commit
        self._outbox = outbox
        self._deadlines = deadlines
        self._holds = holds
        self._streams = streams
        self._meter = meter

    async def submit(self, asked: PermissionRequest, caller: Caller) -> Submitted:
        """Store one request and have it asked, or join the one that it repeats.

        Raises `Invalid`, `Forbidden`, `TooLarge`, `RequestIdReused`, `RequestClosed`,
        `TooManyPending`, `TooManyRequests`, `Unavailable` and its kinds; nothing is stored then.
        """
        return await self._submit(asked, caller, NATIVE, None)

    @asynccontextmanager
    async def held(
        self, asked: PermissionRequest, caller: Caller, *, harness: str, patience_ms: int | None
    ) -> AsyncIterator[Question]:
        """Ask in a harness's shape, and enter when the question is closed, with how it ended.

        The question expires after `patience_ms` at the latest, for then nobody listens.
        The body tells the harness; leaving it without an exception marks the question as
        delivered. Where it is left otherwise, and `asked.hold` is set, the same call has
        ten seconds to come back. Entering raises what `submit` and `waiting` raise.
        """
        self._waiters.check(caller.client, limit=self._means.world.policy.limits.max_waits_per_token)
        if patience_ms is not None:
            wanted_ms = self._means.world.policy.limits.ttl_ms if asked.ttl_ms is None else asked.ttl_ms
            asked = replace(asked, ttl_ms=min(wanted_ms, patience_ms))
        twin = None if asked.hold is None else asked.hold.twin
        dropped = None if twin is None else self._holds.claim(caller.client, harness, twin)
        submitting = asyncio.create_task(self._submit(asked, caller, harness, dropped))
        try:
            question = (await asyncio.shield(submitting)).question
        except asyncio.CancelledError:  # the harness hung up; what was stored is held by nobody
            submitting.add_done_callback(self._drop_submitted)
            raise
        self._holds.attach(question)
        answered = False
        try:
            async with self.waiting(question, up_to_s=None) as ended:
                yield ended
                answered = True
                if _goes_on(ended):
                    self._holds.allowed(ended)
        finally:
            self._holds.detach(question, answered=answered)

    def _drop_submitted(self, submitting: asyncio.Task[Submitted]) -> None:
        if submitting.cancelled():
            return
        if (fault := submitting.exception()) is not None:
            log.info("abandoned_call_failed", error=type(fault).__name__)
            return
        question = submitting.result().question
        self._holds.attach(question)
        self._holds.detach(question, answered=False)

    async def _submit(
        self, asked: PermissionRequest, caller: Caller, harness: str, dropped: Dropped | None
    ) -> Submitted:
        twin = None if dropped is None else dropped.row
        joined: Row | None = None
        try:
            submitted = await self._store_request(asked, caller, harness, twin)
            joined = submitted.question.row
        finally:
            if dropped is not None and joined != dropped.row:
                self._holds.give_back(dropped)
        return submitted

    async def _store_request(
        self, asked: PermissionRequest, caller: Caller, harness: str, twin: Row | None
    ) -> Submitted:
        if self._waiters.stopping:
            raise ShuttingDown(None)
        route = self.route(caller, asked.route, harness)

        reserved = self._outbox.reserve(route.room_id)
        ready: Ready | None = None
        expected: list[Row] = []
        stored = False

        def work(tx: Tx, after: After) -> tuple[Submitted, Ready | None]:
            submitted = submit(tx, asked, caller, route, after=after, means=self._means, harness=harness, twin=twin)
            if submitted.question.asked.hold is not None:
                self._holds.expect(submitted.question.row)
                expected.append(submitted.question.row)
            known = submitted.question if submitted.created else None
            return submitted, self._outbox.begin(tx, route.room_id, known) if reserved else None

        try:
            submitted, ready = await self._commit(work)
            stored = True
        except AgentpodError as error:
            self._meter.not_asked(caller.client, error.code)
            raise
        finally:
            for row in () if stored else expected:
                self._holds.expect_no_more(row)
            if reserved:
                self._outbox.go(route.room_id, ready)
        if submitted.created:
            self._deadlines.notice(submitted.question)
            # Counted and logged a moment later, for the question is on its way to the room.
            asyncio.get_running_loop().call_later(LATER_S, self._tell, submitted.question)
        return submitted

    def _tell(self, question: Question) -> None:
        self._meter.asked(question)
        log.info(
            "permission_request_queued",
            request_id=question.key.request_id,
            client=question.key.client,
            route=question.asked.route,
            revision=question.key.revision,
        )

    @asynccontextmanager
    async def waiting(self, question: Question, *, up_to_s: float | None) -> AsyncIterator[Question]:
        """Enter when a question, just read, is closed, or `up_to_s` seconds passed, with what it is then.

        None waits for as long as it takes.

        The body hands it to the client; leaving without an exception marks a closed one
        as delivered. Raises `ShuttingDown` and `TooManyWaits` on entering.
        """
        row = question.row
        if not question.is_open or (up_to_s is not None and up_to_s <= 0):
            yield question
            await self._deliver(question)
            return
        limit = self._means.world.policy.limits.max_waits_per_token
        with self._waiters.place(row, question.key.client, limit=limit) as released:
            done, _ = await asyncio.wait({released}, timeout=up_to_s)
            question = released.result() if done else await self.question(row)
            yield question
            await self._deliver(question)

    async def question(self, row: Row) -> Question:
        """Read one question by its row. Raises `NotFound`."""
        question = await self._store.run(lambda tx: tx.question(row))
        if question is None:
            raise NotFound("no such request")
        return question

    async def get(self, caller: Caller, request_id: RequestId) -> Question:
        """Read the current revision of the caller's request. Raises `NotFound`."""
        return await self._store.run(lambda tx: _current(tx, caller.client, request_id))

    async def page(
        self, caller: Caller, *, status: Status | None, session_id: SessionId | None, limit: int, cursor: int | None
    ) -> Page:
        """List the caller's requests, newest first."""
        return await self._store.run(
            lambda tx: tx.page(caller.client, status=status, session_id=session_id, limit=limit, before=cursor)
        )

    def follow(self, caller: Caller, place: Place | None) -> AbstractAsyncContextManager[Stream]:
        """Follow every change of status of the caller's requests, after a place or from now on.

        Entering raises `ShuttingDown`, `TooManyWaits`, `StoreUnavailable`.
        """
        return self._streams.open(caller.client, place)

    async def cancel(self, caller: Caller, request_id: RequestId) -> Question:
        """Close a request that the client no longer needs. Raises `NotFound`, `RequestClosed`."""
        return await self._close(caller, request_id, Cancelled("the client cancelled it"))

    async def answered_elsewhere(self, caller: Caller, request_id: RequestId, claim: Claim) -> Question:
        """Close a request as the client's claim, which is no decision. Raises `NotFound`, `RequestClosed`."""
        return await self._close(caller, request_id, AnsweredElsewhere(claim))

    async def progress(self, caller: Caller, request_id: RequestId, progress: Progress) -> Question:
        """Show what became of a decided request. Raises `NotFound`, `NotDecided`."""

        def work(tx: Tx, after: After) -> Question:
            question = _current(tx, caller.client, request_id)
            if question.status is not Status.DECIDED:
                raise NotDecided(question.row, f"the request is {question.status.value}, not decided")
            tx.progress(question.row, progress)
            edit_again(tx, question, after, self._means)
            return _current(tx, caller.client, request_id)

        return await self._commit(work)

    async def cancel_session(self, caller: Caller, session_id: SessionId) -> tuple[RequestId, ...]:
        """Cancel every open request of one session; returns their ids."""
        return await self._cancel_all(caller, session_id, Cancelled("the session was cancelled"))

    async def cancel_all(self, caller: Caller) -> tuple[RequestId, ...]:
        """Cancel every open request of the client; returns their ids."""
        return await self._cancel_all(caller, None, Cancelled("the client cancelled all its requests"))

    async def close_held(
        self,
        caller: Caller,
        *,
        harness: str,
        session_id: SessionId | None,
        prefixes: tuple[str, ...],
        every: bool,
        event: Event,
    ) -> tuple[RequestId, ...]:
        """Close open questions that a harness needs no longer; returns their ids.

        Those of the caller that were asked in that harness's shape, in that session if one
        is given, and of which the request id or the hold's twin begins with one of
        `prefixes`: all of them, or else the oldest, unless it was one that had been answered
        here which ran.
        """

        def fits(question: Question) -> bool:
            return (
                question.key.client == caller.client
                and question.asked.harness == harness
                and session_id in {None, question.asked.session_id}
                and _is_called(question, prefixes)
            )

        if self._holds.use_up(fits, every=every):
            return ()

        def work(tx: Tx, after: After) -> tuple[RequestId, ...]:
            for question in tx.open_questions(client=caller.client, session_id=session_id):
                if fits(question):
                    change(tx, question, event, after, self._means)
                    if not every:
                        break
            return tuple(question.key.request_id for question in after.closed)

        return await self._commit(work)

    def route(self, caller: Caller, name: RouteName | None, harness: str) -> Route:
        """The route on which a caller asks in a harness's shape. Raises `Invalid`, `Forbidden`."""
        if name is None:
            if len(caller.routes) != 1:
                raise Invalid(("route",), f"name one of this token's routes: {', '.join(sorted(caller.routes))}")
            (name,) = caller.routes
        route = self._means.world.policy.routes.get(name)
        if name not in caller.routes or route is None:
            raise Forbidden("this token may not use that route")
        if harness not in caller.harnesses or harness not in route.harnesses:
            at = f"clients.{caller.client}" if harness not in caller.harnesses else f"routes.{name}"
            raise Forbidden(
                f"this token may not ask in the form of {harness} on route {name}: {at}.harnesses does not name it"
            )
        return route

    async def _close(self, caller: Caller, request_id: RequestId, event: Event) -> Question:
        def work(tx: Tx, after: After) -> Question:
            question = _current(tx, caller.client, request_id)
            closed = change(tx, question, event, after, self._means)
            if closed is None:
                raise RequestClosed(question.row, f"the request is {question.status.value} already")
            return closed

        return await self._commit(work)

    async def _cancel_all(self, caller: Caller, session_id: SessionId | None, event: Event) -> tuple[RequestId, ...]:
        def work(tx: Tx, after: After) -> tuple[RequestId, ...]:
            for question in tx.open_questions(client=caller.client, session_id=session_id):
                change(tx, question, event, after, self._means)
            return tuple(question.key.request_id for question in after.closed)

        return await self._commit(work)

    async def _deliver(self, question: Question) -> None:
        if question.is_open or question.delivered_at_ms is not None:
            return

        def work(tx: Tx, after: After) -> None:
            now_ms = self._means.clock.now_ms()
            if tx.deliver(question.row, now_ms):
                audit(tx, question, "delivered", now_ms)
                if question.closing is not None and question.closing.outcome is Outcome.SELECTED:
                    edit_again(tx, question, after, self._means)

        await self._commit(work)


def _goes_on(ended: Question) -> bool:
    """Whether the harness goes on with what it asked for, after a person's answer."""
    chosen = None if ended.closing is None else ended.closing.option
    return chosen is not None and chosen.option.meaning is not Meaning.REJECT


def _is_called(question: Question, prefixes: tuple[str, ...]) -> bool:
    hold = question.asked.hold
    twin = None if hold is None else hold.twin
    return question.key.request_id.startswith(prefixes) or (twin is not None and twin.startswith(prefixes))


def _current(tx: Tx, client: ClientName, request_id: RequestId) -> Question:
    question = tx.current(client, request_id)
    if question is None:
        raise NotFound("no such request")
    return question
