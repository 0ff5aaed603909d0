"""The sender over a real store, with a target that answers as it is told."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from agentpod_bot.callbacks.circuit import FAILURES_TO_OPEN, MOST_AT_ONCE, PROBE_EVERY_MS, RETRY_S
from agentpod_bot.callbacks.reply import Failed, Gone, Taken, Why
from agentpod_bot.callbacks.sender import LEASE_MS, Callbacks
from agentpod_bot.callbacks.target import Target
from agentpod_bot.core.ids import ClientName, WebhookId
from agentpod_bot.errors import StoreUnavailable
from agentpod_bot.store.database import open_store
from tests.fakes import FakeChance, FakeClock
from tests.unit.store.examples import LAPTOP, MINUTE, T0, insert_closed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from agentpod_bot.callbacks.reply import Reply
    from agentpod_bot.core.model import Question
    from agentpod_bot.store.database import SqlStore

SERVER = ClientName("server")
TARGET = Target("https://hooks.test/laptop?key=in-the-query", ("s3cret-s3cret",))
OTHER_TARGET = Target("https://hooks.test/server", ("other-other",))
BOTH = {LAPTOP: TARGET, SERVER: OTHER_TARGET}
DOWN = Failed(Why.SERVER_ERROR, 500)
RETENTION_MS = 7 * 24 * 60 * MINUTE
PATIENCE_S = 20.0


@dataclass
class FakePost:
    """Answers each target with what stands in `answers`, in their order; then with `usual`."""

    usual: Reply = field(default_factory=Taken)
    answers: dict[str, list[Reply]] = field(default_factory=dict)
    always: dict[str, Reply] = field(default_factory=dict)
    posted: list[tuple[str, str, str]] = field(default_factory=list)
    gate: asyncio.Event | None = None
    most_at_once: int = 0
    at_once: int = 0

    async def __call__(self, target: Target, webhook_id: WebhookId, body: str) -> Reply:
        self.posted.append((target.url, webhook_id, body))
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.gate is not None:
                await self.gate.wait()
        finally:
            self.at_once -= 1
        if told := self.answers.get(target.url):
            return told.pop(0)
        return self.always.get(target.url, self.usual)

    def bodies(self, target: Target = TARGET) -> list[str]:
        return [body for url, _, body in self.posted if url == target.url]


@dataclass
class FakeMeter:
    sent: int = 0
    failures: list[str] = field(default_factory=list)
    given_up: list[str] = field(default_factory=list)

    def callback_sent(self) -> None:
        self.sent += 1

    def callback_failed(self, why: str) -> None:
        self.failures.append(why)

    def callbacks_given_up(self, why: str, count: int = 1) -> None:
        self.given_up += [why] * count


class Bench:
    """A store, a clock, a target, and runs of the sender."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.clock = FakeClock(T0)
        self.post = FakePost()
        self.meter = FakeMeter()
        self.shown: Callable[[Question], str] = lambda question: f"{question.key.request_id}/{question.key.revision}"
        self.sender = self.made()

    def made(self, targets: Mapping[ClientName, Target] = BOTH) -> Callbacks:
        return Callbacks(
            self.store,
            self.post,
            lambda question: self.shown(question),  # noqa: PLW0108 - a test gives another one later
            targets=targets,
            retention_ms=RETENTION_MS,
            clock=self.clock,
            chance=FakeChance(),
            meter=self.meter,
        )

    @asynccontextmanager
    async def running(self, sender: Callbacks | None = None) -> AsyncIterator[Callbacks]:
        self.sender = sender or self.sender
        task = asyncio.create_task(self.sender.run())
        try:
            yield self.sender
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def close(self, number: int, *, client: ClientName = LAPTOP, revision: int = 1) -> None:
        """A question closes, and its outcome is to be posted now."""
        now_ms = self.clock.now_ms()

        def work(tx: object) -> None:
            closed = insert_closed(tx, number, client=client, revision=revision)  # type: ignore[arg-type]
            tx.call_back(closed, WebhookId(f"msg_{client}_{number}_{revision}"), now_ms)  # type: ignore[attr-defined]

        await self.store.run(work)
        self.sender.ring()

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await asyncio.sleep(0.002)

    async def failed_again(self) -> None:
        before = len(self.meter.failures)
        await self.until(lambda: len(self.meter.failures) > before and self.post.at_once == 0)

    async def failed(self, times: int) -> None:
        await self.until(lambda: len(self.meter.failures) == times)

    async def settled(self, due_after_ms: int | None, client: ClientName = LAPTOP) -> None:
        """Return once the client's next outcome is due then, None for none."""
        async with asyncio.timeout(PATIENCE_S):
            while (due := await self.store.run(lambda tx: tx.callback_due(client))) != due_after_ms:
                assert due is None or due_after_ms is None or due >= T0
                await asyncio.sleep(0.002)

    async def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.sender.ring()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    async with AsyncExitStack() as stack:
        store = open_store(tmp_path / "store" / "agentpod.db")
        stack.push_async_callback(store.close)
        yield Bench(store)


