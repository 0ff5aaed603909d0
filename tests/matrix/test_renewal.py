"""A token that lapsed, and the one that takes its place: nothing is lost, and no other session is touched."""

from __future__ import annotations

import asyncio
import stat
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot.core.ids import RoomId, TxnId, UserId
from agentpod_bot.errors import TokenRefused
from agentpod_bot.matrix.renewal import ENDED, Renewal, Session
from agentpod_bot.matrix.sync import SyncLoop
from tests.examples import START
from tests.fakes import FakeClock
from tests.matrix.fake_homeserver import PASSWORD, FakeHomeserver
from tests.matrix.loop_parts import Memory, StepClock, loop_of, running
from tests.matrix.rig import Rig

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.matrix.client import MatrixClient


@dataclass(frozen=True)
class Bench:
    """A homeserver, the bot's client on it, and the files that its secrets are kept in."""

    hs: FakeHomeserver
    client: MatrixClient
    pod: UserId
    owner: UserId
    room: RoomId
    token: str
    folder: Path

    @property
    def kept(self) -> Path:
        """The access token's file."""
        return self.folder / "access_token"

    @property
    def refresh_file(self) -> Path:
        """The refresh token's file."""
        return self.folder / "refresh_token"

    def with_password(self, password: str = PASSWORD) -> Session:
        """A session that is renewed by a login."""
        return Session(
            url=self.hs.url, user_id=self.pod, device_id="POD", access_token_file=self.kept, password=password
        )

    def with_refresh_token(self, *, of: str | None = None) -> Session:
        """A session that is renewed by a refresh token, its own unless another account is named."""
        token = self.hs.refresh_token(of or self.pod, "POD")
        self.refresh_file.write_text(token)
        return replace(self.with_password(), password=None, refresh_token=token, refresh_token_file=self.refresh_file)


@pytest.fixture
def at(  # noqa: PLR0917 - a fixture gathers fixtures
    hs: FakeHomeserver, client: MatrixClient, pod: UserId, owner: UserId, room: RoomId, token: str, tmp_path: Path
) -> Bench:
    bench = Bench(hs, client, pod, owner, room, token, tmp_path)
    bench.kept.write_text(token)
    return bench


async def test_a_lapsed_session_is_logged_in_again_on_its_own_device(at: Bench) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    assert await Renewal(at.client, at.with_password()).renew() == "renewed"
    assert await at.client.whoami() == (at.pod, "POD")
    new = at.kept.read_text().strip()
    assert new != at.token
    assert stat.S_IMODE(at.kept.stat().st_mode) == 0o600
    assert at.hs.calls[-1].token == new
    assert at.hs.count("POST", "/logout") == 0


async def test_a_session_that_somebody_ended_is_not_logged_in_again(at: Bench) -> None:
    """Whoever ended it wants the bot out; only they can let it in again."""
    at.hs.revoke(at.token, soft_logout=False)
    with capture_logs() as logs:
        assert await Renewal(at.client, at.with_password()).renew() == "never"
    assert at.hs.count("POST", "/login") == 0
    assert at.kept.read_text() == at.token
    assert [(line["event"], line["error"]) for line in logs] == [("session_not_renewed", ENDED)]


@pytest.mark.parametrize("soft_logout", [True, False])
async def test_without_a_way_to_renew_it_nothing_is_tried(at: Bench, *, soft_logout: bool) -> None:
    at.hs.revoke(at.token, soft_logout=soft_logout)
    assert await Renewal(at.client, Session(url=at.hs.url, user_id=at.pod)).renew() == "never"
    assert [call.path for call in at.hs.calls] == ["/_matrix/client/v3/account/whoami"]


async def test_a_token_that_is_good_after_all_is_kept(at: Bench) -> None:
    assert await Renewal(at.client, at.with_password()).renew() == "renewed"
    assert (at.hs.count("POST", "/login"), at.kept.read_text()) == (0, at.token)


async def test_a_wrong_password_is_tried_once_until_another_is_given(at: Bench) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    renewal = Renewal(at.client, at.with_password("wrong"))
    assert [await renewal.renew(), await renewal.renew()] == ["never", "never"]
    assert at.hs.count("POST", "/login") == 1
    renewal.replace(at.with_password())
    assert await renewal.renew() == "renewed"


