"""Posts outcomes from rows of the store: each until its target takes it or its time is over.

Targets do not wait for each other. An outcome may be posted twice (a crash between a
target's answer and our note of it), always under the same `webhook-id`; never is one lost.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import structlog

from agentpod_bot.callbacks.circuit import Circuit, backoff_ms
from agentpod_bot.callbacks.reply import Failed, Gone, Reply, Taken, Why
from agentpod_bot.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agentpod_bot.callbacks.target import Target
    from agentpod_bot.core.ids import ClientName, WebhookId
    from agentpod_bot.core.kept import Callback
    from agentpod_bot.core.model import Question
    from agentpod_bot.ports import CallbackMeter, Chance, Clock, Store, Tx

log = structlog.get_logger(__name__)

LEASE_MS = 60_000
"""Longer than any try: an outcome whose try was cut off by a crash is due again after it."""
LONGEST_S = 60.0
"""The wall clock may be set while we wait; so often it is looked at anyway."""
STORE_RETRY_S = 1.0
LAST_MS = 2**53 - 1
GONE = "gone"
TOO_OLD = "too_old"


class Post(Protocol):
    """One try to post a body; it raises nothing that a target could cause."""

    async def __call__(self, target: Target, webhook_id: WebhookId, body: str) -> Reply:
        """Return what became of it."""
        ...


@dataclass(slots=True)
class Lane:
    """A client's target, how it fares, and the outcomes that are being posted to it."""

    client: ClientName
    target: Target
    circuit: Circuit = field(default_factory=Circuit)
    under_way: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Taking:
    """What a lane takes from the store: so many outcomes that are due by then."""

    client: ClientName
    due_by_ms: int
    at_most: int


@dataclass(frozen=True, slots=True)
class Turn:
    """What the store gave: outcomes to post, when each client has more, and how many were given up."""

    begun: Mapping[ClientName, Sequence[tuple[Callback, Question]]]
    due: Mapping[ClientName, int]
    too_old: int


