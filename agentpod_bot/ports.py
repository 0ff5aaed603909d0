"""What the broker needs from the outside, as protocols; `store`, `matrix` and `app` fit them.

Everything of `Tx` runs synchronously on the store's writer thread, inside one
transaction that the store opens and commits; it must not be kept after the work ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from agentpod_bot.calling_back import CallbackTx
from agentpod_bot.copying import CopyTx
from agentpod_bot.sending import SendTx
from agentpod_bot.syncing import SyncTx
from agentpod_bot.upgrading import UpgradeTx

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from agentpod_bot.core.ids import (
        ClientName,
        Code,
        EventId,
        RequestId,
        RoomId,
        RouteName,
        Row,
        SessionId,
        TxnId,
        UserId,
    )
    from agentpod_bot.core.journal import Link
    from agentpod_bot.core.kept import AuditRow, Backlog, Change, OpenCounts, Page
    from agentpod_bot.core.model import (
        Attachment,
        Closing,
        NewQuestion,
        Offered,
        Progress,
        Question,
        Status,
        Vote,
    )
    from agentpod_bot.core.room import Device, RoomState
    from agentpod_bot.core.upgrades import Origin, Successor

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for deadlines, monotonic time for waiting; tests inject one of their own."""

    def now_ms(self) -> int:
        """UTC milliseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of monotonic time."""
        ...


class Chance(Protocol):
    """Randomness, injected so that tests can repeat it."""

    def hex(self, bits: int) -> str:
        """`bits` random bits as lower-case hex."""
        ...

    def choose(self, candidates: str) -> str:
        """One character of `candidates`."""
        ...


