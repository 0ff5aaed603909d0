"""An encrypted room that was upgraded, and a route that follows: with a person whose device encrypts."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import Code
from agentpod_bot.core.model import Attachment, Outcome, Status, TextPreview
from agentpod_bot.core.policy import Trust
from tests.e2e_person import E2EPerson, Login
from tests.examples import CALLER, MINUTE, ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import LEADS, Pod, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question

STEP_MS = 200
LONG = (TextPreview("Command", "echo ok; " + "a" * 5_000 + "; rm -rf ~/work"),)
BOTH = replace(CALLER, routes=frozenset({ROUTE, LEADS}))
WAS_ASKED_AGAIN = "was asked again in the room"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        made = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        made.seal()
        made.with_route(follow_upgrades=True)
        yield made


@pytest.fixture
async def owner(rig: Rig) -> AsyncIterator[E2EPerson]:
    """The owner's phone."""
    login = Login(rig.owner, "PHONE", rig.hs.token(rig.owner, "PHONE"))
    async with E2EPerson(rig.hs.url, login) as person:
        yield person


def upgraded(rig: Rig) -> str:
    return rig.hs.upgrade(rig.room, rig.second, by=rig.owner, encrypted=True)


def beside(rig: Rig) -> str:
    """An encrypted room of a route of its own, with the same approvers, that names the other room as its predecessor.

    Nothing replaces the other room yet.
    """
    room_id = rig.with_second_route(after_ms=MINUTE)
    ops, leads = rig.policy.routes[ROUTE], rig.policy.routes[LEADS]
    routes = {ROUTE: replace(ops, escalation=None), LEADS: replace(leads, approvers=ops.approvers)}
    rig.policy = replace(rig.policy, routes=routes)
    rig.hs.create(room_id, by=rig.owner, predecessor={"room_id": rig.room})
    rig.hs.join(room_id, rig.owner)
    rig.hs.encrypt(room_id, by=rig.owner)
    return room_id


async def asked_in(pod: Pod, question: Question, room_id: str) -> Question:
    """The question once that room shows it, however long that takes."""
    async with asyncio.timeout(20):
        while (now := await pod.now(question)).shown_ts is None or now.asked.room_id != room_id:
            pod.clock.advance(STEP_MS)
            pod.parts.outbox._bell.ring()
            await asyncio.sleep(0.005)
    pod.clock.advance(1_000)
    return now


async def reads(person: E2EPerson, room_id: str, part: str) -> dict[str, Any]:
    """The first event of a room that a person can read and whose body has this part."""
    return await person.until(room_id, lambda event: part in event["content"].get("body", ""))


async def decided(pod: Pod, question: Question) -> Question:
    return await pod.when(question, lambda now: not now.is_open)


def said_in_clear(rig: Rig) -> list[dict[str, Any]]:
    """What the bot said anywhere without encryption."""
    return rig.hs.sent_by(rig.pod)


@pytest.mark.parametrize("trust", [Trust.ALL, Trust.APPROVERS_VERIFIED])
async def test_a_question_goes_from_one_encrypted_room_into_the_next_and_none_of_it_in_clear(
    rig: Rig, owner: E2EPerson, trust: Trust
) -> None:
    rig.policy = replace(rig.policy, trust=trust)
    async with rig.run() as pod:
        assert pod.crypto is not None
        assert pod.identities is not None
        await pod.crypto.devices_of(rig.owner)
        assert await pod.identities.verify(rig.owner, device=(owner.device_id, owner.ed25519), master=None)
        question = await pod.pending()
        first = await reads(owner, rig.room, "Permission needed")
        new = upgraded(rig)
        now = await asked_in(pod, question, new)
        again = await reads(owner, new, "Permission needed")
        assert (again["event_id"], again["content"]["code"]) == (now.event_id, question.asked.code)
        assert again["content"]["subject"] == first["content"]["subject"]
        assert "Asked again, for its first room was replaced by this one." in again["content"]["body"]
        await reads(owner, rig.room, "This room was replaced; asked again")

        await owner.reply(rig.room, first["event_id"], f"1 {question.asked.code}")
        await reads(owner, rig.room, WAS_ASKED_AGAIN)
        assert (await pod.now(question)).status is Status.PENDING

        await owner.reply(new, again["event_id"], f"1 {question.asked.code}")
        done = await decided(pod, question)
        assert done.closing is not None
        assert (done.closing.outcome, done.closing.answered_by) == (Outcome.SELECTED, rig.owner)
        await reads(owner, new, "Allowed once by")
        await pod.quiet()
        assert not owner.undecryptable
    assert said_in_clear(rig) == []
    assert not [call for call in rig.hs.calls if "Permission needed" in str(call)]


