"""The real process while its disk is full or its store is locked: nothing half-done, and it recovers by itself."""

from __future__ import annotations

import asyncio
import resource
import sqlite3
import time
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from tests.integration.daemons import Daemon, eventually, ran
from tests.matrix.fake_homeserver import FakeHomeserver

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.integration.daemons import Harness

pytestmark = pytest.mark.asyncio(loop_scope="module")

RED_WITHIN_S = 10.0
QUESTION = "dev.agentpod.permission.v2"


class Scene:
    """The real daemon at a fake homeserver, with one room and one approver."""

    def __init__(self, hs: FakeHomeserver, folder: Path) -> None:
        self.hs = hs
        self.pod, self.owner = hs.user("pod"), hs.user("owner")
        self.room = hs.room(self.pod, self.owner)
        self.token = hs.token(self.pod)
        self.daemon = Daemon(folder, homeserver=hs.url, bot=(self.pod, self.token), rooms={"ops": self.room})
        self.daemon.approve(self.owner)
        self.daemon.config["routes"]["ops"]["reactions"] = "accept"

    def shown(self, request_id: str) -> int:
        """How many questions of this request stand in the room."""
        contents = [event["content"] for event in self.hs.sent_by(self.pod)]
        return sum(
            content.get("suite_event_type") == QUESTION and content["request_id"] == request_id for content in contents
        )

    async def red(self, problem: str) -> None:
        """Wait until the daemon says that it is not ready, which must be soon, and why."""
        began = time.monotonic()

        async def is_red() -> bool:
            status, body = await self.daemon.readiness()
            return status == 503 and problem in body["problems"]

        await eventually(is_red, within_s=RED_WITHIN_S)
        assert time.monotonic() - began <= RED_WITHIN_S

    @asynccontextmanager
    async def full(self) -> AsyncIterator[None]:
        """No file of the process can grow any more: every write that would make one larger fails."""
        wal = self.daemon.store.with_name(f"{self.daemon.store.name}-wal")
        soft, hard = resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (max(wal.stat().st_size, 4096), hard))
        try:
            yield
        finally:
            resource.prlimit(self.daemon.pid, resource.RLIMIT_FSIZE, (soft, hard))

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Another program holds the store's write lock."""
        with closing(sqlite3.connect(self.daemon.store, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                other.execute("ROLLBACK")

    def out_of_order(self, fault: str) -> Any:
        return self.full() if fault == "full" else self.locked()

    def rows(self, table: str) -> int:
        with closing(sqlite3.connect(self.daemon.store)) as connection:
            [count] = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - our own table
            return int(count)


@asynccontextmanager
async def running(folder: Path) -> AsyncIterator[Scene]:
    async with FakeHomeserver(now_ms=lambda: time.time_ns() // 1_000_000) as hs:
        made = Scene(hs, folder)
        try:
            await made.daemon.start()
            yield made
        finally:
            await made.daemon.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """A daemon that each test leaves as it found it."""
    async with running(tmp_path_factory.mktemp("disk") / "daemon") as made:
        async with made.daemon.harness() as calling:  # makes the -wal the largest of the process's files by far
            await calling.asked(request_id="large", ignored="x" * 800_000)
            await calling.call("POST", "/v1/requests/large/cancel")
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def own(tmp_path: Path) -> AsyncIterator[Scene]:
    """A daemon of the test's own."""
    async with running(tmp_path / "daemon") as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def calling(scene: Scene) -> AsyncIterator[Harness]:
    await scene.daemon.ready()
    async with scene.daemon.harness() as harness:
        yield harness


async def pending(calling: Harness, request_id: str, status: str = "pending") -> None:
    async def it_is() -> bool:
        return bool((await calling.view(request_id))["status"] == status)

    await eventually(it_is)


@pytest.mark.parametrize("fault", ["full", "locked"])
async def test_while_the_store_takes_no_write_requests_are_refused_and_nothing_is_half_done(
    scene: Scene, calling: Harness, fault: str
) -> None:
    before = scene.rows("questions"), scene.rows("outbox"), scene.rows("audit")
    async with scene.out_of_order(fault):
        refused = await calling.ask(request_id=fault)
        assert (refused.status, refused.body["code"]) == (503, "store_unavailable")
        assert int(refused.headers["Retry-After"]) > 0
        await scene.red("store_unavailable")
        assert (await calling.call("GET", "/healthz")).status == 200
        metrics = (await calling.call("GET", "/metrics")).body
        assert "\nagentpod_store_writable 0.0\n" in metrics
        assert "\nagentpod_outbox_effects NaN\n" in metrics
    assert (scene.rows("questions"), scene.rows("outbox"), scene.rows("audit")) == before
    assert scene.shown(fault) == 0
    await scene.daemon.ready()
    await calling.asked(request_id=fault)
    await pending(calling, fault)
    assert scene.shown(fault) == 1
    assert "\nagentpod_store_writable 1.0\n" in (await calling.call("GET", "/metrics")).body


@pytest.mark.parametrize("fault", ["full", "locked"])
async def test_an_answer_given_meanwhile_counts_once_the_store_takes_writes_again(
    scene: Scene, calling: Harness, fault: str
) -> None:
    request_id = f"answered-{fault}"
    await calling.asked(request_id=request_id)
    await pending(calling, request_id)
    event_id = (await calling.view(request_id))["event_id"]
    failed = len(scene.daemon.logged("sync_failed"))
    async with scene.out_of_order(fault):
        await scene.red("store_unavailable")
        asking = asyncio.create_task(calling.call("GET", f"/v1/requests/{request_id}", wait_s=60))
        scene.hs.say(scene.room, scene.owner, "1", reply_to=event_id)
        await scene.daemon.until_logged("sync_failed", times=failed + 1)
        if fault == "full":  # reading takes the lock too, so a locked store cannot even be read
            assert (await calling.view(request_id))["decision"] is None
    await pending(calling, request_id, "decided")
    reply = await asking
    if reply.status == 200:
        assert reply.body["decision"]["option_id"] == "allow_once"
    else:
        assert reply.body["code"] == "store_unavailable"
    decided = (await calling.view(request_id))["decision"]
    assert (decided["option_id"], decided["answered_by"]) == ("allow_once", scene.owner)
    assert scene.shown(request_id) == 1


async def test_a_question_that_was_sent_while_the_disk_filled_up_stands_in_the_room_once(
    scene: Scene, calling: Harness
) -> None:
    """The send succeeds and its commit fails: the same transaction id makes the repeat the same event."""
    hold = asyncio.Event()
    fault = scene.hs.hold("PUT", "/send/m.room.message/", hold)
    await calling.asked(request_id="sent")
    await asyncio.wait_for(fault.hit.wait(), 10)
    waited = len(scene.daemon.logged("outbox_waits_for_the_store"))
    async with scene.full():
        hold.set()
        await scene.daemon.until_logged("outbox_waits_for_the_store", times=waited + 1)
    await pending(calling, "sent")
    assert scene.shown("sent") == 1


async def test_a_damaged_store_is_refused_at_the_start_with_its_exit_code_and_doctor_says_so_too(own: Scene) -> None:
    await own.daemon.stop()
    with closing(sqlite3.connect(own.daemon.store, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    spoil(own.daemon.store)
    await own.daemon.start(until_ready=False)
    assert await own.daemon.ended() == 78
    last = own.daemon.log.read_text().splitlines()[-1]
    assert "is damaged" in last
    assert "put a backup in its place" in last
    looked = await ran(own.daemon.command("doctor"))
    assert looked.code == 1
    assert "fail  store: " in looked.out


async def test_a_backup_of_the_running_daemon_can_be_restored_and_what_was_open_goes_on(own: Scene) -> None:
    async with own.daemon.harness() as calling:
        await calling.asked(request_id="r1")
        await pending(calling, "r1")
    copy = own.daemon.folder / "backup.db"
    made = await ran(own.daemon.command("backup", str(copy)))
    assert (made.code, made.err) == (0, "")
    assert "1 questions, 1 of them open" in made.out
    assert (await ran(own.daemon.command("backup", str(copy)))).code == 2
    looked = await ran(own.daemon.command("doctor"))
    assert looked.code == 0, looked.out
    assert f"process {own.daemon.pid} has it open" in looked.out
    await own.daemon.stop()
    restore(own.daemon.store, copy)
    await own.daemon.start()
    async with own.daemon.harness() as calling:
        event_id = (await calling.view("r1"))["event_id"]
        own.hs.say(own.room, own.owner, "2", reply_to=event_id)
        await pending(calling, "r1", "decided")
    assert own.shown("r1") == 1


def spoil(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    for page in range(4, len(raw) // 4096, 2):
        raw[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(raw)


def restore(store: Path, copy: Path) -> None:
    """As docs/store.md says."""
    for suffix in ("", "-wal", "-shm"):
        store.with_name(f"{store.name}{suffix}").unlink(missing_ok=True)
    copy.rename(store)


async def test_a_revoked_token_makes_readiness_red_though_a_poll_is_under_way(own: Scene) -> None:
    """The fake homeserver ends such a poll at once; a real one lets it wait, so polls are short."""
    own.hs.revoke(own.token)
    await own.red("token_refused")
    async with own.daemon.harness() as calling:
        refused = await calling.ask()
        assert (refused.status, refused.body["code"]) == (503, "matrix_unavailable")
        assert "\nagentpod_matrix_ready 0.0\n" in (await calling.call("GET", "/metrics")).body
