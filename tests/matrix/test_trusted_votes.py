"""Votes of people whose devices are verified, and what becomes of them when a device is so no longer."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import UserId
from agentpod_bot.core.model import Status
from agentpod_bot.core.policy import Trust
from agentpod_bot.errors import HomeserverUnavailable
from agentpod_bot.matrix.e2e.crypto import TRIES
from tests.e2e_person import E2EPerson, Login
from tests.examples import START
from tests.fakes import FakeClock
from tests.matrix.fake_accounts import PASSWORD
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Rig
from tests.unit.matrix.e2e.persons import Person

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from tests.matrix.rig import Pod


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    """Always takes two people, whose devices are verified."""
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        made = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        made.seal()
        made.with_route(quorum=2)
        made.policy = replace(made.policy, trust=Trust.VERIFIED)
        yield made


class Approver:
    """Somebody with a phone, and an identity that vouches for it."""

    def __init__(self, rig: Rig, user_id: str, number: int) -> None:
        self.rig = rig
        self.user_id = UserId(user_id)
        self.phone = E2EPerson(rig.hs.url, Login(user_id, "PHONE", rig.hs.token(user_id, "PHONE")))
        self.identity = Person(self.user_id, "PHONE", number)

    async def publish(self) -> None:
        """Make the identity the account's, and have it vouch for the phone."""
        answer = self.identity.answer()
        auth = {
            "type": "m.login.password",
            "session": "uia",
            "password": PASSWORD,
            "identifier": {"user": self.user_id},
        }
        signing = {
            "master_key": answer["master_keys"][self.user_id],
            "self_signing_key": answer["self_signing_keys"][self.user_id],
        }
        await self.phone.call("POST", "keys/device_signing/upload", {**signing, "auth": auth})
        keys = self.rig.hs.identity_keys(self.user_id, "PHONE")
        assert keys is not None
        signed = self.identity.self_signing.signed({**keys, "signatures": {}}, self.user_id)
        told = await self.phone.call("POST", "keys/signatures/upload", {self.user_id: {"PHONE": signed}})
        assert told["failures"] == {}

    async def reset(self) -> None:
        """Another identity takes the place of the first, and vouches for the same phone."""
        self.identity = Person(self.user_id, "PHONE", self.identity.number + 5)
        await self.publish()

    async def vote(self, question: Question) -> str:
        self.rig.clock.advance(1_000)
        return await self.phone.send(self.rig.room, f"2 {question.asked.code}")


@pytest.fixture
async def people(rig: Rig) -> AsyncIterator[tuple[Approver, Approver]]:
    """The owner and the second approver, with their identities published."""
    async with AsyncExitStack() as stack:
        both = Approver(rig, rig.owner, 1), Approver(rig, rig.second, 2)
        for person in both:
            await stack.enter_async_context(person.phone)
            await person.publish()
        yield both


async def compare(pod: Pod, person: Approver, *, device: bool = False) -> None:
    """Have the bot know that the identity (or only the phone) is the person's."""
    assert pod.crypto is not None
    assert pod.identities is not None
    await pod.crypto.devices_of(person.user_id)
    phone = ("PHONE", person.phone.ed25519)
    master = person.identity.master.public
    assert await pod.identities.verify(
        person.user_id, device=phone if device else None, master=None if device else master
    )


async def counted(pod: Pod, person: Approver) -> list[str]:
    """What the question said last of its votes, to somebody who reads it."""
    await pod.quiet()
    await person.phone.sync(wait_ms=0)
    edits = [event["content"].get("m.new_content", {}) for _, event in person.phone.seen]
    bodies = [edit["body"] for edit in edits if " of 2 votes" in edit.get("body", "")]
    return [line for line in bodies[-1].splitlines() if " of 2 votes" in line]


async def identity_reset(_rig: Rig, _pod: Pod, person: Approver) -> None:
    await person.reset()


async def device_removed(rig: Rig, _pod: Pod, person: Approver) -> None:
    rig.hs.delete_device(person.user_id, "PHONE")


async def forgotten(_rig: Rig, pod: Pod, person: Approver) -> None:
    assert pod.identities is not None
    assert await pod.identities.forget(person.user_id)


async def reset_unseen(_rig: Rig, pod: Pod, person: Approver) -> None:
    """The homeserver says that something changed, and for a while not what."""
    ask_for, failures = pod.client.ask_for, iter(range(TRIES))

    async def failing(method: str, path: str, body: Any) -> Any:
        if person.user_id in body.get("device_keys", {}) and next(failures, None) is not None:
            raise HomeserverUnavailable("bad gateway", status=502)
        return await ask_for(method, path, body)

    pod.client.ask_for = failing  # type: ignore[method-assign]  # for this account only
    await person.reset()