class Tx(CopyTx, CallbackTx, SendTx, SyncTx, UpgradeTx, Protocol):
    """One transaction of the store.

    What is asked for by room, or by event, comes as that room has it (`core.copies.seen_in`).
    """

    # questions
    def insert(self, question: NewQuestion) -> Question:
        """Store a new question as `queued`. The key must be new."""
        ...

    def question(self, row: Row) -> Question | None:
        """Read one question."""
        ...

    def current(self, client: ClientName, request_id: RequestId) -> Question | None:
        """The highest revision of a request, open or closed."""
        ...

    def next_request_seq(self, client: ClientName, session_id: SessionId) -> int:
        """One more than the session's highest number so far, 1 for a new session."""
        ...

    def open_questions(
        self,
        *,
        client: ClientName | None = None,
        session_id: SessionId | None = None,
        route: RouteName | None = None,
        room_id: RoomId | None = None,
    ) -> tuple[Question, ...]:
        """Every queued or pending question that fits all that is given, oldest first."""
        ...

    def open_counts(self, *, client: ClientName, session_id: SessionId, route: RouteName) -> OpenCounts:
        """How many queued or pending questions the client's session, the client, the route, and all have."""
        ...

    def closed_questions(self, room_id: RoomId, *, since_ms: int) -> tuple[Question, ...]:
        """Questions of a room that closed, or were shown as closed, since `since_ms`, or are not shown so yet.

        Oldest first. "Does not show yet": posted, closed, `shown_closed_ts` None and
        `expires_at_ms` not before `since_ms`.
        """
        ...

    def asked_in(self, *, since_ms: int) -> frozenset[RoomId]:
        """Every room in which a question that is open, or closed since then, stands, is copied to, or which it left."""
        ...

    def codes(self, room_id: RoomId, *, since_ms: int) -> frozenset[Code]:
        """Codes of a room's questions that are open, or were created or closed since `since_ms`.

        Includes those of other accounts' questions that are open or were shown since then.
        """
        ...

    def by_code(self, room_id: RoomId, code: Code) -> tuple[Question, ...]:
        """The room's own questions with this code, newest first."""
        ...

    def by_event(self, event_id: EventId) -> Question | None:
        """The question that this event is (not: is about)."""
        ...

    def page(
        self,
        client: ClientName,
        *,
        status: Status | None,
        session_id: SessionId | None,
        limit: int,
        before: int | None,
    ) -> Page:
        """A client's current revisions, newest first; `before` is an earlier page's cursor."""
        ...

    def post(self, row: Row, event_id: EventId) -> bool:
        """Queued → pending. False, and nothing changes, where it is not queued.

        The event id is kept also where the question was closed while being sent.
        """
        ...

    def show(self, row: Row, event_id: EventId, shown_ts: int) -> None:
        """Note that the timeline showed the question: sets event id and `shown_ts`, once."""
        ...

    def show_closed(self, row: Row, shown_ts: int) -> None:
        """Note that the timeline showed an edit that closes the question; the first one counts."""
        ...

    def close(self, row: Row, closing: Closing, *, from_status: frozenset[Status], revision: int, now_ms: int) -> bool:
        """The compare-and-set that decides: close a question, exactly once.

        One UPDATE that checks row, revision and status. `SELECTED` also needs status
        `pending` and `expires_at_ms > now_ms`, whatever `from_status` says. True where
        this call closed it; False, and nothing changes, otherwise.
        """
        ...

    def deliver(self, row: Row, at_ms: int) -> bool:
        """Set `delivered_at_ms` of a closed question; False where it was set before."""
        ...

    def give_up(self, row: Row) -> None:
        """Note that the harness had stopped waiting."""
        ...

    def progress(self, row: Row, progress: Progress) -> None:
        """Keep the latest progress of a decided question."""
        ...

    def attach(
        self,
        row: Row,
        attachment: Attachment,
        *,
        file: Mapping[str, Any] | None = None,
        offered: tuple[Offered, ...] | None = None,
    ) -> None:
        """Note where the file of a question is, and with `offered`, what the question offers because of that.

        `file` is what `Homeserver.upload` returned, in place of an earlier one.
        """
        ...

    def due(self, now_ms: int) -> tuple[Question, ...]:
        """Open questions whose deadline is reached (`expires_at_ms <= now_ms`)."""
        ...

    def held(self) -> tuple[Question, ...]:
        """Held questions that are open, or decided and neither delivered nor given up, oldest first."""
        ...

    def next_deadline(self) -> int | None:
        """The earliest deadline of an open question."""
        ...

    # votes
    def vote(self, row: Row, vote: Vote) -> None:
        """Keep a person's vote, in place of an earlier one of theirs for the same question."""
        ...

    def votes(self, row: Row) -> tuple[Vote, ...]:
        """Everybody's latest vote for a question, in the order in which they came."""
        ...

    def voted(self, event_id: EventId) -> tuple[Row, Vote] | None:
        """The question and the vote that this event gave, while it is that person's latest."""
        ...

    def withdraw(self, row: Row, sender: UserId) -> None:
        """Forget a person's vote for a question."""
        ...

    # the rest
    def touch(self, now_ms: int) -> None:
        """Write something that was not there before: where that is kept, the store takes writes."""
        ...

    def backlog(self) -> Backlog:
        """How much is open and unsent, and since when."""
        ...

    def audit(self, row: AuditRow) -> None:
        """Append one line, chained to the one before it. Raises ValueError where JSON cannot carry it."""
        ...

    def audited(self, row: Row) -> Iterable[AuditRow]:
        """The lines about one question, oldest first."""
        ...

    def head(self) -> Link:
        """The last line of the audit that was ever written."""
        ...

    def link(self, seq: int) -> Link | None:
        """The line with this number, or the last pruned one; None where it is not known, or not yet written."""
        ...

    def changes(self, client: ClientName, *, after: int, at_most: int) -> tuple[Change, ...]:
        """Changes of status of a client's questions after the line `after`, oldest first."""
        ...

    def prune_audit(self, before_ms: int) -> int:
        """Forget the oldest lines up to the first that was written since then. Returns how many went.

        The last one that went is remembered, so that the chain of those that stay still has its beginning.
        """
        ...

    def prune(self, closed_before_ms: int) -> int:
        """Forget closed questions (and all that hangs on them) and processed events older than that.

        The audit keeps its lines about them. Open questions, and effects and callbacks
        that were not sent, are never touched. Returns how many questions went.
        """
        ...

    def savepoint(self, work: Callable[[], T]) -> T:
        """Run `work`; where it raises, undo what it did and raise on."""
        ...


