from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.errors import HomeserverUnavailable, MatrixError, Refused, StoreUnavailable
from agentpod_bot.matrix.e2e.direct import MOST_INVITED, DirectChats
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

POD, OWNER, MALLORY = (UserId(f"@{name}:example.org") for name in ("pod", "owner", "mallory"))
OPS, DIRECT = RoomId("!ops:example.org"), RoomId("!direct:example.org")
KEYS = frozenset({(DIRECT, "session")})


class Bot:
    """What opens events and enters rooms, with what it was asked. Fits `Opener` and `Joining`."""

    def __init__(self) -> None:
        self.user_id = POD
        self.did: list[Any] = []
        self.faults: list[MatrixError] = []
        self.clock = FakeClock()
        self.chats = DirectChats(
            self,
            self,
            self.clock,
            is_approver=lambda user_id: user_id == OWNER,
            configured=lambda: frozenset({OPS}),
        )

    async def take(self, _response: Mapping[str, Any], *, anew: bool) -> frozenset[tuple[RoomId, str]]:
        self.did.append("keys anew" if anew else "keys")
        return KEYS

    async def expect(self, events: Collection[Mapping[str, Any]]) -> None:
        self.did.append(["expects", *(event["event_id"] for event in events)])

    async def read(self, room_id: RoomId, event: Mapping[str, Any]) -> None:
        self.did.append((room_id, event["event_id"]))

    async def join(self, room_id: RoomId) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.did.append(room_id)

    async def given(self, response: dict[str, Any]) -> list[Any]:
        """What it did about a response."""
        self.did.clear()
        assert await self.chats.take(response) == KEYS
        running = asyncio.create_task(self.chats.run())
        for _ in range(60):
            await asyncio.sleep(0)
            self.clock.advance(1_000)
        running.cancel()
        await asyncio.wait({running})
        return self.did


@pytest.fixture
def bot() -> Bot:
    return Bot()


def invited(sender: object = OWNER, room_id: RoomId = DIRECT, **content: Any) -> dict[str, Any]:
    said = {"membership": "invite", "is_direct": True} | content
    event = {"type": "m.room.member", "state_key": POD, "sender": sender, "content": said}
    return {"rooms": {"invite": {room_id: {"invite_state": {"events": [{"type": "m.room.name"}, event]}}}}}


def said(sender: object, room_id: RoomId = DIRECT) -> dict[str, Any]:
    return {"rooms": {"join": {room_id: {"timeline": {"events": [{"event_id": "$1", "sender": sender}]}}}}}


async def test_an_approver_s_direct_chat_is_entered(bot: Bot) -> None:
    assert await bot.given(invited()) == ["keys", DIRECT]


@pytest.mark.parametrize(
    "response",
    [
        invited(MALLORY),
        invited(None),
        invited(is_direct=False),
        invited(is_direct="true"),
        invited(membership="join"),
        invited(room_id=OPS),
        {"rooms": {"invite": {DIRECT: {"invite_state": {"events": []}}}}},
        {"rooms": {"invite": {DIRECT: {"invite_state": []}}}},
        {"rooms": {"invite": {DIRECT: 7}}},
        {"rooms": []},
        {},
    ],
)
async def test_no_other_invitation_is_followed_here(bot: Bot, response: dict[str, Any]) -> None:
    """Those into configured rooms are followed elsewhere, by the rules of their routes."""
    assert await bot.given(response) == ["keys"]


async def test_in_a_direct_chat_an_approver_is_heard_once_the_keys_are_there(bot: Bot) -> None:
    assert await bot.given(said(OWNER)) == ["keys", (DIRECT, "$1")]


@pytest.mark.parametrize(
    "response",
    [
        said(MALLORY),
        said(POD),
        said([]),
        said(OWNER, OPS),
        {"rooms": {"join": {DIRECT: {"timeline": {"events": ["x", {}, None]}}}}},
        {"rooms": {"join": {DIRECT: {"timeline": {"events": {}}}}}},
    ],
)
async def test_nobody_else_is_heard_there_and_configured_rooms_are_not_read_twice(
    bot: Bot, response: dict[str, Any]
) -> None:
    assert await bot.given(response) == ["keys"]


async def test_an_invitation_that_cannot_be_followed_now_is_followed_later(bot: Bot) -> None:
    bot.faults = [HomeserverUnavailable("no answer"), HomeserverUnavailable("no answer")]
    assert await bot.given(invited()) == ["keys", DIRECT]


async def test_an_invitation_that_is_gone_is_let_be(bot: Bot) -> None:
    bot.faults = [Refused("M_FORBIDDEN")]
    assert await bot.given(invited()) == ["keys"]
    assert await bot.given({}) == ["keys"]


async def test_invitations_do_not_pile_up(bot: Bot) -> None:
    for number in range(100):
        await bot.chats.take(invited(room_id=RoomId(f"!{number}:example.org")))
    assert len(await bot.given({})) == 1 + MOST_INVITED


@pytest.mark.parametrize("error", [HomeserverUnavailable("cut"), StoreUnavailable("full")], ids=["homeserver", "store"])
async def test_a_direct_chat_that_cannot_be_read_loses_no_key_of_another_room(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """The same response brings its keys no second time, and answers may wait for them."""
    bot = Bot()

    async def failing(_room_id: RoomId, _event: Mapping[str, Any]) -> None:
        raise error

    monkeypatch.setattr(bot, "read", failing)
    event = {"event_id": "$asks", "sender": OWNER, "type": "m.room.encrypted", "content": {}}
    joined = {DIRECT: {"timeline": {"events": [event]}}}
    assert await bot.chats.take({"rooms": {"join": joined}}) == KEYS


async def test_what_comes_of_the_configured_rooms_is_passed_on_as_it_is() -> None:
    bot = Bot()
    await bot.chats.take({}, anew=True)
    await bot.chats.expect([{"event_id": "$1"}])
    await bot.chats.read(OPS, {"event_id": "$1"})
    assert bot.did == ["keys anew", ["expects", "$1"], (OPS, "$1")]
