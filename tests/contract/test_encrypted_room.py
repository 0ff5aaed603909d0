"""An encrypted room, from the response of a sync to what is decided, said and kept of it; over a real store."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.broker.said_back import MOST_A_MINUTE, UNREAD_WAIT_MS
from agentpod_bot.broker.unreadable import KEPT_MS
from agentpod_bot.core.ids import EventId, RoomId, RouteName, Row, SessionId, UserId
from agentpod_bot.core.model import Attachment, Meaning, Status, TextPreview
from agentpod_bot.core.policy import Escalation, Reactions, Trust
from agentpod_bot.core.room import (
    Device,
    ForeignEdit,
    ForeignQuestion,
    Names,
    Origin,
    Powers,
    Reacted,
    RoomBatch,
    Said,
    Structured,
    Undecryptable,
    Undecrypted,
)
from agentpod_bot.errors import HomeserverUnavailable, RoomEncryptedWithoutCrypto, Unavailable
from tests.contract.sealed_homeserver import ENCRYPTED, SealedHomeserver, phone, running, said, switched_on
from tests.examples import (
    AGENT,
    CALLER,
    MALLORY,
    MINUTE,
    OPS,
    OPS_ROUTE,
    OWNER,
    POD,
    POLICY,
    ROOM,
    ROUTE,
    SECOND,
    START,
    request,
)
from tests.fakes import FakeChance, FakeClock

if TYPE_CHECKING:
    from pathlib import Path

    from agentpod_bot.core.model import Question
    from agentpod_bot.core.policy import Policy
    from tests.contract.sealed_homeserver import Pod

STRICT = replace(POLICY, trust=Trust.APPROVERS_VERIFIED)
DEVICE: dict[str, Any] = {"origin": Origin.DEVICE}
VERIFIED: dict[str, Any] = {"origin": Origin.VERIFIED}
TWO_VERIFIED = replace(STRICT, routes={ROUTE: replace(OPS_ROUTE, quorum=2)})
LONG = (TextPreview("Command", "echo ok; " + "a" * 5_000),)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / "agentpod.db"


@pytest.fixture
def hs() -> SealedHomeserver:
    return SealedHomeserver(ENCRYPTED)


def to(question: Question) -> Names:
    return Names(reply_to=question.event_id)


def reacted(question: Question, position: int, clock: FakeClock, **changes: Any) -> Reacted:
    assert question.event_id is not None
    return Reacted(
        event_id=EventId(f"$r{position}"),
        sender=OWNER,
        ts=clock.now_ms(),
        target=question.event_id,
        key=f"{position}\u20e3",
        **changes,
    )


def dark(name: str, clock: FakeClock, **changes: Any) -> Undecryptable:
    """An event that cannot be read now."""
    event = Undecryptable(
        event_id=EventId(name), sender=OWNER, ts=clock.now_ms(), session_id="session", event={"event_id": name}
    )
    return replace(event, **changes)


def lit(event: Undecryptable, body: str, **changes: Any) -> Said:
    """The same event, read."""
    read = Said(
        event_id=event.event_id, sender=event.sender, ts=event.ts, origin=Origin.DEVICE, body=body, names=event.names
    )
    return replace(read, ciphertext=f"c{event.event_id}", **changes)


async def kept(pod: Pod) -> list[str]:
    return [str(event["event_id"]) for _, event in await pod.parts.inbox.undecrypted(None)]


# What is sent


async def test_an_encrypted_room_is_asked_and_everything_goes_there_as_into_one(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        await pod.handle(said("9", clock, names=to(question), **DEVICE), said("1", clock, names=to(question), **DEVICE))
        assert (await pod.now(question)).status is Status.DECIDED
        await pod.quiet()
        assert len(hs.sent) >= 3
        assert {sent.room.encrypted for sent in hs.sent} == {True}


async def test_a_bot_that_cannot_encrypt_says_so_and_sends_nothing(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    hs.can_encrypt = False
    async with running(path, hs, clock) as pod:
        with pytest.raises(RoomEncryptedWithoutCrypto):
            await pod.parts.broker.submit(request(), CALLER)
    assert hs.sent == []


async def test_once_encryption_is_switched_on_all_that_follows_is_encrypted_and_so_after_a_restart(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    hs.state = ROOM
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        assert [sent.room.encrypted for sent in hs.sent] == [False]
        await pod.handle(switched_on(clock))
        await pod.handle(said("9", clock, names=to(question), **DEVICE))
        await pod.quiet()
        assert [sent.room.encrypted for sent in hs.sent] == [False, True]
    async with running(path, hs, clock) as pod:  # though the homeserver now says again that it is not
        await pod.handle(said("1", clock, names=to(question), **DEVICE))
        assert (await pod.now(question)).status is Status.DECIDED
        await pod.quiet()
        assert [sent.room.encrypted for sent in hs.sent] == [False, True, True]


async def test_between_the_response_that_switches_encryption_on_and_its_commit_nothing_is_taken_for_clear(
    path: Path, hs: SealedHomeserver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hs.state = ROOM
    async with running(path, hs, clock) as pod:
        await pod.shown()
        inner, known = pod.parts.inbox._commit, []

        async def commit(work: Any) -> Any:
            room = pod.parts.world.writable(OPS)
            known.append(None if room is None else room.encrypted)
            return await inner(work)

        monkeypatch.setattr(pod.parts.inbox, "_commit", commit)
        await pod.handle(switched_on(clock))
        assert known == [True]


# How an answer came


async def test_clear_text_counts_up_to_the_event_that_switched_encryption_on_and_not_after_it(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    """Also where the state of the room told of it first, as it does after the bot was away."""
    hs.state = ROOM
    async with running(path, hs, clock) as pod:
        first, second = await pod.shown(), await pod.shown()
    hs.state = ENCRYPTED
    async with running(path, hs, clock) as pod:
        await pod.handle(said("1", clock, names=to(first)), switched_on(clock), said("1", clock, names=to(second)))
        assert (await pod.now(first)).status is Status.DECIDED
        assert (await pod.now(second)).status is Status.PENDING
        assert (await pod.audited(second))[-1] == ("clear_text", None)
        await pod.handle(said("1", clock, names=to(second)), switched_on(clock))
        assert (await pod.now(second)).status is Status.PENDING


@pytest.mark.parametrize(("origin", "what"), [(Origin.CLEAR, "clear_text"), (Origin.STRANGER, "unknown_device")])
async def test_who_answers_in_a_way_that_does_not_count_is_told_once_and_the_audit_keeps_each(
    path: Path, hs: SealedHomeserver, clock: FakeClock, origin: Origin, what: str
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        for _ in range(3):
            await pod.handle(said("1", clock, names=to(question), origin=origin))
        await pod.handle(said("hello", clock, origin=origin))
        assert (await pod.now(question)).is_open
        [notice] = await pod.notices()
        assert question.asked.code in notice
        assert "Nothing has been approved" in notice
        assert [line for line, _ in await pod.audited(question)].count(what) == 3
        await pod.parts.commit.settled()
        assert pod.meter.refusals == [what] * 3


async def test_what_could_be_for_several_and_does_not_count_is_told_at_most_every_ten_seconds(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        await pod.shown()
        await pod.handle(said("1", clock), said("!open", clock), said("1", clock))
        assert len(await pod.notices()) == 1
        clock.advance(10_000)
        await pod.handle(said("1", clock))
        assert len(await pod.notices()) == 2


async def test_an_unverified_device_is_told_how_to_be_verified_and_a_verified_one_decides_with_the_code(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, STRICT) as pod:
        question = await pod.shown()
        code = question.asked.code
        assert f"To approve this, write the code too: <number> {code}" in hs.sent[0].content["body"]
        await pod.handle(said(f"1 {code}", clock, **DEVICE))
        await pod.handle(said("1", clock, names=to(question), **VERIFIED))
        assert (await pod.now(question)).is_open
        unverified, not_named = await pod.notices()
        assert "agentpod-bot verify" in unverified
        assert f"<number> {code}" in not_named
        assert [what for what, _ in await pod.audited(question)][-2:] == ["unverified_device", "not_named"]
        await pod.handle(said(f"1 {code}", clock, **VERIFIED))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_under_strict_rules_a_reaction_rejects_and_never_approves(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, STRICT) as pod:
        question = await pod.shown()
        await pod.handle(reacted(question, 1, clock))
        assert (await pod.now(question)).is_open
        assert (await pod.audited(question))[-1] == ("not_named", None)
        await pod.handle(reacted(question, 3, clock))
        closing = (await pod.now(question)).closing
        assert closing is not None
        assert closing.option is not None
        assert closing.option.option.meaning is Meaning.REJECT


class SameAgain(FakeChance):
    """Gives every question the same code, as long as it may, and then the next one of its list."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = random.Random(1)

    def choose(self, candidates: str) -> str:
        return self.codes.choice(candidates)