class Meter(Protocol):
    """What is counted. Label values come from small closed sets, never from outside text."""

    def asked(self, question: Question) -> None:
        """A new question was stored."""
        ...

    def not_asked(self, client: ClientName, why: str) -> None:
        """A request became no question; `why` is an error's code."""
        ...

    def closed(self, question: Question) -> None:
        """A question ended; how, by what form of answer, after how long."""
        ...

    def answer_refused(self, why: str) -> None:
        """Somebody's try to answer decided nothing, and was told why."""
        ...

    def unread(self, count: int) -> None:
        """So many events could not be decrypted when they came."""
        ...

    def sent(self, kind: str) -> None:
        """The homeserver took an event of the outbox."""
        ...

    def send_failed(self, kind: str, why: str) -> None:
        """A try to send failed; `why` is an error's code."""
        ...


class CallbackMeter(Protocol):
    """What is counted of callbacks. Label values come from small closed sets."""

    def callback_sent(self) -> None:
        """A target took an outcome."""
        ...

    def callback_failed(self, why: str) -> None:
        """A try to post an outcome failed."""
        ...

    def callbacks_given_up(self, why: str, count: int = 1) -> None:
        """Outcomes that no target was told, and none will be."""
        ...


class Store(Protocol):
    """The one truth. Whole transactions are handed to it and committed together."""

    async def run(self, work: Callable[[Tx], T]) -> T:
        """Run `work` in a transaction on the writer thread; return after the commit.

        What `work` raises is raised here, and nothing of it is kept. A full disk or a
        locked file is `StoreUnavailable`.
        """
        ...


class Homeserver(Protocol):
    """What the broker asks of Matrix. Failures are the `MatrixError`s of `errors`."""

    @property
    def user_id(self) -> UserId:
        """The bot's own account."""
        ...

    @property
    def can_encrypt(self) -> bool:
        """Whether events can be sent to encrypted rooms, and read there."""
        ...

    async def know_devices(self, user_ids: Collection[UserId]) -> None:
        """Have the devices of these accounts known as they are now.

        Raises where the homeserver does not say, but not for ever: what is not known then does not vouch.
        """
        ...

    def vouches(self, device: Device) -> bool:
        """Whether a device is known to be one that its account has now, and to be verified.

        It reads only what is at hand, from any thread.
        """
        ...

    async def send(self, room: RoomState, event_type: str, content: Mapping[str, Any], txn_id: TxnId) -> EventId:
        """Send one event; the same transaction id is the same event however often it is tried.

        `room` is the room's state as it is known now: where it is encrypted, the event is,
        too (but for reactions, which Matrix has in clear text), for the devices of everybody
        who is joined; where that is not known, nothing is sent.
        """
        ...

    async def upload(self, room: RoomState, filename: str, content_type: str, content: bytes) -> Mapping[str, Any]:
        """Upload a file for a room, encrypted where the room is.

        Returns what an `m.file` event needs to show it: `{"url": "mxc://…"}`, or
        `{"file": {…}}` with the key to read it (an `EncryptedFile`), which is a secret of the room.
        """
        ...

    async def join(self, room_id: RoomId, servers: Sequence[str] = ()) -> None:
        """Accept an invitation, or join over one of these servers where none is needed."""
        ...

    async def successor(self, room_id: RoomId) -> Successor | None:
        """The room that a joined room's tombstone names; None where it names none."""
        ...

    async def origin(self, room_id: RoomId) -> Origin:
        """What a joined room says of its beginning, and whether the bot may send messages there."""
        ...

    async def room_state(self, room_id: RoomId) -> RoomState:
        """Who is joined, and whether the room is encrypted or replaced, asked anew."""
        ...
