from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.integration import said
from tests.integration.daemons import Daemon, ended, ran, running

if TYPE_CHECKING:
    from agentpod_bot.demo.homeserver import PrivateSynapse
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast
    from tests.integration.daemons import Event

pytestmark = pytest.mark.synapse


@pytest.fixture
async def logged_in(synapse: PrivateSynapse, daemon: Daemon, cast: Cast, *, sealed: bool) -> Daemon:
    """The daemon on a Unix socket, running with the token, and for an encrypted room the keys, that `login` made."""
    daemon.listen_on_socket()
    password = daemon.secret("password", f"{cast.pod.password}\n")
    token_file = daemon.folder / "written by login"
    keys = ["--e2e", "--e2e-store", str(daemon.folder / "keys made by login")] if sealed else ["--no-e2e"]
    login = [sys.executable, "-m", "agentpod_bot", "login", "--homeserver", synapse.url, "--user", cast.pod.user_id]
    told = await ran([*login, "--output", str(token_file), "--password-file", password, *keys])
    assert told.code == 0, told
    assert token_file.stat().st_mode & 0o777 == 0o600
    assert token_file.read_text().strip() not in told.out + told.err
    assert cast.pod.password not in told.out + told.err
    printed = yaml.safe_load(told.out.partition("For the configuration file:\n")[2])
    assert ("e2e" in printed) == sealed
    assert told.out.startswith("Logged in as "), told
    assert told.err == ""
    daemon.config |= printed
    await daemon.start()
    return daemon


async def titled(owner: Person, room_id: str, title: str) -> Event:
    return await owner.until(
        room_id,
        lambda event: event["content"].get("suite_event_type") == said.QUESTION and event["content"]["title"] == title,
    )


async def test_ask_exits_by_the_answer_over_a_restart_too_and_list_cancel_and_healthcheck_do_what_they_say(
    logged_in: Daemon, owner: Person, cast: Cast
) -> None:
    daemon = logged_in
    allowed, rejected, ignored, over_a_gap = [
        asyncio.create_task(ran(daemon.command("ask", title, "--session", title, *more)))
        for title, more in (
            ("Deploy", ["--command", "./deploy.sh"]),
            ("Destroy", ["--agent", "hermes"]),
            ("Dither", ["--ttl", "5s", "--json"]),
            ("Delay", []),
        )
    ]
    deploy, destroy, _, delay = [
        await titled(owner, cast.room_id, title) for title in ("Deploy", "Destroy", "Dither", "Delay")
    ]
    assert "    ./deploy.sh" in deploy["content"]["body"]
    await owner.reply(cast.room_id, deploy["event_id"], "1")
    await owner.reply(cast.room_id, destroy["event_id"], "2: never")
    yes, no, silence = await allowed, await rejected, await ignored
    assert (yes.code, yes.out) == (0, "allow_once\n"), yes
    assert (no.code, no.out) == (1, "reject_once\n"), no
    assert "never" in no.err
    assert (silence.code, json.loads(silence.out)["status"]) == (3, "expired"), silence

    sent = await ran(daemon.command("ask", "Later", "--no-wait"))
    assert sent.code == 3, sent
    request_id = sent.out.strip()
    later = await said.question(owner, cast.room_id, request_id)
    listed = await ran(daemon.command("list", "--status", "pending"))
    assert listed.code == 0, listed
    assert [line.split()[0] for line in listed.out.splitlines()] == [later["content"]["code"], delay["content"]["code"]]
    cancelled = await ran(daemon.command("cancel", request_id))
    assert (cancelled.code, cancelled.out) == (0, f"{request_id}\n"), cancelled
    assert (await said.outcome(owner, cast.room_id, later["event_id"]))["content"]["outcome"] == "cancelled"
    assert (await ran(daemon.command("healthcheck"))).code == 0

    daemon.kill()
    await daemon.ended()
    assert (await ran(daemon.command("healthcheck"))).code == 1
    await owner.reply(cast.room_id, delay["event_id"], "1")
    await daemon.start()
    told = await over_a_gap
    assert (told.code, told.out) == (0, "allow_once\n"), told

    async with running(daemon.command("ask", "Never mind")) as process:
        question = await titled(owner, cast.room_id, "Never mind")
        process.terminate()
        stopped = await ended(process)
    assert (stopped.code, stopped.out) == (128 + signal.SIGTERM, ""), stopped
    assert (await said.outcome(owner, cast.room_id, question["event_id"]))["content"]["outcome"] == "cancelled"
