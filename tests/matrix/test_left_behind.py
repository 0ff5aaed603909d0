"""A room that was upgraded, and a bot that is no longer in the old one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot import errors
from agentpod_bot.core.ids import RoomId
from agentpod_bot.core.upgrades import NotFollowed
from tests.examples import ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Pod, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from agentpod_bot.core.model import Question

SOON_MS = 5_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def rig(clock: FakeClock, tmp_path: Path) -> AsyncIterator[Rig]:
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        rig.with_route(follow_upgrades=True)
        yield rig


def closed(pod: Pod) -> dict[str, str]:
    return dict(pod.parts.rooms.closed.now())


def why(pod: Pod) -> str:
    return pod.parts.world.policy.routes[ROUTE].not_followed


async def waits(rig: Rig, pod: Pod, reason: NotFollowed) -> None:
    """Return once the route does not follow for this reason, of which everybody can hear."""
    async with asyncio.timeout(20):
        await rig.hs.until(lambda: why(pod) == reason.said)
    assert closed(pod) == {ROUTE: errors.RoomReplaced.code}
    with pytest.raises(errors.RoomReplaced, match=reason.said):
        await pod.ask()


async def asked_in(pod: Pod, question: Question, room_id: str) -> Question:
    """The question once that room shows it, while time goes on."""
    async with asyncio.timeout(20):
        while (now := await pod.now(question)).shown_ts is None or now.asked.room_id != room_id:
            pod.clock.advance(SOON_MS)
            pod.parts.rooms._bell.ring()
            await asyncio.sleep(0.02)
    pod.clock.advance(1_000)
    return now


async def answered(rig: Rig, pod: Pod, question: Question, room_id: str) -> None:
    now = await asked_in(pod, question, room_id)
    rig.hs.say(room_id, rig.owner, "1", reply_to=now.event_id)
    await pod.when(question, lambda now: not now.is_open)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("old_room", ["can be read as it was left", "is gone"])
async def test_a_bot_that_is_out_of_the_old_room_follows_the_tombstone_that_it_has_seen(
    rig: Rig, old_room: str, *, restarted: bool
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner, is_open=False)
        await waits(rig, pod, NotFollowed.NOT_JOINED)
        rig.hs.kick(rig.room, rig.pod, by=rig.owner)
        await rig.hs.until(lambda: not pod.parts.world.room(rig.room).bot_joined)  # type: ignore[union-attr]  # is known
        if old_room == "is gone":
            rig.hs.answer_with("GET", rf"/{rig.room}/", status=403, body={"errcode": "M_FORBIDDEN"}, times=500)
        assert closed(pod) == {ROUTE: errors.RoomReplaced.code}
        if not restarted:
            rig.hs.invite(new, rig.pod, by=rig.owner)
            await answered(rig, pod, question, new)
            return
    async with rig.run() as pod:
        await waits(rig, pod, NotFollowed.NOT_JOINED)
        rig.hs.invite(new, rig.pod, by=rig.owner)
        await answered(rig, pod, question, new)


@pytest.mark.parametrize("old_room", ["can be read as it was left", "is gone"])
async def test_an_upgrade_and_a_kick_while_the_bot_was_down_are_followed(rig: Rig, old_room: str) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
    new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner)
    rig.hs.kick(rig.room, rig.pod, by=rig.owner)
    if old_room == "is gone":
        rig.hs.answer_with("GET", rf"/{rig.room}/", status=403, body={"errcode": "M_FORBIDDEN"}, times=500)
    async with rig.run() as pod:
        if old_room == "is gone":
            # What the sync shows of it does not say whether it was encrypted.
            await waits(rig, pod, NotFollowed.ENCRYPTION_UNKNOWN)
            assert (await pod.now(question)).asked.room_id == rig.room
        else:
            await answered(rig, pod, question, new)


@pytest.mark.parametrize("restarted", [False, True])
async def test_a_bot_that_was_put_out_before_the_tombstone_says_so_and_comes_back_by_an_invitation(
    rig: Rig, *, restarted: bool
) -> None:
    with capture_logs() as lines:
        async with rig.run() as pod:
            question = await pod.pending()
            rig.hs.kick(rig.room, rig.pod, by=rig.owner)
            await rig.hs.until(lambda: closed(pod) == {ROUTE: errors.NotInRoom.code})
            new = RoomId(rig.hs.upgrade(rig.room, rig.second, by=rig.owner))
            if not restarted:
                await _comes_back(rig, pod, question, new)
                return
        async with rig.run() as pod:
            await _comes_back(rig, pod, question, new)
    assert next(line["code"] for line in lines if line["event"] == "route_closed") == "not_in_room"


async def _comes_back(rig: Rig, pod: Pod, question: Question, new: RoomId) -> None:
    assert closed(pod) == {ROUTE: errors.NotInRoom.code}
    with pytest.raises(errors.NotInRoom, match="if another room replaced it, the configuration to name that one"):
        await pod.ask()
    assert (await pod.now(question)).is_open
    rig.hs.invite(rig.room, rig.pod, by=rig.owner)
    await answered(rig, pod, question, new)


async def test_a_room_that_was_left_encrypted_is_never_followed_into_a_clear_one(rig: Rig) -> None:
    rig.seal()
    async with rig.run() as pod:
        await pod.ask()
        new = rig.hs.upgrade(rig.room, rig.second, by=rig.owner, is_open=False)
        await waits(rig, pod, NotFollowed.NOT_JOINED)
        rig.hs.kick(rig.room, rig.pod, by=rig.owner)
    rig.hs.answer_with("GET", rf"/{rig.room}/", status=403, body={"errcode": "M_FORBIDDEN"}, times=500)
    rig.hs.invite(new, rig.pod, by=rig.owner)
    async with rig.run() as pod:
        await waits(rig, pod, NotFollowed.ENCRYPTION_LOST)
        assert rig.sent(new) == []
