from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING

import aiohttp
import pytest

from tests.integration import said
from tests.integration.daemons import Daemon, Forwarder, ran

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.demo.homeserver import PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast, House

pytestmark = pytest.mark.synapse


async def test_killed_at_any_moment_it_asks_once_and_an_answer_given_meanwhile_reaches_who_polls_and_who_asks_again(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    await daemon.start()
    async with daemon.harness() as harness:
        taken = await harness.asked(request_id="r1")
    daemon.kill()  # it may not have come to asking yet
    assert await daemon.ended() == 128 + signal.SIGKILL
    await daemon.start()
    async with daemon.harness() as harness:
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1"))
        asked = await said.question(owner, cast.room_id, "r1")
        await harness.waiting_calls(1)
        bare = await harness.asked(request_id="r2")
        second = await said.question(owner, cast.room_id, "r2")
        daemon.kill()
        with pytest.raises(aiohttp.ClientError):
            await waiting
        await daemon.ended()
    await owner.reply(cast.room_id, asked["event_id"], "2: not while it is down")
    await owner.send(cast.room_id, f"Allow once {bare['code']}")
    await daemon.start()
    async with daemon.harness() as harness:
        polled = await harness.view("r1", wait_s=20)
        again = await harness.ask(wait_s=20, request_id="r1")
        other = await harness.view("r2", wait_s=20)
    assert (polled["status"], polled["decision"]["option_id"]) == ("decided", "reject_once")
    assert polled["decision"]["comment"] == "not while it is down"
    assert polled["decision"]["answered_by"] == cast.owner.user_id
    assert (polled["code"], polled["event_id"]) == (taken["code"], asked["event_id"])
    assert (again.status, again.body["decision"]) == (200, polled["decision"])
    assert (other["decision"]["option_id"], other["event_id"]) == ("allow_once", second["event_id"])
    edit = await said.outcome(owner, cast.room_id, asked["event_id"])
    assert edit["content"]["option_id"] == "reject_once"
    names = [event["content"]["request_id"] for event in said.questions(await owner.history(cast.room_id))]
    assert names == ["r1", "r2"]


async def test_ending_in_order_it_tells_who_waits_and_the_question_stays_open(
    synapse: PrivateSynapse, daemon: Daemon, owner: Person, cast: Cast
) -> None:
    async with Forwarder(synapse.url) as homeserver, daemon.harness() as harness:
        await homeserver.open()
        daemon.config["homeserver"]["url"] = homeserver.url
        await daemon.start()
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

        # and where it ends because the homeserver does not know its token
        await homeserver.close()
        daemon.secret("access_token", "syt_nobody_has_this_token")
        await daemon.start(until_ready=False)
        await daemon.until_logged("homeserver_unreachable")
        reading = asyncio.create_task(harness.call("GET", "/v1/requests/r1", wait_s=60))
        await harness.waiting_calls(1)
        await homeserver.open()
        reply = await reading
        assert (reply.status, reply.body["code"]) == (503, "shutting_down")
        assert await daemon.ended() == 77
        last_words = daemon.log.read_text()
        assert "homeserver.access_token" in last_words
        assert "syt_nobody" not in last_words
        assert "Traceback" not in last_words

        daemon.secret("access_token", cast.pod.access_token)
        await daemon.start()
        assert (await harness.view("r1"))["status"] == "pending"
        waiting = asyncio.create_task(harness.view("r1", wait_s=20))
        await owner.reply(cast.room_id, asked["event_id"], "Allow once")
        assert (await waiting)["decision"]["option_id"] == "allow_once"
    assert len(said.questions(await owner.history(cast.room_id))) == 1


async def test_a_second_daemon_on_the_same_store_ends_and_says_who_holds_it(house: House) -> None:
    holder = house.daemon
    before = await holder.readiness()
    second = await ran(holder.command("run"))
    assert second.code == 78, second
    assert f"process {holder.pid} on " in second.err
    assert (await holder.readiness()) == before
    assert before[0] != 0


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


async def test_what_the_homeserver_says_of_account_and_rooms_or_a_taken_port_can_end_it_with_78(
    synapse: PrivateSynapse, house: House, cast: Cast, tmp_path: Path
) -> None:
    reasons = {
        "user": "homeserver.user_id: the access token is that of",
        "device": "homeserver.device_id: the access token is that of",
        "alias": "routes.ops.room: the alias means no room",
        "port": "http.listen: cannot listen on 127.0.0.1",
    }
    daemons = {}
    for name in reasons:
        bot = (cast.pod.user_id, cast.pod.access_token)
        daemon = Daemon(tmp_path / name, homeserver=synapse.url, bot=bot, rooms={"ops": cast.room_id})
        daemons[name] = daemon.approve(house.approver.user_id)
    daemons["user"].config["homeserver"]["user_id"] = cast.owner.user_id
    daemons["device"].config["homeserver"]["device_id"] = "ANOTHER"
    daemons["alias"].config["routes"]["ops"]["room"] = "#nowhere:localhost"
    daemons["port"].config["http"]["listen"] = f"127.0.0.1:{house.daemon.port}"
    for daemon in daemons.values():
        daemon.write()
    ends = await asyncio.gather(*(ran(daemon.command("run")) for daemon in daemons.values()))
    for reason, ended in zip(reasons.values(), ends, strict=True):
        assert ended.code == 78, ended
        assert reason in ended.err
        assert "Traceback" not in ended.err
