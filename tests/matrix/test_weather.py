"""The proxy of the chaos run, between a plain client and the fake homeserver."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
import pytest

from agentpod_bot.demo.process import free_port
from chaos.weather import SHARES, WEIGHTS, Call, Fault, Weather

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RoomId, UserId
    from tests.matrix.fake_homeserver import FakeHomeserver

PATIENCE_S = 10.0


class Fated:
    """Chance that always brings the same fault, at once."""

    def __init__(self, fault: Fault) -> None:
        self._fault = fault

    def random(self) -> float:
        return 0.0

    def choices(self, _population: list[Fault], _weights: list[int]) -> list[Fault]:
        return [self._fault]

    def choice(self, population: tuple[Any, ...]) -> Any:
        return population[0]

    def uniform(self, _low: float, _high: float) -> float:
        return 0.0

    def randint(self, low: int, _high: int) -> int:
        return low


class Got(NamedTuple):
    """What the client saw: status 0 where it was cut off."""

    status: int
    headers: dict[str, str]
    body: bytes


class Case(NamedTuple):
    """A fault, what the client sees of it, and how many calls reach the homeserver."""

    fault: Fault
    status: int
    calls: int


async def sent_through(weather: Weather, room: RoomId, token: str) -> Got:
    """Send one message with a transaction id."""
    url = f"{weather.url}/_matrix/client/v3/rooms/{room}/send/m.room.message/t1"
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session:
        try:
            async with session.put(url, json={"msgtype": "m.text", "body": "hello"}) as response:
                return Got(response.status, dict(response.headers), await response.read())
        except aiohttp.ClientError:
            return Got(0, {}, b"")


def sends(hs: FakeHomeserver) -> int:
    return hs.count("PUT", "/send/")


@pytest.mark.parametrize(
    "case",
    [
        Case(Fault.CUT_BEFORE, 0, 0),
        Case(Fault.CUT_AMID, 0, 1),
        Case(Fault.CUT_AFTER, 0, 1),
        Case(Fault.DELAYED, 200, 1),
        Case(Fault.DELAYED_AFTER, 200, 1),
        Case(Fault.DOUBLED, 200, 2),
        Case(Fault.DOUBLED_LATER, 200, 2),
        Case(Fault.LIMITED_MS, 429, 0),
        Case(Fault.LIMITED_HEADER, 429, 0),
        Case(Fault.LIMITED, 429, 0),
        Case(Fault.BROKEN_JSON, 500, 0),
        Case(Fault.BROKEN_HTML, 500, 0),
    ],
    ids=lambda case: case.fault,
)
async def test_each_fault_is_what_it_is_called(
    hs: FakeHomeserver, pod: UserId, room: RoomId, token: str, case: Case
) -> None:
    fault, status, calls = case
    async with Weather(hs.url, Fated(fault)).blowing() as weather:
        weather.calm = False
        got = await sent_through(weather, room, token)
        async with asyncio.timeout(PATIENCE_S):
            await hs.until(lambda: sends(hs) >= calls)
    assert (got.status, sends(hs), weather.made[fault]) == (status, calls, 1)
    assert len(hs.sent_by(pod)) == min(calls, 1)
    limits = (b"retry_after_ms" in got.body, "Retry-After" in got.headers)
    assert limits == (fault is Fault.LIMITED_MS, fault is Fault.LIMITED_HEADER)
    if status == 500:
        assert ("json" in got.headers["Content-Type"]) == (fault is Fault.BROKEN_JSON)


def test_every_fault_can_be_drawn() -> None:
    assert set(WEIGHTS) == set(Fault)
    assert min(WEIGHTS.values()) > 0


async def test_in_calm_weather_everything_passes_as_it_is(
    hs: FakeHomeserver, pod: UserId, room: RoomId, token: str
) -> None:
    async with Weather(hs.url, Fated(Fault.CUT_AMID)).blowing() as weather:
        got = await sent_through(weather, room, token)
    assert got.status == 200
    assert hs.sent_by(pod)[0]["content"] == {"msgtype": "m.text", "body": "hello"}
    assert weather.made.total() == 0


async def test_a_homeserver_that_is_gone_is_a_proxys_page(room: RoomId, token: str) -> None:
    async with Weather(f"http://127.0.0.1:{free_port()}", Fated(Fault.DELAYED)).blowing() as weather:
        got = await sent_through(weather, room, token)
    assert (got.status, got.headers["Content-Type"]) == (502, "text/html")


async def test_in_the_dark_nobody_answers(hs: FakeHomeserver, room: RoomId, token: str) -> None:
    async with Weather(hs.url, Fated(Fault.DELAYED)).blowing() as weather:
        weather.dark = True
        got = await sent_through(weather, room, token)
    assert (got.status, sends(hs)) == (0, 0)


@pytest.mark.parametrize(
    ("method", "target", "kind"),
    [
        ("PUT", "/_matrix/client/v3/rooms/!r/send/m.room.encrypted/t1", "send"),
        ("PUT", "/_matrix/client/v3/sendToDevice/m.room.encrypted/t1", "keys"),
        ("POST", "/_matrix/client/v3/keys/query", "keys"),
        ("POST", "/_matrix/client/v3/keys/claim", "keys"),
        ("POST", "/_matrix/client/v3/keys/upload", "keys"),
        ("GET", "/_matrix/client/v3/sync?timeout=0", "sync"),
        ("GET", "/_matrix/client/v3/rooms/!r/state", "other"),
    ],
)
def test_calls_about_keys_and_messages_have_weather_of_their_own(method: str, target: str, kind: str) -> None:
    assert Call(method, target, {}, b"").kind == kind
    assert SHARES[kind] > 0
