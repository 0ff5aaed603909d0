"""A question that cannot be shown whole: its full text is a file, and nothing is approved before that is there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.broker.uploads import MOST_TRIES
from agentpod_bot.core.model import Attachment, Meaning, Option, Outcome, Status, TextPreview
from tests.examples import CALLER, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod

UPLOAD = "/media/v3/upload"
SEND = "/send/m.room.message/"
LONG = "echo ok; " + "a" * 5_000 + "; rm -rf ~/work"
PREVIEW = (TextPreview("Command", LONG),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


async def shown(pod: Pod, **changes: object) -> Question:
    """A question whose file is in the room."""
    question = await pod.pending(**({"preview": PREVIEW} | changes))
    return await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)


async def test_the_full_text_is_uploaded_before_and_shown_after_the_question(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await shown(pod)
        [content] = rig.questions()
        assert not content["subject"]["preview_complete"]
        assert [option["id"] for option in content["options"]] == ["allow_once", "reject_once", "reject_always"]
        assert "rm -rf ~/work" in content["body"]
        assert LONG not in content["body"]
        [(name, kind, data)] = rig.hs.files.values()
        assert (name, kind) == (f"{question.asked.code}.txt", "text/plain")
        assert LONG in data.decode()
        [file] = [e["content"] for e in rig.hs.sent_by(rig.pod) if e["content"]["msgtype"] == "m.file"]
        assert file["url"] in rig.hs.files
        assert file["info"]["size"] == len(data)
        assert file["m.relates_to"]["event_id"] == question.event_id
        assert file["m.relates_to"]["rel_type"] == "m.thread"
        order = [call.path.split("/")[-2] for call in rig.hs.calls if call.method in {"POST", "PUT"}]
        assert order[:2] == ["v3", "m.room.message"]
        clock.advance(1_000)
        rig.say("1")
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.status is Status.DECIDED


async def test_until_the_file_is_there_nothing_is_approved_and_a_refusal_counts(rig: Rig, clock: FakeClock) -> None:
    passes, gate = asyncio.Event(), asyncio.Event()
    passes.set()
    rig.hs.hold("PUT", SEND, passes)  # the question
    rig.hs.hold("PUT", SEND, gate)  # its file
    async with rig.run() as pod:
        question = await pod.pending(preview=PREVIEW)
        assert question.asked.attachment is Attachment.UPLOADED
        clock.advance(1_000)
        rig.say("1", reply_to=question)
        await pod.handled(rig.hs.react(rig.room, rig.owner, str(question.event_id), "1\u20e3"))
        assert (await pod.now(question)).is_open
        await pod.handled(rig.say("2: no", rig.second, reply_to=question))
        decided = await pod.now(question)
        assert decided.closing is not None
        assert decided.closing.option is not None
        assert decided.closing.option.option.meaning is Meaning.REJECT
        gate.set()
        await rig.hs.until(rig.notices)
        assert "not in the room yet" in rig.notices()[0]
        assert (await pod.audited(question)).count("no_file_yet") == 2


async def test_a_file_that_was_redacted_is_not_there_and_a_refusal_counts(rig: Rig, clock: FakeClock) -> None:
    async with rig.run() as pod:
        question = await shown(pod)
        [file] = [e for e in rig.hs.sent_by(rig.pod) if e["content"]["msgtype"] == "m.file"]
        clock.advance(1_000)
        await pod.handled(rig.hs.redact(rig.room, rig.owner, file["event_id"]))
        await pod.handled(rig.say("1", reply_to=question))
        assert (await pod.now(question)).is_open
        assert (await pod.audited(question))[-2:] == ["file_redacted", "no_file_yet"]
        rig.say("2: who took the file away?", reply_to=question)
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED


@pytest.mark.parametrize(
    ("status", "errcode", "times"), [(413, "M_TOO_LARGE", 1), (403, "M_FORBIDDEN", 1), (502, "M_UNKNOWN", 9)]
)
async def test_a_file_that_cannot_be_uploaded_leaves_nothing_to_approve(
    rig: Rig, clock: FakeClock, status: int, errcode: str, times: int
) -> None:
    rig.hs.answer_with("POST", UPLOAD, status=status, body={"errcode": errcode}, times=times)
    async with rig.run() as pod:
        question = await pod.ask(preview=PREVIEW)
        for _ in range(60):
            if rig.questions():
                break
            await asyncio.sleep(0.02)
            clock.advance(10_000)
            pod.parts.outbox._bell.ring()
        pending = await pod.when(question, lambda now: now.shown_ts is not None)
        assert pending.asked.attachment is Attachment.FAILED
        [content] = rig.questions()
        assert {option["meaning"] for option in content["options"]} == {"reject"}
        assert "could not be uploaded" in content["body"]
        clock.advance(1_000)
        rig.say("Allow once", reply_to=pending)
        await rig.hs.until(rig.notices)
        assert (await pod.now(question)).is_open
        rig.say("1", reply_to=pending)
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.option is not None
        assert decided.closing.option.option.option_id == "reject_once"


async def test_a_choice_that_cannot_be_read_whole_is_undeliverable_where_its_file_cannot_be_uploaded(rig: Rig) -> None:
    rig.hs.answer_with("POST", UPLOAD, status=413, body={"errcode": "M_TOO_LARGE"})
    choices = tuple(Option(name, name, Meaning.CHOOSE, None) for name in ("red", "blue"))  # type: ignore[arg-type]
    async with rig.run() as pod:
        question = await pod.ask(preview=PREVIEW, options=choices)
        ended = await pod.when(question, lambda now: not now.is_open)
        assert ended.closing is not None
        assert ended.closing.outcome is Outcome.UNDELIVERABLE
        await pod.quiet()
    assert rig.hs.sent_by(rig.pod) == []


async def test_a_rate_limited_upload_waits_and_keeps_its_question_waiting(rig: Rig, clock: FakeClock) -> None:
    body = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 800}
    rig.hs.answer_with("POST", UPLOAD, status=429, body=body)
    async with rig.run() as pod:
        question = await pod.ask(preview=PREVIEW)
        await pod.when(question, lambda _: pod.meter.failures)
        assert rig.hs.sent_by(rig.pod) == []
        clock.advance(1_000)
        pod.parts.outbox._bell.ring()
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
    assert len(rig.questions()) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"errcode": "M_UNKNOWN_TOKEN", "error": "", "soft_logout": True}),
        (429, {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 800}),
    ],
)
async def test_an_upload_that_fails_for_no_fault_of_the_file_is_tried_until_it_is_there(
    rig: Rig, clock: FakeClock, status: int, body: dict[str, object]
) -> None:
    """Else the question would go out without anything that approves, though nothing is wrong with its file."""
    times = 3 * MOST_TRIES
    rig.hs.answer_with("POST", UPLOAD, status=status, body=body, times=times)
    rig.hs.answer_with("POST", UPLOAD, status=502, times=MOST_TRIES - 1)  # as many as it may fail
    async with rig.run() as pod:
        question = await pod.ask(preview=PREVIEW)
        for failures in range(1, times + MOST_TRIES):
            await pod.when(question, lambda _, least=failures: len(pod.meter.failures) >= least)
            assert rig.hs.sent_by(rig.pod) == []
            await pod.quiet()
            clock.advance(10_000)
            pod.parts.outbox._bell.ring()
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
    [content] = rig.questions()
    assert "allow_once" in [option["id"] for option in content["options"]]


async def test_a_question_that_is_cancelled_before_its_upload_never_goes_out(rig: Rig, clock: FakeClock) -> None:
    body = {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 800}
    rig.hs.answer_with("POST", UPLOAD, status=429, body=body)
    async with rig.run() as pod:
        question = await pod.ask(preview=PREVIEW)
        await pod.when(question, lambda _: pod.meter.failures)
        await pod.parts.broker.cancel(CALLER, question.key.request_id)
        clock.advance(1_000)
        pod.parts.outbox._bell.ring()
        await pod.quiet()
    assert rig.hs.sent_by(rig.pod) == []
    assert rig.hs.files == {}


async def test_after_a_restart_the_upload_goes_on_and_the_room_holds_one_question(rig: Rig, clock: FakeClock) -> None:
    rig.hs.cut("POST", UPLOAD)
    async with rig.run() as pod:
        question = await pod.ask(preview=PREVIEW)
        await pod.when(question, lambda _: pod.meter.failures)
    clock.advance(60_000)
    async with rig.run() as pod:
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        clock.advance(1_000)
        [file] = [e for e in rig.hs.sent_by(rig.pod) if e["content"]["msgtype"] == "m.file"]
        rig.say("1", reply_to=file["event_id"])  # a reply to the file is for its question
        await pod.when(question, lambda now: now.status is Status.DECIDED)
    assert len(rig.questions()) == 1
