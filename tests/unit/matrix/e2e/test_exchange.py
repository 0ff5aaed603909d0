from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import vodozemac
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentpod_bot.matrix.e2e.emoji import EMOJI
from agentpod_bot.matrix.e2e.exchange import (
    ACCEPT,
    CANCEL,
    DONE,
    KEY,
    MAC,
    READY,
    REQUEST,
    START,
    Accepted,
    Cancelled,
    Code,
    Confirmed,
    Effect,
    Event,
    Finished,
    Given,
    Heard,
    Say,
    Shown,
    State,
    Terms,
    Trust,
    Waiting,
    step,
)
from agentpod_bot.matrix.e2e.sas import Side
from tests.unit.matrix.e2e.persons import POD, Pair, Person, Requester

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

PERSON = Person()
BOT = Person(POD, "POD", 2)
EVIL = Pair(99)


class Scene:
    """A verification, and the other side of it."""

    def __init__(self, *, master: bool = True) -> None:
        self.requester = Requester(PERSON, BOT.keys, "t1")
        self.terms = Terms(
            transaction_id="t1",
            own=Side(user_id=BOT.user_id, device_id=BOT.device_id),
            own_ed25519=BOT.device.public,
            own_master=BOT.master.public,
            other=Side(user_id=PERSON.user_id, device_id=PERSON.device_id),
            ed25519=PERSON.device.public,
            master=PERSON.master.public if master else None,
        )
        self.state: State = Waiting(terms=self.terms, secret=vodozemac.Sas())
        self.effects: list[Effect] = []

    def do(self, event: Event) -> tuple[Effect, ...]:
        self.state, effects = step(self.state, event)
        self.effects += effects
        return effects

    def hear(self, kind: str, content: Mapping[str, Any]) -> tuple[Effect, ...]:
        return self.do(Heard(kind, content))

    def begun(self) -> Scene:
        [said] = self.hear(START, self.requester.start())
        assert isinstance(said, Say)
        assert said.kind == ACCEPT
        self.requester.accepted(said.content)
        return self

    def shown(self) -> Scene:
        self.begun()
        [said] = self.hear(KEY, self.requester.key())
        assert isinstance(said, Say)
        assert said.kind == KEY
        self.requester.keyed(said.content)
        return self

    @property
    def trusted(self) -> list[Trust]:
        return [effect for effect in self.effects if isinstance(effect, Trust)]


def cancelled(code: Code) -> Cancelled:
    return Cancelled(code.value, by_us=True)


def test_both_sides_see_the_same() -> None:
    scene = Scene().shown()
    assert isinstance(scene.state, Shown)
    assert [EMOJI.index(each) for each in scene.state.short.emoji] == scene.requester.emoji_numbers
    assert scene.state.short.decimals == scene.requester.numbers


@pytest.mark.parametrize("confirmed_first", [True, False])
def test_what_both_sides_vouched_for_is_verified_once_the_person_agreed(confirmed_first: bool) -> None:
    scene = Scene().shown()
    if confirmed_first:
        [vouching] = scene.do(Confirmed())
        assert scene.trusted == []
        trust, done = scene.hear(MAC, scene.requester.mac())
    else:
        assert scene.hear(MAC, scene.requester.mac()) == ()
        assert scene.trusted == []
        vouching, trust, done = scene.do(Confirmed())
    assert isinstance(vouching, Say)
    assert scene.requester.vouched(
        vouching.content,
        {"ed25519:POD": BOT.device.public, f"ed25519:{BOT.master.public}": BOT.master.public},
    )
    assert trust == Trust(PERSON.device.public, PERSON.master.public)
    assert done == Say(DONE, {})
    assert isinstance(scene.state, Finished)


def test_only_what_was_vouched_for_is_verified() -> None:
    device, identity = Scene().shown(), Scene().shown()
    for scene in (device, identity):
        scene.do(Confirmed())
    device.hear(MAC, device.requester.mac({"ed25519:PHONE": PERSON.device.public}))
    assert device.trusted == [Trust(PERSON.device.public, None)]
    master = PERSON.master.public
    identity.hear(MAC, identity.requester.mac({f"ed25519:{master}": master, "ed25519:unknown": "key"}))
    assert identity.trusted == [Trust(None, master)]


