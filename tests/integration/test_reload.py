from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from tests.integration import said
from tests.integration.daemons import Daemon, Forwarder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from agentpod_bot.demo.homeserver import Account, PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast
    from tests.integration.people import People

pytestmark = pytest.mark.synapse


async def test_a_new_approver_and_a_new_token_count_at_once_and_who_waits_goes_on_waiting(
    people: People,
    register: Callable[[str], Awaitable[Account]],
    daemon: Daemon,
    owner: Person,
    cast: Cast,
) -> None:
    await daemon.start()
    account = await register("second")
    await owner.invite(cast.room_id, account.user_id)
    async with daemon.harness() as harness, people.at(account) as second:
        await second.join(cast.room_id)
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1"))
        asked = await said.question(owner, cast.room_id, "r1")
        await harness.waiting_calls(1)
        await second.reply(cast.room_id, asked["event_id"], "1")
        await said.notice(owner, cast.room_id, "not an approver")

        desk = daemon.client("desk")
        async with daemon.harness(desk) as newcomer:
            assert (await newcomer.call("GET", "/v1/requests")).status == 401
            daemon.approve(cast.owner.user_id, account.user_id).write()
            daemon.hang_up()
            await daemon.until_logged("configuration_reloaded")
            assert (await newcomer.call("GET", "/v1/requests")).status == 200

            # a file that cannot be used changes nothing, and says why
            daemon.approve().write()
            daemon.hang_up()
            refused = await daemon.until_logged("configuration_refused")
            assert any("routes.ops.approvers" in problem for problem in refused["problems"])
            daemon.path.write_text("homeserver: [")
            daemon.hang_up()
            await daemon.until_logged("configuration_refused", times=2)
            assert (await newcomer.call("GET", "/v1/requests")).status == 200

            assert not waiting.done()
            await second.reply(cast.room_id, asked["event_id"], "2")
            view = (await waiting).body
            assert (view["decision"]["option_id"], view["decision"]["answered_by"]) == ("reject_once", account.user_id)

            # and what is taken away is gone
            del daemon.config["clients"]["desk"]
            daemon.approve(cast.owner.user_id).write()
            daemon.hang_up()
            await daemon.until_logged("configuration_reloaded", times=2)
            assert (await newcomer.call("GET", "/v1/requests")).status == 401
        after = await harness.asked(request_id="r2")
        again = await said.question(owner, cast.room_id, after["request_id"])
        assert again["content"]["m.mentions"] == {"user_ids": [cast.owner.user_id]}
        await second.reply(cast.room_id, again["event_id"], "1")
        await owner.reply(cast.room_id, again["event_id"], "2")
        assert (await harness.view("r2", wait_s=20))["decision"]["answered_by"] == cast.owner.user_id
    assert len(daemon.logged("configuration_reloaded")) == 2


async def test_without_its_homeserver_it_runs_says_so_and_becomes_ready_when_it_is_there(
    synapse: PrivateSynapse, daemon: Daemon, owner: Person, cast: Cast
) -> None:
    async with Forwarder(synapse.url) as homeserver, daemon.harness() as harness:
        daemon.config["homeserver"]["url"] = homeserver.url
        await daemon.start(until_ready=False)
        await daemon.until_logged("homeserver_unreachable")
        status, body = await daemon.readiness()
        assert (status, body["problems"]) == (503, ["never_synced"])
        assert (await harness.call("GET", "/healthz")).status == 200
        nobody = await harness.ask(wait_s=30)
        assert (nobody.status, nobody.body["code"]) == (503, "matrix_unavailable")
        assert int(nobody.headers["Retry-After"]) > 0
        assert (await harness.call("GET", "/v1/requests")).body["requests"] == []
        await homeserver.open()
        await daemon.ready()
        asked = await harness.asked(request_id="r1")
        await said.question(owner, cast.room_id, "r1")

        # away for a moment: what is asked is queued, what is reloaded counts, and nothing is lost
        await homeserver.close()
        desk = daemon.client("desk")
        daemon.write()
        daemon.hang_up()
        async with daemon.harness(desk) as newcomer:
            await daemon.until_logged("configuration_reloaded")
            assert (await newcomer.call("GET", "/v1/requests")).status == 200
            queued = await newcomer.asked(request_id="r2")
            assert (queued["status"], queued["event_id"]) == ("queued", None)
            await owner.send(cast.room_id, f"1 {asked['code']}")
            await homeserver.open()
            assert (await harness.view("r1", wait_s=30))["decision"]["option_id"] == "allow_once"
            late = await said.question(owner, cast.room_id, "r2")
            await owner.reply(cast.room_id, late["event_id"], "1")
            assert (await newcomer.view("r2", wait_s=30))["decision"]["option_id"] == "allow_once"
        assert daemon.logged("configuration_refused") == []
        assert len(said.questions(await owner.history(cast.room_id))) == 2
