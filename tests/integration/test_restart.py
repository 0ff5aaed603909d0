from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.integration import said
from tests.integration.daemons import Daemon, ran

if TYPE_CHECKING:
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast, House

pytestmark = pytest.mark.synapse


async def test_an_answer_given_after_kill_9_reaches_who_polls_and_who_asks_again(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    await daemon.start()
    async with daemon.harness() as harness:
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1"))
        asked = await said.question(owner, cast.room_id, "r1")
        daemon.kill()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        assert await daemon.ended() == 128 + 9
    await owner.reply(cast.room_id, asked["event_id"], "2: not while it is down")
    await daemon.start()
    async with daemon.harness() as harness:
        polled = await harness.view("r1", wait_s=20)
        again = await harness.ask(wait_s=20, request_id="r1")
    assert polled["status"] == "decided"
    assert polled["decision"]["option_id"] == "reject_once"
    assert polled["decision"]["comment"] == "not while it is down"
    assert polled["decision"]["answered_by"] == cast.owner.user_id
    assert (again.status, again.body["decision"]) == (200, polled["decision"])
    assert again.body["event_id"] == asked["event_id"]
    edit = await said.outcome(owner, cast.room_id, asked["event_id"])
    assert edit["content"]["option_id"] == "reject_once"
    assert len(said.questions(await owner.history(cast.room_id))) == 1


async def test_killed_right_after_it_took_a_request_it_asks_it_once_and_a_bare_answer_while_down_counts(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    await daemon.start()
    async with daemon.harness() as harness:
        taken = await harness.asked(request_id="r1")
    daemon.kill()
    await daemon.ended()
    await daemon.start()
    asked = await said.question(owner, cast.room_id, "r1")
    async with daemon.harness() as harness:
        # seen in the timeline by the daemon itself: what follows it there can be an answer to it
        pending = await harness.view("r1")
        while pending["status"] == "queued":
            pending = await harness.view("r1", wait_s=0.1)
    daemon.kill()
    await daemon.ended()
    await owner.send(cast.room_id, "1")
    await daemon.start()
    async with daemon.harness() as harness:
        decided = await harness.view("r1", wait_s=20)
    assert (decided["code"], decided["event_id"]) == (taken["code"], asked["event_id"])
    assert (decided["status"], decided["decision"]["option_id"]) == ("decided", "allow_once")
    assert len(said.questions(await owner.history(cast.room_id))) == 1


async def test_told_to_stop_it_answers_who_waits_and_the_question_stays_open(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    await daemon.start()
    async with daemon.harness() as harness:
        posting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1"))
        asked = await said.question(owner, cast.room_id, "r1")
        reading = asyncio.create_task(harness.call("GET", "/v1/requests/r1", wait_s=60))
        await harness.waiting_calls(2)
        daemon.terminate()
        for reply in (await posting, await reading):
            assert (reply.status, reply.body["code"]) == (503, "shutting_down")
            assert int(reply.headers["Retry-After"]) > 0
            assert reply.headers["Content-Type"].startswith("application/problem+json")
            assert reply.body["request"]["status"] == "pending"
            assert reply.body["request"]["decision"] is None
    assert await daemon.ended() == 0
    await daemon.start()
    async with daemon.harness() as harness:
        assert (await harness.view("r1"))["status"] == "pending"
        waiting = asyncio.create_task(harness.view("r1", wait_s=20))
        await owner.reply(cast.room_id, asked["event_id"], "Allow once")
        assert (await waiting)["decision"]["option_id"] == "allow_once"
    assert len(said.questions(await owner.history(cast.room_id))) == 1


async def test_a_second_daemon_on_the_same_store_ends_and_says_who_holds_it(house: House) -> None:
    holder = house.daemon
    second = await ran(holder.command("run"))
    assert second.code == 78, second
    assert f"process {holder.pid} on " in second.err
    assert (await holder.readiness())[0] == 200


async def test_a_configuration_that_cannot_be_used_ends_it_with_78_and_says_where(daemon: Daemon) -> None:
    daemon.config["routes"]["ops"]["approvers"] = []
    daemon.config["http"]["lisen"] = "127.0.0.1:1"
    daemon.write()
    refused = await ran(daemon.command("run"))
    assert refused.code == 78, refused
    assert "routes.ops.approvers" in refused.err
    assert "http.lisen" in refused.err
    assert "listen" in refused.err.replace("lisen", "")
    assert "Traceback" not in refused.err


async def test_a_token_that_the_homeserver_does_not_know_ends_it_with_77(daemon: Daemon) -> None:
    daemon.secret("access_token", "syt_nobody_has_this_token")
    daemon.write()
    refused = await ran(daemon.command("run"))
    assert refused.code == 77, refused
    assert "homeserver.access_token" in refused.err
    assert "syt_nobody" not in refused.err
    assert "Traceback" not in refused.err
