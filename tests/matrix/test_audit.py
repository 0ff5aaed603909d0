"""What the audit keeps of a question's life, and that it holds no text of anybody's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from structlog.testing import capture_logs

from agentpod_bot.broker import room_events
from agentpod_bot.broker.votes import take
from agentpod_bot.core.ids import RequestId
from agentpod_bot.core.journal import START as NOTHING
from agentpod_bot.core.journal import Whole, examine
from agentpod_bot.core.model import Claim, Hold, Meaning, Scope, Status, TextPreview
from agentpod_bot.store.reading import stored_audit
from tests.examples import CALLER, FOUR, MINUTE
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig, named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.kept import AuditRow
    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod

DAY_MS = 86_400_000
SECRET = "s3cret-in-a-text"
DROPPED_MS = 10_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def rig(tmp_path: Path, clock: FakeClock) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


async def lines(pod: Pod, question: Question) -> list[AuditRow]:
    return list(await pod.store.run(lambda tx: tuple(tx.audited(question.row))))


def whats(kept: list[AuditRow]) -> list[str]:
    return [line.what for line in kept]


def read(rig: Rig) -> list[tuple[dict[str, Any], object]]:
    """All lines as they stand in the file."""
    with stored_audit(rig.path) as kept:
        return list(kept.lines())


def whole(rig: Rig) -> Whole:
    with stored_audit(rig.path) as kept:
        result = examine(kept.anchor, kept.lines(), wanted=None)
    assert isinstance(result, Whole)
    return result


async def test_a_decision_says_who_selected_which_option_of_what_question_and_that_it_was_delivered(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)
        answer = rig.say("1")
        decided = await pod.when(question, lambda now: not now.is_open)
        async with pod.parts.broker.waiting(decided, up_to_s=0):
            pass
        asked, shown, selected, delivered = await lines(pod, question)
    assert whats([asked, shown, selected, delivered]) == ["asked", "shown", "selected", "delivered"]
    assert {line.digest for line in (asked, shown, selected, delivered)} == {question.asked.digest}
    assert shown.event_id == question.event_id
    assert (selected.sender, selected.event_id, selected.detail) == (rig.owner, answer, "number")
    assert (selected.option_id, selected.meaning, selected.scope) == ("allow_once", Meaning.APPROVE, Scope.ONCE)
    assert asked.option_id is None
    assert delivered.at_ms == clock.now_ms()


async def test_a_call_that_gave_up_is_in_the_audit_beside_the_decision_or_the_cancelling(
    rig: Rig, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        for decided in (False, True):
            asked = await pod.pending(hold=Hold())
            pod.parts.holds.attach(asked)
            pod.parts.holds.detach(asked, answered=False)
            if decided:
                clock.advance(1_000)
                rig.say("1", reply_to=asked)
                await pod.when(asked, lambda now: not now.is_open)
            clock.advance(DROPPED_MS)
            await pod.parts.holds.lapse()
            kept = whats(await lines(pod, asked))
            assert kept == ["asked", "shown", *(["selected", "gave_up"] if decided else ["gave_up", "cancelled"])]


async def test_every_other_end_is_in_the_audit_with_why_as_a_code(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        broker = pod.parts.broker
        cancelled = await pod.pending(**named("a"))
        await broker.cancel(CALLER, RequestId("a"))
        claimed = await pod.pending(**named("b"))
        await broker.answered_elsewhere(CALLER, RequestId("b"), Claim("allow_once", SECRET))
        replaced = await pod.pending(**named("c"))
        await pod.pending(**named("c"), title="Another", supersede=True)
        redacted = await pod.pending(**named("d"))
        rig.hs.redact(rig.room, rig.owner, str(redacted.event_id))
        await pod.when(redacted, lambda now: not now.is_open)
        expired = await pod.pending(**named("e"), ttl_ms=MINUTE)
        clock.advance(MINUTE)
        await pod.parts.deadlines.expire()
        ends = [(await lines(pod, each))[-1] for each in (cancelled, claimed, replaced, redacted, expired)]
    assert [(end.what, end.detail) for end in ends] == [
        ("cancelled", "the_client_cancelled_it"),
        ("answered_elsewhere", None),
        ("superseded", None),
        ("undeliverable", "redacted"),
        ("expired", None),
    ]
    assert all(end.option_id is None and end.sender is None for end in ends)


async def test_no_text_that_an_agent_or_a_person_wrote_stands_in_the_audit(rig: Rig, clock: FakeClock) -> None:
    options = tuple(replace(option, label=f"{option.label} {SECRET}") for option in FOUR[2:])
    async with rig.run() as pod:
        question = await pod.pending(
            title=SECRET, agent=SECRET, tool_kind=SECRET, preview=(TextPreview(SECRET, SECRET),), options=options
        )
        clock.advance(1_000)
        rig.say(f"1 {SECRET}", reply_to=question)
        rig.say(SECRET, rig.mallory, reply_to=question)
        rig.say(f"1: {SECRET}", reply_to=question)
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.comment == SECRET
        last = rig.say(f"2: {SECRET}", reply_to=question)
        await pod.handled(last)
        kept = await lines(pod, question)
    assert whats(kept) == ["asked", "shown", "hint", "not_approver", "selected", "late"]
    assert not any(SECRET in str(value) for fields, _ in read(rig) for value in fields.values())
    assert whole(rig).lines >= len(kept)


async def test_the_chain_holds_over_kills_and_over_events_that_break_us(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        async with rig.run() as pod:
            question = await pod.pending()
            clock.advance(1_000)
            rig.say("1", rig.mallory, reply_to=question)
            rig.say("1", reply_to=question)
            await pod.when(question, lambda now: not now.is_open)
    async with rig.run() as pod:
        question = await pod.pending()
        clock.advance(1_000)

        def breaks(*given: object, **more: object) -> bool:
            take(*given, **more)  # type: ignore[arg-type]  # handed on as it came
            raise RuntimeError("broken")

        monkeypatch.setattr(room_events, "take", breaks)
        with capture_logs():  # a traceback with all its locals takes seconds to draw on a busy machine
            await pod.handled(rig.say("1", reply_to=question))
        assert (await pod.now(question)).status is Status.PENDING
        assert whats(await lines(pod, question)) == ["asked", "shown"]
        assert "set_aside" in [line["what"] for line, _ in read(rig)]
    result = whole(rig)
    assert result.lines == result.head.seq


async def test_lines_are_forgotten_after_a_retention_of_their_own_and_the_head_is_told_once_a_day(
    rig: Rig, clock: FakeClock
) -> None:
    rig.policy = replace(rig.policy, limits=replace(rig.policy.limits, audit_retention_ms=30 * DAY_MS))
    async with rig.run() as pod:
        deadlines = pod.parts.deadlines
        question = await pod.pending()
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        await pod.quiet()
        head = await pod.store.run(lambda tx: tx.head())
        with capture_logs() as logged:
            for _ in range(30):
                await deadlines.prune()
                clock.advance(DAY_MS // 2)
        told = [line for line in logged if line["event"] == "audit_head"]
        assert len(told) == 15
        assert {(line["seq"], line["hash"]) for line in told} == {(head.seq, head.hash)}
        assert await pod.store.run(lambda tx: tx.question(question.row)) is None
        assert whats(await lines(pod, question)) == ["asked", "shown", "cancelled"]
        clock.advance(15 * DAY_MS + 1)
        await deadlines.prune()
        assert await lines(pod, question) == []
        assert await pod.store.run(lambda tx: tx.head()) == head
        await pod.ask()
    assert whole(rig).head.seq == head.seq + 1


async def test_without_a_retention_the_audit_is_kept_for_ever(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        await pod.quiet()
        clock.advance(36_500 * DAY_MS)
        await pod.parts.deadlines.prune()
        assert await pod.store.run(lambda tx: tx.question(question.row)) is None
        assert len(await lines(pod, question)) == 3
    assert whole(rig).head != NOTHING


async def test_lines_about_what_is_still_open_are_never_forgotten(rig: Rig, clock: FakeClock) -> None:
    rig.policy = replace(
        rig.policy, limits=replace(rig.policy.limits, audit_retention_ms=DAY_MS, max_ttl_ms=9 * DAY_MS)
    )
    async with rig.run() as pod:
        question = await pod.pending(ttl_ms=9 * DAY_MS)
        clock.advance(5 * DAY_MS)
        await pod.parts.deadlines.prune()
        assert whats(await lines(pod, question)) == ["asked", "shown"]