@pytest.mark.parametrize("policy", [POLICY, STRICT])
async def test_where_an_approval_stands_on_its_code_no_code_is_given_again_while_anything_is_kept(
    path: Path, hs: SealedHomeserver, clock: FakeClock, policy: Policy
) -> None:
    """An answer that is held back for days must not become one to another question."""
    chance = SameAgain()
    async with running(path, hs, clock, policy, chance=chance) as pod:
        first = await pod.shown()
        await pod.handle(said(f"3 {first.asked.code}", clock, **VERIFIED))
        assert not (await pod.now(first)).is_open
        clock.advance(2 * KEPT_MS)
        chance.codes.seed(1)
        second = await pod.shown()
        assert (second.asked.code == first.asked.code) is (policy is POLICY)


@pytest.mark.parametrize(("policy", "seeded"), [(POLICY, 4), (STRICT, 2)])
async def test_the_bot_offers_only_keycaps_that_count(
    path: Path, hs: SealedHomeserver, clock: FakeClock, policy: Policy, seeded: int
) -> None:
    seeding = replace(policy, routes={ROUTE: replace(OPS_ROUTE, reactions=Reactions.SEED)})
    async with running(path, hs, clock, seeding) as pod:
        await pod.shown()
        clock.advance(10_000)
        pod.parts.commit._bell.ring()
        await pod.quiet()
        keys = [sent.content["m.relates_to"]["key"] for sent in hs.sent if sent.event_type == "m.reaction"]
        assert len(keys) == seeded
        assert ("1\ufe0f\u20e3" in keys) is (policy is POLICY)


