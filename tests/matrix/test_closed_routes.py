"""A room that cannot be asked any more: its state is told at once, and what is open there is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot import errors
from tests.examples import ROUTE, START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import FakeHomeserver
from tests.matrix.rig import Pod, Rig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        yield Rig(hs, clock, tmp_path / "store" / "agentpod.db")


def closed(pod: Pod) -> dict[str, str]:
    return dict(pod.parts.rooms.closed.now())


def kicked(rig: Rig) -> None:
    rig.hs.kick(rig.room, rig.pod, by=rig.owner)


def banned(rig: Rig) -> None:
    rig.hs.post(rig.room, rig.owner, {"membership": "ban"}, kind="m.room.member", state_key=rig.pod)


def left_alone(rig: Rig) -> None:
    rig.hs.leave(rig.room, rig.owner)
    rig.hs.leave(rig.room, rig.second)


def encrypted(rig: Rig) -> None:
    rig.hs.encrypt(rig.room, by=rig.owner)


def replaced(rig: Rig) -> None:
    rig.hs.replace(rig.room, by=rig.owner)


@pytest.mark.parametrize(
    ("happens", "refusal"),
    [
        (kicked, errors.NotInRoom),
        (banned, errors.NotInRoom),
        (left_alone, errors.ApproverNotInRoom),
        (encrypted, errors.RoomEncryptedWithoutCrypto),
        (replaced, errors.RoomReplaced),
    ],
)
async def test_what_closes_a_route_is_its_state_at_once_and_logged_once(
    rig: Rig, happens: Callable[[Rig], None], refusal: type[errors.Unavailable]
) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        assert closed(pod) == {}
        with capture_logs() as lines:
            happens(rig)
            await rig.hs.until(lambda: closed(pod) == {ROUTE: refusal.code})
            with pytest.raises(refusal):
                await pod.ask()
            if happens not in {kicked, banned}:
                await pod.handled(rig.say("unrelated", rig.mallory))
        assert closed(pod) == {ROUTE: refusal.code}
        told = [line["code"] for line in lines if line["event"] == "route_closed"]
        assert told == [refusal.code]
        assert (await pod.now(question)).is_open
    async with rig.run(caught_up=False) as pod:
        assert closed(pod) == {ROUTE: refusal.code}


async def test_a_tombstone_is_answered_with_one_notice_whatever_comes_again(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        await pod.handled(rig.hs.replace(rig.room, by=rig.owner))
        await pod.handled(rig.hs.replace(rig.room, by=rig.owner))
        await pod.quiet()
        [notice] = rig.notices()
        assert notice.startswith("This room was replaced by another one. Nothing new is asked here")
        await pod.handled(rig.say("1", reply_to=question))
        assert not (await pod.now(question)).is_open  # as the notice says
    async with rig.run() as pod:
        await pod.quiet()
        assert len(rig.notices()) == 1


async def test_a_room_that_takes_no_notice_any_more_costs_no_question(rig: Rig) -> None:
    async with rig.run() as pod:
        question = await pod.pending()
        refused = {"errcode": "M_FORBIDDEN", "error": ""}
        fault = rig.hs.answer_with("PUT", "/send/", status=403, body=refused)
        await pod.handled(rig.hs.replace(rig.room, by=rig.owner))
        await fault.hit.wait()
        await pod.quiet()
        assert (rig.notices(), (await pod.now(question)).is_open) == ([], True)


async def test_a_route_that_opens_again_is_logged(rig: Rig) -> None:
    async with rig.run() as pod:
        left_alone(rig)
        await rig.hs.until(lambda: closed(pod))
        with capture_logs() as lines:
            await pod.handled(rig.hs.join(rig.room, rig.owner))
            await pod.pending()
        assert [line["event"] for line in lines if line["event"] == "route_open"] == ["route_open"]


async def test_a_replaced_room_is_that_also_while_its_state_is_read_anew(rig: Rig) -> None:
    async with rig.run() as pod:
        replaced(rig)
        await rig.hs.until(lambda: closed(pod) == {ROUTE: errors.RoomReplaced.code})
        pod.parts.world.forget(rig.room)
        assert closed(pod) == {ROUTE: errors.RoomReplaced.code}
