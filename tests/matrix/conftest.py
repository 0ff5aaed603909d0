"""A fake homeserver with the bot, an approver and a room, and the real client on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.core.ids import RoomId, UserId
from agentpod_bot.matrix.client import MatrixClient
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def hs() -> AsyncIterator[FakeHomeserver]:
    """A fake homeserver of the test's own."""
    async with FakeHomeserver() as running:
        yield running


@pytest.fixture
def pod(hs: FakeHomeserver) -> UserId:
    """The bot's account."""
    return UserId(hs.user("pod"))


@pytest.fixture
def owner(hs: FakeHomeserver) -> UserId:
    """An approver's account."""
    return UserId(hs.user("owner"))


@pytest.fixture
def room(hs: FakeHomeserver, pod: UserId, owner: UserId) -> RoomId:
    """A room with both."""
    return RoomId(hs.room(owner, pod, alias="#ops:hs.example"))


@pytest.fixture
def token(hs: FakeHomeserver, pod: UserId) -> str:
    """The bot's access token."""
    return hs.token(pod, "POD")


@pytest.fixture
async def client(hs: FakeHomeserver, pod: UserId, token: str) -> AsyncIterator[MatrixClient]:
    """The real client as the bot; its deadline is short for the tests of hanging."""
    made = MatrixClient(hs.url, pod, token, deadline_s=5.0)
    yield made
    await made.close()