async def test_a_vote_of_before_stricter_rules_does_not_make_up_a_quorum_after_them(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    two = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, quorum=2)})
    async with running(path, hs, clock, two) as pod:
        question = await pod.shown()
        code = question.asked.code
        await pod.handle(said("2", clock, names=to(question), **DEVICE))
        pod.parts.world.policy = replace(two, trust=Trust.VERIFIED)
        await pod.handle(said(f"2 {code}", clock, sender=SECOND, **VERIFIED))
        assert (await pod.now(question)).is_open
        await pod.handle(said(f"2 {code}", clock, **VERIFIED))
        assert (await pod.now(question)).status is Status.DECIDED


# A vote counts while its device is verified


async def shown_votes(pod: Pod) -> list[str]:
    """Who is for the option that needs two people, as the question says it after each change."""
    await pod.quiet()
    edits = [sent.content.get("m.new_content", {}) for sent in pod.hs.sent]
    return [line for edit in edits for line in edit.get("body", "").splitlines() if " of 2 " in line]


async def test_a_vote_counts_no_longer_once_its_device_is_not_verified_and_does_again_once_it_is(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, TWO_VERIFIED) as pod:
        question = await pod.shown()
        answer = f"2 {question.asked.code}"
        await pod.handle(said(answer, clock, **VERIFIED))
        await pod.quiet()
        hs.revoked.add(phone(OWNER))
        await pod.handle(said(answer, clock, sender=SECOND, **VERIFIED))
        assert (await pod.now(question)).is_open
        first, second = await shown_votes(pod)
        assert (OWNER in first, SECOND in first) == (True, False)
        assert (OWNER in second, SECOND in second) == (False, True)
        await pod.handle(said(answer, clock, **VERIFIED))
        assert (await pod.audited(question))[-1] == ("unverified_device", None)
        assert (await pod.now(question)).is_open
        hs.revoked.clear()
        await pod.handle(said(answer, clock, **VERIFIED))
        closing = (await pod.now(question)).closing
        assert closing is not None
        assert closing.voters == (SECOND, OWNER)


async def test_who_votes_again_from_another_device_is_shown_among_those_who_count(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, TWO_VERIFIED) as pod:
        question = await pod.shown()
        answer = f"2 {question.asked.code}"
        await pod.handle(said(answer, clock, **VERIFIED))
        await pod.quiet()
        hs.revoked.add(phone(OWNER))
        await pod.handle(said(answer, clock, device=Device(OWNER, "LAPTOP", "its key"), **VERIFIED))
        assert [OWNER in line for line in await shown_votes(pod)] == [True, True]
        await pod.handle(said(answer, clock, sender=SECOND, **VERIFIED))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_what_is_said_of_an_expired_question_is_who_counted_at_last(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, TWO_VERIFIED) as pod:
        question = await pod.shown()
        await pod.handle(said(f"2 {question.asked.code}", clock, **VERIFIED))
        await pod.quiet()
        hs.revoked.add(phone(OWNER))
        hs.known.clear()
        clock.advance(60 * MINUTE)
        await pod.parts.deadlines.expire()
        await pod.quiet()
        assert not (await pod.now(question)).is_open
        assert "1 of 2 votes" not in hs.sent[-1].content["m.new_content"]["body"]
        assert hs.known == [{OWNER}]


@pytest.mark.parametrize("said_by", ["its code", "a structured answer"])
async def test_an_answer_whose_device_is_not_verified_any_more_when_it_is_to_be_kept_decides_nothing(
    path: Path, hs: SealedHomeserver, clock: FakeClock, said_by: str
) -> None:
    """It was when the answer was read: other rooms of the response may take their time after that."""
    async with running(path, hs, clock, STRICT) as pod:
        question = await pod.shown()
        hs.revoked.add(phone(OWNER))
        answer = said(f"1 {question.asked.code}", clock, **VERIFIED)
        if said_by != "its code":
            fields = {
                "schema_version": 1,
                "request_id": question.key.request_id,
                "option_id": "allow_once",
                "subject": {"digest": question.asked.digest, "revision": 1},
            }
            seen = {"event_id": answer.event_id, "sender": OWNER, "ts": answer.ts, "device": answer.device}
            await pod.handle(Structured(**seen, **VERIFIED, fields=fields))
        else:
            await pod.handle(answer)
        assert (await pod.now(question)).is_open
        [notice] = await pod.notices()
        assert "agentpod-bot verify" in notice


async def test_no_vote_is_kept_before_the_devices_of_those_who_voted_are_known_as_they_are_now(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, TWO_VERIFIED) as pod:
        question = await pod.shown()
        answer = f"2 {question.asked.code}"
        await pod.handle(said(answer, clock, **VERIFIED))
        await pod.quiet()
        hs.unknown.append(HomeserverUnavailable("the devices are not known"))
        last = said(answer, clock, sender=SECOND, **VERIFIED)
        with pytest.raises(Unavailable, match="devices"):
            await pod.handle(last)
        assert (await pod.now(question)).is_open
        assert [what for what, _ in await pod.audited(question)].count("voted") == 1
        hs.known.clear()
        await pod.handle(last)
        assert hs.known[0] == {OWNER}
        assert (await pod.now(question)).status is Status.DECIDED