def test_an_identity_that_we_do_not_know_is_not_verified_by_its_own_word() -> None:
    scene = Scene(master=False).shown()
    scene.do(Confirmed())
    scene.hear(MAC, scene.requester.mac())
    assert scene.trusted == [Trust(PERSON.device.public, None)]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"ed25519:ANOTHER": PERSON.device.public},
        {"ed25519:PHONE": EVIL.public},
        {"ed25519:PHONE": PERSON.device.public, f"ed25519:{PERSON.master.public}": EVIL.public},
        {f"ed25519:{EVIL.public}": EVIL.public},
    ],
)
def test_a_vouching_for_other_keys_ends_it(keys: dict[str, str]) -> None:
    scene = Scene().shown()
    scene.do(Confirmed())
    [said] = scene.hear(MAC, scene.requester.mac(keys))
    assert scene.state == cancelled(Code.KEY_MISMATCH)
    assert isinstance(said, Say)
    assert (said.kind, said.content["code"]) == (CANCEL, "m.key_mismatch")
    assert scene.trusted == []


@pytest.mark.parametrize(
    "change",
    [
        lambda mac: mac | {"keys": "AAAA"},
        lambda mac: mac | {"keys": None},
        lambda mac: {"mac": mac["mac"]},
        lambda mac: mac | {"mac": []},
        lambda mac: mac | {"mac": mac["mac"] | {"ed25519:PHONE": 7}},
        lambda mac: mac | {"mac": {"ed25519:PHONE": mac["mac"]["ed25519:PHONE"]}},
        lambda mac: mac | {"mac": mac["mac"] | {"ed25519:MORE": "AAAA"}},
        lambda mac: mac | {"keys": "\udc00"},
    ],
)
def test_a_vouching_that_was_tampered_with_ends_it(change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    scene = Scene().shown()
    scene.do(Confirmed())
    scene.hear(MAC, change(scene.requester.mac()))
    assert scene.state == cancelled(Code.KEY_MISMATCH)
    assert scene.trusted == []


def test_our_own_vouching_given_back_is_not_theirs() -> None:
    scene = Scene().shown()
    [vouching] = scene.do(Confirmed())
    assert isinstance(vouching, Say)
    scene.hear(MAC, vouching.content)
    assert scene.state == cancelled(Code.KEY_MISMATCH)


def test_somebody_in_between_is_seen() -> None:
    """Who exchanges keys with both sides in turn gets another secret with each, and the emoji differ."""
    scene, between = Scene().begun(), Requester(PERSON, BOT.keys, "t1")
    between.start_content, between._commitment = scene.requester.start_content, scene.requester._commitment
    [said] = scene.hear(KEY, between.key())
    assert isinstance(said, Say)
    between.keyed(said.content)
    scene.requester.keyed(said.content)
    assert isinstance(scene.state, Shown)
    assert scene.state.short.decimals == between.numbers
    assert scene.state.short.decimals != scene.requester.numbers


@pytest.mark.parametrize("before", ["waiting", "accepted", "shown"])
@pytest.mark.parametrize("kind", [REQUEST, READY, START, ACCEPT, KEY, MAC, DONE, "m.key.verification.of_the_future"])
def test_what_does_not_belong_there_ends_it(before: str, kind: str) -> None:
    scene = Scene()
    if before != "waiting":
        scene.begun()
    if before == "shown":
        scene.shown() if isinstance(scene.state, Waiting) else scene.requester.keyed(
            scene.hear(KEY, scene.requester.key())[0].content  # type: ignore[union-attr]
        )
    if (before, kind) in {("waiting", START), ("accepted", KEY), ("shown", MAC)}:
        return
    [said] = scene.hear(kind, {"key": scene.requester.public})
    assert isinstance(said, Say)
    assert said.content["code"] == "m.unexpected_message"
    assert scene.state == cancelled(Code.UNEXPECTED_MESSAGE)


def test_a_second_vouching_ends_it() -> None:
    scene = Scene().shown()
    scene.hear(MAC, scene.requester.mac())
    scene.hear(MAC, scene.requester.mac())
    assert scene.state == cancelled(Code.UNEXPECTED_MESSAGE)


def test_another_device_cannot_go_on_with_it() -> None:
    scene = Scene()
    scene.hear(START, scene.requester.start(from_device="ANOTHER"))
    assert scene.state == cancelled(Code.INVALID_MESSAGE)


@pytest.mark.parametrize("key", [None, 7, "", "AAAA", "not base64 at all!", "A" * 43])
def test_a_key_that_is_none_ends_it(key: object) -> None:
    scene = Scene().begun()
    scene.hear(KEY, {"key": key})
    assert scene.state == cancelled(Code.INVALID_MESSAGE)


def test_with_nothing_in_common_it_ends() -> None:
    scene = Scene()
    scene.hear(START, scene.requester.start(hashes=["md5"]))
    assert scene.state == cancelled(Code.UNKNOWN_METHOD)


def test_what_has_no_canonical_form_ends_it() -> None:
    scene = Scene()
    scene.hear(START, scene.requester.start(nonsense=float("nan")))
    assert scene.state == cancelled(Code.INVALID_MESSAGE)


def test_a_client_that_knows_only_the_old_way_is_verified() -> None:
    scene = Scene()
    [said] = scene.hear(START, scene.requester.start(message_authentication_codes=["hkdf-hmac-sha256"]))
    assert isinstance(said, Say)
    scene.requester.accepted(said.content)
    [said] = scene.hear(KEY, scene.requester.key())
    assert isinstance(said, Say)
    scene.requester.keyed(said.content)
    scene.do(Confirmed())
    scene.hear(MAC, scene.requester.mac())
    assert scene.trusted == [Trust(PERSON.device.public, PERSON.master.public)]


def test_emoji_that_do_not_match_are_told_so() -> None:
    scene = Scene().shown()
    [said] = scene.do(Given(Code.MISMATCHED_SAS))
    assert isinstance(said, Say)
    assert (said.kind, said.content["code"]) == (CANCEL, "m.mismatched_sas")
    scene.do(Confirmed())
    scene.hear(MAC, scene.requester.mac())
    assert scene.state == cancelled(Code.MISMATCHED_SAS)
    assert scene.trusted == []


def test_what_the_other_side_ended_stays_ended() -> None:
    scene = Scene().shown()
    scene.hear(MAC, scene.requester.mac())
    assert scene.hear(CANCEL, {"code": "m.user"}) == ()
    assert scene.do(Confirmed()) == ()
    assert scene.state == Cancelled("m.user", by_us=False)
    assert scene.trusted == []


def test_after_the_end_nothing_more_is_said() -> None:
    scene = Scene().shown()
    scene.do(Confirmed())
    scene.hear(MAC, scene.requester.mac())
    end = scene.state
    for event in (Heard(DONE, {}), Heard(CANCEL, {}), Heard(MAC, {}), Confirmed(), Given(Code.TIMEOUT)):
        assert scene.do(event) == ()
    assert scene.state == end


def test_nobody_can_confirm_what_was_not_shown() -> None:
    scene = Scene()
    assert scene.do(Confirmed()) == ()
    scene.begun()
    assert scene.do(Confirmed()) == ()
    assert isinstance(scene.state, Accepted)
    scene.requester.keyed(scene.hear(KEY, scene.requester.key())[0].content)  # type: ignore[union-attr]
    assert scene.hear(MAC, scene.requester.mac()) == ()
    assert scene.trusted == []


MOVES = st.sampled_from(["start", "key", "mac", "bad mac", "no mac", "done", "cancel", "accept", "ready", "confirm"])


@settings(max_examples=300, deadline=None)
@given(st.lists(MOVES, max_size=12))
@example(["start", "key", "confirm", "mac"])
@example(["start", "key", "mac", "confirm"])
@example(["start", "key", "mac", "done", "confirm"])
@example(["start", "key", "bad mac", "confirm"])
def test_nothing_is_verified_without_the_person_and_a_right_vouching(moves: list[str]) -> None:
    """Whatever comes in whatever order: `Trust` needs emoji that were shown, a confirmation after, a right vouching."""
    scene, confirmed, vouched = Scene(), False, False
    for move in moves:
        match move:
            case "start":
                for effect in scene.hear(START, scene.requester.start()):
                    if isinstance(effect, Say) and effect.kind == ACCEPT:
                        scene.requester.accepted(effect.content)
            case "key":
                for effect in scene.hear(KEY, scene.requester.key()):
                    if isinstance(effect, Say) and effect.kind == KEY:
                        scene.requester.keyed(effect.content)
            case "mac":
                shows = isinstance(scene.state, Shown)
                scene.hear(MAC, scene.requester.mac() if shows else {})
                vouched |= shows
            case "bad mac":
                shows = isinstance(scene.state, Shown)
                scene.hear(MAC, scene.requester.mac({"ed25519:PHONE": EVIL.public}) if shows else {})
            case "confirm":
                confirmed |= isinstance(scene.state, Shown)
                scene.do(Confirmed())
            case _:
                scene.hear("m.key.verification." + move.replace("no ", ""), {})
        assert not scene.trusted or (confirmed and vouched)
        assert len(scene.trusted) <= 1
        assert bool(scene.trusted) == isinstance(scene.state, Finished)
