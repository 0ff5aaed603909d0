"""The bot in an encrypted room, with a person whose device encrypts, and a homeserver that fails where it can."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from nio.crypto.attachments import decrypt_attachment

from agentpod_bot.broker.said_back import UNREAD_WAIT_MS
from agentpod_bot.core.model import Attachment, Status, TextPreview
from tests.e2e_person import E2EPerson, Login
from tests.examples import CALLER, ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import LEADS, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod

CLAIM, TO_DEVICE, QUERY = "/keys/claim", "/sendToDevice/", "/keys/query"
LONG = "echo ok; " + "a" * 5_000 + "; rm -rf ~/work"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        made = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        made.seal()
        yield made


@pytest.fixture
async def owner(rig: Rig) -> AsyncIterator[E2EPerson]:
    """The owner's phone."""
    async with at(rig, "PHONE") as person:
        yield person


def at(rig: Rig, device_id: str) -> E2EPerson:
    """The owner at another device."""
    return E2EPerson(rig.hs.url, Login(rig.owner, device_id, rig.hs.token(rig.owner, device_id)))


def in_clear(rig: Rig) -> list[dict[str, Any]]:
    """What the bot said in the room without encryption."""
    return rig.sent(rig.room)


def sealed(rig: Rig) -> list[dict[str, Any]]:
    """What the bot said in the room encrypted."""
    return rig.hs.sent_by(rig.pod, kind="m.room.encrypted")


async def sees(person: E2EPerson, rig: Rig, part: str) -> dict[str, Any]:
    """The first event of the room that the person can read and whose body has this part."""
    return await person.until(rig.room, lambda event: part in event["content"].get("body", ""))


async def eventually(clock: FakeClock, pod: Pod, question: Question) -> Question:
    """The question once it is in the room, however long that takes."""
    async with asyncio.timeout(20):
        while (now := await pod.now(question)).shown_ts is None:
            clock.advance(200)
            pod.parts.outbox._bell.ring()
            await asyncio.sleep(0.005)
    return now


