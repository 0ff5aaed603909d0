"""Values that many tests begin with: the four ACP options, a question, a room, a policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agentpod_bot.core.ids import (
    ClientName,
    Code,
    EventId,
    OptionId,
    RequestId,
    RoomId,
    RouteName,
    Row,
    SessionId,
    UserId,
)
from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.core.model import (
    Caller,
    Closing,
    Key,
    Meaning,
    NewQuestion,
    Offered,
    Option,
    Outcome,
    PermissionRequest,
    Question,
    Scope,
    Status,
    TextPreview,
    Via,
)
from agentpod_bot.core.policy import Limits, Policy, Reactions, Route
from agentpod_bot.core.room import RoomState, Said
from agentpod_bot.core.scene import NamesNothing, Scene

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.core.room import Foreign, Names
    from agentpod_bot.core.scene import Named

POD = UserId("@pod:hs.example")
OWNER = UserId("@owner:hs.example")
SECOND = UserId("@second:hs.example")
MALLORY = UserId("@mallory:hs.example")
AGENT = UserId("@agent:hs.example")
OPS = RoomId("!ops:hs.example")
ROUTE = RouteName("ops")
LAPTOP = ClientName("laptop")
START = 1_793_000_000_000
MINUTE = 60_000

ALLOW = Option(OptionId("allow_once"), "Allow once", Meaning.APPROVE, Scope.ONCE)
ALWAYS = Option(OptionId("allow_always"), "Always allow", Meaning.APPROVE, Scope.ALWAYS)
REJECT = Option(OptionId("reject_once"), "Reject", Meaning.REJECT, Scope.ONCE)
NEVER = Option(OptionId("reject_always"), "Never allow", Meaning.REJECT, Scope.ALWAYS)
FOUR = (ALLOW, ALWAYS, REJECT, NEVER)

LIMITS = Limits(
    ttl_ms=30 * MINUTE,
    max_ttl_ms=24 * 60 * MINUTE,
    retention_ms=7 * 24 * 60 * MINUTE,
    max_pending_per_session=10,
    max_pending_per_token=30,
    max_waits_per_token=50,
)
OPS_ROUTE = Route(
    name=ROUTE,
    room_id=OPS,
    approvers=frozenset({OWNER, SECOND}),
    harnesses=frozenset({"native"}),
    reactions=Reactions.ACCEPT,
    max_pending=50,
)
POLICY = Policy(own=POD, agents=frozenset({AGENT}), routes={ROUTE: OPS_ROUTE}, limits=LIMITS)
ROOM = RoomState(room_id=OPS, joined=frozenset({POD, OWNER, SECOND, MALLORY}), bot_joined=True, encrypted=False)
CALLER = Caller(LAPTOP, frozenset({ROUTE}), frozenset({"native"}))


def request(**changes: object) -> PermissionRequest:
    """A native request of the four options."""
    asked = PermissionRequest(
        session_id=SessionId("acps_3f0c"),
        title="Run the test suite",
        options=FOUR,
        request_id=RequestId("acps_3f0c:12"),
        request_seq=12,
        preview=(TextPreview("Command", "bun test"),),
    )
    return replace(asked, **changes)  # type: ignore[arg-type]  # the tests name real fields


def offered(*options: Option) -> tuple[Offered, ...]:
    """Options as a room shows them."""
    return offer(options, withhold=Withhold.NOTHING)


def question(
    row: int = 1,
    *,
    code: str = "K7",
    options: tuple[Option, ...] = FOUR,
    status: Status = Status.PENDING,
    shown_ts: int | None = START,
    expires_at_ms: int = START + 30 * MINUTE,
    revision: int = 1,
    client: str = "laptop",
    request_id: str | None = None,
    closing: Closing | None = None,
    shown_closed_ts: int | None = None,
    route: str = "ops",
    room_id: RoomId = OPS,
    title: str = "Run the test suite",
) -> Question:
    """A stored question, pending and shown at START unless said."""
    asked = NewQuestion(
        key=Key(ClientName(client), RequestId(request_id or f"acps_3f0c:{row}"), revision),
        session_id=SessionId("acps_3f0c"),
        request_seq=row,
        title=title,
        tool_kind="execute",
        agent="hermes",
        options=options,
        preview=(TextPreview("Command", "bun test"),),
        preview_complete=True,
        route=RouteName(route),
        room_id=room_id,
        code=Code(code),
        salt="00" * 16,
        digest=f"{row:064x}",
        content_key=f"content-{row}",
        offered=offered(*options),
        created_at_ms=START - 500,
        expires_at_ms=expires_at_ms,
        raw=b"{}",
    )
    return Question(
        row=Row(row),
        asked=asked,
        status=status,
        event_id=None if status is Status.QUEUED else EventId(f"$question{row}"),
        shown_ts=None if status is Status.QUEUED else shown_ts,
        shown_closed_ts=shown_closed_ts,
        closing=closing,
    )


def closed(
    row: int = 9,
    *,
    at_ms: int,
    outcome: Outcome = Outcome.EXPIRED,
    by: UserId | None = None,
    code: str = "M3",
    shown_closed_ts: int | None = None,
    expires_at_ms: int | None = None,
) -> Question:
    """A question that closed at `at_ms`; one answered by somebody where `by` is given."""
    selected = by is not None
    closing = Closing(
        Outcome.SELECTED if selected else outcome,
        at_ms=at_ms,
        option=offered(*FOUR)[0] if selected else None,
        answered_by=by,
        via=Via.NUMBER if selected else None,
        event_id=EventId("$answer") if selected else None,
        answer_ts=at_ms if selected else None,
    )
    return question(
        row,
        code=code,
        status=closing.outcome.status,
        closing=closing,
        shown_ts=START - 10 * MINUTE,
        shown_closed_ts=shown_closed_ts,
        expires_at_ms=at_ms if expires_at_ms is None else expires_at_ms,
    )


def said(body: str, sender: UserId = OWNER, *, at: int = START + 5_000, names: Names | None = None) -> Said:
    """A text message, 5 s after START unless said."""
    event = Said(event_id=EventId("$said"), sender=sender, ts=at, body=body)
    return event if names is None else replace(event, names=names)


def scene(
    *open_now: Question,
    recent: tuple[Question, ...] = (),
    foreign: tuple[Foreign, ...] = (),
    named: Named | None = None,
    spent: Mapping[Code, Question] | None = None,
    room: RoomState = ROOM,
    policy: Policy = POLICY,
) -> Scene:
    """A room with these open questions."""
    return Scene(
        policy=policy,
        now_ms=START + 60 * MINUTE,
        room=room,
        open=open_now,
        recent=recent,
        foreign=foreign,
        named=named or NamesNothing(),
        spent=spent or {},
    )