@pytest.mark.parametrize(("status", "errcode"), [(429, "M_LIMIT_EXCEEDED"), (502, "")])
async def test_a_login_that_is_not_refused_is_tried_again_later(at: Bench, status: int, errcode: str) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    at.hs.answer_with("POST", "/login", status=status, body={"errcode": errcode, "error": ""})
    renewal = Renewal(at.client, at.with_password())
    assert [await renewal.renew(), await renewal.renew()] == ["later", "renewed"]


async def test_a_login_that_gives_another_device_is_not_used(at: Bench) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    other = {"user_id": at.pod, "device_id": "OTHER", "access_token": "token-of-another-device"}
    at.hs.answer_with("POST", "/login", status=200, body=other)
    assert await Renewal(at.client, at.with_password()).renew() == "never"
    assert at.kept.read_text() == at.token
    with pytest.raises(TokenRefused):
        await at.client.whoami()


@pytest.mark.parametrize("soft_logout", [True, False])
async def test_a_refresh_token_is_exchanged_and_both_new_tokens_are_kept(at: Bench, *, soft_logout: bool) -> None:
    renewal = Renewal(at.client, at.with_refresh_token())
    old = at.refresh_file.read_text()
    for used in (at.token, None):
        at.hs.revoke(used or at.kept.read_text().strip(), soft_logout=soft_logout)
        assert await renewal.renew() == "renewed"
        assert await at.client.whoami() == (at.pod, "POD")
        assert at.hs.calls[-1].token == at.kept.read_text().strip()
    assert at.refresh_file.read_text().strip() != old
    assert stat.S_IMODE(at.refresh_file.stat().st_mode) == 0o600
    assert at.hs.count("POST", "/refresh") == 2


async def test_what_a_refresh_gave_is_not_used_before_the_next_refresh_token_is_kept(at: Bench) -> None:
    """Used, the new at.token would make the old refresh at.token worthless, and the next start would have neither."""
    at.hs.revoke(at.token, soft_logout=True)
    session = at.with_refresh_token()
    lost = Session(
        url=at.hs.url,
        user_id=at.pod,
        access_token_file=at.kept,
        refresh_token=session.refresh_token,
        refresh_token_file=at.folder / "no such folder" / "refresh_token",
    )
    assert await Renewal(at.client, lost).renew() == "later"
    assert {call.token for call in at.hs.calls} == {at.token, None}
    assert await Renewal(at.client, session).renew() == "renewed"  # as after a restart, with what the file holds


async def test_a_refresh_token_of_another_account_is_not_used(at: Bench) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    renewal = Renewal(at.client, at.with_refresh_token(of=at.owner))
    assert [await renewal.renew(), await renewal.renew()] == ["never", "never"]
    assert at.kept.read_text() == at.token
    assert at.hs.count("POST", "/refresh") == 1


async def test_where_the_refresh_token_is_worthless_a_lapsed_session_is_logged_in_again(at: Bench) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    at.refresh_file.write_text("a-worthless-refresh-token")
    session = Session(
        url=at.hs.url,
        user_id=at.pod,
        device_id="POD",
        access_token_file=at.kept,
        password=PASSWORD,
        refresh_token="a-worthless-refresh-token",
        refresh_token_file=at.refresh_file,
    )
    renewal = Renewal(at.client, session)
    assert await renewal.renew() == "renewed"
    at.hs.revoke(at.kept.read_text().strip(), soft_logout=True)
    assert await renewal.renew() == "renewed"  # with the refresh at.token that the login gave
    assert (at.hs.count("POST", "/login"), at.hs.count("POST", "/refresh")) == (1, 2)


async def test_a_password_login_serves_also_where_its_token_cannot_be_kept(at: Bench) -> None:
    at.hs.revoke(at.token, soft_logout=True)
    session = replace(at.with_password(), access_token_file=at.folder / "no such folder" / "access_token")
    assert await Renewal(at.client, session).renew() == "renewed"
    assert await at.client.whoami() == (at.pod, "POD")


def test_no_secret_shows_where_a_session_is_printed(tmp_path: Path) -> None:
    session = Session(
        url="",
        user_id=UserId("@pod:hs.example"),
        password="mark-1",
        refresh_token="mark-2",
        refresh_token_file=tmp_path,
    )
    assert "mark-" not in repr(session)