async def test_the_file_of_a_cut_question_is_encrypted_anew_for_the_next_room(rig: Rig, owner: E2EPerson) -> None:
    async with rig.run() as pod:
        question = await pod.pending(preview=LONG)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        new = upgraded(rig)
        await asked_in(pod, question, new)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        files = [
            (await owner.until(room_id, lambda event: event["content"].get("msgtype") == "m.file"))["content"]["file"]
            for room_id in (rig.room, new)
        ]
        assert len({file["url"] for file in files}) == len({file["key"]["k"] for file in files}) == 2
        assert not [data for _, _, data in rig.hs.files.values() if b"rm -rf" in data]


# What becomes readable only later


async def test_what_was_said_in_the_next_room_before_the_question_came_does_not_decide_it_when_it_can_be_read(
    rig: Rig, owner: E2EPerson, clock: FakeClock
) -> None:
    new = beside(rig)
    async with rig.run() as pod:
        question = await pod.pending(BOTH, route=ROUTE)
        code = question.asked.code
        dark = await owner.send_without_key(new, {"msgtype": "m.text", "body": f"1 {code}"})
        await pod.handled(dark)
        clock.advance(1_000)
        rig.hs.replace(rig.room, by=rig.owner, replacement=new)
        await asked_in(pod, question, new)
        await owner.give_key(new)
        await _all_read(pod)
        assert (await pod.now(question)).status is Status.PENDING
        await owner.send(new, f"1 {code}")
        assert (await decided(pod, question)).status is Status.DECIDED


@pytest.mark.parametrize("coded", [True, False])
async def test_an_answer_in_the_old_room_that_can_be_read_only_after_the_move_decides_nothing_and_is_told_why(
    rig: Rig, owner: E2EPerson, clock: FakeClock, *, coded: bool
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        answer = {
            "msgtype": "m.text",
            "body": f"1 {question.asked.code}" if coded else "1",
            "m.relates_to": {"m.in_reply_to": {"event_id": question.event_id}},
        }
        await pod.handled(await owner.send_without_key(rig.room, answer))
        clock.advance(1_000)
        new = upgraded(rig)
        await asked_in(pod, question, new)
        await owner.give_key(rig.room)
        await _all_read(pod)
        assert (await pod.now(question)).status is Status.PENDING
        await reads(owner, rig.room, WAS_ASKED_AGAIN)


async def test_an_answer_that_can_be_read_before_the_move_but_after_the_tombstone_decides_nothing_and_is_told(
    rig: Rig, owner: E2EPerson
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        answer = {
            "msgtype": "m.text",
            "body": "1",
            "m.relates_to": {"m.in_reply_to": {"event_id": question.event_id}},
        }
        await pod.handled(await owner.send_without_key(rig.room, answer))
        rig.hs.upgrade(rig.room, rig.second, by=rig.owner, encrypted=True, is_open=False)
        await rig.hs.until(pod.parts.rooms.closed.now)
        await owner.give_key(rig.room)
        await _all_read(pod)
        assert (await pod.now(question)).status is Status.PENDING
        await reads(owner, rig.room, "can no longer be answered in this room")


async def _all_read(pod: Pod) -> None:
    """Return once nothing is kept any more that could not be read."""
    async with asyncio.timeout(20):
        while await pod.parts.inbox.undecrypted(None):
            pod.clock.advance(STEP_MS)
            await asyncio.sleep(0.005)


# Codes where devices are verified


@pytest.mark.parametrize("trust", [Trust.ALL, Trust.APPROVERS_VERIFIED, Trust.VERIFIED])
async def test_where_devices_are_verified_a_question_is_not_asked_again_in_a_room_that_knew_its_code(
    rig: Rig, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, trust: Trust
) -> None:
    monkeypatch.setattr("agentpod_bot.broker.submit.fresh_code", lambda *_args, **_more: Code("K7"))
    rig.policy = replace(rig.policy, trust=trust)
    new = beside(rig)
    async with rig.run() as pod:
        other = await pod.pending(BOTH, route=LEADS)
        await pod.parts.broker.cancel(BOTH, other.key.request_id)
        clock.advance(25 * 60 * MINUTE)  # for longer than a day a held back approval of that question might yet come
        question = await pod.pending(BOTH, route=ROUTE)
        rig.hs.replace(rig.room, by=rig.owner, replacement=new)
        if trust is Trust.ALL:
            assert (await asked_in(pod, question, new)).is_open
            return
        done = await decided(pod, question)
        assert done.closing is not None
        assert (done.closing.outcome, done.asked.room_id) == (Outcome.UNDELIVERABLE, rig.room)
        assert done.closing.reason == "it cannot be asked again in the room that replaced its own"
        await rig.hs.until(lambda: pod.parts.world.policy.routes[ROUTE].room_id == new)
        assert question.event_id not in {each["event_id"] for each in rig.hs.timeline(new)}
