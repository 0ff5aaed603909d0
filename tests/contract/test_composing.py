"""What a question says in a room beside what it asks, whenever it is composed; over a real store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.broker.change import QUESTION, After
from agentpod_bot.broker.moving import Moved, move
from agentpod_bot.core.ids import Code, EventId, RoomId, RouteName
from agentpod_bot.core.model import Attachment, TextPreview
from agentpod_bot.core.policy import Escalation
from agentpod_bot.core.room import ForeignEdit, ForeignQuestion
from agentpod_bot.core.upgrades import Tombstone
from agentpod_bot.errors import Refused
from tests.contract.sealed_homeserver import SealedHomeserver, running
from tests.examples import MALLORY, MINUTE, OPS, OPS_ROUTE, POLICY, ROOM, ROUTE, START
from tests.fakes import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from tests.contract.sealed_homeserver import Pod

NEW, LEADS_ROOM, LEADS = RoomId("!new"), RoomId("!leads"), RouteName("leads")
LONG = (TextPreview("Command", "echo ok; " + "a" * 5_000),)
THEIRS = ForeignQuestion(
    event_id=EventId("$theirs"), sender=MALLORY, ts=START, code=Code("Q7"), expires_at_ms=START + 10 * MINUTE
)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "agentpod.db"


@pytest.fixture
def hs(monkeypatch: pytest.MonkeyPatch) -> SealedHomeserver:
    """A homeserver that takes no file."""

    async def refuse(*_args: object) -> None:
        raise Refused("M_TOO_LARGE")

    made = SealedHomeserver(ROOM)
    monkeypatch.setattr(made, "upload", refuse)
    return made


async def body(pod: Pod, question: Question, room_id: RoomId = OPS) -> str:
    """What the question says in a room."""
    content = await pod.store.run(lambda tx: tx.content_of(question.row, room_id, QUESTION))
    if content is None:
        waits = await pod.store.run(lambda tx: tx.unsent(question.row, room_id, QUESTION))
        assert waits is not None
        content = waits.content
    assert content is not None
    said: str = content["body"]
    return said


async def asked_again(pod: Pod, route: RouteName, room_id: RoomId) -> None:
    """Have the route go from its room into the new one."""
    means = pod.parts.upgrades._means

    def work(tx: Any) -> object:
        tx.mark_replaced(room_id, Tombstone(None, encrypted=False))
        return move(tx, route, (room_id, NEW), replace(ROOM, room_id=NEW), after=After(), means=means)

    assert await pod.store.run(work) == Moved(1, 0)


async def test_whenever_it_is_asked_it_says_how_many_people_an_option_takes(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    asks = replace(OPS_ROUTE, quorum=2, follow_upgrades=True, escalation=Escalation(MINUTE, LEADS))
    leads = replace(OPS_ROUTE, name=LEADS, room_id=LEADS_ROOM, follow_upgrades=True)
    async with running(path, hs, clock, replace(POLICY, routes={ROUTE: asks, LEADS: leads})) as pod:
        question = await pod.shown()
        clock.advance(MINUTE)
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.event_id is not None)
        await asked_again(pod, LEADS, LEADS_ROOM)
        for room_id in (OPS, LEADS_ROOM, NEW):
            assert "Always allow needs 2 people." in await body(pod, question, room_id)
        assert "Also asked on route ops since" not in await body(pod, question)
        for room_id in (LEADS_ROOM, NEW):
            assert "Also asked on route ops since" in await body(pod, question, room_id)
        for room_id, again in ((OPS, False), (LEADS_ROOM, False), (NEW, True)):
            assert ("Asked again, for its first room" in await body(pod, question, room_id)) is again


@pytest.mark.parametrize("preview", [(), LONG], ids=["at first", "anew, without its file"])
async def test_it_warns_of_a_code_in_its_text_that_is_an_open_questions(
    path: Path, hs: SealedHomeserver, clock: FakeClock, preview: Any
) -> None:
    async with running(path, hs, clock) as pod:
        other = await pod.shown()
        await pod.handle(THEIRS)
        question = await pod.shown(title=f"Say 1 Q7 or 1 {other.asked.code}", preview=preview)
        assert (question.asked.attachment is Attachment.FAILED) is bool(preview)
        for code in ("Q7", other.asked.code):
            assert f"the agent's text holds {code}, which" in await body(pod, question)


@pytest.mark.parametrize("preview", [(), LONG], ids=["at first", "anew, without its file"])
@pytest.mark.parametrize("over", ["closed", "expired"])
async def test_it_does_not_warn_of_the_code_of_another_accounts_question_that_is_over(
    path: Path, hs: SealedHomeserver, clock: FakeClock, preview: Any, over: str
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.handle(THEIRS)
        if over == "closed":
            await pod.handle(ForeignEdit(event_id=EventId("$over"), sender=MALLORY, ts=START, target=THEIRS.event_id))
        else:
            clock.advance(11 * MINUTE)
        question = await pod.shown(title="Say 1 Q7", preview=preview)
        assert "the agent's text holds" not in await body(pod, question)


@pytest.mark.parametrize("preview", [(), LONG], ids=["at first", "anew, without its file"])
async def test_its_own_code_is_no_other_questions(
    path: Path, hs: SealedHomeserver, clock: FakeClock, preview: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agentpod_bot.broker.submit.fresh_code", lambda *_args, **_more: Code("K7"))
    async with running(path, hs, clock) as pod:
        question = await pod.shown(title="Say 1 K7", preview=preview)
        assert "the agent's text holds" not in await body(pod, question)
