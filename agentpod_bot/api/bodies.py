"""The bodies of the calls about a request that was asked before, and what a query may say."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from agentpod_bot.core.ids import RouteName, SessionId
from agentpod_bot.core.journal import Place
from agentpod_bot.core.model import Claim, Progress, Status
from agentpod_bot.errors import Invalid
from agentpod_bot.harness.native import Shape
from agentpod_bot.harness.opaque import OpaqueOptionId, fault_of_id

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_WAIT_S = 600
MAX_TIMEOUT_S = 30 * 86_400
DEFAULT_LIMIT = 50
MAX_LIMIT = 100
MAX_CURSOR = 2**63 - 1
MAX_STEPS = 1_000
MAX_REASON = 2_000
MAX_WORDS = 255

_SECONDS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,6})?")
_EVENT_ID = re.compile(r"(?P<seq>[0-9]{1,19})(?:-(?P<hash>[0-9a-f]{16}))?")
_WHOLE = re.compile(r"[0-9]{1,19}")

Step = Annotated[int, Field(ge=0, lt=MAX_STEPS)]
"""A step of what was decided; steps count from 0."""


class AnsweredElsewhereBody(Shape):
    """What the client says was answered somewhere else. It decides nothing."""

    option_id: OpaqueOptionId | None = None
    by: Annotated[str, Field(min_length=1, max_length=MAX_WORDS)] | None = None

    def claim(self) -> Claim:
        """The claim that this is."""
        return Claim(option_id=self.option_id, by=self.by)


class ProgressBody(Shape):
    """What became of a request after its decision, for harnesses that run several steps."""

    next_index: Step | None = None
    completed: Annotated[list[Step], Field(max_length=MAX_STEPS)] = Field(default_factory=list)
    failed_index: Step | None = None
    failure_reason: Annotated[str, Field(max_length=MAX_REASON)] | None = None
    status: Annotated[str, Field(min_length=1, max_length=MAX_WORDS)] | None = None

    def progress(self) -> Progress:
        """The progress that this is."""
        return Progress(
            next_index=self.next_index,
            completed=tuple(self.completed),
            failed_index=self.failed_index,
            failure_reason=self.failure_reason,
            status=self.status,
        )


def place_of(event_id: str) -> Place | None:
    """The place that an event's id names; None where it is none of ours."""
    found = _EVENT_ID.fullmatch(event_id)
    if found is None or int(found["seq"]) > MAX_CURSOR:
        return None
    return Place(int(found["seq"]), found["hash"] or "")


class Query:
    """A call's query, read strictly. Unknown names are ignored; a known one must not stand twice."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = tuple(pairs)

    def wait_s(self) -> float:
        """Seconds that the call may be held, 0 where it does not say."""
        text = self._one("wait")
        if text is None:
            return 0.0
        if _SECONDS.fullmatch(text) is None or float(text) > MAX_WAIT_S:
            raise Invalid(("query", "wait"), f"must be a number of seconds from 0 to {MAX_WAIT_S}")
        return float(text)

    def timeout_s(self) -> int | None:
        """After how many seconds the caller's harness stops waiting, where that is not its usual time-out."""
        text = self._one("timeout")
        if text is None:
            return None
        if _WHOLE.fullmatch(text) is None or not 1 <= int(text) <= MAX_TIMEOUT_S:
            raise Invalid(("query", "timeout"), f"must be a whole number of seconds from 1 to {MAX_TIMEOUT_S}")
        return int(text)

    def route(self) -> RouteName | None:
        """The route that is asked on."""
        text = self._one("route")
        return None if text is None else RouteName(text)

    def status(self) -> Status | None:
        """The status that is asked for."""
        text = self._one("status")
        if text is None:
            return None
        try:
            return Status(text)
        except ValueError:
            raise Invalid(("query", "status"), f"must be one of {', '.join(Status)}") from None

    def session_id(self) -> SessionId | None:
        """The session that is asked for."""
        text = self._one("session_id")
        if text is None:
            return None
        if (why := fault_of_id(text)) is not None:
            raise Invalid(("query", "session_id"), why)
        return SessionId(text)

    def limit(self) -> int:
        """How many requests one page may have."""
        text = self._one("limit")
        if text is None:
            return DEFAULT_LIMIT
        if _WHOLE.fullmatch(text) is None or not 1 <= int(text) <= MAX_LIMIT:
            raise Invalid(("query", "limit"), f"must be a whole number from 1 to {MAX_LIMIT}")
        return int(text)

    def cursor(self) -> int | None:
        """Where the page before this one ended."""
        text = self._one("cursor")
        if text is None:
            return None
        if _WHOLE.fullmatch(text) is None or int(text) > MAX_CURSOR:
            raise Invalid(("query", "cursor"), "must be the next_cursor of an earlier page")
        return int(text)

    def since(self) -> Place | None:
        """After which event of an earlier stream this one begins."""
        text = self._one("since")
        if text is None:
            return None
        if (place := place_of(text)) is None:
            raise Invalid(("query", "since"), "must be the id of an event of this stream")
        return place

    def _one(self, name: str) -> str | None:
        match [value for key, value in self._pairs if key == name]:
            case []:
                return None
            case [value]:
                return value
            case _:
                raise Invalid(("query", name), "must not stand twice")
