from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from agentpod_bot.errors import CredentialsRefused, HomeserverUnreachable
from agentpod_bot.matrix.client import MatrixClient
from agentpod_bot.matrix.login import login
from tests.matrix.fake_homeserver import PASSWORD

if TYPE_CHECKING:
    from agentpod_bot.core.ids import UserId
    from tests.matrix.fake_homeserver import FakeHomeserver


@pytest.mark.parametrize("name", ["pod", "@pod:hs.example"])
async def test_a_login_gives_a_token_that_works(hs: FakeHomeserver, pod: UserId, name: str) -> None:
    user_id, device_id, token = await login(hs.url + "/", name, PASSWORD, "agentpod-bot")
    client = MatrixClient(hs.url, user_id, token)
    assert await client.whoami() == (pod, device_id)
    await client.close()
    assert hs.calls[0].body["initial_device_display_name"] == "agentpod-bot"


async def test_a_login_can_keep_its_device(hs: FakeHomeserver, pod: UserId) -> None:
    assert (await login(hs.url, pod, PASSWORD, "agentpod-bot", device_id="KEPT"))[1] == "KEPT"


@pytest.mark.parametrize(("name", "password"), [("pod", "wrong"), ("nobody", PASSWORD)])
async def test_wrong_credentials_are_refused_without_repeating_them(
    hs: FakeHomeserver, pod: UserId, name: str, password: str
) -> None:
    assert pod
    with pytest.raises(CredentialsRefused) as caught:
        await login(hs.url, name, password, "agentpod-bot")
    assert caught.value.exit_code == 77
    assert password not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "body"),
    [(502, "<html>"), (200, "<html>"), (200, {"user_id": "@pod:hs.example"}), (429, {"errcode": "M_LIMIT_EXCEEDED"})],
)
async def test_a_homeserver_that_gives_no_usable_answer_is_unreachable(
    hs: FakeHomeserver, status: int, body: dict[str, str] | str
) -> None:
    hs.answer_with("POST", "/login", status=status, body=body)
    with pytest.raises(HomeserverUnreachable) as caught:
        await login(hs.url, "pod", PASSWORD, "agentpod-bot")
    assert caught.value.exit_code == 69


async def test_nobody_there_is_unreachable(hs: FakeHomeserver) -> None:
    hs.cut("POST", "/login")
    with pytest.raises(HomeserverUnreachable):
        await login(hs.url, "pod", PASSWORD, "agentpod-bot")
    for url in ("http://127.0.0.1:9", "not a url", ""):
        with pytest.raises(HomeserverUnreachable):
            await login(url, "pod", PASSWORD, "agentpod-bot")


async def test_a_silent_homeserver_is_unreachable_at_the_deadline(hs: FakeHomeserver) -> None:
    never = asyncio.Event()
    hs.hold("POST", "/login", never)
    with pytest.raises(HomeserverUnreachable):
        await login(hs.url, "pod", PASSWORD, "agentpod-bot", deadline_s=0.05)
    never.set()
