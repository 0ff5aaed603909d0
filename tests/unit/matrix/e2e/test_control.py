from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from agentpod_bot.errors import ConfigurationError
from agentpod_bot.matrix.e2e.control import Control
from tests.unit.matrix.e2e.verifier import CANCEL, MAC, OWNER, REQUEST, Bot

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


def control_of(bot: Bot, folder: Path) -> Control:
    return Control(folder, bot.verification, bot.identities, bot.cross_signing, bot.world)


@pytest.fixture
async def bot(tmp_path: Path) -> Bot:
    return await Bot.make(tmp_path)


@asynccontextmanager
async def serving(bot: Bot, folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    async with control_of(bot, folder) as control:
        connector = aiohttp.UnixConnector(str(control.path))
        async with aiohttp.ClientSession("http://daemon", connector=connector) as session:
            yield session


async def get(session: aiohttp.ClientSession, path: str) -> Any:
    async with session.get(path) as response:
        assert response.status == 200
        return await response.json()


async def post(session: aiohttp.ClientSession, path: str) -> int:
    async with session.post(path) as response:
        await response.json()
        return response.status


async def test_the_socket_is_for_its_owner_alone_and_gone_afterwards(bot: Bot, tmp_path: Path) -> None:
    async with control_of(bot, tmp_path) as control:
        assert control.path.stat().st_mode & 0o777 == 0o600
    assert not control.path.exists()


async def test_a_socket_in_use_is_left_to_who_has_it_and_the_setting_is_named(bot: Bot, tmp_path: Path) -> None:
    async with control_of(bot, tmp_path) as first:
        with pytest.raises(ConfigurationError, match=r"e2e\.store: another process listens"):
            async with control_of(bot, tmp_path):
                pass
        assert first.path.exists()


async def test_stopping_leaves_a_socket_that_another_has_put_in_its_place(bot: Bot, tmp_path: Path) -> None:
    async with control_of(bot, tmp_path) as first:
        first.path.rename(tmp_path / "old.sock")
        other = socket.socket(socket.AF_UNIX)
        other.bind(str(first.path))
        other.close()
    assert first.path.exists()


async def test_a_verification_is_seen_confirmed_and_seen_verified(bot: Bot, tmp_path: Path) -> None:
    requester = bot.requester()
    async with serving(bot, tmp_path) as session, bot.running():
        assert (await get(session, "/verifications"))["verifications"] == []
        await shown(bot, requester)
        listed = await get(session, "/verifications")
        [one] = listed["verifications"]
        assert (one["state"], one["user_id"], one["device_id"]) == ("shown", OWNER, "PHONE")
        assert tuple(one["numbers"]) == requester.numbers
        assert len(one["emoji"]) == 7
        assert await post(session, f"/verifications/{one['id']}/confirm") == 200
        assert await post(session, f"/verifications/{one['id']}/confirm") == 409
        bot.verification.hear(OWNER, MAC, requester.mac())
        [one] = (await until(session, "verified"))["verifications"]
        assert (one["device"], one["identity"]) == (True, True)
        verified = await get(session, "/verified")
        assert verified["identities"] == [{"user_id": OWNER, "master": requester.person.master.public}]
        assert [device["device_id"] for device in verified["devices"]] == ["PHONE"]
        assert verified["own"]["master"] == bot.cross_signing.master
        assert await post(session, "/verified/forget?user_id=@owner:example.org") == 200
        assert await post(session, "/verified/forget?user_id=@owner:example.org") == 404
        assert not bot.is_verified()


async def shown(bot: Bot, requester: Any) -> None:
    """From the request to the emoji, by a bot that runs."""
    bot.verification.hear(OWNER, REQUEST, requester.request(bot.clock.now_ms()))
    await sent(bot)
    bot.verification.hear(OWNER, "m.key.verification.start", requester.start())
    requester.accepted(await sent(bot))
    bot.verification.hear(OWNER, "m.key.verification.key", requester.key())
    requester.keyed(await sent(bot))


async def sent(bot: Bot) -> dict[str, Any]:
    """What the bot sends next."""
    async with asyncio.timeout(10):
        while not bot.world.sent:
            await asyncio.sleep(0)
    [(_, content)] = bot.world.take()
    return content


async def until(session: aiohttp.ClientSession, state: str) -> Any:
    """The list, once its one verification is in this state; each call waits for news."""
    version = -1
    async with asyncio.timeout(10):
        while True:
            listed = await get(session, f"/verifications?after={version}")
            if [one["state"] for one in listed["verifications"]] == [state]:
                return listed
            version = listed["version"]


async def test_emoji_that_differ_are_cancelled(bot: Bot, tmp_path: Path) -> None:
    async with serving(bot, tmp_path) as session, bot.running():
        await shown(bot, bot.requester())
        one = bot.one.verification_id
        assert await post(session, f"/verifications/{one}/cancel?mismatch=true") == 200
        assert [(kind, content["code"]) for kind, content in bot.world.take()] == [(CANCEL, "m.mismatched_sas")]
        assert await post(session, f"/verifications/{one}/confirm") == 409
        assert await post(session, f"/verifications/{one}/cancel") == 409
        [shown_one] = (await until(session, "cancelled"))["verifications"]
        assert (shown_one["code"], shown_one["by_us"]) == ("m.mismatched_sas", True)


async def test_whatever_the_other_side_says_is_not_repeated(bot: Bot, tmp_path: Path) -> None:
    async with serving(bot, tmp_path) as session, bot.running():
        await shown(bot, bot.requester())
        bot.verification.hear(OWNER, CANCEL, {"transaction_id": "t1", "code": "\x1b]0;title\x07"})
        [one] = (await until(session, "cancelled"))["verifications"]
        assert one["code"] == "other"


async def test_a_version_that_is_no_number_is_refused(bot: Bot, tmp_path: Path) -> None:
    async with serving(bot, tmp_path) as session, session.get("/verifications?after=x") as response:
        assert response.status == 400
