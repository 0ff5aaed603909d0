"""Broker, sync loop and store as one machine, against what must never happen.

The store is a real one, the homeserver takes and shows what the machine says and when, the
clock moves when it is told, and the process may die at any transaction. What must hold is
judged from the room's events and from what each call was told, not by the code's own rules.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from structlog.testing import capture_logs

from agentpod_bot.core.ids import EventId, RequestId, Row, SessionId, UserId
from agentpod_bot.core.lifecycle import AnsweredElsewhere
from agentpod_bot.core.model import Claim, Hold, Meaning, Outcome, Question, Status
from agentpod_bot.errors import (
    AgentpodError,
    HomeserverUnavailable,
    RateLimited,
    Refused,
    RequestClosed,
    RequestIdReused,
    TooManyPending,
    Unavailable,
)
from agentpod_bot.store.database import open_store
from tests.contract.fragile_run import Breaks, Fuse, Run
from tests.contract.gated_homeserver import GatedHomeserver
from tests.examples import CALLER, FOUR, MALLORY, OPS_ROUTE, OWNER, POD, POLICY, ROUTE, SECOND, START, request
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from agentpod_bot.core.model import Caller, PermissionRequest
    from agentpod_bot.ports import Tx
    from tests.matrix.fake_rooms import Event

SETTINGS = settings(
    max_examples=25,
    stateful_step_count=35,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    database=None,
    phases=[Phase.generate, Phase.shrink],
)
HOOK = "claude-code"
HOOKS = replace(CALLER, harnesses=frozenset({HOOK, "native"}))
APPROVERS = (OWNER, SECOND)
QUESTION = "dev.agentpod.permission.v2"
OUTCOME = "dev.agentpod.permission.outcome.v2"
KEYCAPS = ("1\ufe0f\u20e3", "2\ufe0f\u20e3", "3\ufe0f\u20e3", "4\ufe0f\u20e3")
FAR_MS = 31 * 60_000
GOES_WELL = 4
DRAINED_AFTER = 60
ENDS = frozenset(outcome.value for outcome in Outcome)

ids = st.integers(0, 2)
positions = st.integers(1, len(FOUR))


@dataclass
class Call:
    """One call of a harness: what it posted, and everything that it was told."""

    asked: PermissionRequest
    told: list[Question] = field(default_factory=list)
    row: Row | None = None
    refused: AgentpodError | None = None
    task: asyncio.Task[Any] | None = None

    @property
    def waits(self) -> bool:
        return self.task is not None and not self.task.done()


@dataclass(frozen=True)
class Answer:
    """What somebody sent, and what it plainly means, if it does."""

    event_id: EventId
    sender: UserId
    question: str | None
    """The event that it names; for a bare answer, the only question that the room then showed as open."""
    position: int | None
    named: bool


class Machine(RuleBasedStateMachine):
    """People, harnesses, a homeserver and a process that dies, in any order."""

    def __init__(self, folder: Path, template: Path) -> None:
        super().__init__()
        folder.mkdir(exist_ok=True, mode=0o700)
        path = folder / "agentpod.db"
        for old in folder.iterdir():
            old.unlink()
        shutil.copy(template, path)
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock(START)
        self.hs = GatedHomeserver(POD, (OWNER, SECOND, MALLORY), now_ms=self.clock.now_ms)
        route = replace(OPS_ROUTE, room_id=self.hs.room_id, harnesses=frozenset({HOOK, "native"}))
        self.policy = replace(POLICY, routes={ROUTE: route})
        self.inner = open_store(path)
        self.run: Run | None = None
        self.runs = 0
        self.calls: list[Call] = []
        self.answers: dict[EventId, Answer] = {}
        self.ended: dict[Row, Question] = {}
        """Questions as they were when they were first seen closed."""

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            if self.run is not None:
                self.do(self.run.kill())
            self.do(self.inner.close())
            self.loop.close()

    def do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    # the process
    @initialize()
    def begin(self) -> None:
        self.start()
        self.shown()
        self.ask(0, other=False, supersede=False)
        self.all_goes_well()

    @precondition(lambda self: self.run is None)
    @rule()
    def start(self) -> None:
        self.runs += 1
        self.do(self._started())

    async def _started(self) -> None:
        self.run = Run(self.inner, self.hs, self.policy, clock=self.clock, seed=self.runs)
        await self.run.quiet()

    @precondition(lambda self: self.run is not None)
    @rule(left=st.integers(0, 5), breaks=st.sampled_from([None, *Breaks]))
    def break_down(self, left: int, breaks: Breaks | None) -> None:
        """The process dies now, or something breaks soon."""
        assert self.run is not None
        if breaks is None:
            self.die()
        else:
            self.run.store.fuse = Fuse(left, breaks)

    def die(self) -> None:
        assert self.run is not None
        self.do(self.run.kill())
        self.run = None
        self.hs.bot_died()

    def settle(self) -> None:
        """Let everything go on as far as it can; a process whose fuse burnt is dead then."""
        if self.run is not None:
            self.do(self.run.quiet())
            if self.run.store.dead:
                self.die()

    # the harnesses
    @precondition(lambda self: self.run is not None)
    @rule(number=ids, other=st.booleans(), supersede=st.booleans())
    def ask(self, number: int, other: bool, supersede: bool) -> None:
        asked = request(
            request_id=RequestId(f"r{number}"),
            request_seq=None,
            title="Delete everything" if other else "Run the test suite",
            supersede=supersede,
        )
        self._call(asked, CALLER)

    @precondition(lambda self: self.run is not None)
    @rule(number=ids)
    def ask_by_a_hook(self, number: int) -> None:
        asked = request(
            request_id=None, request_seq=None, title=f"Hook {number}", hold=Hold(f"twin{number}"), raw=b"{}"
        )
        self._call(asked, HOOKS)

    def _call(self, asked: PermissionRequest, caller: Caller) -> None:
        call = Call(asked)
        self.calls.append(call)
        self.do(self._spawned(call, caller))
        self.settle()

    async def _spawned(self, call: Call, caller: Caller) -> None:
        assert self.run is not None
        call.task = self.run.spawn(self._wait(self.run, call, caller))

    async def _wait(self, run: Run, call: Call, caller: Caller) -> None:
        broker = run.parts.broker
        try:
            if call.asked.hold is not None:
                async with broker.held(call.asked, caller, harness=HOOK, patience_ms=None) as question:
                    call.told.append(question)
            else:
                submitted = await broker.submit(call.asked, caller)
                call.row = submitted.question.row
                async with broker.waiting(submitted.question, up_to_s=None) as question:
                    call.told.append(question)
        except (Unavailable, RequestIdReused, RequestClosed, TooManyPending) as error:
            if not call.told:  # what failed afterwards was only the note that it was told
                call.refused = error

    @precondition(lambda self: any(call.waits for call in self.calls))
    @rule(pick=st.integers(0, 20))
    def hang_up(self, pick: int) -> None:
        waiting = [call for call in self.calls if call.waits]
        task = waiting[pick % len(waiting)].task
        assert task is not None
        task.cancel()
        self.settle()

    @precondition(lambda self: self.run is not None)
    @rule(number=st.none() | ids, elsewhere=st.booleans())
    def cancel(self, number: int | None, elsewhere: bool) -> None:
        request_id = None if number is None else RequestId(f"r{number}")
        self.do(self._spawned_cancel(request_id, elsewhere=elsewhere))
        self.settle()

    async def _spawned_cancel(self, request_id: RequestId | None, *, elsewhere: bool) -> None:
        assert self.run is not None
        self.run.spawn(self._cancel(self.run, request_id, elsewhere=elsewhere))

    @staticmethod
    async def _cancel(run: Run, request_id: RequestId | None, *, elsewhere: bool) -> None:
        broker = run.parts.broker
        try:
            if request_id is None and elsewhere:
                await broker.cancel_all(CALLER)
            elif request_id is None:
                await broker.cancel_session(CALLER, SessionId("acps_3f0c"))
            elif elsewhere:
                claim = Claim("allow_once", str(OWNER))
                await broker._close(CALLER, request_id, AnsweredElsewhere(claim))
            else:
                await broker.cancel(CALLER, request_id)
        except AgentpodError:
            return  # there is no such request, or it is closed

    # the clock
    @rule(
        ms=st.sampled_from([1_000, 1_000, 1_000, 3_000, 11_000, 61_000, FAR_MS]),
        loops=st.sampled_from([(), ("expire", "lapse"), ("lapse",)]),
    )
    def wait(self, ms: int, loops: tuple[str, ...]) -> None:
        """Time goes by; the loops that close what is over may be late."""
        self.clock.advance(ms)
        for loop in loops:
            self.do(self._spawn_of(loop))
            self.settle()
        if self.run is not None:
            self.run.woken()
        self.settle()

    async def _spawn_of(self, name: str) -> None:
        if self.run is not None:
            self.run.spawn(getattr(self.run, name)())

    # the homeserver
    @precondition(lambda self: self.run is not None)
    @rule()
    def all_goes_well(self) -> None:
        """The homeserver takes what is sent and shows what there is, until neither brings anything new."""
        for _ in range(GOES_WELL):
            while self.hs.sending:
                self.taken()
            self.shown()

    @precondition(lambda self: self.hs.sending)
    @rule(becomes=st.sampled_from(["taken", "taken", "unanswered", "cut", "swallowed", "limited", "refused"]))
    def sent(self, becomes: str) -> None:
        sending = self.hs.sending[0]
        if becomes in ("taken", "unanswered", "swallowed"):
            self.hs.take(sending)
        match becomes:
            case "taken":
                self.taken()
            case "cut" | "swallowed":
                self.hs.reply(sending, HomeserverUnavailable("scripted"))
            case "limited":
                self.hs.reply(sending, RateLimited(2_000))
            case "refused":
                self.hs.reply(sending, Refused("M_FORBIDDEN", "scripted", status=403))
        self.settle()

    def taken(self) -> None:
        self.hs.reply(self.hs.sending[0])
        self.settle()

    @precondition(lambda self: self.hs.lost)
    @rule()
    def taken_after_the_death(self) -> None:
        self.hs.take(self.hs.lost.pop(0))

    @precondition(lambda self: self.run is not None)
    @rule(fails=st.sampled_from([False, False, True]))
    def synced(self, fails: bool) -> None:
        if not fails:
            self.shown()
        else:
            self.hs.show(fails=True)
            self.settle()

    def shown(self) -> None:
        before = self._open_now()
        now_ms = self.clock.now_ms()
        seen = self._seen()
        fused = self.run is not None and self.run.store.fuse is not None
        self.hs.show()
        self.settle()
        if not fused and self.run is not None:
            self._answers_counted(before, seen, now_ms)

    # the people
    @precondition(lambda self: self.questions())
    @rule(
        pick=st.integers(0, 20),
        sender=st.sampled_from([OWNER, OWNER, SECOND, MALLORY]),
        position=positions,
        form=st.sampled_from(["reply", "reply", "name", "reaction", "structured"]),
        heard=st.booleans(),
        late=st.sampled_from([False, False, False, True]),
    )
    def answer(self, *, pick: int, sender: UserId, position: int, form: str, heard: bool, late: bool) -> None:
        """Somebody answers one of the questions; late, while the loop that closes what is over is late, too."""
        if late:
            self.clock.advance(FAR_MS)
        event = self._picked(pick)
        target = event["event_id"]
        reply: dict[str, Any] = {"m.in_reply_to": {"event_id": target}}
        option = FOUR[position - 1]
        kind = "m.room.message"
        content: dict[str, Any]
        match form:
            case "reply":
                content = {"msgtype": "m.text", "body": str(position), "m.relates_to": reply}
            case "name":
                content = {"msgtype": "m.text", "body": option.label, "m.relates_to": reply}
            case "reaction":
                kind = "m.reaction"
                relation = {"rel_type": "m.annotation", "event_id": target, "key": KEYCAPS[position - 1]}
                content = {"m.relates_to": relation}
            case _:
                subject = event["content"]["subject"]
                content = {
                    "msgtype": "m.text",
                    "body": "something else",
                    "suite_event_type": "dev.agentpod.permission.answer.v2",
                    "schema_version": 1,
                    "request_id": subject["id"],
                    "option_id": option.option_id,
                    "subject": {"digest": subject["digest"], "revision": subject["revision"]},
                    "m.relates_to": {"rel_type": "m.reference", "event_id": target},
                }
        event_id = self.hs.post(sender, content, kind=kind)
        self.answers[event_id] = Answer(event_id, sender, target, position, named=True)
        if heard and self.run is not None:
            self.shown()

    @precondition(lambda self: self.questions())
    @rule(sender=st.sampled_from([OWNER, SECOND, MALLORY]), position=positions)
    def answer_barely(self, sender: UserId, position: int) -> None:
        shown_open = [event["event_id"] for event in self.questions() if not self.edits_of(event["event_id"])]
        only = shown_open[0] if len(shown_open) == 1 else None
        event_id = self.hs.post(sender, {"msgtype": "m.text", "body": str(position)})
        self.answers[event_id] = Answer(event_id, sender, only, position, named=False)

    @precondition(lambda self: self.questions())
    @rule(
        pick=st.integers(0, 20),
        sender=st.sampled_from([OWNER, MALLORY]),
        body=st.sampled_from(["5", "0", "yes", "ok", "1 but only for tests", "²", "> 1", "", "!open"]),
        msgtype=st.sampled_from(["m.text", "m.notice"]),
    )
    def say_what_is_no_answer(self, pick: int, sender: UserId, body: str, msgtype: str) -> None:
        relation = {"m.in_reply_to": {"event_id": self._picked(pick)["event_id"]}}
        event_id = self.hs.post(sender, {"msgtype": msgtype, "body": body, "m.relates_to": relation})
        self.answers[event_id] = Answer(event_id, sender, None, None, named=False)

    @precondition(lambda self: self.answers)
    @rule(pick=st.integers(0, 40), body=st.sampled_from(["1", "2", "3"]))
    def edit_an_answer(self, pick: int, body: str) -> None:
        answer = list(self.answers.values())[pick % len(self.answers)]
        content = {
            "msgtype": "m.text",
            "body": f"* {body}",
            "m.new_content": {"msgtype": "m.text", "body": body},
            "m.relates_to": {"rel_type": "m.replace", "event_id": answer.event_id},
        }
        event_id = self.hs.post(answer.sender, content)
        self.answers[event_id] = Answer(event_id, answer.sender, None, None, named=False)

    # what must hold
    @invariant()
    def no_more_than_one_question_a_revision_is_in_the_room(self) -> None:
        asked = Counter(event["content"]["subject"]["digest"] for event in self.questions())
        assert all(count == 1 for count in asked.values())

    @invariant()
    def a_closed_question_never_changes_and_the_audit_says_its_one_end(self) -> None:
        for question, lines in self.do(self._look()):
            before = self.ended.setdefault(question.row, question) if not question.is_open else None
            if before is not None:
                assert (question.status, question.closing) == (before.status, before.closing)
            assert lines["asked"] == 1
            assert lines["shown"] <= 1
            assert lines["delivered"] <= (not question.is_open)
            ends = {name: count for name, count in lines.items() if name in ENDS}
            if question.closing is None:
                assert not ends
            else:
                assert ends == {question.closing.outcome.value: 1}
                if question.status is Status.DECIDED:
                    self._was_allowed(question)

    def _was_allowed(self, question: Question) -> None:
        """The decision is somebody's plain answer to this very question, in time."""
        closing = question.closing
        assert closing is not None
        assert closing.option is not None
        assert closing.event_id is not None
        answer = self.answers[closing.event_id]
        assert answer.sender in APPROVERS
        assert answer.sender == closing.answered_by
        assert answer.question is not None
        assert answer.question == question.event_id
        assert answer.position is not None
        assert closing.option.option.option_id == FOUR[answer.position - 1].option_id
        assert closing.at_ms < question.asked.expires_at_ms
        order = [event["event_id"] for event in self.hs.timeline()]
        assert order.index(answer.question) < order.index(answer.event_id)

    @invariant()
    def each_call_is_told_no_more_than_once_and_what_the_store_says_of_what_it_posted(self) -> None:
        ends = {question.row: question.closing for question in self.stored()}
        for call in self.calls:
            assert len(call.told) <= 1
            assert call.refused is None or not call.told
            for told in call.told:
                assert not told.is_open
                assert told.asked.title == call.asked.title
                assert told.closing == ends[told.row]
                assert call.row in (None, told.row)
                if told.closing is not None and told.closing.option is not None:
                    approves = told.closing.option.option.meaning is Meaning.APPROVE
                    assert not approves or told.closing.outcome is Outcome.SELECTED

    def _answers_counted(self, before: list[Question], seen: set[EventId], now_ms: int) -> None:
        """Of what a sync has just shown, the first plain answer of each question in time is its decision."""
        newly = self._seen() - seen
        for question in before:
            if now_ms >= question.asked.expires_at_ms:
                continue
            now = self._question(question.row)
            target = now.event_id
            fitting = [
                answer
                for event in self.hs.timeline()
                if (answer := self.answers.get(event["event_id"])) is not None
                and answer.event_id in newly
                and answer.named
                and answer.question == target
                and answer.sender in APPROVERS
            ]
            if target is None or not fitting:
                continue
            assert now.closing is not None
            if now.closing.outcome is Outcome.SELECTED and now.closing.event_id is not None:
                decided_by = self.answers[now.closing.event_id]
                assert decided_by == fitting[0] or not decided_by.named
            else:
                raise AssertionError(("an answer was lost", now.closing, fitting[0]))

    def finish(self) -> None:
        """In the end everything is said, everybody is told, and room and store agree."""
        if self.run is None:
            self.start()
        for turn in range(DRAINED_AFTER):
            assert self.run is not None
            self.run.store.fuse = None
            if self._drained():
                break
            if turn == DRAINED_AFTER // 4:
                self.clock.advance(FAR_MS)
            self.wait(61_000, ("expire", "lapse"))
            self.all_goes_well()
        assert self._drained()
        for call in self.calls:
            assert not call.waits
        for question in self.stored():
            self._ended_in_the_room(question)
        self.a_closed_question_never_changes_and_the_audit_says_its_one_end()
        self.each_call_is_told_no_more_than_once_and_what_the_store_says_of_what_it_posted()
        self.no_more_than_one_question_a_revision_is_in_the_room()

    def _drained(self) -> bool:
        due = self.do(self.inner.run(lambda tx: tx.rooms_due()))
        unheard = self.answers.keys() - self._seen()
        return not due and not self.hs.sending and not unheard and not self._open_now()

    def _ended_in_the_room(self, question: Question) -> None:
        assert question.closing is not None
        here = [event for event in self.questions() if event["content"]["subject"]["digest"] == question.asked.digest]
        if not here or question.closing.outcome is Outcome.UNDELIVERABLE:
            return  # the room never heard of it, or nothing that the bot says reaches it
        receipts = [edit["content"]["outcome"] for edit in self.edits_of(here[0]["event_id"])]
        assert receipts
        assert set(receipts) == {question.closing.outcome.value}

    # looking
    def questions(self) -> list[Event]:
        return [e for e in self.hs.timeline() if e["content"].get("suite_event_type") == QUESTION]

    def edits_of(self, event_id: str) -> list[Event]:
        return [
            event
            for event in self.hs.timeline()
            if event["content"].get("suite_event_type") == OUTCOME
            and event["content"]["m.relates_to"]["event_id"] == event_id
        ]

    def _picked(self, pick: int) -> Event:
        asked = self.questions()
        return asked[pick % len(asked)]

    def stored(self) -> list[Question]:
        return [question for question, _ in self.do(self._look())]

    async def _look(self) -> list[tuple[Question, Counter[str]]]:
        """Every stored question, and how often the audit says what about it."""

        def work(tx: Tx) -> list[tuple[Question, Counter[str]]]:
            found: list[tuple[Question, Counter[str]]] = []
            while (question := tx.question(Row(len(found) + 1))) is not None:
                found.append((question, Counter(line.what for line in tx.audited(question.row))))
            return found

        return await self.inner.run(work)

    def _question(self, row: Row) -> Question:
        question: Question | None = self.do(self.inner.run(lambda tx: tx.question(row)))
        assert question is not None
        return question

    def _open_now(self) -> list[Question]:
        return list(self.do(self.inner.run(lambda tx: tx.open_questions())))

    def _seen(self) -> set[EventId]:
        return set(self.do(self.inner.run(lambda tx: {name for name in self.answers if tx.seen(name)})))


@pytest.mark.hypothesis
@pytest.mark.timeout(300)
def test_whatever_happens_in_whatever_order_nothing_is_lost_doubled_or_allowed_by_nobody(tmp_path: Path) -> None:
    template = tmp_path / "template" / "agentpod.db"
    made = open_store(template)
    asyncio.run(made.close())
    with capture_logs():
        run_state_machine_as_test(lambda: Machine(tmp_path / "store", template), settings=SETTINGS)