async def test_where_every_device_counts_nobody_has_to_be_known(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, replace(TWO_VERIFIED, trust=Trust.ALL)) as pod:
        question = await pod.shown()
        hs.revoked |= {phone(OWNER), phone(SECOND)}
        await pod.handle(said("2", clock, names=to(question), **VERIFIED))
        await pod.handle(said("2", clock, names=to(question), sender=SECOND, **DEVICE))
        assert (await pod.now(question)).status is Status.DECIDED
        await pod.quiet()
        assert hs.known == []


async def test_the_votes_are_not_shown_before_the_devices_of_those_who_voted_are_known(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, TWO_VERIFIED) as pod:
        question = await pod.shown()
        before = len(hs.sent)
        hs.unknown += [HomeserverUnavailable("the devices are not known")] * 2
        await pod.handle(said(f"2 {question.asked.code}", clock, **VERIFIED))  # the first vote: nobody voted before
        async with asyncio.timeout(20):
            while hs.unknown:
                clock.advance(1_000)
                pod.parts.commit._bell.ring()
                await asyncio.sleep(0.005)
        assert len(hs.sent) == before
        async with asyncio.timeout(20):
            while len(hs.sent) == before:
                clock.advance(1_000)
                pod.parts.commit._bell.ring()
                await asyncio.sleep(0.005)
        assert [OWNER in line for line in await shown_votes(pod)] == [True]


