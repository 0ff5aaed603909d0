from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused, TokenRefused
from agentpod_bot.matrix.e2e import sharing
from agentpod_bot.matrix.e2e.exchange import READY
from agentpod_bot.matrix.opened import NoKey, Opened, Unreadable
from tests.fakes import FakeClock
from tests.unit.matrix.e2e.key_server import MALLORY, OWNER, POD, ROOM, KeyServer, device, sealed_room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.unit.matrix.e2e.key_server import Device

BOTH = sealed_room(POD, OWNER)


class Cast:
    """The bot and the owner, each with one device."""

    def __init__(self, server: KeyServer, pod: Device, owner: Device, clock: FakeClock) -> None:
        self.server, self.pod, self.owner, self.clock = server, pod, owner, clock

    async def hears(self, body: str) -> bool:
        """Whether the owner can read what the bot says now."""
        opening = await self.owner.hear(await self.pod.say(BOTH, body))
        return isinstance(opening, Opened) and opening.event["content"]["body"] == body


@pytest.fixture
async def cast(tmp_path: Path) -> AsyncIterator[Cast]:
    server, clock = KeyServer(), FakeClock()
    async with AsyncExitStack() as stack:
        pod = await stack.enter_async_context(device(server, tmp_path, POD, "POD", clock=clock))
        owner = await stack.enter_async_context(device(server, tmp_path, OWNER, "PHONE"))
        yield Cast(server, pod, owner, clock)


def keys_sent(server: KeyServer) -> int:
    return server.asked.count("sendToDevice")


async def test_what_the_bot_says_is_read_by_everybody_who_is_joined(cast: Cast) -> None:
    assert await cast.hears("hello")


async def test_a_key_is_given_once_and_not_with_every_message(cast: Cast) -> None:
    for body in ("one", "two", "three"):
        assert await cast.hears(body)
    assert keys_sent(cast.server) == 1
    assert cast.server.asked.count("claim") == 1


@pytest.mark.parametrize(
    "error",
    [
        HomeserverUnavailable("cut"),
        RateLimited(5_000),
        TokenRefused(soft_logout=True),
        Refused("M_FORBIDDEN", status=403),
        Refused("M_UNKNOWN", status=400),
    ],
    ids=lambda error: f"{type(error).__name__}{getattr(error, 'status', '')}",
)
@pytest.mark.parametrize("what", ["query", "claim", "sendToDevice"])
async def test_a_failure_on_the_way_is_told_and_the_next_try_is_read(cast: Cast, what: str, error: Exception) -> None:
    cast.server.fail(what, error)
    with pytest.raises((HomeserverUnavailable, RateLimited, TokenRefused)):
        await cast.pod.say(BOTH, "first")
    assert await cast.hears("second")


@pytest.mark.parametrize("what", ["claim", "sendToDevice"])
async def test_a_refusal_on_the_way_is_not_taken_for_one_of_the_message(cast: Cast, what: str) -> None:
    cast.server.fail(what, Refused("M_FORBIDDEN", status=403))
    with pytest.raises(HomeserverUnavailable):
        await cast.pod.say(BOTH, "first")


