"""The outbox: everything that the bot says, sent from rows of the store and not from memory.

A room's effects go one after another; rooms do not wait for each other. What to try next,
when, and under which transaction id stands in the store before the first try.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import structlog

from agentpod_bot.broker import places
from agentpod_bot.broker.change import (
    FILE,
    KEYCAP,
    KEYCAPS,
    OUTCOME,
    PROGRESS,
    QUESTION,
    REACTION,
    SEED_AFTER_MS,
    UPLOAD,
    After,
    Means,
    change,
)
from agentpod_bot.broker.failed_sends import FIRST_RETRY_MS, FailedSends
from agentpod_bot.broker.reminders import REMINDERS, hushed, is_held, lowered
from agentpod_bot.broker.rendered import question_of, render
from agentpod_bot.broker.said_back import unread_notice
from agentpod_bot.broker.uploads import MOST_TRIES, Uploads, is_to_upload
from agentpod_bot.core.kept import Effect, Priority
from agentpod_bot.core.labels import approves
from agentpod_bot.core.lifecycle import Posted
from agentpod_bot.core.model import Attachment, Status
from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused, StoreUnavailable, TokenRefused
from agentpod_bot.render.notices import keycaps
from agentpod_bot.render.outcome import closed_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentpod_bot.broker.commit import Bell, Commit
    from agentpod_bot.broker.waiters import Waiters
    from agentpod_bot.core.ids import EventId, RoomId
    from agentpod_bot.core.model import Closing, Question
    from agentpod_bot.core.room import RoomState
    from agentpod_bot.ports import Homeserver, Meter, Store, Tx

log = structlog.get_logger(__name__)

SHUT_RETRY_MS = 5_000
"""A room into which nothing may be sent now is looked at again after so long."""
CALM_MS = 600_000
"""Keycaps are seeded only by an account that saw no 429 for so long."""
SETTLE_S = 1.0
LONGEST_S = 30.0


@dataclass(frozen=True, slots=True)
class Ready:
    """An effect whose turn it is. `question` is the one that it belongs to."""

    effect: Effect
    question: Question | None


@dataclass(frozen=True, slots=True)
class Turn:
    """What a room sends next. Where that is nothing, `due` says when each room has something."""

    ready: Ready | None
    due: Mapping[RoomId, int] | None = None


class Outbox:
    """Sends what the store says is to be sent."""

    def __init__(
        self,
        store: Store,
        homeserver: Homeserver,
        means: Means,
        *,
        waiters: Waiters,
        commit: Commit,
        bell: Bell,
        meter: Meter,
    ) -> None:
        self._store = store
        self._homeserver = homeserver
        self._means = means
        self._waiters = waiters
        self._commit = commit
        self._bell = bell
        self._meter = meter
        self._uploads = Uploads(homeserver, means, commit)
        self._failed = FailedSends(store, means, commit, meter)
        self._tasks: asyncio.TaskGroup | None = None
        self._busy: set[RoomId] = set()
        self._again: set[RoomId] = set()
        """Busy rooms that were rung for meanwhile: what is known to be due may be older than that."""
        self._due: Mapping[RoomId, int] | None = None
        self._paused: dict[RoomId, int] = {}
        """Rooms that have to wait, until when by the monotonic clock: the other one may be set back meanwhile."""
        self._failures: Counter[RoomId] = Counter()
        """How many tries in a row had no usable answer."""
        self._never_taken: set[int] = set()
        """Effects of which every try was answered with a refusal: the room cannot have them."""
        self._last_429_ms: int | None = None

    async def run(self) -> None:
        """Send until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            rung: frozenset[RoomId] = frozenset()
            while True:
                # Rooms rung for are started without a look at the store, unless one has to wait.
                running = [self._start(room_id) for room_id in rung]
                wait_s = LONGEST_S if running and all(running) else await self._look()
                rung = await self._bell.heard(up_to_s=wait_s)

    def reserve(self, room_id: RoomId) -> bool:
        """Keep an idle room for one caller, who takes its next effect in a transaction of its own.

        It saves the first question of a quiet room a transaction. True: `go` must follow.
        """
        idle = self._tasks is not None and room_id not in self._busy and not self._waits(room_id)
        if idle and self._means.world.writable(room_id) is not None:
            self._busy.add(room_id)
            return True
        return False

    def go(self, room_id: RoomId, ready: Ready | None) -> None:
        """Send what the holder of a reservation took, then all that is due; None where nothing was taken."""
        if ready is None or self._tasks is None:
            self._busy.discard(room_id)
            self._bell.ring({room_id})
        else:
            self._tasks.create_task(self._drain(room_id, ready), name=f"outbox {room_id}")

    async def _look(self) -> float:
        """Start every room with due work; return the seconds until the next one is due."""
        now_ms = self._means.clock.now_ms()
        due, self._due = self._due, None
        if due is None:
            try:
                due = await self._store.run(lambda tx: tx.rooms_due())
            except StoreUnavailable as error:
                log.warning("outbox_waits_for_the_store", error=str(error))
                return 1.0
        wait_ms = LONGEST_S * 1000
        for room_id, not_before_ms in due.items():
            due_in_ms = max(not_before_ms - now_ms, self._pause_left_ms(room_id))
            if due_in_ms > 0:
                wait_ms = min(wait_ms, due_in_ms)
            else:
                self._start(room_id)
        return wait_ms / 1000

    def _start(self, room_id: RoomId) -> bool:
        """Have a room's effects sent, unless it is being done or has to wait. True where it is under way."""
        if self._tasks is not None and room_id not in self._busy and not self._waits(room_id):
            self._busy.add(room_id)
            self._tasks.create_task(self._drain(room_id), name=f"outbox {room_id}")
        elif room_id in self._busy:
            self._again.add(room_id)
        return room_id in self._busy

    def _waits(self, room_id: RoomId) -> bool:
        return self._pause_left_ms(room_id) > 0

    def _pause_left_ms(self, room_id: RoomId) -> int:
        return max(0, self._paused.get(room_id, 0) - self._monotonic_ms())

    def _monotonic_ms(self) -> int:
        return round(self._means.clock.monotonic() * 1000)

    async def _drain(self, room_id: RoomId, ready: Ready | None = None) -> None:
        """Send `ready`, then a room's due effects until there is none, or the room has to wait."""
        try:
            while not self._waits(room_id):
                if self._means.world.writable(room_id) is None:
                    # Never clear text into a room that is, or might be, encrypted.
                    self._pause(room_id, SHUT_RETRY_MS)
                    return
                if ready is None:
                    for row in self._waiters.being_answered(room_id):  # so that one edit can say both
                        await self._waiters.settled(row, up_to_s=SETTLE_S)
                    turn = await self._store.run(lambda tx: self._take(tx, room_id))
                else:
                    turn = await self._try(ready)
                ready = turn.ready
                if turn.due is not None:
                    self._due = turn.due
                    return
        except StoreUnavailable as error:
            log.warning("outbox_waits_for_the_store", error=str(error))
            self._pause(room_id, FIRST_RETRY_MS)
        finally:
            self._busy.discard(room_id)
            if room_id in self._again:
                self._again.discard(room_id)
                self._due = None
            self._bell.ring()  # looks at the clock again, and at what came in meanwhile

    def _take(self, tx: Tx, room_id: RoomId) -> Turn:
        ready = self.begin(tx, room_id)
        return Turn(ready, tx.rooms_due() if ready is None else None)

    def begin(self, tx: Tx, room_id: RoomId, known: Question | None = None) -> Ready | None:
        """Take the next effect that is still wanted; those that no longer are go out of the queue.

        `known` is a question that this transaction has just written, which need not be read.
        """
        while (effect := tx.begin(room_id, self._means.clock.now_ms())) is not None:
            if known is not None and known.row == effect.row and known.asked.room_id == effect.room_id:
                question: Question | None = known
            else:
                question = question_of(tx, effect)
            ready = self._wanted(tx, effect, question)
            if ready is not None:
                return ready
        return None

    def _wanted(self, tx: Tx, effect: Effect, question: Question | None) -> Ready | None:
        name = effect.effect.split(":", 1)[0]
        if question is None:
            if effect.content is None:
                tx.abandon(effect.effect_id, "its question is gone")
                return None
            return Ready(effect, None)
        if name == QUESTION and not question.is_open:
            if effect.attempts == 1 or effect.effect_id in self._never_taken:
                tx.abandon(effect.effect_id, "closed before it was sent")
                tx.drop_unsent(question.row, effect.room_id, OUTCOME)
                return None
            # An earlier try may stand in the room without our knowing its id. The same
            # transaction id finds it; should there be none, what goes out is no question.
            return Ready(replace(effect, content=closed_message(question)), question)
        if name == QUESTION and question.asked.expires_at_ms <= self._means.clock.now_ms():
            tx.postpone(effect.effect_id, self._means.clock.now_ms() + FIRST_RETRY_MS)
            return None  # the deadline's own loop closes it first
        if name == QUESTION:
            effect = hushed(tx, effect, question, self._means)
        if name in REMINDERS and (not question.is_open or question.asked.expires_at_ms <= self._means.clock.now_ms()):
            tx.abandon(effect.effect_id, "nothing is open any more")
            return None
        if name in REMINDERS and is_held(tx, effect, question, self._means):
            return None
        if name in REMINDERS:
            effect = lowered(effect, question, self._means)
        if name == UPLOAD and not question.is_open:
            tx.abandon(effect.effect_id, "closed before it was uploaded")
            return None
        if name == FILE and not question.is_open:
            tx.abandon(effect.effect_id, "closed before it was shown")
            return None
        if name == PROGRESS and not question.is_open:
            tx.abandon(effect.effect_id, "decided meanwhile")  # it would make the question look open again
            return None
        if question.closing is not None and _is_answered_by_who_is_told(effect, question.closing):
            tx.abandon(effect.effect_id, "answered in another way")
            return None
        if name == UPLOAD:
            return Ready(effect, question)
        if name == KEYCAPS:
            self._seed(tx, effect, question)
            return None
        if name == KEYCAP and question.status is not Status.PENDING:
            tx.abandon(effect.effect_id, "answered meanwhile")
            return None
        if effect.content is not None or effect.effect == UPLOAD:
            return Ready(effect, question)
        room = self._means.world.room(effect.room_id)
        if self._waiters.is_being_answered(question.row) or room is None or self._means.world.policy.is_strict(room):
            # Rendered once it can say whether the answer was delivered, and whose votes count.
            return Ready(effect, question)
        content = render(tx, effect, self._means)
        return None if content is None else Ready(replace(effect, content=content), question)

    def _seed(self, tx: Tx, effect: Effect, question: Question) -> None:
        """Turn "keycaps, should it stay unanswered" into one reaction an option, if nothing speaks against it."""
        now_ms = self._means.clock.now_ms()
        tx.abandon(effect.effect_id, "seeded, or no longer wanted")
        # What waits for a much later time, as a reminder does, keeps nothing else waiting.
        queued = tx.rooms_due().get(effect.room_id, now_ms + SEED_AFTER_MS + 1) <= now_ms + SEED_AFTER_MS
        calm = self._last_429_ms is None or now_ms - self._last_429_ms >= CALM_MS
        if question.status is not Status.PENDING or question.event_id is None or queued or not calm:
            return
        room = self._means.world.room(effect.room_id)
        rejecting = room is None or self._means.world.policy.is_strict(room)
        for offered, content in zip(question.asked.offered, keycaps(question), strict=False):
            if rejecting and approves(offered.option, question.asked.options):
                continue  # where a reaction cannot approve, none is offered for it
            name = f"{KEYCAP}:{offered.position}"
            tx.enqueue(
                self._means.effect(effect.room_id, name, Priority.SEED, content, row=question.row, event_type=REACTION)
            )

    async def _try(self, ready: Ready) -> Turn:
        """Send one effect; returns what comes next, which is nothing known where the room has to wait."""
        effect, question = ready.effect, ready.question
        content = effect.content
        room = self._means.world.writable(effect.room_id)
        if room is not None and question is not None and is_to_upload(effect, question, room):
            await self._upload(effect, question, room)
            return Turn(None)
        kind = effect.effect.split(":", 1)[0]
        try:
            if content is None and question is not None:
                content = await self._rendered(effect, question)
            if content is None:
                return Turn(None)
            now = self._means.world.writable(effect.room_id)
            if room is None or now is None or now.encrypted != room.encrypted:  # not as it was when the turn came
                self._not_taken(effect)
                self._pause(effect.room_id, FIRST_RETRY_MS)
                return Turn(None)
            event_id = await self._homeserver.send(now, effect.event_type, content, effect.txn_id)
        except RateLimited as error:
            self._last_429_ms = self._means.clock.now_ms()
            self._not_taken(effect)
            self._pause(effect.room_id, error.retry_after_ms)
            await self._failed.later(effect, error.retry_after_ms, kind, error.code)
            return Turn(None)
        except (HomeserverUnavailable, TokenRefused) as error:
            self._never_taken.discard(effect.effect_id)
            self._failures[effect.room_id] += 1
            pause_ms = self._failed.backoff_ms(self._failures[effect.room_id])
            self._pause(effect.room_id, pause_ms)
            # It may be this one alone that is not taken: what else the room has goes before its next try.
            wait_ms = max(self._failed.backoff_ms(effect.attempts), pause_ms + FIRST_RETRY_MS)
            await self._failed.later(effect, wait_ms, kind, error.code)
            return Turn(None)
        except Refused as error:
            await self._failed.refused(effect, kind, error)
            return Turn(None)
        self._never_taken.discard(effect.effect_id)
        self._failures.pop(effect.room_id, None)
        self._meter.sent(kind)

        def work(tx: Tx, after: After) -> Turn:
            self._sent(tx, after, effect, event_id)
            return self._take(tx, effect.room_id)

        return await self._commit(work)

    async def _rendered(self, effect: Effect, question: Question) -> Mapping[str, Any] | None:
        """What an edit says, once it is known what it has to say; None where it is no longer wanted."""
        await self._waiters.settled(question.row, up_to_s=SETTLE_S)
        await self._means.world.know_voters(lambda tx: frozenset(vote.sender for vote in tx.votes(question.row)))
        return await self._store.run(lambda tx: render(tx, effect, self._means))

    def _sent(self, tx: Tx, after: After, effect: Effect, event_id: EventId) -> None:
        tx.sent(effect.effect_id, event_id, self._means.clock.now_ms())
        question = question_of(tx, effect)
        if (
            effect.effect == QUESTION
            and question is not None
            and change(tx, question, Posted(event_id), after, self._means) is None
        ):
            places.post(tx, question, event_id)  # keeps the event id of one that was closed meanwhile
        if effect.effect == FILE and question is not None:
            places.attach(tx, question, Attachment.SHOWN)

    def _not_taken(self, effect: Effect) -> None:
        """The homeserver did not take this try, for certain; where it took none before, it has nothing of it."""
        if effect.attempts == 1:
            self._never_taken.add(effect.effect_id)

    async def _upload(self, effect: Effect, question: Question, room: RoomState) -> None:
        try:
            await self._uploads.upload(effect, question, room)
        except RateLimited as error:
            self._last_429_ms = self._means.clock.now_ms()
            self._pause(effect.room_id, error.retry_after_ms)
            await self._failed.later(effect, error.retry_after_ms, UPLOAD, error.code, counted=False)
        except TokenRefused as error:  # like a limit, it says nothing of the file, which must not lose its tries
            self._pause(effect.room_id, SHUT_RETRY_MS)
            await self._failed.later(effect, SHUT_RETRY_MS, UPLOAD, error.code, counted=False)
        except HomeserverUnavailable as error:
            if effect.effect == UPLOAD and effect.attempts >= MOST_TRIES:
                await self._uploads.fail(effect, question, room, error)
                return
            wait_ms = self._failed.backoff_ms(effect.attempts)
            self._pause(effect.room_id, wait_ms)
            await self._failed.later(effect, wait_ms, UPLOAD, error.code)
        except Refused as error:
            await self._failed.refused(effect, UPLOAD, error)

    def _pause(self, room_id: RoomId, wait_ms: int) -> None:
        self._paused[room_id] = self._monotonic_ms() + wait_ms


def _is_answered_by_who_is_told(effect: Effect, closing: Closing) -> bool:
    """Whether a notice says to somebody that a message could not be read, who was heard after all."""
    heard = closing.voters if closing.answered_by is None else (closing.answered_by, *closing.voters)
    return effect.effect in map(unread_notice, heard)