@pytest.mark.parametrize("device", [False, True], ids=["identity", "device"])
async def test_two_votes_of_verified_people_decide_and_so_they_do_over_a_restart(
    rig: Rig, people: tuple[Approver, Approver], *, device: bool
) -> None:
    owner, second = people
    async with rig.run() as pod:
        for person in people:
            await compare(pod, person, device=device)
        question = await pod.pending()
        await pod.handled(await owner.vote(question))
        assert (await pod.now(question)).is_open
    async with rig.run() as pod:  # what accounts say of their devices has to be asked for anew
        await pod.handled(await second.vote(question))
        now = await pod.now(question)
        assert now.closing is not None
        assert now.closing.voters == (rig.owner, rig.second)


@pytest.mark.parametrize("loses", [identity_reset, device_removed, forgotten, reset_unseen])
@pytest.mark.parametrize("device", [False, True], ids=["identity", "device"])
async def test_a_vote_whose_device_lost_what_vouched_for_it_makes_up_no_quorum(
    rig: Rig, people: tuple[Approver, Approver], loses: Any, *, device: bool
) -> None:
    owner, second = people
    async with rig.run() as pod:
        for person in people:
            await compare(pod, person, device=device)
        if device and loses in {identity_reset, reset_unseen}:  # only who was known by an identity can lose it
            await compare(pod, owner)
        question = await pod.pending()
        await pod.handled(await owner.vote(question))
        [first] = await counted(pod, second)
        assert rig.owner in first
        await loses(rig, pod, owner)
        await pod.handled(await second.vote(question))
        assert (await pod.now(question)).is_open
        [then] = await counted(pod, second)
        assert (rig.owner in then, rig.second in then) == (False, True)
        assert "1 of 2 votes" in then


@pytest.mark.parametrize("restarted", [False, True])
async def test_whoever_is_verified_again_and_votes_again_counts(
    rig: Rig, people: tuple[Approver, Approver], *, restarted: bool
) -> None:
    owner, second = people
    async with AsyncExitStack() as runs:
        pod = await runs.enter_async_context(rig.run())
        for person in people:
            await compare(pod, person)
        question = await pod.pending()
        await pod.handled(await owner.vote(question))
        await owner.reset()
        await pod.handled(await second.vote(question))
        await pod.handled(await owner.vote(question))
        assert "unverified_device" in await pod.audited(question)
        assert (await pod.now(question)).is_open
        if restarted:
            await runs.aclose()
            pod = await runs.enter_async_context(rig.run())
        await compare(pod, owner)
        await pod.handled(await owner.vote(question))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_an_answer_whose_identity_is_another_one_before_it_is_kept_decides_nothing(
    rig: Rig, people: tuple[Approver, Approver]
) -> None:
    """It was verified when it was read; while the rest of the response is, the person is not any more."""
    owner, _ = people
    async with rig.run() as pod:
        await compare(pod, owner)
        question = await pod.pending()
        handle, read = pod.parts.inbox.handle, asyncio.Event()

        async def later(batch: Any) -> None:
            if any(part.timeline for part in batch.rooms):
                await forgotten(rig, pod, owner)
                read.set()
            await handle(batch)

        pod.parts.inbox.handle = later  # type: ignore[method-assign]  # between what is read and what is kept
        rig.clock.advance(1_000)
        await pod.handled(await owner.phone.send(rig.room, f"1 {question.asked.code}"))
        assert read.is_set()
        assert (await pod.now(question)).is_open
        assert "unverified_device" in await pod.audited(question)


async def test_an_unverified_device_can_read_why_it_is_not_heard_and_nothing_else_of_before_or_after(
    rig: Rig, people: tuple[Approver, Approver]
) -> None:
    owner, _ = people
    login = Login(rig.owner, "LAPTOP", rig.hs.token(rig.owner, "LAPTOP"))
    async with rig.run() as pod, E2EPerson(rig.hs.url, login) as laptop:
        await compare(pod, owner)
        question = await pod.pending()
        rig.clock.advance(1_000)
        said = await laptop.send(rig.room, f"1 {question.asked.code}")
        for device in (laptop, owner.phone):
            told = await device.until(rig.room, lambda event: "agentpod-bot verify" in event["content"].get("body", ""))
            assert told["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": said}}
        another = await pod.pending()
        await pod.quiet()
        for device in (laptop, owner.phone):
            await device.catch_up()
        by_the_bot = [event["content"] for _, event in laptop.seen if event["sender"] == rig.pod]
        [body] = [content["body"] for content in by_the_bot if "body" in content]
        assert {question.event_id, another.event_id} <= laptop.undecryptable
        assert question.asked.title not in body
        assert question.asked.code not in body
        assert not owner.phone.undecryptable
        assert (await pod.now(question)).is_open