async def test_an_end_that_nobody_vouches_for_makes_no_bare_answer_clear(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    """Another account's question is open: whoever carries the events must not make it look closed."""
    theirs = ForeignQuestion(
        event_id=EventId("$theirs"), sender=AGENT, ts=START, code=None, expires_at_ms=START + 90 * MINUTE
    )
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        await pod.handle(theirs)
        edit = ForeignEdit(event_id=EventId("$edit"), sender=AGENT, ts=START, target=EventId("$theirs"))
        await pod.handle(edit)
        clock.advance(MINUTE)
        await pod.handle(said("1", clock, **DEVICE))
        assert (await pod.now(question)).is_open
        await pod.handle(replace(edit, event_id=EventId("$edit2"), **DEVICE))
        await pod.handle(said("1", clock, **DEVICE))
        assert (await pod.now(question)).status is Status.DECIDED


# Replays


async def test_a_ciphertext_decides_once_whatever_event_it_comes_in_and_also_after_a_restart(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        first, second = await pod.shown(), await pod.shown()
        answer = said("1", clock, names=to(first), ciphertext="c", **DEVICE)
        again = replace(answer, event_id=EventId("$again"), names=to(second))
        await pod.handle(answer, again)
        assert (await pod.now(first)).status is Status.DECIDED
        assert (await pod.now(second)).is_open
        assert await pod.notices() == []
        await pod.parts.commit.settled()
        assert pod.meter.refusals == ["replayed"]
        await pod.store.run(lambda tx: tx.prune(clock.now_ms() + 1))
    async with running(path, hs, clock) as pod:
        await pod.handle(replace(again, event_id=EventId("$later"), sender=SECOND))
        assert (await pod.now(second)).is_open
        await pod.handle(replace(again, event_id=EventId("$fresh"), ciphertext="another"))
        assert (await pod.now(second)).status is Status.DECIDED


@pytest.mark.parametrize("origin", [Origin.STRANGER, Origin.DEVICE])
async def test_a_ciphertext_that_was_refused_decides_nothing_when_it_comes_again(
    path: Path, hs: SealedHomeserver, clock: FakeClock, origin: Origin
) -> None:
    """The device may be verified, or known, by then: what it said before was said under other eyes."""
    async with running(path, hs, clock, STRICT) as pod:
        question = await pod.shown()
        answer = said(f"1 {question.asked.code}", clock, ciphertext="c", origin=origin)
        await pod.handle(answer)
        await pod.handle(replace(answer, event_id=EventId("$again"), origin=Origin.VERIFIED))
        assert (await pod.now(question)).is_open


async def test_a_ciphertext_that_was_plain_talk_is_no_answer_to_a_later_question(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        talk = said("1", clock, ciphertext="c", **DEVICE)
        await pod.handle(talk)
        question = await pod.shown()
        clock.advance(MINUTE)
        await pod.handle(replace(talk, event_id=EventId("$again"), ts=clock.now_ms(), names=to(question)))
        assert (await pod.now(question)).is_open


async def test_the_same_event_that_comes_again_is_no_replay(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        answer = said("1", clock, names=to(question), ciphertext="c", **DEVICE)
        await pod.handle(answer)
        await pod.handle(answer)
        await pod.parts.commit.settled()
        assert pod.meter.refusals == []


# What cannot be read


async def test_an_approver_is_told_once_that_a_message_could_not_be_read_and_it_is_kept_and_counted(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        await pod.handle(dark("$1", clock, names=to(question)), dark("$2", clock))
        assert (await pod.now(question)).is_open
        await pod.later(UNREAD_WAIT_MS - 1)
        assert await pod.notices() == []
        await pod.later(1)
        [notice] = await pod.notices()
        assert question.asked.code in notice
        assert "send it again, or react to the question with an option's number" in notice
        assert [what for what, _ in await pod.audited(question)].count("undecryptable") == 2
        assert await kept(pod) == ["$1", "$2"]
        await pod.parts.commit.settled()
        assert pod.meter.unread_events == 2


@pytest.mark.parametrize(
    ("rules", "asked_for"),
    [
        ((Trust.ALL, Reactions.OFF), "Please send it again."),
        ((Trust.VERIFIED, Reactions.ACCEPT), "or reject by reacting"),
        ((Trust.VERIFIED, Reactions.OFF), "Please send it again."),
    ],
)
async def test_a_reaction_is_asked_for_only_as_far_as_it_counts(
    path: Path, hs: SealedHomeserver, clock: FakeClock, rules: tuple[Trust, Reactions], asked_for: str
) -> None:
    trust, reactions = rules
    policy = replace(POLICY, trust=trust, routes={ROUTE: replace(OPS_ROUTE, reactions=reactions)})
    async with running(path, hs, clock, policy) as pod:
        await pod.shown()
        await pod.handle(dark("$1", clock))
        await pod.later(UNREAD_WAIT_MS)
        [notice] = await pod.notices()
        assert asked_for in notice


async def test_with_several_questions_open_the_notice_names_them_all_at_most_every_ten_seconds(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        questions = [await pod.shown(), await pod.shown()]
        await pod.handle(dark("$1", clock), dark("$2", clock))
        await pod.later(UNREAD_WAIT_MS)
        [notice] = await pod.notices()
        assert all(question.asked.code in notice for question in questions)
        await pod.handle(dark("$3", clock))
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$1", "$3"]


async def test_what_others_say_or_what_is_about_something_else_is_neither_kept_nor_answered(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        await pod.handle(
            dark("$1", clock, sender=MALLORY, names=to(question)),
            dark("$2", clock, sender=AGENT),
            dark("$3", clock, sender=POD),
            dark("$4", clock, session_id=None, event=None, names=Names(reply_to=EventId("$elsewhere"))),
        )
        assert await kept(pod) == []
        assert await pod.notices() == []
        await pod.parts.commit.settled()
        assert pod.meter.unread_events == 2  # of people


async def test_with_nothing_open_nothing_is_said(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    async with running(path, hs, clock) as pod:
        await pod.handle(dark("$1", clock))
        assert await pod.notices() == []


async def test_kept_events_are_those_of_the_sessions_whose_keys_came(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.handle(dark("$1", clock), dark("$2", clock, session_id="other"))
        found = await pod.parts.inbox.undecrypted(frozenset({(OPS, "other"), (RoomId("!else"), "session")}))
        assert found == ((OPS, {"event_id": "$2"}),)


async def test_once_its_key_is_there_an_answer_counts_before_what_came_after_it_and_is_kept_no_longer(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        answer = dark("$1", clock, names=to(question))
        await pod.handle(answer)
    async with running(path, hs, clock) as pod:
        later = said("3", clock, names=to(question), sender=SECOND, **DEVICE)
        await pod.handle(later, recovered=(lit(answer, "1"),))
        now = await pod.now(question)
        assert now.closing is not None
        assert (now.closing.answered_by, now.closing.event_id) == (OWNER, "$1")
        assert await kept(pod) == []
        assert [what for what, _ in await pod.audited(question)][-1] == "late"


@pytest.mark.parametrize(
    ("then", "now", "decides"), [(50, 99, True), (49, 99, False), (None, 99, False), (99, 49, False)]
)
async def test_what_is_read_at_last_counts_by_the_power_that_its_sender_had_then_and_has_now(
    path: Path, hs: SealedHomeserver, clock: FakeClock, then: int | None, now: int, *, decides: bool
) -> None:
    """Kept is what an approver of any route of the room said."""
    by_level = replace(OPS_ROUTE, approver_level=50, approvers=frozenset({OWNER}))
    beside = replace(OPS_ROUTE, name=RouteName("beside"), approvers=frozenset({SECOND}))
    policy = replace(POLICY, routes={ROUTE: by_level, beside.name: beside})
    hs.state = replace(hs.state, powers=None if then is None else Powers(users={SECOND: then}))
    async with running(path, hs, clock, policy) as pod:
        question = await pod.shown()
        answer = dark("$1", clock, names=to(question), sender=SECOND)
        await pod.handle(answer)
    hs.state = replace(hs.state, powers=Powers(users={SECOND: now}))
    async with running(path, hs, clock, policy) as pod:
        await pod.handle(recovered=(lit(answer, "1"),))
        assert (await pod.now(question)).is_open is not decides
        assert await kept(pod) == []


async def test_what_is_read_at_last_is_no_answer_to_what_was_asked_after_it_came(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        answer = dark("$1", clock)
        await pod.handle(answer)
        clock.advance(1_000)
        question = await pod.shown()
        for number, (body, names) in enumerate(
            [("1", Names()), ("1", to(question)), (f"1 {question.asked.code}", Names())], start=2
        ):
            late = dark(f"${number}", clock, names=names)
            await pod.store.run(lambda tx, late=late: _keep(tx, late, first_seen_ms=START))  # type: ignore[misc]  # bound now
            await pod.handle(recovered=(lit(late, body, ts=clock.now_ms()),))
            assert (await pod.now(question)).is_open, body
        await pod.handle(recovered=(lit(answer, "1", ts=clock.now_ms()),))
        assert (await pod.now(question)).is_open
        assert await kept(pod) == []


def _keep(tx: Any, event: Undecryptable, *, first_seen_ms: int) -> None:
    assert event.event is not None
    old = Undecrypted(
        event_id=event.event_id, room_id=OPS, session_id="session", first_seen_ms=first_seen_ms, event=event.event
    )
    tx.keep_undecrypted(old, at_most=9)


async def test_what_is_read_too_late_is_told_so(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        answer = dark("$1", clock, names=to(question))
        await pod.handle(answer, said("3", clock, names=to(question), sender=SECOND, **DEVICE))
        await pod.handle(recovered=(lit(answer, "1"),))
        assert (await pod.now(question)).closing is not None
        assert "already answered" in (await pod.notices())[-1]


async def test_what_was_not_kept_or_for_too_long_decides_nothing_when_it_is_read(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    limits = replace(POLICY.limits, max_ttl_ms=3 * KEPT_MS)
    async with running(path, hs, clock, replace(POLICY, limits=limits)) as pod:
        question = await pod.shown(ttl_ms=3 * KEPT_MS)
        stranger = dark("$1", clock, sender=MALLORY, names=to(question))
        await pod.handle(stranger)
        await pod.handle(recovered=(lit(stranger, "1", sender=OWNER),))
        await pod.handle(recovered=(lit(dark("$never", clock, names=to(question)), "1"),))
        assert (await pod.now(question)).is_open
        old, fresh = dark("$2", clock, names=to(question)), dark("$3", clock, names=to(question))
        await pod.handle(old)
        clock.advance(1)
        await pod.handle(fresh)
        clock.advance(KEPT_MS)
        assert await kept(pod) == ["$3"]
        await pod.handle(recovered=(lit(old, "1"),))
        assert (await pod.now(question)).is_open
        await pod.handle(recovered=(lit(fresh, "1"),))
        assert (await pod.now(question)).status is Status.DECIDED


async def test_what_could_not_be_read_for_a_day_is_forgotten(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.handle(dark("$1", clock))
        clock.advance(KEPT_MS + 1)
        await pod.handle(dark("$2", clock))
        await pod.parts.deadlines.prune()
        left = await pod.store.run(lambda tx: tx.undecrypted(None, since_ms=0))
        assert [each.event_id for each in left] == ["$2"]


async def test_what_is_read_at_last_decides_once(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    """Nor does the same ciphertext in a second event that could not be read either."""
    async with running(path, hs, clock) as pod:
        first, second = await pod.shown(), await pod.shown()
        answer, copy = dark("$1", clock, names=to(first)), dark("$2", clock, names=to(second))
        await pod.handle(answer, copy)
        read = lit(answer, "1")
        await pod.handle(recovered=(read, replace(lit(copy, "1"), ciphertext=read.ciphertext)))
        assert (await pod.now(first)).status is Status.DECIDED
        assert (await pod.now(second)).is_open
        await pod.handle(recovered=(read,))
        await pod.parts.commit.settled()
        assert pod.meter.refusals.count("replayed") == 1


async def test_what_is_read_at_last_counts_by_what_vouches_for_it(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock, STRICT) as pod:
        question = await pod.shown()
        answer = dark("$1", clock)
        await pod.handle(answer)
        await pod.handle(recovered=(lit(answer, f"1 {question.asked.code}"),))
        assert (await pod.now(question)).is_open
        assert (await pod.audited(question))[-1] == ("unverified_device", None)


# Files


async def test_the_file_of_an_encrypted_room_is_shown_with_its_key_and_told_to_nobody_else(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown(preview=LONG)
        question = await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        [file] = [sent for sent in hs.sent if sent.content["msgtype"] == "m.file"]
        assert file.content["file"] == {"url": "mxc://hs.example/1", "key": {"k": "secret"}}
        assert "url" not in file.content
        assert "secret" not in repr(question)


async def test_a_file_that_was_uploaded_in_clear_is_uploaded_again_for_a_room_that_became_encrypted(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    hs.state = ROOM
    async with running(path, hs, clock) as pod:
        hs.after_upload = lambda: pod.parts.world.adopt({OPS: ENCRYPTED}) and None
        question = await pod.shown(preview=LONG)
        pod.parts.commit._bell.ring()
        question = await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        assert [room.encrypted for room in hs.uploads] == [False, True]
        [file] = [sent for sent in hs.sent if sent.content["msgtype"] == "m.file"]
        assert file.room.encrypted
        assert file.content["file"]["url"] == "mxc://hs.example/2"
        assert "url" not in file.content


async def test_a_file_whose_room_changes_while_its_turn_waits_goes_out_in_neither_form(
    path: Path, hs: SealedHomeserver, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    hs.state = ROOM
    async with running(path, hs, clock) as pod:
        waiters = pod.parts.waiters
        monkeypatch.setattr(waiters, "is_being_answered", lambda _row: pod.parts.world.room(OPS) == ROOM)

        async def settled(_row: Row, *, up_to_s: float) -> None:
            assert up_to_s
            pod.parts.world.switch_on([RoomBatch(room_id=OPS, timeline=(switched_on(clock),))])

        monkeypatch.setattr(waiters, "settled", settled)
        asked = (await pod.parts.broker.submit(request(preview=LONG), CALLER)).question
        await pod.when(asked, lambda _now: pod.parts.world.room(OPS) != ROOM)

        def tried_again(now: Question) -> bool:
            clock.advance(100)
            pod.parts.commit._bell.ring()
            return now.asked.attachment is Attachment.SHOWN

        await pod.when(asked, tried_again)
        files = [sent for sent in hs.sent if sent.content["msgtype"] == "m.file"]
        assert [(file.room.encrypted, "file" in file.content) for file in files] == [(True, True)]


@pytest.mark.parametrize(("here", "there", "uploads"), [(True, True, 1), (True, False, 2), (False, True, 2)])
async def test_a_copy_shares_the_file_only_of_a_room_that_is_encrypted_as_its_own_is(
    path: Path, clock: FakeClock, here: bool, there: bool, uploads: int
) -> None:
    """The key of one room's file is none of a room's that everybody on the way can read."""
    leads = RoomId("!leads:hs.example")
    hs = SealedHomeserver(ENCRYPTED)
    hs.encrypted = {OPS: here, leads: there}
    second = replace(OPS_ROUTE, name=RouteName("leads"), room_id=leads)
    first = replace(OPS_ROUTE, escalation=Escalation(MINUTE, second.name))
    async with running(path, hs, clock, replace(POLICY, routes={ROUTE: first, second.name: second})) as pod:
        question = await pod.shown(preview=LONG)
        await pod.when(question, lambda now: now.asked.attachment is Attachment.SHOWN)
        clock.advance(MINUTE)
        await pod.parts.deadlines.escalate()
        await pod.when(question, lambda now: now.copy is not None and now.copy.attachment is Attachment.SHOWN)
        assert len(hs.uploads) == uploads
        assert [sent.uploads for sent in hs.sent if "options" in sent.content] == [1, uploads]
        files = [sent for sent in hs.sent if sent.content["msgtype"] == "m.file"]
        assert [(file.room.room_id, "file" in file.content) for file in files] == [(OPS, here), (leads, there)]


# Who is told that a message cannot be read, and when


@pytest.mark.parametrize("asked", [1, 2])
async def test_what_can_be_read_before_anybody_was_told_that_it_cannot_is_not_told(
    path: Path, hs: SealedHomeserver, clock: FakeClock, asked: int
) -> None:
    async with running(path, hs, clock) as pod:
        for _ in range(asked):
            await pod.shown()
        talk = dark("$1", clock)
        await pod.handle(talk)
        await pod.later(1_000)
        await pod.handle(recovered=(lit(talk, "good morning"),))
        await pod.later(10 * UNREAD_WAIT_MS)
        assert await pod.notices() == []
        await pod.handle(dark("$2", clock))  # of the next one they are told all the same
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$2"]


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize(
    "then",
    [
        ("", ["$1"]),
        ("1", ["$2"]),
        ("2", ["$1"]),
        ("12", ["$3"]),
        ("21", ["$3"]),
        ("13", ["$2"]),
        ("23", ["$1"]),
        ("123", []),
        ("321", []),
    ],
)
async def test_of_several_messages_the_notice_is_about_the_first_that_still_cannot_be_read(
    path: Path, hs: SealedHomeserver, clock: FakeClock, asked: int, then: tuple[str, list[str]]
) -> None:
    async with running(path, hs, clock) as pod:
        for _ in range(asked):
            await pod.shown()
        read, told = then
        unread = {}
        for number in "123":
            unread[number] = dark(f"${number}", clock)
            await pod.handle(unread[number])
            await pod.later(1_000)
        for number in read:
            await pod.handle(recovered=(lit(unread[number], "good morning"),))
        await pod.later(UNREAD_WAIT_MS)
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == told


async def test_several_that_can_be_read_at_once_leave_no_notice(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        both = dark("$1", clock), dark("$2", clock)
        await pod.handle(*both)
        await pod.handle(recovered=tuple(lit(each, "good morning") for each in both))
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.notices() == []


async def test_each_person_is_told_of_their_own_messages(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        mine, theirs = dark("$1", clock), dark("$2", clock, sender=SECOND)
        await pod.handle(mine, theirs)
        await pod.handle(recovered=(lit(mine, "good morning"),))
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$2"]


async def test_people_whose_names_begin_alike_are_told_each(path: Path, hs: SealedHomeserver, clock: FakeClock) -> None:
    namesake = UserId(f"{OWNER}:8448")
    approvers = OPS_ROUTE.approvers | {namesake}
    hs.state = replace(ENCRYPTED, joined=ENCRYPTED.joined | {namesake})
    policy = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, approvers=approvers)})
    async with running(path, hs, clock, policy) as pod:
        await pod.shown()
        await pod.shown()
        await pod.handle(dark("$1", clock, sender=namesake), dark("$2", clock))
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$1", "$2"]


@pytest.mark.parametrize("is_read", [False, True])
async def test_a_notice_that_waits_does_so_over_a_restart(
    path: Path, hs: SealedHomeserver, clock: FakeClock, *, is_read: bool
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        unread = dark("$1", clock)
        await pod.handle(unread, dark("$2", clock))
    async with running(path, hs, clock) as pod:
        if is_read:
            await pod.handle(recovered=(lit(unread, "good morning"),))
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$2" if is_read else "$1"]


async def test_what_no_key_can_help_is_told_at_once_and_in_place_of_what_waits(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        unread = dark("$1", clock)
        await pod.handle(unread)
        assert await pod.notices() == []
        await pod.handle(dark("$2", clock, session_id=None, event=None))
        assert await pod.replied_to() == ["$2"]
        await pod.handle(recovered=(lit(unread, "good morning"),))
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$2"]


async def test_a_message_that_can_be_read_takes_nothing_from_another_that_never_can(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        unread = dark("$1", clock)
        await pod.handle(unread)
        hs.state = replace(ENCRYPTED, bot_joined=False)
        await pod.parts.world.refresh(OPS)  # nothing can be said for now
        await pod.handle(dark("$2", clock, session_id=None, event=None))
        await pod.handle(recovered=(lit(unread, "good morning"),))
        hs.state = ENCRYPTED
        await pod.parts.world.refresh(OPS)
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$2"]


@pytest.mark.parametrize("ends", ["expired", "answered by somebody else", "cancelled"])
async def test_whoever_could_not_be_read_is_told_so_though_the_question_ended_meanwhile(
    path: Path, hs: SealedHomeserver, clock: FakeClock, ends: str
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        clock.advance(question.asked.expires_at_ms - clock.now_ms() - 1_000)
        await pod.handle(dark("$1", clock, names=to(question)))
        match ends:
            case "expired":
                clock.advance(1_000)
                await pod.parts.deadlines.expire()
            case "cancelled":
                await pod.parts.broker.cancel(CALLER, question.key.request_id)
            case _:
                await pod.handle(said("3", clock, names=to(question), sender=SECOND, **DEVICE))
        assert not (await pod.now(question)).is_open
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$1"]


@pytest.mark.parametrize("quorum", [1, 2])
async def test_whoever_was_heard_in_another_way_and_so_decided_is_told_nothing(
    path: Path, hs: SealedHomeserver, clock: FakeClock, quorum: int
) -> None:
    policy = replace(POLICY, routes={ROUTE: replace(OPS_ROUTE, quorum=quorum)})
    async with running(path, hs, clock, policy) as pod:
        question = await pod.shown()
        await pod.handle(dark("$1", clock, names=to(question)))
        await pod.handle(reacted(question, 2, clock))
        if quorum == 2:
            await pod.handle(said("2", clock, names=to(question), sender=SECOND, **DEVICE))
        assert (await pod.now(question)).status is Status.DECIDED
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.notices() == []


async def test_a_notice_that_may_be_in_the_room_already_is_sent_as_it_was(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        await pod.shown()
        unread = dark("$1", clock)
        await pod.handle(unread, dark("$2", clock))
        hs.failures.append(HomeserverUnavailable("cut off"))
        clock.advance(UNREAD_WAIT_MS)
        pod.parts.commit._bell.ring()
        async with asyncio.timeout(20):
            while hs.failures:
                await asyncio.sleep(0.002)
        await pod.handle(recovered=(lit(unread, "good morning"),))
        async with asyncio.timeout(20):
            while not await pod.replied_to():
                await pod.later(1_000)
        assert await pod.replied_to() == ["$1"]


async def test_notices_that_wait_are_among_the_many_that_a_room_takes(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        questions = [await pod.shown(session_id=SessionId(f"s{number}")) for number in range(MOST_A_MINUTE + 2)]
        for number, question in enumerate(questions):
            await pod.handle(dark(f"${number}", clock, names=to(question)))
        await pod.handle(said("9", clock, names=to(questions[0]), **DEVICE))
        assert await pod.notices() == []
        await pod.later(UNREAD_WAIT_MS)
        assert len(await pod.notices()) == MOST_A_MINUTE


async def test_an_answer_whose_key_comes_too_late_to_be_silent_about_counts_all_the_same(
    path: Path, hs: SealedHomeserver, clock: FakeClock
) -> None:
    async with running(path, hs, clock) as pod:
        question = await pod.shown()
        answer = dark("$1", clock, names=to(question))
        await pod.handle(answer)
        await pod.later(UNREAD_WAIT_MS)
        assert await pod.replied_to() == ["$1"]
        await pod.handle(recovered=(lit(answer, "1"),))
        assert (await pod.now(question)).status is Status.DECIDED