async def test_a_claim_that_hangs_ends_and_leaves_nothing_blocked(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for = cast.pod.requests.ask_for
    hangs = asyncio.Event()

    async def hanging(method: str, path: str, body: dict[str, object]) -> dict[str, object]:
        if path.endswith("claim"):
            await hangs.wait()
        return await ask_for(method, path, body)

    monkeypatch.setattr(sharing, "DEADLINE_S", 0.01)
    monkeypatch.setattr(cast.pod.requests, "ask_for", hanging)
    with pytest.raises(HomeserverUnavailable, match="in time"):
        await cast.pod.say(BOTH, "first")
    monkeypatch.undo()
    assert await cast.hears("second")


async def test_a_key_whose_answer_was_lost_is_given_again(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for = cast.pod.requests.ask_for

    async def lossy(method: str, path: str, body: dict[str, object]) -> dict[str, object]:
        answer = await ask_for(method, path, body)
        if "sendToDevice" in path:
            raise HomeserverUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(cast.pod.requests, "ask_for", lossy)
    with pytest.raises(HomeserverUnavailable):
        await cast.pod.say(BOTH, "first")
    monkeypatch.undo()
    assert await cast.hears("second")
    assert keys_sent(cast.server) == 2


async def test_a_new_member_reads_from_the_next_message_on_and_nothing_before(cast: Cast, tmp_path: Path) -> None:
    before = await cast.pod.say(BOTH, "before")
    async with device(cast.server, tmp_path, MALLORY, "LATE") as late:
        after = await cast.pod.say(sealed_room(POD, OWNER, MALLORY), "after")
        assert isinstance(await late.hear(after), Opened)
        assert isinstance(await late.hear(before), NoKey)


async def test_a_new_device_reads_from_the_next_message_on(cast: Cast, tmp_path: Path) -> None:
    assert await cast.hears("before")
    async with device(cast.server, tmp_path, OWNER, "LAPTOP") as laptop:
        await cast.pod.sync(device_lists={"changed": [OWNER]})
        assert isinstance(await laptop.hear(await cast.pod.say(BOTH, "after")), Opened)


async def test_who_left_cannot_read_what_is_said_then(cast: Cast, tmp_path: Path) -> None:
    three = sealed_room(POD, OWNER, MALLORY)
    async with device(cast.server, tmp_path, MALLORY, "EVIL") as evil:
        assert isinstance(await evil.hear(await cast.pod.say(three, "all of us")), Opened)
        alone = await cast.pod.say(BOTH, "the two of us")
        assert isinstance(await evil.hear(alone), NoKey)
        assert isinstance(await cast.owner.hear(alone), Opened)


async def test_a_device_that_is_gone_cannot_read_what_is_said_then(cast: Cast, tmp_path: Path) -> None:
    async with device(cast.server, tmp_path, OWNER, "STOLEN") as stolen:
        assert isinstance(await stolen.hear(await cast.pod.say(BOTH, "before")), Opened)
        del cast.server.devices[OWNER]["STOLEN"]
        await cast.pod.sync(device_lists={"changed": [OWNER]})
        after = await cast.pod.say(BOTH, "after")
        assert isinstance(await stolen.hear(after), NoKey)
        assert isinstance(await cast.owner.hear(after), Opened)


async def test_a_session_is_used_for_as_many_messages_as_the_room_says(cast: Cast) -> None:
    room = sealed_room(POD, OWNER, rotation_messages=2)
    said = [await cast.pod.say(room, str(number)) for number in range(5)]
    sessions = [event["content"]["session_id"] for event in said]
    assert [sessions.index(session) for session in sessions] == [0, 0, 2, 2, 4]
    assert all([isinstance(await cast.owner.hear(event), Opened) for event in said])


async def test_a_session_is_used_no_longer_than_the_room_says(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await cast.hears("one")
    before = await cast.pod.crypto.run(lambda machine: machine.outbound(BOTH.room_id))
    assert before is not None
    monkeypatch.setattr("agentpod_bot.matrix.e2e.room_sessions.SHORTEST_ROTATION_MS", 0)
    spent = sealed_room(POD, OWNER, rotation_ms=0).encryption
    await cast.pod.crypto.run(lambda machine: machine.new_outbound(BOTH.room_id, spent))
    assert await cast.pod.crypto.run(lambda machine: machine.outbound(BOTH.room_id)) is None
    monkeypatch.undo()
    assert await cast.hears("two")


async def test_a_room_that_wants_a_new_session_at_every_instant_can_be_spoken_in(cast: Cast) -> None:
    event = await cast.pod.say(sealed_room(POD, OWNER, rotation_ms=1, rotation_messages=1), "hello")
    assert isinstance(await cast.owner.hear(event), Opened)


async def test_a_device_without_a_one_time_key_holds_nobody_up_and_is_asked_again_later(
    cast: Cast, tmp_path: Path
) -> None:
    async with device(cast.server, tmp_path, OWNER, "EMPTY") as empty:
        own = (OWNER, "EMPTY")
        kept = cast.server.one_time.pop(own), cast.server.fallback.pop(own)
        assert await cast.hears("one")
        assert await cast.hears("two")
        assert cast.server.asked.count("claim") == 1
        cast.server.one_time[own], cast.server.fallback[own] = kept
        cast.clock.advance(31_000)
        assert isinstance(await empty.hear(await cast.pod.say(BOTH, "three")), Opened)


async def test_a_fallback_key_serves_where_one_time_keys_are_used_up(cast: Cast, tmp_path: Path) -> None:
    async with device(cast.server, tmp_path, OWNER, "BUSY") as busy:
        cast.server.one_time.pop((OWNER, "BUSY"))
        assert isinstance(await busy.hear(await cast.pod.say(BOTH, "hello")), Opened)


async def test_a_homeserver_that_is_down_keeps_nobody_else_from_reading(cast: Cast) -> None:
    cast.server.unreachable.add(MALLORY)
    three = sealed_room(POD, OWNER, MALLORY)
    for body in ("one", "two"):
        assert isinstance(await cast.owner.hear(await cast.pod.say(three, body)), Opened)
    assert (
        cast.server.asked.count("query") == 4
    )  # one at each device's start, one a sender and one for all, not one a message


async def test_relations_stay_readable_for_servers_and_are_not_inside(cast: Cast) -> None:
    relation = {"m.in_reply_to": {"event_id": "$question"}}
    said = await cast.pod.say(BOTH, "an answer", **{"m.relates_to": relation})
    assert said["content"]["m.relates_to"] == relation
    opening = await cast.owner.hear(said)
    assert isinstance(opening, Opened)
    assert opening.event["content"]["m.relates_to"] == relation


async def test_with_verified_devices_only_nobody_else_is_given_a_key_and_each_is_told_once(tmp_path: Path) -> None:
    server = KeyServer()
    async with (
        device(server, tmp_path, POD, "POD", verified_only=True) as pod,
        device(server, tmp_path, OWNER, "GOOD") as good,
        device(server, tmp_path, OWNER, "BAD") as bad,
    ):
        pod.verdicts.verified.add(good.own.ed25519)
        told: list[tuple[str, object]] = []
        bad.crypto.on_to_device = lambda _sender, kind, content, _keys: told.append((kind, content["code"]))
        for body in ("one", "two"):
            event = await pod.say(BOTH, body)
            assert isinstance(await good.hear(event), Opened)
            assert isinstance(await bad.hear(event), NoKey)
        assert told == [("m.room_key.withheld", "m.unverified")]


async def test_a_device_that_is_not_verified_reads_what_verifies_it_and_nothing_else_of_before_or_after(
    tmp_path: Path,
) -> None:
    server = KeyServer()
    async with (
        device(server, tmp_path, POD, "POD", verified_only=True) as pod,
        device(server, tmp_path, OWNER, "GOOD") as good,
        device(server, tmp_path, OWNER, "BAD") as bad,
    ):
        pod.verdicts.verified.add(good.own.ed25519)
        before = await pod.say(BOTH, "before")
        ready = pod.event(await pod.crypto.encrypted(BOTH, READY, {"from_device": "POD"}), event_id="$ready")
        after = await pod.say(BOTH, "after")
        for event in (before, ready, after):
            assert isinstance(await good.hear(event), Opened)
        opening = await bad.hear(ready)
        assert isinstance(opening, Opened)
        assert (opening.event["type"], opening.event["content"]) == (READY, {"from_device": "POD"})
        for event in (before, after):
            assert isinstance(await bad.hear(event), NoKey | Unreadable)


async def test_a_device_that_lost_its_verification_reads_nothing_more(tmp_path: Path) -> None:
    server = KeyServer()
    async with (
        device(server, tmp_path, POD, "POD", verified_only=True) as pod,
        device(server, tmp_path, OWNER, "PHONE") as phone,
    ):
        pod.verdicts.verified.add(phone.own.ed25519)
        assert isinstance(await phone.hear(await pod.say(BOTH, "one")), Opened)
        pod.verdicts.verified.clear()
        assert isinstance(await phone.hear(await pod.say(BOTH, "two")), NoKey)


# answers that are cut


def came(server: KeyServer, device_id: str = "PHONE") -> list[str]:
    """Types of what waits for a device of the owner."""
    return [event["type"] for event in server.waiting.get((OWNER, device_id), [])]


async def test_a_key_whose_answer_was_cut_comes_once(cast: Cast) -> None:
    cast.server.lost["sendToDevice"] = 2
    for _ in range(2):
        with pytest.raises(HomeserverUnavailable):
            await cast.pod.say(BOTH, "not said")
    said = await cast.pod.say(BOTH, "said")
    assert came(cast.server) == ["m.room.encrypted"]
    assert len(cast.server.txn_ids) == 3
    assert len(set(cast.server.txn_ids)) == 1
    assert isinstance(await cast.owner.hear(said), Opened)


async def test_a_device_that_is_new_after_an_answer_was_cut_gets_the_key_as_well(cast: Cast, tmp_path: Path) -> None:
    cast.server.lost["sendToDevice"] = 1
    with pytest.raises(HomeserverUnavailable):
        await cast.pod.say(BOTH, "not said")
    async with device(cast.server, tmp_path, OWNER, "TABLET") as tablet:
        await cast.pod.sync(device_lists={"changed": [OWNER]})
        said = await cast.pod.say(BOTH, "said")
        assert isinstance(await tablet.hear(said), Opened)
        assert isinstance(await cast.owner.hear(said), Opened)
    first, again, other = cast.server.txn_ids
    assert first == again != other


async def test_a_device_that_may_have_got_the_key_and_is_gone_reads_nothing_that_is_said_then(
    cast: Cast, tmp_path: Path
) -> None:
    async with device(cast.server, tmp_path, OWNER, "LOST") as lost:
        cast.server.lost["sendToDevice"] = 1
        with pytest.raises(HomeserverUnavailable):
            await cast.pod.say(BOTH, "not said")
        assert came(cast.server, "LOST") == ["m.room.encrypted"]
        del cast.server.devices[OWNER]["LOST"]
        await cast.pod.sync(device_lists={"changed": [OWNER]})
        said = await cast.pod.say(BOTH, "said")
        assert isinstance(await lost.hear(said), NoKey)
        assert isinstance(await cast.owner.hear(said), Opened)


async def test_a_refused_key_is_encrypted_anew(cast: Cast) -> None:
    cast.server.fail("sendToDevice", Refused("M_UNKNOWN", status=400))
    with pytest.raises(HomeserverUnavailable):
        await cast.pod.say(BOTH, "not said")
    assert cast.pod.crypto._sharing._sessions[ROOM].giving is None
    assert await cast.hears("said")


async def test_a_device_whose_key_was_refused_and_passed_on_all_the_same_reads_nothing_once_it_is_gone(
    cast: Cast, tmp_path: Path
) -> None:
    async with device(cast.server, tmp_path, OWNER, "LOST") as lost:
        ask_for = cast.pod.requests.ask_for

        async def lying(method: str, path: str, body: dict[str, object]) -> dict[str, object]:
            answer = await ask_for(method, path, body)
            if "sendToDevice" in path:
                raise Refused("M_FORBIDDEN", status=403)
            return answer

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(cast.pod.requests, "ask_for", lying)
            with pytest.raises(HomeserverUnavailable):
                await cast.pod.say(BOTH, "not said")
        assert came(cast.server, "LOST") == ["m.room.encrypted"]
        del cast.server.devices[OWNER]["LOST"]
        await cast.pod.sync(device_lists={"changed": [OWNER]})
        said = await cast.pod.say(BOTH, "said")
        assert isinstance(await lost.hear(said), NoKey)
        assert isinstance(await cast.owner.hear(said), Opened)


async def test_that_a_device_gets_no_key_is_told_once_even_if_the_answer_was_cut(tmp_path: Path) -> None:
    server = KeyServer()
    async with (
        device(server, tmp_path, POD, "POD", verified_only=True) as pod,
        device(server, tmp_path, OWNER, "PHONE"),
    ):
        server.lost["sendToDevice"] = 1
        with pytest.raises(HomeserverUnavailable):
            await pod.say(BOTH, "not said")
        await pod.say(BOTH, "said")
        assert came(server) == ["m.room_key.withheld"]
        assert len(set(server.txn_ids)) == 1


async def test_a_key_that_is_given_again_comes_once_even_if_the_answer_was_cut(cast: Cast) -> None:
    said = await cast.pod.say(BOTH, "a question")
    cast.server.waiting.clear()
    body = {"room_id": ROOM, "session_id": said["content"]["session_id"]}
    asked = {"action": "request", "body": body, "requesting_device_id": "PHONE"}
    cast.pod.crypto._sharing.asked_for(OWNER, asked)
    cast.server.lost["sendToDevice"] = 1
    with pytest.raises(HomeserverUnavailable):
        await cast.pod.crypto._sharing.give_again()
    await cast.pod.crypto._sharing.give_again()
    assert came(cast.server) == ["m.room.encrypted"]
    await cast.pod.crypto._sharing.give_again()
    assert len(cast.server.txn_ids) == 3
    assert len(set(cast.server.txn_ids)) == 2


async def test_a_key_that_is_refused_where_it_is_given_again_keeps_no_other_back(cast: Cast, tmp_path: Path) -> None:
    async with device(cast.server, tmp_path, OWNER, "TABLET"):
        said = await cast.pod.say(BOTH, "a question")
        cast.server.waiting.clear()
        body = {"room_id": ROOM, "session_id": said["content"]["session_id"]}
        for device_id in ("PHONE", "TABLET"):
            asked = {"action": "request", "body": body, "requesting_device_id": device_id}
            cast.pod.crypto._sharing.asked_for(OWNER, asked)
        cast.server.fail("sendToDevice", Refused("M_UNKNOWN", status=400))
        await cast.pod.crypto._sharing.give_again()
        assert (came(cast.server), came(cast.server, "TABLET")) == ([], ["m.room.encrypted"])


async def test_after_a_restart_a_new_session_begins_and_is_read(cast: Cast, tmp_path: Path) -> None:
    first = await cast.pod.say(BOTH, "before")
    assert isinstance(await cast.owner.hear(first), Opened)
    await cast.pod.keys.close()
    async with device(cast.server, tmp_path, POD, "POD", make=False) as again:
        second = await again.say(BOTH, "after")
        assert second["content"]["session_id"] != first["content"]["session_id"]
        assert isinstance(await cast.owner.hear(second), Opened)
        assert isinstance(await again.hear(first), Opened)
