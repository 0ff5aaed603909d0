from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from agentpod_bot.demo.homeserver import PrivateSynapse
from tests.integration import said
from tests.integration.conftest import new_folder
from tests.integration.daemons import Daemon
from tests.integration.people import People, give_keys

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.synapse

QUESTIONS = 12


async def test_under_a_homeservers_own_limits_every_question_arrives_once_in_the_end(
    tmp_path: Path, *, sealed: bool
) -> None:
    async with PrivateSynapse(folder=tmp_path, default_limits=True) as limited:
        people = People(limited, new_folder(tmp_path / "devices"), sealed)
        pod, account = await limited.register("pod"), await limited.register("owner")
        room_id = await people.room(account, pod)
        bot = (pod.user_id, pod.access_token)
        daemon = Daemon(tmp_path / "daemon", homeserver=limited.url, bot=bot, rooms={"ops": room_id})
        if sealed:
            await give_keys(daemon, pod)
        try:
            async with people.at(account) as owner, daemon.harness() as harness:
                await daemon.approve(account.user_id).start()
                names = [f"r{number}" for number in range(QUESTIONS)]
                for name in names:
                    await harness.asked(request_id=name, session_id=f"session of {name}")
                last = await said.question(owner, room_id, names[-1])
                # the answer is not held up by what the room may be told only later
                await owner.reply(room_id, last["event_id"], "2")
                assert (await harness.view(names[-1], wait_s=4))["decision"]["option_id"] == "reject_once"
                events = await owner.history(room_id)
            assert [event["content"]["request_id"] for event in said.questions(events)] == names
            waits = [line["wait_ms"] for line in daemon.logged("event_postponed") if line["error"] == "rate_limited"]
            assert waits, "the homeserver limited nothing: this test tests nothing"
            assert max(waits) > 1_000
            assert len(waits) <= QUESTIONS, "it does not wait for as long as it is told to"
        finally:
            await daemon.stop()