def request(number: int) -> str:
    return f"acps_3f0c:{number}"


async def test_an_outcome_is_posted_once_and_then_forgotten(bench: Bench) -> None:
    async with bench.running():
        await bench.close(1)
        await bench.settled(None)
        await bench.pass_time(LEASE_MS * 2)
        await bench.close(2)
        await bench.settled(None)
    assert bench.post.bodies() == [f"{request(1)}/1", f"{request(2)}/1"]
    assert bench.meter.sent == 2


async def test_one_that_failed_is_tried_again_under_the_same_id_until_it_is_taken(bench: Bench) -> None:
    bench.post.answers[TARGET.url] = [DOWN, DOWN, DOWN]
    async with bench.running():
        await bench.close(1)
        for tries in (1, 2, 3):
            await bench.failed(tries)
            await bench.pass_time(RETRY_S[tries - 1] * 1000)
        await bench.settled(None)
    assert len(bench.post.posted) == 4
    assert {webhook_id for _, webhook_id, _ in bench.post.posted} == {"msg_laptop_1_1"}
    assert bench.meter.failures == ["server_error"] * 3


async def test_a_later_revision_waits_for_the_earlier_one(bench: Bench) -> None:
    bench.post.answers[TARGET.url] = [DOWN]
    async with bench.running():
        await bench.close(1, revision=1)
        await bench.close(1, revision=2)
        await bench.close(2)
        await bench.until(lambda: len(bench.post.posted) == 2 and bench.meter.sent == 1)
        assert sorted(bench.post.bodies()) == [f"{request(1)}/1", f"{request(2)}/1"]
        await bench.pass_time(RETRY_S[0] * 1000)
        await bench.settled(None)
    assert bench.post.bodies()[-2:] == [f"{request(1)}/1", f"{request(1)}/2"]


async def test_what_a_target_asks_for_is_heeded_for_all_its_outcomes(bench: Bench) -> None:
    bench.post.answers[TARGET.url] = [Failed(Why.RATE_LIMITED, 429, 90_000)]
    async with bench.running():
        await bench.close(1)
        await bench.settled(T0 + 90_000)
        await bench.close(2)
        await bench.pass_time(89_999)
        await bench.close(3, client=SERVER)
        await bench.until(lambda: bench.post.bodies(OTHER_TARGET))
        assert len(bench.post.bodies()) == 1
        await bench.pass_time(1)
        await bench.settled(None)
    assert sorted(bench.post.bodies()[1:]) == [f"{request(1)}/1", f"{request(2)}/1"]


async def test_410_ends_the_tries_of_that_outcome_only_and_the_log_says_so(bench: Bench) -> None:
    bench.post.answers[TARGET.url] = [Gone()]
    with capture_logs() as lines:
        async with bench.running():
            await bench.close(1)
            await bench.settled(None)
            await bench.close(2)
            await bench.settled(None)
    assert len(bench.post.posted) == 2
    assert (bench.meter.given_up, bench.meter.sent) == (["gone"], 1)
    (line,) = [line for line in lines if line["event"] == "callback_given_up"]
    assert (line["why"], line["request_id"], line["client"]) == ("gone", request(1), "laptop")


