"""What one event of a room does: judged by the room's rules, with the transaction of its response."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from agentpod_bot.broker import places
from agentpod_bot.broker.change import QUESTION, After, Means, audit, change, edit_place_again, show_again
from agentpod_bot.broker.moving import show_moved
from agentpod_bot.broker.others import DAY_MS, OTHERS_MS, keep_foreign, may_ask
from agentpod_bot.broker.said_back import SaidBack
from agentpod_bot.broker.scenes import in_room, lost_in, scene_of
from agentpod_bot.broker.unreadable import came_unreadable, taken_back
from agentpod_bot.broker.votes import take, withdraw
from agentpod_bot.core.copies import is_gone
from agentpod_bot.core.ids import TxnId
from agentpod_bot.core.judge import judge_reacted, judge_said
from agentpod_bot.core.lifecycle import Lapsed, Posted, Undelivered
from agentpod_bot.core.model import Attachment
from agentpod_bot.core.room import (
    Created,
    EncryptionOn,
    ForeignEdit,
    ForeignQuestion,
    Membered,
    OwnEdit,
    OwnOther,
    OwnQuestion,
    Powered,
    Reacted,
    Redacted,
    Replaced,
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
    NotKnown,
    NotNamed,
    Refuse,
    RejectSeveral,
    Scene,
    Unheard,
    WhyLeft,
)
from agentpod_bot.core.structured import judge_structured
from agentpod_bot.core.trust import ends_something

if TYPE_CHECKING:
    from agentpod_bot.core.model import Question
    from agentpod_bot.core.room import RoomEvent, RoomState
    from agentpod_bot.core.scene import Verdict
    from agentpod_bot.ports import Tx

ENDED_BEFORE = "an earlier run ended it"

Answer = Said | Structured | Reacted


class RoomEvents:
    """Does what events say; all of it is written in the transaction that it is given."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def apply(self, tx: Tx, event: RoomEvent, room: RoomState, after: After, known_ms: int | None) -> None:
        """Do it. `room` is as it was at that event; `known_ms` is when it came, where it could not be read then."""
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
                own = self._means.world.own
                if in_room(tx, event.target, room) or lost_in(tx, event.target, room, own):
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
                taken_back(tx, room.room_id, target)
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
            case NotKnown(lost=lost):
                back.not_known(event, lost)
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
