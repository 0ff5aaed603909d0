from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration import said
from tests.integration.daemons import Daemon, eventually, read_line

if TYPE_CHECKING:
    from agentpod_bot.demo.homeserver import PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast

pytestmark = pytest.mark.synapse

ASKED: dict[str, Any] = {
    "title": "mark-title",
    "agent": "mark-agent",
    "options": [
        {"id": "allow_once", "kind": "allow_once", "label": "Allow mark-label"},
        {"id": "reject_once", "kind": "reject_once"},
    ],
    "preview": [
        {"type": "text", "label": "Command", "text": "rm -rf mark-command"},
        {"type": "field", "label": "mark-name", "value": "mark-value"},
    ],
}
MARK = "mark-"
"""Stands in everything that an agent or a person said, and in nothing else."""


async def test_after_a_whole_session_the_log_holds_no_words_above_debug_and_no_tokens_at_all(
    synapse: PrivateSynapse, daemon: Daemon, owner: Person, cast: Cast
) -> None:
    daemon.config["log"]["level"] = "debug"
    await daemon.start()
    async with daemon.harness() as harness, daemon.harness("mark-wrong-token") as stranger:
        waiting = asyncio.create_task(harness.ask(wait_s=60, request_id="r1", **ASKED))
        question = await said.question(owner, cast.room_id, "r1")
        await owner.send(cast.room_id, "mark-chat, nothing to do with it")
        await owner.reply(cast.room_id, question["event_id"], "mark-wrong answer")
        await said.notice(owner, cast.room_id, "none of the options")
        other = {"title": "mark-other"}
        assert (await harness.ask(request_id="r1", **(ASKED | other))).status == 409
        assert (await harness.ask(request_id="r2", **(ASKED | {"expires_at": "mark-soon"}))).status == 422
        assert (await harness.ask(request_id="r3", **(ASKED | {"preview": [{"type": "mark-type"}]}))).status == 422
        assert (await harness.call("POST", "/v1/requests?mark-query=1", "mark-body")).status == 422
        assert (await stranger.ask(request_id="r1", **ASKED)).status == 401
        await owner.reply(cast.room_id, question["event_id"], "2: mark-reason")
        assert (await waiting).body["decision"]["comment"] == "mark-reason"
        await harness.call("POST", "/v1/requests/r1/progress", {"failed_index": 0, "failure_reason": "mark-failure"})
        await owner.until(cast.room_id, lambda event: "mark-failure" in str(event["content"].get("m.new_content")))
        await harness.asked(request_id="r4", **ASKED)
        bad = await said.question(owner, cast.room_id, "r4")
        structured = {
            "suite_event_type": "dev.agentpod.permission.answer.v2",
            "schema_version": 1,
            "request_id": "mark-request",
            "option_id": "mark-option",
            "m.relates_to": {"rel_type": "m.reference", "event_id": bad["event_id"]},
            "msgtype": "m.text",
            "body": "mark-fallback",
        }
        await owner.send(cast.room_id, structured)
        await said.notice(owner, cast.room_id, "does not fit")
        await harness.call(
            "POST", "/v1/requests/r4/answered-elsewhere", {"option_id": "mark-claimed", "by": "mark-somebody"}
        )
        await said.outcome(owner, cast.room_id, bad["event_id"])
        # a token that stops being good while it runs is told, and is not written either
        async with synapse.person(cast.pod) as pod:
            await pod.call("POST", "logout", {})

        async def not_ready() -> bool:
            return (await daemon.readiness())[0] == 503

        await eventually(not_ready, within_s=50)
        assert (await daemon.readiness())[1]["problems"] == ["token_refused"]
        assert (await harness.ask(request_id="r5")).body["code"] == "matrix_unavailable"
        assert (await harness.view("r1"))["status"] == "decided"
    await daemon.stop()
    lines = daemon.log.read_text().splitlines()
    spoken = [line for line in lines if read_line(line)["level"] != "debug"]
    assert daemon.logged("permission_request_closed"), "nothing was logged: this test tests nothing"
    assert len(spoken) < len(lines)
    assert [line for line in spoken if MARK in line] == []
    assert [line for line in lines if daemon.token in line or cast.pod.access_token in line] == []
