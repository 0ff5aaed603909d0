from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest

from agentpod_bot.demo import homeserver
from agentpod_bot.demo.homeserver import PrivateSynapse
from agentpod_bot.errors import HomeserverUnreachable, Refused
from tests.integration.processes import gone, running_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from agentpod_bot.demo.homeserver import Account
    from agentpod_bot.demo.person import Person
    from tests.integration.conftest import Cast
    from tests.integration.people import People

pytestmark = pytest.mark.synapse

LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
HOLDER = """
import asyncio, pathlib, sys
from agentpod_bot.demo.homeserver import PrivateSynapse
async def main():
    async with PrivateSynapse(folder=pathlib.Path(sys.argv[1])) as synapse:
        print(synapse.url, flush=True)
        await asyncio.sleep(60)
asyncio.run(main())
"""


async def chatter(person: Person, room_id: str) -> None:
    for number in range(30):
        await person.send(room_id, str(number))


async def test_a_registered_account_is_logged_in_with_its_device(
    synapse: PrivateSynapse, register: Callable[[str], Awaitable[Account]]
) -> None:
    account = await register("someone")
    async with synapse.person(account) as person:
        told = await person.call("GET", "account/whoami")
    assert (told["user_id"], told["device_id"]) == (account.user_id, account.device_id)


async def test_the_password_that_the_demo_prints_logs_a_real_client_in(synapse: PrivateSynapse) -> None:
    account = await synapse.register("printed", "a-password")
    login = {
        "type": "m.login.password",
        "identifier": {"type": "m.id.user", "user": "printed"},
        "password": "a-password",
    }
    async with synapse.person(account) as person:
        assert (await person.call("POST", "login", login))["user_id"] == account.user_id


async def test_a_name_that_is_taken_is_refused_in_words(synapse: PrivateSynapse) -> None:
    await synapse.register("taken")
    with pytest.raises(HomeserverUnreachable, match="taken"):
        await synapse.register("taken")


async def test_what_one_says_the_other_reads_with_edits_and_reactions(
    people: People, cast: Cast, owner: Person
) -> None:
    async with people.at(cast.pod) as pod:
        first = await pod.send(cast.room_id, "frist")
        await pod.edit(cast.room_id, first, "first")
        await owner.react(cast.room_id, first, "1️⃣")
        await owner.reply(cast.room_id, first, "second")
        heard = await pod.until(cast.room_id, lambda event: event["content"].get("body") == "second")
    messages = await owner.read(cast.room_id)
    assert [(m.sender, m.body, m.edited, m.reactions) for m in messages] == [
        (cast.pod.user_id, "first", True, ("1️⃣",)),
        (cast.owner.user_id, "second", False, ()),
    ]
    assert heard["content"]["m.relates_to"]["m.in_reply_to"]["event_id"] == first


async def test_an_edit_by_somebody_else_changes_nothing_that_is_shown(
    people: People, cast: Cast, owner: Person
) -> None:
    async with people.at(cast.pod) as pod:
        said = await pod.send(cast.room_id, "mine")
    await owner.edit(cast.room_id, said, "yours")
    assert [message.body for message in await owner.read(cast.room_id)] == ["mine"]


async def test_waiting_for_an_event_that_never_comes_ends_in_time(cast: Cast, owner: Person) -> None:
    with pytest.raises(TimeoutError):
        await owner.until(cast.room_id, lambda event: event["type"] == "no.such.type", within_s=0.2)


async def test_without_raised_limits_synapse_soon_asks_to_wait(tmp_path: Path) -> None:
    async with PrivateSynapse(folder=tmp_path, default_limits=True) as limited:
        account = await limited.register("hasty")
        room_id = await limited.room(account)
        async with limited.person(account) as person:
            with pytest.raises(Refused) as refused:
                await chatter(person, room_id)
    assert (refused.value.errcode, refused.value.status) == ("M_LIMIT_EXCEEDED", 429)


@LINUX
async def test_leaving_by_an_error_stops_it_and_removes_its_folder() -> None:
    folders = []

    async def fail_inside() -> None:
        async with PrivateSynapse() as synapse:
            folders.append(synapse.folder)
            assert running_in(synapse.folder)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail_inside()
    assert running_in(folders[0]) == []
    assert not folders[0].exists()


@LINUX
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
async def test_however_its_starter_dies_nothing_keeps_running(tmp_path: Path, how: signal.Signals) -> None:
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(tmp_path), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert holder.stdout is not None
    url = (await asyncio.wait_for(holder.stdout.readline(), 60)).decode().strip()
    async with aiohttp.ClientSession() as session, session.get(f"{url}/health") as response:
        assert response.status == 200
    holder.send_signal(how)
    await holder.wait()
    assert await gone(tmp_path, within_s=15)


@LINUX
async def test_a_killed_leash_takes_synapse_with_it(tmp_path: Path) -> None:
    async with PrivateSynapse(folder=tmp_path) as synapse:
        assert synapse.pid is not None
        os.kill(synapse.pid, signal.SIGKILL)
        assert await gone(tmp_path, within_s=5)


@LINUX
async def test_being_cancelled_while_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    begun = asyncio.Event()

    async def start() -> None:
        async with PrivateSynapse(folder=tmp_path, progress=lambda _: begun.set()):
            pytest.fail("it was to be cancelled before it answers")

    starting = asyncio.create_task(start())
    await begun.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert running_in(tmp_path) == []


async def test_a_deadline_that_passes_is_told_and_leaves_nothing_running(tmp_path: Path) -> None:
    with pytest.raises(HomeserverUnreachable, match="did not answer within 0 s"):
        async with PrivateSynapse(folder=tmp_path, deadline_s=0.05):
            pytest.fail("no Synapse starts so fast")
    if sys.platform.startswith("linux"):
        assert running_in(tmp_path) == []


async def test_where_synapse_is_not_installed_the_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homeserver.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(HomeserverUnreachable, match=r"run `make demo`, or: pip install -r requirements-demo\.lock"):
        async with PrivateSynapse():
            pytest.fail("it is not installed")


async def test_a_synapse_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "synapse.db").mkdir()  # not a database
    with pytest.raises(HomeserverUnreachable, match="ended with code"):
        async with PrivateSynapse(folder=tmp_path):
            pytest.fail("it has no database")
