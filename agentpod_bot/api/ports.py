"""What the HTTP endpoint needs from the rest: use cases, readiness and metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from agentpod_bot.core.ids import RequestId, RouteName, Row, SessionId
    from agentpod_bot.core.journal import Link, Place
    from agentpod_bot.core.kept import Change, Page
    from agentpod_bot.core.lifecycle import AnsweredElsewhere, Cancelled
    from agentpod_bot.core.model import Caller, Claim, PermissionRequest, Progress, Question, Status, Submitted
    from agentpod_bot.core.policy import Route

Readiness = Callable[[], Awaitable[tuple[str, ...]]]
"""Codes of what keeps the daemon from being ready; empty where nothing does."""
ClosedRoutes = Callable[[], Mapping[str, str]]
"""Routes on which nothing can be asked now, each with the code of why."""
Metrics = Callable[[], Awaitable[tuple[bytes, str]]]
"""Every metric as a body, and that body's content type."""


class Stream(Protocol):
    """One reader's place among the changes of a client's requests."""

    @property
    def begins(self) -> Link:
        """The line after which it begins."""
        ...

    @property
    def reset(self) -> bool:
        """Whether the wanted place is not known, so that changes may have been missed."""
        ...

    async def next(self, *, up_to_s: float) -> tuple[Change, ...]:
        """The next changes, none after `up_to_s` seconds; raises `ShuttingDown`, `StoreUnavailable`."""
        ...


class Broker(Protocol):
    """The use cases. A caller sees its own requests only: another's look as if they did not exist."""

    async def submit(self, asked: PermissionRequest, caller: Caller) -> Submitted:
        """Take a request, or find the one that it repeats."""
        ...

    def route(self, caller: Caller, name: RouteName | None, harness: str) -> Route:
        """The route on which a caller may ask in a harness's shape; raises `Invalid`, `Forbidden`."""
        ...

    def held(
        self, asked: PermissionRequest, caller: Caller, *, harness: str, patience_ms: int | None
    ) -> AbstractAsyncContextManager[Question]:
        """Ask in a harness's shape; give the question when it is closed.

        It expires after `patience_ms` at the latest. The body answers the call; leaving it
        without an exception marks it delivered. Entering raises what `submit` and `waiting` do.
        """
        ...

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
        """Close open questions that a harness needs no longer: all that are called so, or the oldest."""
        ...

    def waiting(self, question: Question, *, up_to_s: float) -> AbstractAsyncContextManager[Question]:
        """Wait until a question, just read, is closed, at most `up_to_s` seconds; give it as it is then.

        The body answers the call; leaving it without an exception while the question is
        closed marks it delivered. Entering raises `ShuttingDown` or `TooManyWaits`.
        """
        ...

    async def get(self, caller: Caller, request_id: RequestId) -> Question:
        """The current revision of a request; raises `NotFound`."""
        ...

    async def page(
        self, caller: Caller, *, status: Status | None, session_id: SessionId | None, limit: int, cursor: int | None
    ) -> Page:
        """The caller's requests, newest first."""
        ...

    def follow(self, caller: Caller, place: Place | None) -> AbstractAsyncContextManager[Stream]:
        """Follow every change of status of the caller's requests, after a place or from now on.

        It counts as a waiting call. Entering raises `ShuttingDown`, `TooManyWaits`, `StoreUnavailable`.
        """
        ...

    async def cancel(self, caller: Caller, request_id: RequestId) -> Question:
        """Close a request that nobody needs any more; raises `NotFound`, `RequestClosed`."""
        ...

    async def answered_elsewhere(self, caller: Caller, request_id: RequestId, claim: Claim) -> Question:
        """Close a request on the client's word; raises `NotFound`, `RequestClosed`."""
        ...

    async def progress(self, caller: Caller, request_id: RequestId, progress: Progress) -> Question:
        """Keep what became of a decided request; raises `NotFound`, `Conflict`."""
        ...

    async def cancel_session(self, caller: Caller, session_id: SessionId) -> tuple[RequestId, ...]:
        """Cancel every open request of a session, and no other."""
        ...

    async def cancel_all(self, caller: Caller) -> tuple[RequestId, ...]:
        """Cancel every open request of the caller."""
        ...

    async def question(self, row: Row) -> Question:
        """One question, for the problem document of an error that names it."""
        ...
