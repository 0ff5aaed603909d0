"""What is said to a person whose message decided nothing, and what the audit keeps of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict

import structlog

from agentpod_bot.broker.change import audit
from agentpod_bot.core.kept import AuditRow, Priority
from agentpod_bot.core.model import WHOLE_TEXT_SHOWN
from agentpod_bot.core.room import Said, Structured, Undecryptable, UnreadNotice
from agentpod_bot.render import notices
from agentpod_bot.render.sentences import Keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.broker.change import After, Means
    from agentpod_bot.core.ids import EventId, Row, UserId
    from agentpod_bot.core.kept import Effect, NewEffect
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import Foreign, RoomEvent, RoomState, Seen
    from agentpod_bot.core.scene import Left, WhyUnheard
    from agentpod_bot.ports import Tx

log = structlog.get_logger(__name__)

WHICH_EVERY_MS = 10_000
MOST_A_MINUTE = 10
"""Notices of a room. People need few; more come of bots that answer each other, and would bury the questions."""
MOST_TO_STRANGERS = 5
"""Of those, the notices that only say to people that they are no approvers: approvers must go on being told why."""
MINUTE_MS = 60_000
HINT = "hint"
UNDECRYPTABLE = "undecryptable"
UNREAD_WAIT_MS = 10_000
"""So long a key may take after its message before anybody is told that it lacks: most come within a second."""


@dataclass(frozen=True, slots=True)
class SaidBack:
    """Writes notices into the outbox, each kind once for a person and a question, and never many at a time.

    What is not said is audited all the same.
    """

    tx: Tx
    means: Means
    room: RoomState
    after: After

    def hint(self, event: Seen, question: Question) -> None:
        """The answer is no option of this question."""
        self._about(question, event, "hint", notices.hint(question, **_where(event)))

    def no_reason(self, event: Seen, question: Question) -> None:
        """A reason stands behind what approves."""
        self._about(question, event, "no_reason", notices.no_reason(question, **_where(event)))

    def late(self, event: Seen, question: Question, *, most: int = MOST_A_MINUTE) -> None:
        """The question was closed before."""
        self._about(question, event, "late", notices.late(question, **_where(event)), most=most)

    def moving(self, event: Seen, question: Question) -> None:
        """It is asked in the room that replaced this one, or will be; or it ended there."""
        if question.left_at_ms is None:
            self._about(question, event, "waits_to_move", notices.waits_to_move(question, **_where(event)))
        elif question.whole.is_open:
            self._about(question, event, "moved", notices.moved(question, **_where(event)))
        else:
            self.late(event, replace(question, closing=question.whole.closing))

    def missed(self, event: Seen, question: Question) -> None:
        """The answer was plain, and the store did not take it: closed meanwhile, or not in the room yet."""
        if question.is_open and question.asked.attachment not in WHOLE_TEXT_SHOWN:
            self.no_file_yet(event, question)
        elif question.is_open:
            self.which(event, (question,))
        else:
            self.late(event, question)

    def not_approver(self, event: Seen, question: Question) -> None:
        """Only approvers answer; and where the configuration took the question's route away, nobody does."""
        policy, whole = self.means.world.policy, question.whole
        if policy.has_lost(question) and not whole.is_open:  # nobody can tell any more who approves it
            self.late(event, replace(question, closing=whole.closing), most=MOST_TO_STRANGERS)
            return
        if policy.has_lost(question):
            elsewhere = question.original is not None and policy.route_of(whole) is not None
            gone = notices.not_asked_here(question, elsewhere=elsewhere, **_where(event))
            self._about(question, event, "not_asked_here", gone, most=MOST_TO_STRANGERS)
            return
        content = notices.not_approver(question, **_where(event))
        self._about(question, event, "not_approver", content, most=MOST_TO_STRANGERS)

    def from_requester(self, event: Seen, question: Question) -> None:
        """Who asked does not approve."""
        self._about(question, event, "requester", notices.from_requester(question, **_where(event)))

    def not_rejected(self, event: Seen, left: Sequence[Left]) -> None:
        """Some codes of a rejection of several rejected nothing; said once for all of them."""
        for each in left:
            if each.question is not None:
                self._audit(each.question, event, f"not_rejected_{each.why.value}")
        self._record("not_rejected", event)
        self._enqueue(f"{HINT}:reject:{event.event_id}", notices.not_rejected(left, **_where(event)))

    def reject_which(self, event: Seen, questions: Sequence[Question]) -> None:
        """A rejection of several names no code."""
        self._record("not_rejected", event)
        content = notices.reject_which(questions, now_ms=self.means.clock.now_ms(), **_where(event))
        self._enqueue(f"{HINT}:reject:{event.event_id}", content)

    def no_file_yet(self, event: Seen, question: Question) -> None:
        """The full text is not in the room."""
        self._about(question, event, "no_file_yet", notices.no_file_yet(question, **_where(event)))

    def refuse(self, event: Seen, question: Question, why: str) -> None:
        """A structured answer does not agree with its question."""
        self._about(question, event, "structured", notices.refused(question, why, **_where(event)), detail=why)

    def not_named(self, event: Seen, question: Question) -> None:
        """An approval does not say itself which question it is for."""
        self._about(question, event, "not_named", notices.not_named(question, **_where(event)))

    def not_known(self, event: Seen, lost: Foreign) -> None:
        """The question is the bot's own, and not in this store. Said once to a person, however often they answer it."""
        self._record("not_known", event)
        self._enqueue(f"{HINT}:not_known:{lost.event_id}:{event.sender}", notices.not_known(lost, **_where(event)))

    def unheard(self, event: Seen, why: WhyUnheard, question: Question | None) -> None:
        """It came in a way in which nothing decides anything here."""
        content = notices.unheard(question, why, **_where(event))
        if question is None:
            self._now_and_then(event, why.value, content)
        else:
            self._about(question, event, why.value, content)

    def replayed(self, event: Seen) -> None:
        """Its ciphertext was read before, in another event. Nobody is told, for nobody said it."""
        log.warning("event_replayed", room_id=self.room.room_id, event_id=event.event_id, sender=event.sender)
        self._record("replayed", event)

    def undecryptable(self, event: Undecryptable, question: Question) -> UnreadNotice | None:
        """The answer cannot be read. Where it may be soon, the notice waits, and is returned."""
        policy = self.means.world.policy
        keys = Keys.NONE
        if policy.heeds_reactions(question):
            keys = Keys.REJECTING if policy.is_strict(self.room) else Keys.ALL
        self._audit(question, event, UNDECRYPTABLE)
        self.after.refused.append(UNDECRYPTABLE)
        content = notices.undecryptable(question, keys, **_where(event))
        name, row = unread_notice(event.sender), question.row
        return self._once_it_stays_unread(event, name, content, self.tx.unsent(row, self.room.room_id, name), row=row)

    def undecryptable_which(self, event: Undecryptable, questions: Sequence[Question]) -> UnreadNotice | None:
        """What cannot be read may be for one of several questions; as `undecryptable`."""
        room_id, now_ms = self.room.room_id, self.means.clock.now_ms()
        self._record(UNDECRYPTABLE, event)
        content = notices.undecryptable_which(questions, now_ms=now_ms, **_where(event))
        before = f"{unread_notice(event.sender)}:$"  # no account is called so, but one may end in ":8448"
        earlier = self.tx.newest_unsent(room_id, before)
        if earlier is None and self._is_too_soon(before, now_ms + _wait_ms(event)):
            return None
        return self._once_it_stays_unread(event, f"{before}{event.event_id}", content, earlier)

    def _once_it_stays_unread(
        self,
        event: Undecryptable,
        name: str,
        content: dict[str, Any],
        earlier: Effect | None,
        *,
        row: Row | None = None,
    ) -> UnreadNotice | None:
        """Say that an event cannot be read, unless it can be by the time when that is said.

        One notice, that waits since `earlier`, is for all events that came meanwhile. Where no
        key can help, there is nothing to wait for.
        """
        wait_ms = _wait_ms(event)
        if earlier is None:
            said = self._enqueue(name, content, row=row, wait_ms=wait_ms)
            return UnreadNotice(said.txn_id, content) if said is not None and wait_ms else None
        if wait_ms:
            return UnreadNotice(earlier.txn_id, content)
        if earlier.attempts == 0:
            self.tx.fill(earlier.effect_id, content)
            self.tx.postpone(earlier.effect_id, self.means.clock.now_ms())
            self.after.rooms.add(self.room.room_id)
        return None

    def which(self, event: Seen, questions: Sequence[Question]) -> None:
        """It could be for several questions."""
        self._now_and_then(
            event, "which", notices.which_one(questions, now_ms=self.means.clock.now_ms(), **_where(event))
        )

    def _now_and_then(self, event: Seen, what: str, content: dict[str, Any]) -> None:
        """Said each time, but to one person not more than once in 10 s."""
        now_ms = self.means.clock.now_ms()
        before = f"{HINT}:{what}:{event.sender}:"
        self._record(what, event)
        if not self._is_too_soon(before, now_ms):
            self._enqueue(f"{before}{event.event_id}", content)

    def _is_too_soon(self, before: str, at_ms: int) -> bool:
        """Whether a notice whose name begins so was, or is to be, said within the 10 s before a time."""
        last_ms = self.tx.last_effect_at(self.room.room_id, before)
        return last_ms is not None and 0 <= at_ms - last_ms < WHICH_EVERY_MS  # not so after a clock that was set back

    def list_open(self, event: Seen, questions: Sequence[Question]) -> None:
        """An approver wants to know what is open."""
        content = notices.open_list(questions, now_ms=self.means.clock.now_ms(), **_where(event))
        self._enqueue(f"{HINT}:open:{event.event_id}", content)

    def set_aside(self, event: RoomEvent) -> None:
        """The event broke us again and again; it decided nothing, and whoever keeps the audit can see it."""
        self._record("set_aside", event)

    def replaced(self, event: Seen) -> None:
        """The room was upgraded. Said once, whatever else is said there: a route ends here."""
        room_id = self.room.room_id
        self.tx.audit(
            AuditRow(
                what="room_replaced",
                at_ms=self.means.clock.now_ms(),
                room_id=room_id,
                sender=event.sender,
                event_id=event.event_id,
            )
        )
        routes = [route for route in self.means.world.policy.routes.values() if route.room_id == room_id]
        if routes:
            follow = sum(route.follow_upgrades for route in routes)
            content = notices.room_replaced(
                reply_to=event.event_id, some_follow=follow > 0, some_stay=follow < len(routes)
            )
            self.tx.enqueue(self.means.effect(room_id, "room_replaced", Priority.HINT, content))
            self.after.rooms.add(room_id)

    def not_read(self, until_ts: int | None, *, votes_are_void: bool) -> None:
        """Not all that was said in the room was read. Said each time, whatever else is said there."""
        room_id, now_ms = self.room.room_id, self.means.clock.now_ms()
        since_ms = self.tx.last_seen_ms(room_id)
        until_ms = None if until_ts is None else min(until_ts, now_ms)
        if since_ms is not None and until_ms is not None and until_ms < since_ms:
            until_ms = None  # whoever sends an event says when that was
        self.tx.audit(AuditRow(what="not_read", at_ms=now_ms, room_id=room_id))
        content = notices.not_read(since_ms, until_ms, now_ms=now_ms, votes_are_void=votes_are_void)
        self.tx.enqueue(self.means.effect(room_id, f"{HINT}:not_read:{now_ms}", Priority.HINT, content))
        self.after.rooms.add(room_id)

    def lost(self, event: Seen) -> None:
        """A question of the bot's own that the store does not know: kept in the log and the audit, once."""
        log.warning("question_not_in_store", room_id=self.room.room_id, event_id=event.event_id)
        self.tx.audit(
            AuditRow(
                what="question_not_in_store",
                at_ms=self.means.clock.now_ms(),
                room_id=self.room.room_id,
                sender=event.sender,
                event_id=event.event_id,
            )
        )

    def _about(
        self,
        question: Question,
        event: Seen,
        what: str,
        content: dict[str, Any],
        *,
        detail: str = "",
        most: int = MOST_A_MINUTE,
    ) -> None:
        self._audit(question, event, what, detail)
        self.after.refused.append(what)
        self._enqueue(f"{HINT}:{what}:{event.sender}", content, row=question.row, most=most)

    def _audit(self, question: Question, event: Seen, what: str, detail: str = "") -> None:
        now_ms = self.means.clock.now_ms()
        audit(self.tx, question, what, now_ms, sender=event.sender, event_id=event.event_id, detail=detail or None)

    def _enqueue(
        self,
        effect: str,
        content: dict[str, Any],
        *,
        row: Row | None = None,
        most: int = MOST_A_MINUTE,
        wait_ms: int = 0,
    ) -> NewEffect | None:
        """Have a notice said. None where it is said already, or too many are."""
        room_id, now_ms = self.room.room_id, self.means.clock.now_ms()
        up_to_ms = now_ms + UNREAD_WAIT_MS  # those that wait count, too
        if self.tx.hints(room_id, after_ms=now_ms - MINUTE_MS, up_to_ms=up_to_ms) >= most:
            return None
        said = self.means.effect(room_id, effect, Priority.HINT, content, row=row, wait_ms=wait_ms)
        is_new = self.tx.enqueue(said)
        self.after.rooms.add(room_id)
        return said if is_new else None

    def _record(self, what: str, event: Seen) -> None:
        now_ms = self.means.clock.now_ms()
        room_id = self.room.room_id
        self.tx.audit(AuditRow(what=what, at_ms=now_ms, room_id=room_id, sender=event.sender, event_id=event.event_id))
        self.after.refused.append(what)


class Where(TypedDict):
    """What a notice replies to, and the thread that it goes into."""

    reply_to: EventId
    thread: EventId | None


def unread_notice(sender: UserId) -> str:
    """The name of the notice that tells somebody that a message for a question could not be read."""
    return f"{HINT}:{UNDECRYPTABLE}:{sender}"


def _wait_ms(event: Undecryptable) -> int:
    """How long a notice waits whether its event can be read: not at all where no key can help."""
    return UNREAD_WAIT_MS if event.is_to_be_kept else 0


def _where(event: Seen) -> Where:
    thread = event.names.thread if isinstance(event, Said | Structured | Undecryptable) else None
    return {"reply_to": event.event_id, "thread": thread}
