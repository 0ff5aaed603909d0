"""What a sync response does: every event of it judged in order, in one transaction.

Decisions, processed events, what is to be said, and last the sync position are committed
together; a response is handled whole or will be handled again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, assert_never

import structlog

from agentpod_bot.broker import places
from agentpod_bot.broker.change import QUESTION, After, Means, audit, change, edit_place_again, show_again
from agentpod_bot.broker.moving import show_moved
from agentpod_bot.broker.others import DAY_MS, OTHERS_MS, keep_foreign, may_ask
from agentpod_bot.broker.said_back import SaidBack
from agentpod_bot.broker.scenes import in_room, scene_of
from agentpod_bot.broker.unreadable import KEPT_MS, became_readable, came_unreadable
from agentpod_bot.broker.votes import take, voters_in, withdraw
from agentpod_bot.broker.world import powers_at
from agentpod_bot.core.copies import is_gone
from agentpod_bot.core.ids import TxnId
from agentpod_bot.core.judge import judge_reacted, judge_said
from agentpod_bot.core.lifecycle import Lapsed, Posted, Undelivered
from agentpod_bot.core.model import Attachment
from agentpod_bot.core.policy import Trust
from agentpod_bot.core.room import (
    Created,
    EncryptionOn,
    ForeignEdit,
    ForeignQuestion,
    Membered,
    Membership,
    OwnEdit,
    OwnOther,
    OwnQuestion,
    Powered,
    Reacted,
    Redacted,
    Replaced,
    RoomState,
    Said,
    Structured,
    Undecryptable,
    Unheeded,
)
from agentpod_bot.core.scene import (
    Accept,
    AskWhich,
    FromRequester,
    Hint,
    Ignore,
    Late,
    Left,
    ListOpen,
    Moving,
    NoFileYet,
    NotApprover,
    NotNamed,
    Refuse,
    RejectSeveral,
    Scene,
    Unheard,
    WhyLeft,
)
from agentpod_bot.core.structured import judge_structured
from agentpod_bot.core.trust import as_vouched, ends_something
from agentpod_bot.core.upgrades import Successor, Tombstone
from agentpod_bot.errors import MatrixError, StoreUnavailable, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agentpod_bot.broker.commit import Commit
    from agentpod_bot.broker.rooms import Rooms
    from agentpod_bot.core.ids import EventId, RoomId, UserId
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import Batch, RoomBatch, RoomEvent
    from agentpod_bot.core.scene import Verdict
    from agentpod_bot.ports import Store, Tx

log = structlog.get_logger(__name__)

ENDED_BEFORE = "an earlier run ended it"
TRIES = 3
"""An event that breaks us so often is set aside, with a line in the audit; it decides nothing."""

Answer = Said | Structured | Reacted


class Inbox:
    """Handles sync responses for `matrix.sync`; the only door through which an answer comes."""

    def __init__(self, store: Store, means: Means, commit: Commit, rooms: Rooms) -> None:
        self._store = store
        self._means = means
        self._commit = commit
        self._joining = rooms
        self._breaks: dict[EventId, int] = {}

    def rooms(self) -> frozenset[RoomId]:
        """The rooms whose events are judged."""
        return self._means.world.heard()

    async def position(self) -> str | None:
        """Where the next sync begins."""
        return await self._store.run(lambda tx: tx.position(self._means.world.own))

    async def newest_seen(self, room_id: RoomId) -> EventId | None:
        """The last processed event of a room: where paging back over a gap may end."""
        return await self._store.run(lambda tx: tx.newest_seen(room_id))

    async def oldest_open_ts(self, room_id: RoomId) -> int:
        """How far back events of a room matter: to its oldest open question, and to any that others just asked."""

        def look(tx: Tx) -> tuple[bool, tuple[Question, ...]]:
            return tx.newest_seen(room_id) is None, tx.open_questions(room_id=room_id)

        is_new, open_now = await self._store.run(look)
        others_ms = self._means.clock.now_ms() - (DAY_MS if is_new else OTHERS_MS)
        return min((others_ms, *(question.asked.created_at_ms for question in open_now)))

    async def undecrypted(
        self, sessions: frozenset[tuple[RoomId, str]] | None
    ) -> tuple[tuple[RoomId, Mapping[str, Any]], ...]:
        """Kept raw events that could not be read, of these sessions or (None) all, oldest first, with their rooms."""
        since_ms = self._means.clock.now_ms() - KEPT_MS
        kept = await self._store.run(lambda tx: tx.undecrypted(sessions, since_ms=since_ms))
        return tuple((each.room_id, each.event) for each in kept)

    def switched_on(self, parts: Sequence[RoomBatch]) -> None:
        """Nothing goes in clear into these rooms any more, though what they said is not handled yet."""
        self._means.world.switch_on(parts)

    async def handle(self, batch: Batch) -> None:
        """Handle one response. Raises `Unavailable` where it has to be handled again later."""
        world = self._means.world
        parts = [part for part in batch.rooms if part.room_id in world.heard()]
        world.switch_on(parts)
        for part in parts:
            if not world.known(part.room_id):
                try:
                    await world.refresh(part.room_id)
                except MatrixError as error:
                    raise Unavailable(f"the state of a room could not be read: {error}") from error
        try:
            await world.know_voters(lambda tx: voters_in(tx, (part.room_id for part in parts)))
        except MatrixError as error:
            raise Unavailable(f"the devices of those who voted are not known: {error}") from error
        if not all(world.known(part.room_id) for part in parts):
            # The position must not move past events that nobody could judge.
            raise Unavailable("the state of a room is not known now", retry_after_s=1)
        world.switch_on(parts)

        def work(tx: Tx, after: After) -> dict[RoomId, RoomState]:
            rooms = {part.room_id: self._process_part(tx, part, after) for part in parts}
            tx.move(world.own, batch.next_batch)
            return rooms

        joined = world.adopt(await self._commit(work))
        self._breaks.clear()
        for room_id in joined:
            world.forget(room_id)  # who else is there was not in this response
        entered = joined | _entered(parts, world.own)
        for room_id in entered:
            try:
                await world.refresh(room_id)
            except (MatrixError, StoreUnavailable) as error:  # read again soon, by whoever keeps rooms known
                log.warning("room_state_unknown", room_id=room_id, error=error.code)
        if parts:
            self._joining.heard_of((part.room_id for part in parts), entered=entered)
        self._joining.follow(i for i in batch.invites if world.may_invite(i.sender, i.room_id))

    def _process_part(self, tx: Tx, part: RoomBatch, after: After) -> RoomState:
        """Handle one room's events in order; returns the room's state after them.

        What was processed before changes nothing, whoever sends it again. Clear text counts
        up to the event that switched encryption on, where that is in this response, and the
        homeserver's word for that is taken. Power counts from the event that gave it, and not
        once it is taken. What can be read only now came before all of it.
        """
        new = replace(part, timeline=tuple(event for event in part.timeline if not tx.seen(event.event_id)))
        room = self._means.world.after(new)
        switched = any(isinstance(event, EncryptionOn) for event in new.timeline)
        is_believed = self._means.world.policy.trust is Trust.ALL
        was_clear = switched and is_believed and not tx.is_encrypted(part.room_id, judged=True)
        if room.encrypted:
            tx.mark_encrypted(part.room_id, judged=True)
        now = replace(room, encrypted=False) if was_clear else room
        before = next((event for event in part.state if isinstance(event, Replaced)), None)
        if before is not None and not any(isinstance(event, Replaced) for event in new.timeline):
            tx.mark_replaced(part.room_id, _tombstone(before, room))
        now = replace(now, replaced=tx.is_replaced(part.room_id))  # what came before the tombstone was in time
        for event in part.recovered:
            self._recover(tx, event, replace(room, replaced=now.replaced), after)
        for event, powers in zip(new.timeline, powers_at(new.timeline, room.powers), strict=True):
            if isinstance(event, EncryptionOn):
                now = replace(room, replaced=now.replaced)
            self._process(tx, event, replace(now, powers=powers), after)
            if isinstance(event, Replaced):
                tx.mark_replaced(part.room_id, _tombstone(event, room))
                now = replace(now, replaced=True)
        return room

    def _recover(self, tx: Tx, event: RoomEvent, room: RoomState, after: After) -> None:
        """Handle an event that could not be read when it came, by what it can have been meant for then."""
        kept = tx.take_undecrypted(room.room_id, event.event_id)
        if kept is not None and kept.first_seen_ms >= self._means.clock.now_ms() - KEPT_MS:
            became_readable(tx, kept)
            self._process(tx, event, room, after, known_ms=kept.first_seen_ms)

    def _process(self, tx: Tx, event: RoomEvent, room: RoomState, after: After, *, known_ms: int | None = None) -> None:
        """Handle one event. One that keeps breaking us is set aside, and decides nothing; nor does a replay."""
        now_ms = self._means.clock.now_ms()
        event = as_vouched(event, self._means.world.vouches)
        if event.ciphertext is not None and not tx.take_ciphertext(room.room_id, event.ciphertext):
            SaidBack(tx, self._means, room, after).replayed(event)
            tx.mark_seen(room.room_id, event.event_id, now_ms)
            return
        if self._breaks.get(event.event_id, 0) < TRIES - 1:
            try:
                self._apply(tx, event, room, after, known_ms)
            except Unavailable:
                raise
            except Exception as error:  # the whole response is undone, and handled again
                self._breaks[event.event_id] = self._breaks.get(event.event_id, 0) + 1
                log.exception("event_failed", event_id=event.event_id, tries=self._breaks[event.event_id])
                raise Unavailable(f"an event could not be handled: {type(error).__name__}", retry_after_s=1) from error
            tx.mark_seen(room.room_id, event.event_id, now_ms)
            return
        mine = After()
        try:
            tx.savepoint(lambda: self._apply(tx, event, room, mine, known_ms))
        except Unavailable:
            raise
        except Exception:  # it decides nothing, and must not stand in the way of what follows it
            log.exception("event_set_aside", event_id=event.event_id)
            SaidBack(tx, self._means, room, after).set_aside(event)
        else:
            after.add(mine)
        tx.mark_seen(room.room_id, event.event_id, now_ms)

    def _apply(self, tx: Tx, event: RoomEvent, room: RoomState, after: After, known_ms: int | None) -> None:
        match event:
            case Said():
                names = event.names.named
                scene = scene_of(tx, event, room, self._means, names=names, codes_of=event.body, known_ms=known_ms)
                self._follow(tx, event, judge_said(event, scene), scene, after)
            case Structured():
                names = event.names.named
                scene = scene_of(tx, event, room, self._means, names=names, back_ms=DAY_MS, known_ms=known_ms)
                self._follow(tx, event, judge_structured(event, scene), scene, after)
            case Reacted():
                question = in_room(tx, event.target, room)
                if question is not None:
                    scene = scene_of(tx, event, room, self._means, names=event.target, known_ms=known_ms)
                    self._follow(tx, event, judge_reacted(event, scene), scene, after)
            case OwnQuestion():
                self._shown(tx, event, room, after)
            case OwnEdit() | ForeignEdit() if not ends_something(event, room):
                pass  # whoever carries it could have made it
            case OwnEdit(target=target):
                question = in_room(tx, target, room)
                if question is None and event.closes:
                    tx.close_foreign(target, event.sender, event.ts)
                elif question is not None:
                    self._edited(tx, event, question, after)
            case ForeignQuestion(code=code, expires_at_ms=expires_at_ms, stands_as=target):
                keep_foreign(tx, event, room, self._means, code=code, expires_at_ms=expires_at_ms, stands_as=target)
            case ForeignEdit(target=target):
                tx.close_foreign(target, event.sender, event.ts)
            case Redacted(target=target):
                question = in_room(tx, target, room)
                if question is not None:
                    self._redacted(tx, event, question, after)
                self._file_redacted(tx, event, room)
                withdraw(tx, event, target, room, after=after, means=self._means)
                for foreign in tx.foreign(room.room_id, since_ms=event.ts):
                    if foreign.event_id == target:
                        tx.close_foreign(target, foreign.sender, event.ts)
            case Undecryptable():
                if may_ask(event, room, self._means):
                    keep_foreign(tx, event, room, self._means, code=None, expires_at_ms=event.ts + OTHERS_MS)
                came_unreadable(tx, event, room, after, self._means)
            case Replaced():
                SaidBack(tx, self._means, room, after).replaced(event)
            case OwnOther() | Membered() | EncryptionOn() | Powered() | Created() | Unheeded():
                pass  # membership and room state are taken from the batch as a whole
            case _:
                assert_never(event)

    def _redacted(self, tx: Tx, event: Redacted, question: Question, after: After) -> None:
        """A question that was redacted is over. Of a copy only that is over that it can be answered in its room.

        One that left the room before goes on where it is asked now.
        """
        if question.left_at_ms is not None:
            return
        places.show_closed(tx, question, event.ts)
        if question.original is None:
            change(tx, question, Undelivered("redacted"), after, self._means)
            return
        now_ms = self._means.clock.now_ms()
        if tx.withdraw_copy(question.row, now_ms):
            audit(tx, question, "copy_redacted", now_ms, sender=event.sender, event_id=event.event_id)
            if question.is_open:
                show_again(tx, question.whole, after, self._means)

    def _file_redacted(self, tx: Tx, event: Redacted, room: RoomState) -> None:
        """Where the file with a question's full text is gone from the room, nobody can read what they would approve."""
        row = tx.file_of(event.target, room.room_id)
        place = None if row is None else places.read(tx, row, room.room_id)
        if place is None or not place.is_open:
            return
        places.attach(tx, place, Attachment.UPLOADED)
        now_ms = self._means.clock.now_ms()
        audit(tx, place, "file_redacted", now_ms, sender=event.sender, event_id=event.event_id)

    def _edited(self, tx: Tx, event: OwnEdit, question: Question, after: After) -> None:
        """Our own edit of our own question. One that shows it open after its end was on its way too long.

        One that shows its end while it is open here tells of a run that this store, put back
        from a backup, does not know: room and client were told of that end, and no later answer counts.
        """
        if event.closes:
            places.show_closed(tx, question, event.ts)
            if question.is_open:
                change(tx, question, Undelivered(ENDED_BEFORE), after, self._means)
        elif question.shown_closed_ts is not None and not is_gone(question):
            edit_place_again(tx, question, after, self._means)

    def _shown(self, tx: Tx, event: OwnQuestion, room: RoomState, after: After) -> None:
        """Our own question in the timeline: what comes after it can be an answer to it.

        It may come before the homeserver's reply to the send, or instead of it.
        """
        question = self._own(tx, event, room)
        if question is None:
            # Posted by a store that is no longer here: people still see it open, for we know not how long.
            # Nobody can answer it here: whoever asked it is told nothing by this daemon.
            SaidBack(tx, self._means, room, after).lost(event)
            keep_foreign(tx, event, room, self._means, code=event.code, expires_at_ms=event.ts + DAY_MS)
            return
        if event.txn_id is None:  # sent on another device, for whose transaction ids it would be a new event
            effect = tx.unsent(question.row, room.room_id, QUESTION)
        else:
            effect = tx.effect_of_txn(TxnId(event.txn_id))
        if effect is not None and effect.row == question.row:
            tx.sent(effect.effect_id, event.event_id, self._means.clock.now_ms())
        if change(tx, question, Posted(event.event_id), after, self._means) is None:
            places.post(tx, question, event.event_id)  # keeps the event id of one that was closed while being sent
        places.show(tx, question, event.event_id, event.ts)
        if question.left_at_ms is not None:
            show_moved(tx, question.row, room.room_id, after, self._means)

    def _own(self, tx: Tx, event: OwnQuestion, room: RoomState) -> Question | None:
        stored = in_room(tx, event.event_id, room)
        if stored is not None:
            return stored
        # What was on its way when it left the room is known there all the same.
        candidates = tx.open_questions(room_id=room.room_id) + tx.left_in(room.room_id, since_ms=event.ts - DAY_MS)
        if event.code is not None:
            candidates += tx.by_code(room.room_id, event.code)
        for question in candidates:  # the digest is salted: no other question has it
            if question.asked.digest == event.digest and question.key.revision == event.revision:
                return question
        return None

    def _follow(self, tx: Tx, event: Answer, verdict: Verdict, scene: Scene, after: After) -> None:
        """Do what a verdict says. Only `Accept` can close a question, and only if the store agrees."""
        back = SaidBack(tx, self._means, scene.room, after)
        match verdict:
            case Accept(question=question):
                if not take(tx, event, verdict, scene.room, after=after, means=self._means):
                    change(tx, question, Lapsed(), after, self._means)
                    back.missed(event, places.read(tx, question.row, scene.room.room_id) or question)
            case RejectSeveral():
                self._reject(tx, event, verdict, scene, after)
            case Late(question=question):
                back.late(event, question)
            case Moving(question=question):
                back.moving(event, question)
            case AskWhich():
                back.which(event, scene.open)
            case Hint(question=question, reasoned=True):
                back.no_reason(event, question)
            case Hint(question=question):
                back.hint(event, question)
            case NotApprover(question=question):
                back.not_approver(event, question)
            case FromRequester(question=question):
                back.from_requester(event, question)
            case NoFileYet(question=question):
                back.no_file_yet(event, question)
            case NotNamed(question=question):
                back.not_named(event, question)
            case Unheard(why=why, question=question):
                back.unheard(event, why, question)
            case Refuse(question=question, why=reason):
                back.refuse(event, question, reason)
            case ListOpen():
                back.list_open(event, scene.open)
            case Ignore():
                pass
            case _:
                assert_never(verdict)

    def _reject(self, tx: Tx, event: Answer, verdict: RejectSeveral, scene: Scene, after: After) -> None:
        """Reject each question by itself; what could not be rejected is told in one notice."""
        back = SaidBack(tx, self._means, scene.room, after)
        left = list(verdict.left)
        for accepted in verdict.rejected:
            if not take(tx, event, accepted, scene.room, after=after, means=self._means):
                change(tx, accepted.question, Lapsed(), after, self._means)
                now = places.read(tx, accepted.question.row, scene.room.room_id) or accepted.question
                left.append(Left(now.asked.code, WhyLeft.UNKNOWN if now.is_open else WhyLeft.CLOSED, now))
        if left:
            back.not_rejected(event, left)
        elif not verdict.rejected:
            back.reject_which(event, scene.open)


def _entered(parts: Iterable[RoomBatch], own: UserId) -> frozenset[RoomId]:
    """Rooms that the bot joined in this response; also where its state was read anew while that was handled."""
    return frozenset(
        part.room_id
        for part in parts
        if not part.left
        and any(
            isinstance(event, Membered) and event.user_id == own and event.membership is Membership.JOIN
            for event in part.timeline
        )
    )


def _tombstone(event: Replaced, room: RoomState) -> Tombstone:
    named = None if event.successor is None else Successor(event.successor, event.sender)
    return Tombstone(named, encrypted=room.encrypted)
