"""What the checker finds in encrypted rooms besides."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from chaos.checker.evidence import KEPT, Evidence, keep, kept
from chaos.checker.scene import Scene
from chaos.checker.sealed import ENCRYPTED, ENCRYPTION, Sealed
from chaos.checker.sealed_checks import LONGEST_WAIT_MS, SEALED_CHECKS
from chaos.checker.verdict import Verdict, judged
from tests.unit.chaos.story import BOT, OWNER, SECOND, Story, lively

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OTHER_KEY = {"algorithm": "m.megolm.v1.aes-sha2", "session_id": "s", "ciphertext": "…"}


@dataclass
class SealedStory:
    """A story whose room is encrypted. All that is said is encrypted, but for what stands in `clear`."""

    told: Story = field(default_factory=lively)
    clear: set[str] = field(default_factory=set)
    unread: dict[str, list[str]] = field(default_factory=dict)
    keyless: list[str] = field(default_factory=list)
    late_keys: list[str] = field(default_factory=list)
    outside: dict[str, Any] = field(default_factory=dict)
    """What stands in every event beside its ciphertext."""
    encrypted: bool = True

    def without_a_key(self, request_id: str = "r9", *, notice: bool = True) -> str:
        """Somebody answers a new question with a key that the bot does not have; returns the answer's event id."""
        question = self.told.asks(request_id)
        said = self.told.says(OWNER, "1", question)
        self.told.audited("undecryptable", request_id, sender=OWNER, event_id=said)
        if notice:
            reply = {"m.in_reply_to": {"event_id": said}}
            self.told.event(BOT, {"msgtype": "m.notice", "body": "could not be decrypted", "m.relates_to": reply})
        return said

    def question_of(self, request_id: str = "r9") -> str:
        """The event id of a question."""
        events = self.told.events
        return str(next(event["event_id"] for event in events if event["content"].get("request_id") == request_id))

    def says_again(self, request_id: str = "r9", *, after_ms: int = LONGEST_WAIT_MS) -> None:
        """The person says it again, and it counts."""
        self.told.now += after_ms
        again = self.told.reacts(OWNER, self.question_of(request_id), "2\ufe0f\u20e3")
        self.told.decided(request_id, OWNER, "reject_once", again)

    def evidence(self) -> Evidence:
        """What the checker is given."""
        came, opened = [], {}
        for event in copy.deepcopy(self.told.events):
            if event["type"] != "m.room.message" or event["event_id"] in self.clear:
                came.append(event)
                continue
            content = event["content"]
            opened[event["event_id"]] = {"type": event["type"], "content": content}
            relation = {"m.relates_to": content["m.relates_to"]} if "m.relates_to" in content else {}
            came.append(event | {"type": ENCRYPTED, "content": OTHER_KEY | relation | self.outside})
        on = {"type": ENCRYPTION, "event_id": "$on", "sender": OWNER, "state_key": "", "origin_server_ts": 1}
        events = ([on | {"content": {}}] if self.encrypted else []) + came
        plain = self.told.evidence()
        sealed = {"opened": opened, "unread": self.unread, "keyless": self.keyless, "late_keys": self.late_keys}
        return replace(plain, rooms=(replace(plain.rooms[0], events=tuple(events)),), sealed=Sealed.of(sealed))

    def verdict(self) -> Verdict:
        """What the checker makes of it."""
        return judged(self.evidence())

    def broken(self) -> set[str]:
        """The sorts of what broke a promise."""
        return {sort for sort, found in self.verdict().broken.items() if found}


@pytest.fixture
def story() -> SealedStory:
    return SealedStory()


def test_where_everything_went_well_in_an_encrypted_room_nothing_is_found(story: SealedStory) -> None:
    verdict = story.verdict()
    assert verdict.is_clean, verdict.text()
    zeros = ["lost 0", "doubled 0", "wrong 0", "unauthorised 0", "clear 0", "unreadable 0"]
    assert verdict.text().splitlines()[1:] == zeros


def test_what_could_not_be_read_and_was_said_again_is_right(story: SealedStory) -> None:
    story.keyless.append(story.without_a_key())
    story.says_again()
    assert story.verdict().is_clean, story.verdict().text()


def test_who_says_it_again_before_the_bot_gave_up_the_key_need_not_be_told(story: SealedStory) -> None:
    story.keyless.append(story.without_a_key(notice=False))
    story.says_again(after_ms=0)
    assert story.verdict().is_clean, story.verdict().text()


def test_what_is_decided_by_a_late_key_is_right_though_another_answer_is_readable_before_it(story: SealedStory) -> None:
    said = story.without_a_key()
    story.late_keys.append(said)
    story.told.audited("late", "r9", sender=SECOND, event_id=story.told.says(SECOND, "2", story.question_of()))
    story.told.decided("r9", OWNER, "allow_once", said)
    assert story.verdict().is_clean, story.verdict().text()