async def test_a_question_its_answer_and_its_outcome_go_the_whole_way_and_none_of_it_in_clear(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        asked = await sees(owner, rig, "Permission needed")
        assert asked["event_id"] == question.event_id
        assert asked["content"]["dev.agentpod.permission"]
        clock.advance(1_000)
        await owner.send(rig.room, "what is that?")
        await owner.send(rig.room, "1 but only for tests")
        hint = await sees(owner, rig, "othing has been approved")
        assert hint["content"]["msgtype"] == "m.notice"
        await owner.reply(rig.room, asked["event_id"], "1")
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.status is Status.DECIDED
        await pod.quiet()
        outcome = await sees(owner, rig, "Allowed once by")
        assert outcome["content"]["m.relates_to"]["event_id"] == question.event_id
        assert not in_clear(rig)
        assert not owner.undecryptable
    assert not [call for call in rig.hs.calls if "Permission needed" in str(call)]


async def test_keycaps_are_reactions_in_clear_and_one_decides(rig: Rig, owner: E2EPerson) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await owner.react(rig.room, str(question.event_id), "1️⃣")
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED
        assert not in_clear(rig)


async def test_the_file_of_a_cut_question_can_be_read_with_the_key_in_its_event_alone(
    rig: Rig, owner: E2EPerson
) -> None:
    async with rig.run() as pod:
        question = await pod.pending(preview=(TextPreview("Command", LONG),))
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        [(name, kind, data)] = rig.hs.files.values()
        assert b"rm -rf" not in data
        assert (name, kind) == ("", "application/octet-stream")
        shown = await owner.until(rig.room, lambda event: event["content"].get("msgtype") == "m.file")
        assert "url" not in shown["content"]
        file = shown["content"]["file"]
        assert rig.hs.files[file["url"]] == (name, kind, data)
        assert LONG in decrypt_attachment(data, file["key"]["k"], file["hashes"]["sha256"], file["iv"]).decode()
        assert not in_clear(rig)


async def test_where_nobody_says_whether_the_room_is_encrypted_nothing_is_said_there(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    rig.hs.answer_with("GET", "/state/m.room.encryption", status=500, times=4)
    async with rig.run(caught_up=False) as pod:
        await asyncio.sleep(0)
        assert not rig.sent(rig.room)
        async with asyncio.timeout(20):
            while not pod.parts.world.known(rig.room):
                clock.advance(1_000)
                await asyncio.sleep(0.005)
        await eventually(clock, pod, await pod.ask())
        await sees(owner, rig, "Permission needed")
        assert not in_clear(rig)


async def test_a_room_that_was_encrypted_once_is_never_spoken_to_in_clear_again(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        await pod.pending()
    rig.hs.answer_with("GET", "/state/m.room.encryption", status=404, body={"errcode": "M_NOT_FOUND"}, times=50)
    async with rig.run() as pod:
        await eventually(clock, pod, await pod.ask())
        await owner.sync(wait_ms=0)
        assert not in_clear(rig)


async def test_once_encryption_is_switched_on_every_edit_and_notice_is_encrypted(
    clock: FakeClock, tmp_path: Path
) -> None:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        rig.sealed = True
        async with at(rig, "PHONE") as owner, rig.run() as pod:
            question = await pod.pending()
            before = len(in_clear(rig))
            await pod.handled(hs.encrypt(rig.room, by=rig.owner))
            clock.advance(1_000)
            await owner.reply(rig.room, str(question.event_id), "1")
            assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED
            await pod.quiet()
            await sees(owner, rig, "Allowed once by")
            assert len(in_clear(rig)) == before


@pytest.mark.parametrize("path", [CLAIM, TO_DEVICE, QUERY])
@pytest.mark.parametrize(
    "answer",
    [
        (429, {"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 700}),
        (500, {"errcode": "M_UNKNOWN"}),
        (502, "<html>bad gateway</html>"),
        (403, {"errcode": "M_FORBIDDEN"}),
        (400, {"errcode": "M_UNKNOWN", "soft_logout": True}),
    ],
    ids=["429", "500", "502", "403", "400 that says soft logout"],
)
async def test_a_fault_on_the_way_of_a_key_delays_the_question_and_whoever_reads_it_can(
    rig: Rig, owner: E2EPerson, clock: FakeClock, path: str, answer: tuple[int, Any]
) -> None:
    async with rig.run() as pod:
        method = "PUT" if path == TO_DEVICE else "POST"
        rig.hs.answer_with(method, path, status=answer[0], body=answer[1], times=2)
        question = await eventually(clock, pod, await pod.ask())
        asked = await sees(owner, rig, "Permission needed")
        assert asked["event_id"] == question.event_id
        assert not owner.undecryptable
        assert not in_clear(rig)
        assert len(sealed(rig)) == 1


@pytest.mark.parametrize("path", [CLAIM, TO_DEVICE])
@pytest.mark.parametrize("fault", ["cut", "swallow", "cut_body"])
async def test_a_connection_that_is_cut_on_the_way_of_a_key_loses_nothing(
    rig: Rig, owner: E2EPerson, clock: FakeClock, path: str, fault: str
) -> None:
    async with rig.run() as pod:
        getattr(rig.hs, fault)("PUT" if path == TO_DEVICE else "POST", path, times=2)
        await eventually(clock, pod, await pod.ask())
        await sees(owner, rig, "Permission needed")
        assert not owner.undecryptable


async def test_other_rooms_go_on_while_the_keys_of_one_do_not_come(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    gate = asyncio.Event()
    rig.with_second_route(after_ms=600_000)
    async with rig.run() as pod:
        rig.hs.hold("POST", CLAIM, gate)
        waits = await pod.ask()
        other = await pod.ask(replace(CALLER, routes=frozenset({ROUTE, LEADS})), route=LEADS)
        await pod.when(other, lambda now: now.shown_ts is not None)
        assert (await pod.now(waits)).shown_ts is None
        gate.set()
        await eventually(clock, pod, waits)
        await sees(owner, rig, "Permission needed")


async def test_answers_that_were_given_while_the_bot_was_away_are_read_when_it_comes_back(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await sees(owner, rig, "Permission needed")
    clock.advance(1_000)
    await owner.reply(rig.room, str(question.event_id), "Reject")
    async with rig.run() as pod:
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.option is not None
        assert decided.closing.option.option.option_id == "reject_once"


async def test_a_question_that_was_sent_before_a_kill_is_found_again_and_not_asked_twice(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    rig.hs.swallow("PUT", "/send/m.room.encrypted/", times=1)
    async with rig.run() as pod:
        question = await pod.ask()
        async with asyncio.timeout(20):
            while not sealed(rig):
                await asyncio.sleep(0.002)
    async with rig.run() as pod:
        await eventually(clock, pod, question)
        await pod.quiet()
        assert len(sealed(rig)) == 1
        await sees(owner, rig, "Permission needed")


async def test_a_new_device_that_cannot_read_the_question_can_answer_it(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await sees(owner, rig, "Permission needed")
        async with at(rig, "NEW") as new:
            await new.until(rig.room, lambda event: event["event_id"] == question.event_id)
            assert question.event_id in new.undecryptable
            clock.advance(1_000)
            await new.reply(rig.room, str(question.event_id), "1")
            assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED


async def test_everybody_who_joins_reads_the_next_question(rig: Rig, owner: E2EPerson, clock: FakeClock) -> None:
    async with AsyncExitStack() as stack:
        pod = await stack.enter_async_context(rig.run())
        await pod.pending()
        await sees(owner, rig, "Permission needed")
        late = rig.hs.user("late")
        rig.hs.join(rig.room, late)
        person = E2EPerson(rig.hs.url, Login(late, "LATE", rig.hs.token(late, "LATE")))
        await stack.enter_async_context(person)
        clock.advance(1_000)
        second = await pod.pending(title="Deploy it")
        assert (await sees(person, rig, "Deploy it"))["event_id"] == second.event_id


def reply(question: Question, body: str) -> dict[str, Any]:
    relation = {"m.in_reply_to": {"event_id": question.event_id}}
    return {"msgtype": "m.text", "body": body, "m.relates_to": relation}


async def unread(rig: Rig, pod: Pod, person: E2EPerson, content: dict[str, Any]) -> str:
    """The id of a message that the bot has, and cannot read yet."""
    rig.clock.advance(1_000)
    event_id = await person.send_without_key(rig.room, content)
    await pod.handled(event_id)
    return event_id


async def later(rig: Rig, pod: Pod, ms: int) -> None:
    """Let time pass, and what is due then be sent."""
    rig.clock.advance(ms)
    pod.parts.outbox._bell.ring()
    await pod.quiet()


async def told(rig: Rig, person: E2EPerson) -> list[str]:
    """The messages of which somebody was told that they could not be decrypted."""
    await person.sync(wait_ms=0)
    read = [event["content"] for where, event in person.seen if where == rig.room]
    notices = [content for content in read if "could not be decrypted here" in content.get("body", "")]
    return [content["m.relates_to"]["m.in_reply_to"]["event_id"] for content in notices]


@pytest.mark.parametrize("away", [False, True], ids=["at once", "over a restart"])
async def test_an_answer_whose_key_comes_a_little_later_decides_and_nobody_is_told_that_it_could_not_be_read(
    rig: Rig, owner: E2EPerson, *, away: bool
) -> None:
    async with AsyncExitStack() as runs:
        pod = await runs.enter_async_context(rig.run())
        question = await pod.pending()
        await unread(rig, pod, owner, reply(question, "2"))
        assert "undecryptable" in await pod.audited(question)
        if away:
            await runs.aclose()
            await owner.give_key(rig.room)
            pod = await runs.enter_async_context(rig.run())
        else:
            await later(rig, pod, UNREAD_WAIT_MS - 1)
            await owner.give_key(rig.room)
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.status is Status.DECIDED
        await later(rig, pod, UNREAD_WAIT_MS)
        assert await told(rig, owner) == []


@pytest.mark.parametrize("away", [False, True], ids=["at once", "over a restart"])
async def test_whoever_sent_what_cannot_be_read_is_told_after_a_little_while_and_once(
    rig: Rig, owner: E2EPerson, *, away: bool
) -> None:
    async with AsyncExitStack() as runs:
        pod = await runs.enter_async_context(rig.run())
        question = await pod.pending()
        first = await unread(rig, pod, owner, reply(question, "2"))
        await unread(rig, pod, owner, reply(question, "2"))
        assert await told(rig, owner) == []
        if away:
            await runs.aclose()
            pod = await runs.enter_async_context(rig.run())
        await later(rig, pod, UNREAD_WAIT_MS)
        await later(rig, pod, UNREAD_WAIT_MS)
        assert await told(rig, owner) == [first]
        assert (await pod.now(question)).is_open


async def test_of_two_messages_the_one_that_stays_unreadable_is_told_of(rig: Rig, owner: E2EPerson) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        read = await unread(rig, pod, owner, reply(question, "what is that?"))
        (session,) = owner._kept_back[rig.room]
        stays = await unread(rig, pod, owner, reply(question, "2"))
        await owner.give_key(rig.room, session)
        async with asyncio.timeout(20):
            while any(event["event_id"] == read for _, event in await pod.parts.inbox.undecrypted(None)):
                await asyncio.sleep(0.002)
        await later(rig, pod, UNREAD_WAIT_MS)
        assert await told(rig, owner) == [stays]
        assert (await pod.now(question)).is_open


async def test_a_key_that_comes_after_the_notice_is_not_too_late_for_the_answer(rig: Rig, owner: E2EPerson) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        answer = await unread(rig, pod, owner, reply(question, "2"))
        await later(rig, pod, UNREAD_WAIT_MS)
        assert await told(rig, owner) == [answer]
        await owner.give_key(rig.room)
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.status is Status.DECIDED


@pytest.mark.parametrize("away", [False, True], ids=["at once", "in one response with its key"])
async def test_an_answer_that_was_taken_back_before_it_could_be_read_decides_nothing_when_its_key_comes(
    rig: Rig, owner: E2EPerson, *, away: bool
) -> None:
    async with AsyncExitStack() as runs:
        pod = await runs.enter_async_context(rig.run())
        question = await pod.pending()
        answer = await unread(rig, pod, owner, reply(question, "1"))
        if away:
            await runs.aclose()
        taken_back = rig.hs.redact(rig.room, rig.owner, answer)
        if not away:
            await pod.handled(taken_back)
        await owner.give_key(rig.room)
        if away:
            pod = await runs.enter_async_context(rig.run())
        await pod.handled(await owner.send(rig.room, "what is that?"))
        await later(rig, pod, UNREAD_WAIT_MS)
        assert (await pod.now(question)).is_open
        assert await told(rig, owner) == []
        rig.clock.advance(1_000)
        await owner.reply(rig.room, str(question.event_id), "2")
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED


async def test_whoever_sends_an_answers_ciphertext_first_does_not_keep_the_answer_from_deciding(
    rig: Rig, owner: E2EPerson
) -> None:
    """Another member got it sooner than the bot, which takes no ciphertext twice of one sender."""
    async with rig.run() as pod:
        question = await pod.pending()
        await sees(owner, rig, "Permission needed")
        rig.clock.advance(1_000)
        answer = await owner.sealed(rig.room, {"msgtype": "m.text", "body": f"1 {question.asked.code}"})
        await pod.handled(rig.hs.post(rig.room, rig.mallory, answer, kind="m.room.encrypted"))
        assert (await pod.now(question)).is_open
        await owner.send_raw(rig.room, answer)
        decided = await pod.when(question, lambda now: not now.is_open)
        assert decided.closing is not None
        assert decided.closing.answered_by == rig.owner


@pytest.mark.parametrize("is_listed", [True, False])
async def test_what_another_account_said_unreadably_may_be_a_question_to_which_a_bare_answer_is(
    rig: Rig, owner: E2EPerson, clock: FakeClock, *, is_listed: bool
) -> None:
    """The person can read it: for them the room shows two questions."""
    other = rig.mallory
    if is_listed:
        rig.policy = replace(rig.policy, agents=frozenset({other}))
    sealed_for_others = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AwgA", "session_id": "s"}
    async with rig.run() as pod:
        question = await pod.pending()
        asked = await sees(owner, rig, "Permission needed")
        await pod.handled(rig.hs.post(rig.room, other, sealed_for_others, kind="m.room.encrypted"))
        clock.advance(5_000)
        await pod.handled(await owner.send(rig.room, "1"))
        assert (await pod.now(question)).is_open
        await owner.reply(rig.room, asked["event_id"], "1")
        assert (await pod.when(question, lambda now: not now.is_open)).status is Status.DECIDED