async def test_a_target_that_fails_is_only_probed_and_the_other_goes_on(bench: Bench) -> None:
    bench.post.always[TARGET.url] = DOWN
    async with bench.running():
        for number in range(1, 11):
            await bench.close(number)
        await bench.until(lambda: bench.sender.open_circuits() == 1 and bench.post.at_once == 0)
        tried = len(bench.post.bodies())
        assert tried < FAILURES_TO_OPEN + MOST_AT_ONCE
        await bench.pass_time(PROBE_EVERY_MS - 1)
        await bench.close(1, client=SERVER)
        await bench.settled(None, SERVER)
        assert len(bench.post.bodies()) == tried
        await bench.pass_time(1)
        await bench.until(lambda: len(bench.post.bodies()) == tried + 1 and bench.post.at_once == 0)
        bench.post.always.clear()
        await bench.until(lambda: len(bench.meter.failures) == tried + 1)
        await bench.pass_time(PROBE_EVERY_MS)
        await bench.settled(None)
    assert bench.meter.sent == 11
    assert bench.sender.open_circuits() == 0


async def test_a_target_is_probed_at_its_own_pace_however_long_its_outcomes_were_to_wait(bench: Bench) -> None:
    bench.post.always[TARGET.url] = DOWN
    async with bench.running():
        await bench.close(1)
        for tries in range(1, len(RETRY_S) + 2):
            await bench.failed(tries)
            await bench.until(lambda: bench.post.at_once == 0)
            await bench.pass_time(PROBE_EVERY_MS)


async def test_what_waits_goes_out_at_once_when_a_probe_is_answered(bench: Bench) -> None:
    bench.post.always[TARGET.url] = DOWN
    async with bench.running():
        for number in range(1, 4):
            await bench.close(number)
        for _ in range(3 * len(RETRY_S)):  # until each one's waits are longer than the time between two probes
            await bench.pass_time(PROBE_EVERY_MS)
            await bench.failed_again()
        bench.post.always.clear()
        await bench.pass_time(PROBE_EVERY_MS)
        await bench.settled(None)
    assert bench.meter.sent == 3


async def test_so_many_outcomes_are_posted_to_a_target_at_once_and_no_more(bench: Bench) -> None:
    bench.post.gate = asyncio.Event()
    async with bench.running():
        for number in range(1, 13):
            await bench.close(number)
        await bench.until(lambda: bench.post.at_once == MOST_AT_ONCE)
        await bench.close(1, client=SERVER)
        await bench.until(lambda: bench.post.bodies(OTHER_TARGET))
        bench.post.gate.set()
        await bench.settled(None)
        await bench.settled(None, SERVER)
    assert bench.post.most_at_once == MOST_AT_ONCE + 1
    assert sorted(bench.post.bodies()) == sorted(f"{request(number)}/1" for number in range(1, 13))


async def test_a_run_that_was_cut_off_is_taken_up_by_the_next(bench: Bench) -> None:
    bench.post.gate = asyncio.Event()
    async with bench.running():
        await bench.close(1)
        await bench.close(1, revision=2)
        await bench.until(lambda: bench.post.at_once == 1)
    bench.post.gate.set()
    bench.clock.advance(LEASE_MS)
    async with bench.running(bench.made()):
        await bench.settled(None)
    assert [body for _, _, body in bench.post.posted] == [f"{request(1)}/1", f"{request(1)}/1", f"{request(1)}/2"]
    assert len({webhook_id for _, webhook_id, _ in bench.post.posted}) == 2


async def test_the_tries_end_with_the_retention(bench: Bench) -> None:
    bench.post.always[TARGET.url] = DOWN
    async with bench.running():
        await bench.close(1)
        await bench.until(lambda: bench.meter.failures)
        await bench.pass_time(RETENTION_MS)
        await bench.until(lambda: len(bench.meter.failures) == 2)
        await bench.pass_time(1)
        await bench.settled(None)
    assert bench.meter.given_up == ["too_old"]
    assert len(bench.post.posted) == 2


async def test_what_waits_for_a_client_without_a_target_is_given_up_in_time_too(bench: Bench) -> None:
    async with bench.running(bench.made({})):
        await bench.close(1)
        await bench.pass_time(RETENTION_MS + 1)
        await bench.settled(None)
    assert (bench.post.posted, bench.meter.given_up) == ([], ["too_old"])