def test_an_unreadable_answer_to_what_was_closed_before_needs_no_word(story: SealedStory) -> None:
    question = story.told.asks("r9")
    story.told.decided("r9", OWNER, "reject_once", story.told.says(OWNER, "2", question))
    story.keyless.append(story.told.says(SECOND, "1", question))
    assert story.verdict().is_clean, story.verdict().text()


def test_clear_text_that_was_refused_is_no_answer_that_was_passed_over(story: SealedStory) -> None:
    question = story.told.asks("r9")
    said = story.told.says(OWNER, "1", question)
    story.clear.add(said)
    story.told.audited("clear_text", "r9", sender=OWNER, event_id=said)
    story.told.decided("r9", OWNER, "reject_once", story.told.says(OWNER, "2", question))
    assert story.verdict().is_clean, story.verdict().text()


def never_encrypted(story: SealedStory) -> None:
    story.encrypted = False


def question_in_clear(story: SealedStory) -> None:
    story.clear.add(story.question_of("r1"))


def something_beside_the_ciphertext(story: SealedStory) -> None:
    story.outside = {"body": "Permission needed"}


def not_read_by_a_person(story: SealedStory) -> None:
    story.unread[SECOND] = [story.question_of("r1")]


def not_read_and_not_told(story: SealedStory) -> None:
    story.without_a_key(notice=False)
    story.says_again()


def no_key_and_not_told(story: SealedStory) -> None:
    story.keyless.append(story.without_a_key(notice=False))
    story.says_again()


def not_read_and_never_said_again(story: SealedStory) -> None:
    story.without_a_key()
    story.told.decided("r9", SECOND, "allow_once", story.told.says(SECOND, "1", story.question_of()))


def no_key_and_not_heard(story: SealedStory) -> None:
    question = story.told.asks("r9")
    story.keyless.append(story.told.says(OWNER, "1", question))
    story.told.decided("r9", OWNER, "reject_once", story.told.says(OWNER, "2", question))


def late_key_and_not_handled(story: SealedStory) -> None:
    story.late_keys.append(story.without_a_key())
    story.says_again()


CLEAR = [never_encrypted, question_in_clear, something_beside_the_ciphertext]
UNREADABLE = [
    not_read_by_a_person,
    not_read_and_not_told,
    no_key_and_not_told,
    not_read_and_never_said_again,
    no_key_and_not_heard,
    late_key_and_not_handled,
]


@pytest.mark.parametrize("fault", CLEAR)
def test_what_is_in_clear_is_found(story: SealedStory, fault: Callable[[SealedStory], None]) -> None:
    fault(story)
    assert "clear" in story.broken()


@pytest.mark.parametrize("fault", UNREADABLE)
def test_what_could_not_be_read_and_had_no_good_end_is_found(
    story: SealedStory, fault: Callable[[SealedStory], None]
) -> None:
    fault(story)
    assert story.broken() == {"unreadable"}


def test_what_clear_text_decided_is_wrong(story: SealedStory) -> None:
    said = story.told.says(OWNER, "1", story.told.asks("r9"))
    story.clear.add(said)
    story.told.decided("r9", OWNER, "allow_once", said)
    assert story.broken() == {"wrong"}


def test_what_nobody_could_decrypt_decides_nothing(story: SealedStory) -> None:
    said = story.told.says(OWNER, "1", story.told.asks("r9"))
    story.told.decided("r9", OWNER, "allow_once", said)
    evidence = story.evidence()
    assert evidence.sealed is not None
    del evidence.sealed.opened[said]
    assert [what for what, _ in judged(evidence).broken["wrong"]] == ["laptop/r9 revision 1"]


def test_the_relation_that_counts_is_the_one_outside_the_ciphertext(story: SealedStory) -> None:
    one, other = story.told.asks("r8"), story.told.asks("r9")
    said = story.told.says(OWNER, "1", one)
    story.told.decided("r8", OWNER, "allow_once", said)
    story.told.decided("r9", OWNER, "reject_once", story.told.says(OWNER, "2", other))
    evidence = story.evidence()
    assert judged(evidence).is_clean, judged(evidence).text()
    [event] = [each for each in evidence.rooms[0].events if each["event_id"] == said]
    event["content"]["m.relates_to"] = {"m.in_reply_to": {"event_id": other}}
    assert not judged(evidence).is_clean


def test_each_check_of_encrypted_rooms_finds_something_in_these_tests() -> None:
    finding = set()
    every = {check for checks in SEALED_CHECKS.values() for check in checks}
    for fault in (*CLEAR, *UNREADABLE):
        story = SealedStory()
        fault(story)
        scene = Scene(story.evidence())
        finding |= {check for check in every if any(True for _ in check(scene))}
    assert finding == every


def test_evidence_of_encrypted_rooms_that_was_kept_is_judged_alike(story: SealedStory, tmp_path: Path) -> None:
    not_read_and_not_told(story)
    keep(story.evidence(), tmp_path / KEPT)
    assert judged(kept(tmp_path / KEPT)) == story.verdict()
