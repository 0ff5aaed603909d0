"""`doctor` against the fake homeserver: what it asks there, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.cli.doctor import look
from agentpod_bot.cli.findings import Grade
from agentpod_bot.store.database import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.cli.findings import Finding
    from agentpod_bot.core.ids import RoomId, UserId
    from tests.matrix.fake_homeserver import FakeHomeserver


class Site:
    """A configuration in a folder, changed by its keys."""

    def __init__(self, folder: Path, document: dict[str, Any]) -> None:
        self.folder = folder
        self.document = document

    async def found(self) -> list[Finding]:
        path = self.folder / "config.json"
        path.write_text(json.dumps(self.document))
        return await asyncio.to_thread(lambda: list(look(path, {})))

    async def bad(self) -> list[str]:
        """The lines that are not ok, but for that of a store that is not there."""
        return [str(found) for found in await self.found() if found.grade is not Grade.OK and found.what != "store"]


@pytest.fixture
def folder(token: str, tmp_path: Path) -> Path:
    """A folder with the secrets in it."""
    for name, secret in (("access_token", token), ("laptop", "a-token-of-the-laptop")):
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(secret)
    return tmp_path


@pytest.fixture
def site(hs: FakeHomeserver, pod: UserId, owner: UserId, room: RoomId, folder: Path) -> Site:
    """A configuration with one route, whose alias means the room."""
    assert hs.timeline(room)
    return Site(
        folder,
        {
            "homeserver": {"url": hs.url, "user_id": pod, "access_token_file": "access_token"},
            "clients": {"laptop": {"token_file": "laptop", "routes": ["ops"]}},
            "routes": {"ops": {"room": "#ops:hs.example", "approvers": [owner], "reactions": "accept"}},
            "store": {"path": "store/agentpod.db"},
        },
    )


async def test_where_all_is_well_every_line_is_ok_and_nothing_was_changed(
    site: Site, hs: FakeHomeserver, room: RoomId
) -> None:
    await open_store(site.folder / "store" / "agentpod.db").close()
    found = await site.found()
    assert {line.grade for line in found} == {Grade.OK}, [str(line) for line in found]
    said = "\n".join(map(str, found))
    for what in ("version", "configuration", "store", "open questions", "homeserver", "access token", "clock", room):
        assert what in said
    assert {call.method for call in hs.calls} == {"GET"}
    assert "a-token-of-the-laptop" not in said


@pytest.mark.parametrize(("follows", "grade"), [(True, "warn"), (False, "fail")])
async def test_who_was_put_out_of_an_upgraded_room_hears_of_the_upgrade_and_not_that_it_is_out(
    site: Site, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId, *, follows: bool, grade: str
) -> None:
    site.document["routes"]["ops"]["follow_upgrades"] = follows
    hs.upgrade(room, by=owner)
    hs.kick(room, pod, by=owner)
    [bad] = await site.bad()
    assert bad.startswith(f"{grade}  route ops: the room {room} was replaced by another")


async def test_who_was_put_out_before_the_upgrade_hears_what_may_be_wrong(
    site: Site, hs: FakeHomeserver, room: RoomId, pod: UserId, owner: UserId
) -> None:
    hs.kick(room, pod, by=owner)
    hs.upgrade(room, by=owner)
    [bad] = await site.bad()
    assert bad.startswith(f"fail  route ops: {pod} is not in the room {room}; have an approver invite it there")
    assert bad.endswith("if another room replaced it, name that")


async def test_a_faulty_configuration_is_all_that_is_looked_at(site: Site, hs: FakeHomeserver) -> None:
    site.document["routes"]["ops"]["approvers"] = ["owner"]
    [bad] = await site.bad()
    assert bad.startswith("fail  configuration: ")
    assert "routes.ops.approvers[0]" in bad
    assert hs.calls == []


async def test_a_refused_token_is_told_with_what_to_do(site: Site, hs: FakeHomeserver, token: str) -> None:
    hs.revoke(token)
    [bad] = await site.bad()
    assert bad.startswith("fail  access token: ")
    assert "agentpod-bot login" in bad


async def test_the_token_of_another_account_or_device_is_told(site: Site, hs: FakeHomeserver, owner: UserId) -> None:
    site.document["homeserver"]["device_id"] = "OTHER"
    [bad] = await site.bad()
    assert "is that of device POD, not of OTHER" in bad
    (site.folder / "access_token").write_text(hs.token(owner))
    [bad] = await site.bad()
    assert f"is that of {owner}" in bad


async def test_a_homeserver_that_is_not_there_is_told(site: Site) -> None:
    site.document["homeserver"]["url"] = "http://127.0.0.1:1"
    [bad] = await site.bad()
    assert bad.startswith("fail  homeserver: http://127.0.0.1:1")


async def test_a_clock_that_is_wrong_is_told(site: Site, hs: FakeHomeserver) -> None:
    headers = {"Date": "Mon, 01 Jan 2024 00:00:00 GMT"}
    hs.answer_with("GET", "/versions", status=200, body={"versions": []}, headers=headers)
    [bad] = await site.bad()
    assert bad.startswith("fail  clock: ")
    assert "ahead of the homeserver's" in bad


async def test_an_alias_that_means_nothing_and_a_room_without_the_bot_are_told_each_by_its_route(
    site: Site, hs: FakeHomeserver, owner: UserId
) -> None:
    approvers = [owner]
    site.document["routes"]["gone"] = {"room": "#gone:hs.example", "approvers": approvers}
    site.document["routes"]["away"] = {"room": hs.room(owner), "approvers": approvers}
    gone, away = await site.bad()
    assert gone.startswith("fail  route gone: the alias #gone:hs.example means no room")
    assert away.startswith("fail  route away: ")
    assert "is not in the room" in away


async def test_power_levels_that_forbid_the_bot_to_speak_are_told(
    site: Site, hs: FakeHomeserver, owner: UserId, room: RoomId
) -> None:
    hs.power(room, by=owner, users={owner: 100}, events_default=50)
    [bad] = await site.bad()
    assert "sending messages takes power level 50" in bad


async def test_a_room_that_cannot_be_read_is_told(site: Site, hs: FakeHomeserver) -> None:
    hs.answer_with("GET", "/joined_members", status=502, body="<html>", times=5)
    [bad] = await site.bad()
    assert "cannot be looked at" in bad