# In the loop.


def renewing(client: MatrixClient, memory: Memory, clock: StepClock, renewal: Renewal) -> SyncLoop:
    async def renew() -> bool:
        return await renewal.renew() == "renewed"

    return SyncLoop(client, memory, clock, jitter=lambda: 1.0, renew=renew)


async def test_the_loop_goes_on_at_once_where_it_was_and_misses_nothing(at: Bench) -> None:
    memory, clock = Memory(frozenset({at.room})), StepClock()
    loop = renewing(at.client, memory, clock, Renewal(at.client, at.with_password()))
    async with running(loop):
        await memory.until(lambda: memory.batches)
        at.hs.revoke(at.token, soft_logout=True)
        at.hs.say(at.room, at.owner, "said meanwhile")
        await memory.until(lambda: "said meanwhile" in memory.bodies)
    assert (clock.slept, loop.token_refused) == ([], False)
    assert memory.bodies == ["said meanwhile"]


async def test_a_homeserver_that_refuses_each_new_token_too_is_asked_slowly(at: Bench) -> None:
    refusal = {"errcode": "M_UNKNOWN_TOKEN", "error": "", "soft_logout": True}
    at.hs.answer_with("GET", "/sync", times=4, status=401, body=refusal)
    memory, clock = Memory(frozenset({at.room})), StepClock()
    async with running(renewing(at.client, memory, clock, Renewal(at.client, at.with_password()))):
        await memory.until(lambda: memory.batches)
    assert clock.slept == [60.0, 60.0, 60.0]


class HeldClock(StepClock):
    """A clock whose sleeps never end by themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.sleeping = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.sleeping.set()
        await asyncio.Event().wait()


async def test_a_token_given_by_hand_ends_the_wait(at: Bench) -> None:
    memory, clock = Memory(frozenset({at.room})), HeldClock()
    loop = loop_of(at.client, memory, clock)
    async with running(loop):
        await memory.until(lambda: memory.batches)
        at.hs.revoke(at.token)
        await clock.sleeping.wait()
        assert loop.token_refused
        at.client.use(at.hs.token(at.pod, "ANOTHER"))
        loop.begin_anew()
        assert not loop.first_sync_done.is_set()
        await loop.first_sync_done.wait()
        assert not loop.token_refused


async def test_only_a_sync_asked_for_with_the_new_token_ends_the_new_beginning(at: Bench) -> None:
    memory = Memory(frozenset({at.room}))
    loop = loop_of(at.client, memory)
    async with running(loop):
        await memory.until(lambda: memory.batches)
        await at.hs.until(lambda: at.hs.count("GET", "/sync") == 2)  # waits for news, with the old at.token
        loop.begin_anew()
        at.hs.say(at.room, at.owner, "1")
        await memory.until(lambda: len(memory.batches) == 2)
        assert not loop.first_sync_done.is_set()
        await memory.until(loop.first_sync_done.is_set)


async def test_what_another_device_sent_is_the_same_event_for_whoever_sees_it(at: Bench) -> None:
    """The premise of waiting for a sync: transaction ids hold for one device only."""
    await at.client.send(at.room, "m.room.message", {"body": "once"}, TxnId("t1"))
    at.client.use(at.hs.token(at.pod, "ANOTHER"))
    await at.client.send(at.room, "m.room.message", {"body": "once"}, TxnId("t1"))
    assert len(at.hs.sent_by(at.pod)) == 2


async def test_a_question_that_another_device_sent_is_not_asked_twice(tmp_path: Path) -> None:
    """Its transaction id tells the homeserver nothing any more; the timeline shows it all the same."""
    clock = FakeClock(START)
    async with FakeHomeserver(now_ms=clock.now_ms) as hs:
        rig = Rig(hs, clock, tmp_path / "store" / "agentpod.db")
        hs.answer_with("GET", "/sync", times=1_000, status=502)
        hs.swallow("PUT", "/send/")
        async with rig.run(caught_up=False) as before:
            question = await before.ask()
            await hs.until(rig.questions)
        hs.clear_faults()
        rig.token = hs.token(rig.pod, "ANOTHER")
        async with rig.run() as after:
            await after.when(question, lambda now: now.shown_ts is not None)
            clock.advance(60_000)
            await after.quiet()
            assert len(rig.questions()) == 1