async def test_a_new_target_gets_at_once_what_waited_for_the_old_one(bench: Bench) -> None:
    bench.post.always[TARGET.url] = DOWN
    moved = Target("https://new.test/", ("new-new",))
    async with bench.running() as sender:
        for number in range(1, FAILURES_TO_OPEN + 1):
            await bench.close(number)
        await bench.until(lambda: sender.open_circuits() == 1 and bench.post.at_once == 0)
        sender.replace({LAPTOP: moved}, retention_ms=RETENTION_MS)
        await bench.settled(None)
    assert sorted(bench.post.bodies(moved)) == [f"{request(number)}/1" for number in range(1, FAILURES_TO_OPEN + 1)]


async def test_a_target_that_did_not_change_keeps_its_circuit_over_a_reload(bench: Bench) -> None:
    bench.post.always[TARGET.url] = DOWN
    async with bench.running() as sender:
        for number in range(1, FAILURES_TO_OPEN + 1):
            await bench.close(number)
        await bench.until(lambda: sender.open_circuits() == 1 and bench.post.at_once == 0)
        sender.replace({LAPTOP: Target(TARGET.url, TARGET.secrets), SERVER: OTHER_TARGET}, retention_ms=RETENTION_MS)
        assert sender.open_circuits() == 1


async def test_a_target_that_left_the_configuration_is_posted_nothing(bench: Bench) -> None:
    async with bench.running() as sender:
        sender.replace({SERVER: OTHER_TARGET}, retention_ms=RETENTION_MS)
        await bench.close(1)
        await bench.close(1, client=SERVER)
        await bench.settled(None, SERVER)
    assert bench.post.bodies() == []


async def test_what_one_target_has_under_way_is_not_posted_to_its_successor_too(bench: Bench) -> None:
    bench.post.gate = asyncio.Event()
    moved = Target("https://new.test/", ("new-new",))
    async with bench.running() as sender:
        await bench.close(1)
        await bench.until(lambda: bench.post.at_once == 1)
        sender.replace({LAPTOP: moved}, retention_ms=RETENTION_MS)
        await bench.close(2)
        await bench.until(lambda: bench.post.at_once == 2)
        bench.post.answers[TARGET.url] = [DOWN]
        bench.post.gate.set()
        await bench.settled(None)
    assert bench.post.bodies(moved) == [f"{request(2)}/1", f"{request(1)}/1"]


async def test_a_row_that_cannot_be_shown_holds_up_nothing_else(bench: Bench) -> None:
    def shown(question: Question) -> str:
        if question.asked.request_seq <= FAILURES_TO_OPEN:
            raise ValueError("contradicts itself")
        return question.key.request_id

    bench.shown = shown
    async with bench.running() as sender:
        for number in range(1, 9):
            await bench.close(number)
        await bench.until(lambda: bench.meter.sent == 8 - FAILURES_TO_OPEN)
        await bench.failed(FAILURES_TO_OPEN)
        assert sender.open_circuits() == 0
    assert request(1) not in bench.post.bodies()
    assert set(bench.meter.failures) == {"not_shown"}


async def test_a_store_that_cannot_be_used_delays_and_loses_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentpod_bot.callbacks.sender.STORE_RETRY_S", 0.001)
    run, failures = bench.store.run, iter(range(3))

    async def failing(work: Callable[..., object]) -> object:
        if next(failures, None) is not None:
            raise StoreUnavailable("full")
        return await run(work)

    await bench.close(1)
    monkeypatch.setattr(bench.store, "run", failing)
    async with bench.running():
        await bench.until(lambda: bench.meter.sent == 1)
        await bench.settled(None)


async def test_no_line_of_the_log_has_a_url_a_secret_or_a_body(bench: Bench) -> None:
    bench.post.answers[TARGET.url] = [*(DOWN for _ in range(FAILURES_TO_OPEN)), Gone()]
    with capture_logs() as lines:
        async with bench.running():
            for number in range(1, FAILURES_TO_OPEN + 3):
                await bench.close(number)
            await bench.until(lambda: len(bench.meter.failures) == FAILURES_TO_OPEN)
            await bench.pass_time(PROBE_EVERY_MS)
            await bench.settled(None)
    assert {line["event"] for line in lines} == {
        "callback_postponed",
        "callback_circuit_opened",
        "callback_circuit_closed",
        "callback_given_up",
        "callback_sent",
    }
    for hidden in ("hooks.test", "in-the-query", "s3cret", f"{request(1)}/1"):
        assert hidden not in str(lines)
    assert "s3cret" not in repr(TARGET)
    assert "in-the-query" not in repr(TARGET)
