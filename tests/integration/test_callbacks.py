from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from standardwebhooks.webhooks import Webhook

from tests.integration import said
from tests.integration.daemons import eventually
from tests.unit.callbacks.receiver import OTHER_SECRET, SECRET, answer, receiving

if TYPE_CHECKING:
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast
    from tests.integration.daemons import Daemon
    from tests.unit.callbacks.receiver import Receiver

pytestmark = pytest.mark.synapse


async def taken(receiver: Receiver, number: int) -> None:
    async def has() -> bool:
        return len(receiver.taken) >= number

    # One whose try was cut off by a kill is due again a minute later.
    await eventually(has, within_s=90)


async def test_an_outcome_is_posted_over_a_kill_and_to_where_a_reload_says(
    daemon: Daemon, owner: Person, cast: Cast
) -> None:
    async with receiving(answers=[answer(500)]) as receiver, receiving() as moved:
        client = daemon.config["clients"]["laptop"]
        client["callback_url"] = receiver.url("/hooks?key=in-the-query")
        client["callback_secret_file"] = daemon.secret("signing", SECRET)
        client["callback_allow_private"] = True
        await daemon.start()
        async with daemon.harness() as harness:
            await harness.asked(request_id="r1")
            question = await said.question(owner, cast.room_id, "r1")
            await owner.reply(cast.room_id, question["event_id"], "2")
            await daemon.until_logged("callback_postponed")
        daemon.kill()
        await daemon.ended()
        await daemon.start()
        await taken(receiver, 2)
        first, second = receiver.taken
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        async with daemon.harness() as harness:
            assert second.says == await harness.view("r1") | {"delivered_at": None}
            assert second.says["decision"]["option_id"] == "reject_once"

            client["callback_url"] = moved.url()
            client["callback_old_secret_file"] = client["callback_secret_file"]
            client["callback_secret_file"] = daemon.secret("new", OTHER_SECRET)
            daemon.write()
            daemon.hang_up()
            await daemon.until_logged("configuration_reloaded")
            await harness.asked(request_id="r2")
            assert (await harness.call("POST", "/v1/requests/r2/cancel")).status == 200
            await taken(moved, 1)
            [last] = moved.taken
            assert (last.says["request_id"], last.says["decision"]["outcome"]) == ("r2", "cancelled")
            for secret in (SECRET, OTHER_SECRET):
                Webhook(secret).verify(last.body, last.headers)
            metrics = (await harness.call("GET", "/metrics")).body
            assert "\nagentpod_callbacks_sent_total 2.0\n" in metrics
            assert "\nagentpod_callback_circuits_open 0.0\n" in metrics
    log = daemon.log.read_text()
    assert "in-the-query" not in log
    assert SECRET not in log