class Callbacks:
    """The sender. `shown` makes the body, at each try anew: what a GET would answer then."""

    def __init__(
        self,
        store: Store,
        post: Post,
        shown: Callable[[Question], str],
        *,
        targets: Mapping[ClientName, Target],
        retention_ms: int,
        clock: Clock,
        chance: Chance,
        meter: CallbackMeter,
    ) -> None:
        self._store = store
        self._post = post
        self._shown = shown
        self._retention_ms = retention_ms
        self._clock = clock
        self._chance = chance
        self._meter = meter
        self._lanes = {client: Lane(client, target) for client, target in targets.items()}
        self._changed: set[ClientName] = set()
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There may be something to post."""
        self._rung.set()

    def open_circuits(self) -> int:
        """How many targets are only probed now."""
        return sum(lane.circuit.is_open for lane in self._lanes.values())

    def replace(self, targets: Mapping[ClientName, Target], *, retention_ms: int) -> None:
        """Use these targets from now on; what waited for one that changed is tried at once."""
        self._retention_ms = retention_ms
        before, self._lanes = self._lanes, {}
        for client, target in targets.items():
            old = before.get(client)
            if old is not None and old.target == target:
                self._lanes[client] = old
            else:
                self._lanes[client] = Lane(client, target, under_way=set() if old is None else old.under_way)
                self._changed.add(client)
        self.ring()

    async def run(self) -> None:
        """Post until cancelled. What is under way then is posted again after the next start."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._rung.clear()
                wait_s = await self._look(tasks)
                try:
                    async with asyncio.timeout(wait_s):
                        await self._rung.wait()
                except TimeoutError:
                    pass  # nobody rang: the clock says that something is due

    async def _look(self, tasks: asyncio.TaskGroup) -> float:
        """Begin all that may be begun now; return the seconds until there may be more."""
        now_ms = self._clock.now_ms()
        taking = [
            # A probe takes the next outcome, however long that one was to wait.
            Taking(lane.client, LAST_MS if lane.circuit.is_open else now_ms, room)
            for lane in self._lanes.values()
            if (room := lane.circuit.room(now_ms, under_way=len(lane.under_way)))
        ]
        changed = self._changed & self._lanes.keys()
        oldest_ms = now_ms - self._retention_ms

        def work(tx: Tx) -> Turn:
            too_old = tx.lapse_callbacks(oldest_ms)
            for client in changed:
                tx.hasten_callbacks(client, now_ms)
            begun = {wanted.client: _begin(tx, wanted, now_ms + LEASE_MS) for wanted in taking}
            due = {wanted.client: tx.callback_due(wanted.client) for wanted in taking}
            return Turn(begun, {client: at for client, at in due.items() if at is not None}, too_old)

        try:
            turn = await self._store.run(work)
        except StoreUnavailable as error:
            log.warning("callbacks_wait_for_the_store", error=str(error))
            return STORE_RETRY_S
        self._changed -= changed
        if turn.too_old:
            self._meter.callbacks_given_up(TOO_OLD, turn.too_old)
            log.warning("callbacks_given_up", why=TOO_OLD, count=turn.too_old)
        for client, callbacks in turn.begun.items():
            self._start(tasks, self._lanes.get(client), callbacks)
        return self._wait_s(turn, now_ms)

    def _start(
        self, tasks: asyncio.TaskGroup, lane: Lane | None, callbacks: Sequence[tuple[Callback, Question]]
    ) -> None:
        if lane is None:
            return  # its target left the configuration this very moment
        for callback, question in callbacks:
            if callback.callback_id not in lane.under_way:
                lane.under_way.add(callback.callback_id)
                tasks.create_task(self._call(lane, callback, question), name=f"callback {callback.callback_id}")

    def _wait_s(self, turn: Turn, now_ms: int) -> float:
        """A lane that is full, or has nothing more, is looked at again when somebody rings."""
        times = [lane.circuit.not_before_ms for lane in self._lanes.values() if lane.circuit.not_before_ms > now_ms]
        for client, due_ms in turn.due.items():
            lane = self._lanes.get(client)
            if lane is not None and lane.circuit.room(now_ms, under_way=len(lane.under_way)):
                times.append(due_ms)
        return min(LONGEST_S, max(0, min(times, default=LAST_MS) - now_ms) / 1000)

    async def _call(self, lane: Lane, callback: Callback, question: Question) -> None:
        try:
            reply = await self._try(lane, callback, question)
            await self._store.run(self._settling(lane, callback, question, reply))
        except StoreUnavailable as error:
            # The row is as it was, and due again after its lease.
            log.warning("callbacks_wait_for_the_store", error=str(error))
        finally:
            lane.under_way.discard(callback.callback_id)
            self.ring()

    async def _try(self, lane: Lane, callback: Callback, question: Question) -> Reply:
        try:
            body = self._shown(question)
        except ValueError as error:  # a row that contradicts itself: told to nobody, and no reason to stop the rest
            log.error("callback_cannot_be_shown", row=question.row, error=type(error).__name__)  # noqa: TRY400 - no texts
            return Failed(Why.NOT_SHOWN)
        return await self._post(lane.target, callback.webhook_id, body)

    def _settling(self, lane: Lane, callback: Callback, question: Question, reply: Reply) -> Callable[[Tx], None]:
        """Count and log what became of a try; return what the store has to note of it."""
        now_ms = self._clock.now_ms()
        about = {
            "client": lane.client,
            "request_id": question.key.request_id,
            "revision": question.key.revision,
            "attempts": callback.attempts,
        }
        match reply:
            case Taken():
                self._meter.callback_sent()
                log.info("callback_sent", **about)
                return self._finishing(lane, callback, now_ms)
            case Gone():
                self._meter.callbacks_given_up(GONE)
                log.warning("callback_given_up", why=GONE, **about)
                return self._finishing(lane, callback, now_ms)
            case Failed(why=why, status=status, retry_after_ms=retry_after_ms):
                wait_ms = max(retry_after_ms or 0, self._backoff_ms(callback))
                if self._lanes.get(lane.client) is not lane:
                    wait_ms = 0  # it was not this target's to take any more
                self._meter.callback_failed(why.value)
                log.warning("callback_postponed", why=why.value, status=status, wait_ms=wait_ms, **about)
                if why is not Why.NOT_SHOWN and lane.circuit.failed(now_ms, retry_after_ms):
                    log.warning("callback_circuit_opened", client=lane.client)
                return lambda tx: tx.postpone_callback(callback.callback_id, now_ms + wait_ms)

    def _finishing(self, lane: Lane, callback: Callback, now_ms: int) -> Callable[[Tx], None]:
        was_open = lane.circuit.answered()
        if was_open:
            log.info("callback_circuit_closed", client=lane.client)

        def work(tx: Tx) -> None:
            tx.finish_callback(callback.callback_id)
            if was_open:
                tx.hasten_callbacks(lane.client, now_ms)

        return work

    def _backoff_ms(self, callback: Callback) -> int:
        return backoff_ms(callback.attempts, int(self._chance.hex(16), 16) / 0xFFFF)


def _begin(tx: Tx, wanted: Taking, again_ms: int) -> Sequence[tuple[Callback, Question]]:
    begun = tx.begin_callbacks(wanted.client, due_by_ms=wanted.due_by_ms, again_ms=again_ms, at_most=wanted.at_most)
    found = ((callback, tx.question(callback.row)) for callback in begun)
    return [(callback, question) for callback, question in found if question is not None]
