from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from agentpod_bot.core.ids import UserId
from agentpod_bot.errors import HomeserverUnavailable, RateLimited, Refused
from agentpod_bot.matrix.e2e.exchange import ACCEPT, Cancelled, Finished, Shown
from agentpod_bot.matrix.e2e.identities import Identities
from tests.unit.matrix.e2e.persons import Person
from tests.unit.matrix.e2e.verifier import CANCEL, DONE, KEY, MAC, OWNER, POD, READY, REQUEST, START, Bot

if TYPE_CHECKING:
    from pathlib import Path

MALLORY = UserId("@mallory:example.org")
MINUTE_MS = 60_000


@pytest.fixture
async def bot(tmp_path: Path) -> Bot:
    return await Bot.make(tmp_path)


def codes(said: list[tuple[str, Any]]) -> list[str]:
    """The codes of what was cancelled, where nothing else was said."""
    assert {kind for kind, _ in said} <= {CANCEL}
    return [content["code"] for _, content in said]


async def test_an_approver_is_verified_by_device_and_identity(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    assert await bot.hear(MAC, requester.mac()) == []
    assert not bot.is_verified()
    said = await confirmed(bot)
    assert [kind for kind, _ in said] == [MAC, DONE]
    assert bot.cross_signing.master is not None
    own = {"ed25519:POD": bot.world.own.ed25519, f"ed25519:{bot.cross_signing.master}": bot.cross_signing.master}
    assert requester.vouched(said[0][1], own)
    assert bot.is_verified()
    assert await bot.hear(DONE, requester.content({})) == []
    again = await Identities.open(bot.vault)
    person = bot.world.persons[OWNER]
    assert dict(again.known.masters) == {OWNER: person.master.public}
    assert dict(again.known.devices) == {(OWNER, "PHONE"): person.device.public}
    [signed] = bot.homeserver.signed
    assert list(signed[OWNER]) == [person.master.public]


async def confirmed(bot: Bot) -> list[tuple[str, Any]]:
    assert await bot.word(bot.verification.confirm(bot.one.verification_id))
    return bot.world.take()


async def test_nobody_is_verified_by_the_person_alone(bot: Bot) -> None:
    await bot.until_shown(bot.requester())
    assert [kind for kind, _ in await confirmed(bot)] == [MAC]
    assert not bot.is_verified()
    assert bot.identities.known.devices == {}


async def test_in_a_room_it_goes_the_same_way(bot: Bot) -> None:
    requester = bot.requester("$1", in_room=True)
    [(kind, ready)] = await bot.hear_in_room("m.room.message", requester.request(0))
    relation = {"rel_type": "m.reference", "event_id": "$1"}
    assert (kind, ready) == (READY, {"from_device": "POD", "methods": ["m.sas.v1"], "m.relates_to": relation})
    [(_, accept)] = await bot.hear_in_room(START, requester.start())
    requester.accepted(accept)
    [(_, key)] = await bot.hear_in_room(KEY, requester.key())
    requester.keyed(key)
    await confirmed(bot)
    assert [kind for kind, _ in await bot.hear_in_room(MAC, requester.mac())] == [DONE]
    assert bot.is_verified()


async def test_a_client_that_starts_without_asking_is_answered(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown_from_start(requester)
    await confirmed(bot)
    await bot.hear(MAC, requester.mac())
    assert bot.is_verified()


# messages that came encrypted


async def test_a_client_that_encrypts_what_it_says_is_verified_as_well(bot: Bot) -> None:
    requester, phone = bot.requester(), bot.world.persons[OWNER].keys
    [(kind, _)] = await bot.hear(REQUEST, requester.request(bot.clock.now_ms()), by=phone)
    assert kind == READY
    [(_, accept)] = await bot.hear(START, requester.start(), by=phone)
    requester.accepted(accept)
    [(_, key)] = await bot.hear(KEY, requester.key(), by=phone)
    requester.keyed(key)
    await confirmed(bot)
    assert [kind for kind, _ in await bot.hear(MAC, requester.mac(), by=phone)] == [DONE]
    assert bot.is_verified()


@pytest.mark.parametrize("kind", [REQUEST, START])
@pytest.mark.parametrize(
    "changes",
    [{"curve25519": Person(OWNER, "TABLET", 7).curve25519}, {"ed25519": Person(OWNER, "TABLET", 7).device.public}],
)
async def test_no_device_asks_in_the_name_of_another_one_of_its_account(
    bot: Bot, kind: str, changes: dict[str, str]
) -> None:
    bot.world.more = (Person(OWNER, "TABLET", 7).keys,)
    requester, phone = bot.requester(), bot.world.persons[OWNER].keys
    content = requester.request(bot.clock.now_ms()) if kind == REQUEST else requester.start()
    assert codes(await bot.hear(kind, content, by=dataclasses.replace(phone, **changes))) == ["m.key_mismatch"]
    assert bot.verification.all() == ()


async def test_no_other_device_goes_on_with_a_verification_or_ends_it(bot: Bot) -> None:
    tablet = Person(OWNER, "TABLET", 7).keys
    bot.world.more = (tablet,)
    requester, phone = bot.requester(), bot.world.persons[OWNER].keys
    await bot.hear(REQUEST, requester.request(bot.clock.now_ms()), by=phone)
    before = bot.one.state
    for other in (tablet, dataclasses.replace(phone, curve25519=Person(MALLORY, "EVIL", 9).curve25519)):
        assert await bot.hear(START, requester.start(), by=other) == []
        assert await bot.hear(CANCEL, requester.content({"code": "m.user"}), by=other) == []
    assert bot.one.state is before
    [(kind, _)] = await bot.hear(START, requester.start(), by=phone)
    assert kind == ACCEPT


async def test_the_emoji_stand_in_the_log(bot: Bot) -> None:
    with structlog.testing.capture_logs() as logs:
        await bot.until_shown(bot.requester())
    [line] = [line for line in logs if line["event"] == "verification_emoji"]
    assert isinstance(bot.one.state, Shown)
    assert line["emoji"] == " · ".join(f"{emoji} {name}" for emoji, name in bot.one.state.short.emoji)
    assert (line["user_id"], line["device_id"]) == (OWNER, "PHONE")


# who may


async def test_who_is_no_approver_is_turned_away_always_alike(bot: Bot) -> None:
    known = Person(MALLORY, "EVIL", 5)
    bot.world.persons[MALLORY] = known
    for kind, content in [
        (REQUEST, bot.requester("t1", known).request(bot.clock.now_ms())),
        (START, bot.requester("t2", known).start()),
        (REQUEST, bot.requester("t3", Person(MALLORY, "UNKNOWN", 6)).request(bot.clock.now_ms())),
        (REQUEST, bot.requester("t4", known).request(bot.clock.now_ms()) | {"methods": []}),
    ]:
        assert codes(await bot.hear(kind, content, sender=MALLORY)) == ["m.user"]
    assert bot.verification.all() == ()
    assert await bot.hear(KEY, {"transaction_id": "t5", "key": "x"}, sender=MALLORY) == []


async def test_who_is_no_approver_cannot_make_the_bot_busy(bot: Bot) -> None:
    request = bot.requester("t", Person(MALLORY, "EVIL", 5)).request(bot.clock.now_ms())
    said = [await bot.hear(REQUEST, request | {"transaction_id": f"t{n}"}, sender=MALLORY) for n in range(50)]
    assert sum(len(each) for each in said) == 10
    bot.clock.advance(MINUTE_MS)
    request["timestamp"] = bot.clock.now_ms()
    assert codes(await bot.hear(REQUEST, request, sender=MALLORY)) == ["m.user"]


async def test_others_cannot_go_on_with_an_approver_s_verification(bot: Bot) -> None:
    requester = bot.requester("$1", in_room=True)
    await bot.hear_in_room("m.room.message", requester.request(0))
    before = bot.one.state
    bot.approvers.add(MALLORY)
    assert await bot.hear_in_room(START, requester.start(), sender=MALLORY) == []
    assert await bot.hear_in_room(CANCEL, requester.content({"code": "m.user"}), sender=MALLORY) == []
    assert bot.one.state is before
    to_device = bot.requester("t1")
    await bot.hear(CANCEL, to_device.content({"code": "m.user"}), sender=MALLORY)
    assert bot.one.state is before


HALF = "\ud800"
"""Half a character: JSON may hold it, and nothing that is signed or sent on can."""


async def test_half_a_character_anywhere_in_a_message_is_no_message(bot: Bot) -> None:
    requester = bot.requester("$1", in_room=True)
    request = requester.request(0)
    for said, changes in [
        (request, {"event_id": HALF}),
        (request, {"sender": HALF}),
        (request | {"from_device": HALF}, {}),
        (request | {"more": {HALF: 1}}, {}),
    ]:
        assert await bot.hear_in_room("m.room.message", said, **changes) == []
    for content in (requester.content({"more": HALF}), {"transaction_id": HALF}):
        assert await bot.hear_in_room(KEY, content | requester.content({})) == []
        assert await bot.hear(KEY, {"transaction_id": "t"} | content) == []
    assert bot.verification.all() == ()


async def test_an_identity_with_half_a_character_in_it_is_none(bot: Bot) -> None:
    person = bot.world.persons[OWNER]
    answer = person.answer()
    answer["master_keys"][OWNER]["more"] = HALF
    await bot.identities.learn(answer)
    assert bot.identities.identity(OWNER) is None


async def test_a_request_in_a_room_for_somebody_else_is_none_of_the_bot_s(bot: Bot) -> None:
    content = bot.requester("$1", in_room=True).request(0) | {"to": MALLORY}
    assert await bot.hear_in_room("m.room.message", content) == []
    assert await bot.hear_in_room(START, bot.requester("$1", in_room=True).start()) == []
    assert bot.verification.all() == ()


@pytest.mark.parametrize(
    "changes",
    [
        {"event_id": None},
        {"sender": None},
        {"content": []},
        {"type": 7},
        {"origin_server_ts": "now"},
        {"type": "m.room.member"},
        {"content": {"msgtype": "m.text", "body": "hello"}},
        {"type": REQUEST},
    ],
)
async def test_what_is_no_message_of_a_verification_is_nothing(bot: Bot, changes: dict[str, Any]) -> None:
    content = bot.requester("$1", in_room=True).request(0)
    assert await bot.hear_in_room("m.room.message", content, **changes) == []
    for relation in (None, [], {"rel_type": "m.thread", "event_id": "$1"}, {"rel_type": "m.reference"}):
        assert await bot.hear_in_room(START, {"m.relates_to": relation}) == []
    assert await bot.hear(REQUEST, {"from_device": "PHONE"}) == []
    assert await bot.hear("m.room_key", {"transaction_id": "t1"}) == []
    assert bot.verification.all() == ()


@pytest.mark.parametrize("off_ms", [-11 * MINUTE_MS, 6 * MINUTE_MS])
async def test_a_request_from_another_time_is_nothing(bot: Bot, off_ms: int) -> None:
    then = bot.clock.now_ms() + off_ms
    assert await bot.hear(REQUEST, bot.requester().request(then)) == []
    content = bot.requester("$1", in_room=True).request(0)
    assert await bot.hear_in_room("m.room.message", content, origin_server_ts=then) == []
    assert await bot.hear(REQUEST, bot.requester("t2").request(then) | {"timestamp": "now"}) == []


# what is wrong


async def test_a_device_that_the_account_does_not_have_is_refused(bot: Bot) -> None:
    stranger = Person(OWNER, "UNKNOWN", 9)
    request = bot.requester("t1", stranger).request(bot.clock.now_ms())
    assert codes(await bot.hear(REQUEST, request)) == ["m.key_mismatch"]


async def test_a_device_that_is_called_like_its_owner_s_identity_is_refused(bot: Bot) -> None:
    person = Person()
    person.device_id = person.master.public
    bot.world.persons[OWNER] = person
    request = bot.requester("t1", person).request(bot.clock.now_ms())
    assert codes(await bot.hear(REQUEST, request)) == ["m.key_mismatch"]


async def test_who_cannot_compare_emoji_is_told_so(bot: Bot) -> None:
    for number, methods in enumerate(([], ["m.qr_code.scan.v1"], None, "m.sas.v1", [7])):
        request = bot.requester(f"t{number}").request(bot.clock.now_ms()) | {"methods": methods}
        assert codes(await bot.hear(REQUEST, request)) == ["m.unknown_method"]


async def test_an_unknown_verification_is_told_so_to_every_device(bot: Bot) -> None:
    for kind in (KEY, MAC, DONE, READY, "m.key.verification.accept"):
        bot.verification.hear(OWNER, kind, {"transaction_id": "never"})
        await bot.settle()
        [(user_id, device_id, said, content)] = bot.world.sent
        assert (user_id, device_id, said, content["code"]) == (OWNER, "*", CANCEL, "m.unknown_transaction")
        bot.world.take()
    assert await bot.hear(CANCEL, {"transaction_id": "never"}) == []
    assert await bot.hear_in_room(KEY, {"m.relates_to": {"rel_type": "m.reference", "event_id": "$never"}}) == []


async def test_of_two_attempts_of_one_person_none_is_trusted(bot: Bot) -> None:
    first = bot.requester("t1")
    await bot.until_shown(first)
    request = bot.requester("t2").request(bot.clock.now_ms())
    assert codes(await bot.hear(REQUEST, request)) == ["m.user", "m.user"]
    assert await bot.hear(MAC, first.mac()) == []
    assert not await bot.word(bot.verification.confirm(bot.one.verification_id))
    assert not bot.is_verified()
    assert [kind for kind, _ in await bot.hear(REQUEST, bot.requester("t3").request(bot.clock.now_ms()))] == [READY]


async def test_no_more_than_five_are_open(bot: Bot) -> None:
    said = []
    for number in range(6):
        person = Person(UserId(f"@owner{number}:example.org"), "PHONE", 10 + number * 3)
        bot.world.persons[person.user_id] = person
        bot.approvers.add(person.user_id)
        request = bot.requester(f"t{number}", person).request(bot.clock.now_ms())
        said += await bot.hear(REQUEST, request, sender=person.user_id)
    assert [kind for kind, _ in said] == [READY] * 5 + [CANCEL]


async def test_those_that_ended_do_not_pile_up(bot: Bot) -> None:
    for number in range(60):
        requester = bot.requester(f"t{number}")
        await bot.hear(REQUEST, requester.request(bot.clock.now_ms()))
        await bot.hear(CANCEL, requester.content({"code": "m.user"}))
    assert len(bot.verification.all()) <= 21


async def test_what_came_before_comes_again_and_changes_nothing(bot: Bot) -> None:
    """A sync response that could not be kept is asked for again."""
    requester = bot.requester()
    request = requester.request(bot.clock.now_ms())
    assert len(await bot.hear(REQUEST, request)) == 1
    assert await bot.hear(REQUEST, request) == []
    [(_, accept)] = await bot.hear(START, requester.start())
    requester.accepted(accept)
    assert await bot.hear(START, requester.start()) == []
    [(_, key)] = await bot.hear(KEY, requester.key())
    requester.keyed(key)
    mac = requester.mac()
    for _ in range(2):
        assert await bot.hear(KEY, requester.key()) == []
        assert await bot.hear(MAC, mac) == []
    await confirmed(bot)
    assert bot.is_verified()


async def test_another_device_of_the_bot_s_account_may_take_it_over(bot: Bot) -> None:
    requester = bot.requester("$1", in_room=True)
    await bot.hear_in_room("m.room.message", requester.request(0))
    ours = requester.content({"from_device": "POD", "methods": ["m.sas.v1"]})
    assert await bot.hear_in_room(READY, ours, sender=POD) == []
    assert not bot.one.is_over
    assert await bot.hear_in_room(READY, ours | {"from_device": "OTHER"}, sender=POD) == []
    assert bot.one.state == Cancelled("m.accepted", by_us=False)


# time


async def test_what_takes_too_long_ends(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    await bot.hear(MAC, requester.mac())
    bot.clock.advance(10 * MINUTE_MS)
    assert await bot.word(bot.verification.confirm(bot.one.verification_id))
    assert codes(bot.world.take()) == ["m.timeout"]
    assert not bot.is_verified()


async def test_what_nobody_goes_on_with_ends_by_itself_and_is_gone_after_a_while(bot: Bot) -> None:
    await bot.hear(REQUEST, bot.requester().request(bot.clock.now_ms()))
    async with bot.running():
        await passes(bot, 600)
        assert codes(bot.world.take()) == ["m.timeout"]
        await passes(bot, 601)
        assert bot.verification.all() == ()


async def passes(bot: Bot, seconds: int) -> None:
    """Time goes by in steps of which each wakes what sleeps."""
    for _ in range(seconds // 5 + 2):
        bot.clock.advance(5_000)
        for _ in range(20):
            await asyncio.sleep(0)


# the person at the machine


async def test_emoji_that_differ_end_it(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    assert await bot.word(bot.verification.decline(bot.one.verification_id, mismatch=True))
    assert codes(bot.world.take()) == ["m.mismatched_sas"]
    assert await bot.hear(MAC, requester.mac()) == []
    assert not await bot.word(bot.verification.confirm(bot.one.verification_id))
    assert not bot.is_verified()


async def test_only_what_was_shown_can_be_confirmed_and_once(bot: Bot) -> None:
    assert not await bot.word(bot.verification.confirm("0"))
    requester = bot.requester()
    await bot.hear(REQUEST, requester.request(bot.clock.now_ms()))
    assert not await bot.word(bot.verification.confirm(bot.one.verification_id))
    await bot.until_shown_from_start(requester)
    assert await bot.word(bot.verification.confirm(bot.one.verification_id))
    assert not await bot.word(bot.verification.confirm(bot.one.verification_id))
    bot.world.take()
    await bot.hear(MAC, requester.mac())
    assert not await bot.word(bot.verification.decline(bot.one.verification_id, mismatch=False))
    assert bot.is_verified()


async def test_whoever_waits_for_news_is_woken(bot: Bot) -> None:
    waiting = asyncio.create_task(bot.verification.changes(bot.verification.version))
    await asyncio.sleep(0)
    assert not waiting.done()
    await bot.hear(REQUEST, bot.requester().request(bot.clock.now_ms()))
    await asyncio.wait_for(waiting, 5)


# keys that change, and a homeserver that does not answer


async def test_keys_that_changed_meanwhile_are_not_verified(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    await bot.hear(MAC, requester.mac())
    bot.world.persons[OWNER] = Person(number=5)
    said = await confirmed(bot)
    assert [kind for kind, _ in said] == [MAC, CANCEL]
    assert said[1][1]["code"] == "m.key_mismatch"
    assert bot.identities.known.devices == bot.identities.known.masters == {}
    assert bot.one.state == Cancelled("m.key_mismatch", by_us=True)


async def test_an_identity_that_changed_meanwhile_verifies_not_even_the_device(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    await bot.hear(MAC, requester.mac())
    bot.world.persons[OWNER].master = Person(number=5).master
    said = await confirmed(bot)
    assert [kind for kind, _ in said] == [MAC, CANCEL]
    assert bot.identities.known.devices == bot.identities.known.masters == {}


async def test_what_could_not_be_sent_is_sent_again(bot: Bot) -> None:
    bot.world.faults = [HomeserverUnavailable("no answer"), RateLimited(30_000)]
    async with bot.running():
        bot.verification.hear(OWNER, REQUEST, bot.requester().request(bot.clock.now_ms()))
        await passes(bot, 60)
        assert [kind for kind, _ in bot.world.take()] == [READY]
    assert len(bot.world.txn_ids) == 3
    assert len(set(bot.world.txn_ids)) == 1


async def test_what_can_never_be_sent_ends_it(bot: Bot) -> None:
    requester = bot.requester("$1", in_room=True)
    await bot.hear_in_room("m.room.message", requester.request(0))
    bot.world.faults = [Refused("M_FORBIDDEN")]
    assert await bot.hear_in_room(START, requester.start()) == []
    assert bot.one.state == Cancelled("m.user", by_us=True)


async def test_a_done_that_cannot_be_sent_takes_nothing_back(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    await confirmed(bot)
    bot.world.faults = [Refused("M_FORBIDDEN")]
    assert await bot.hear(MAC, requester.mac()) == []
    assert bot.is_verified()
    assert isinstance(bot.one.state, Finished)
    assert len(bot.homeserver.signed) == 1


async def test_a_signature_that_is_not_taken_takes_nothing_back(bot: Bot) -> None:
    requester = bot.requester()
    await bot.until_shown(requester)
    await confirmed(bot)
    bot.homeserver.failures = {OWNER: {}}
    assert [kind for kind, _ in await bot.hear(MAC, requester.mac())] == [DONE]
    assert bot.is_verified()


async def test_one_bad_message_does_not_stop_the_next(bot: Bot) -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    async with bot.running():
        bot.verification.hear(OWNER, START, {"transaction_id": "t0", "from_device": "PHONE", "x": deep})
        bot.verification.hear(OWNER, START, {"transaction_id": "t0", "from_device": "PHONE", "x": float("nan")})
        bot.verification.hear(OWNER, START, {"transaction_id": "\udc00", "from_device": "PHONE"})
        bot.verification.hear(OWNER, REQUEST, bot.requester().request(bot.clock.now_ms()))
        await passes(bot, 5)
        assert [kind for kind, _ in bot.world.take()] == [READY]
    while deep:
        deep = deep.pop()


async def test_messages_do_not_pile_up_without_end(bot: Bot) -> None:
    for number in range(2_000):
        bot.verification.hear(MALLORY, KEY, {"transaction_id": f"t{number}"})
    assert bot.verification._waiting.qsize() <= 500
