from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from agentpod_bot.core.ids import EventId, UserId
from agentpod_bot.core.model import Claim, Outcome
from agentpod_bot.core.room import Foreign
from agentpod_bot.core.scene import WhyUnheard
from agentpod_bot.core.trust import FOR_EVERY_DEVICE
from agentpod_bot.render import notices
from agentpod_bot.render.sentences import Keys
from tests.unit.render.samples import ASKED_MS, MINUTE, ended, golden, posted, selected

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentpod_bot.core.model import Question

PERSON = EventId("$person")
THREAD = EventId("$question")
OPEN = posted()
OTHER = replace(OPEN, asked=replace(OPEN.asked, code="M3", title='Deploy "now"\n@room'), event_id=EventId("$other"))
NOW = ASKED_MS + 5 * MINUTE
LOST = Foreign(
    event_id=EventId("$lost"),
    room_id=OPEN.asked.room_id,
    sender=UserId("@pod:example.org"),
    code=OPEN.asked.code,
    shown_ts=ASKED_MS,
    expires_at_ms=NOW,
    closed_ts=None,
)
ABOUT_ONE: list[Callable[..., dict[str, Any]]] = [
    partial(notices.hint, OPEN),
    partial(notices.no_reason, OPEN),
    partial(notices.not_approver, OPEN),
    partial(notices.not_asked_here, OPEN, elsewhere=True),
    partial(notices.late, selected(1)),
    partial(notices.refused, OPEN, "option_id is missing"),
    *(partial(notices.undecryptable, OPEN, keys) for keys in Keys),
    partial(notices.undecryptable_which, (OPEN, OTHER), now_ms=NOW),
    partial(notices.not_named, OPEN),
    *(partial(notices.not_known, lost) for lost in (LOST, replace(LOST, code=None))),
    *(partial(notices.unheard, about, why) for why in WhyUnheard for about in (OPEN, None)),
    partial(notices.which_one, (OPEN, OTHER), now_ms=NOW),
    partial(notices.open_list, (OPEN, OTHER), now_ms=NOW),
]


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("notice_hint", partial(notices.hint, OPEN, reply_to=PERSON, thread=THREAD)),
        ("notice_which_one", partial(notices.which_one, (OPEN, OTHER), now_ms=NOW, reply_to=PERSON)),
        ("notice_open_list", partial(notices.open_list, (OPEN, OTHER), now_ms=NOW, reply_to=PERSON)),
    ],
)
def test_a_notice_looks_as_agreed(name: str, write: Callable[[], dict[str, Any]]) -> None:
    assert write() == golden(name)


@pytest.mark.parametrize("write", ABOUT_ONE)
def test_every_notice_replies_pings_nobody_and_stays_in_its_thread(write: Callable[..., dict[str, Any]]) -> None:
    bare, threaded = write(reply_to=PERSON), write(reply_to=PERSON, thread=THREAD)
    for content in (bare, threaded):
        assert content["msgtype"] == "m.notice"
        assert content["m.mentions"] == {}
    assert bare["m.relates_to"] == {"m.in_reply_to": {"event_id": "$person"}}
    assert threaded["m.relates_to"] == {
        "rel_type": "m.thread",
        "event_id": "$question",
        "is_falling_back": False,
        "m.in_reply_to": {"event_id": "$person"},
    }


@pytest.mark.parametrize("write", ABOUT_ONE)
def test_no_notice_says_that_anything_was_approved(write: Callable[..., dict[str, Any]]) -> None:
    said = write(reply_to=PERSON)["body"].lower()
    for fine in ("nothing has been approved", "nothing was approved", "nothing was allowed"):
        said = said.replace(fine, "")
    assert "approved" not in said
    assert "allowed" not in said


def test_who_may_not_answer_is_told_without_the_word_approved() -> None:
    body = notices.not_approver(OPEN, reply_to=PERSON)["body"]
    assert "not an approver" in body
    assert "approved" not in body


@pytest.mark.parametrize(
    ("question", "what"),
    [
        (selected(1), "already answered by @owner:example.org: Allow once, at 10:12 UTC"),
        (ended(Outcome.EXPIRED, minutes=30), "too late, expired at 10:30 UTC, nothing was allowed"),
        (ended(Outcome.SUPERSEDED), "replaced by a newer question"),
        (ended(Outcome.CANCELLED), "the agent no longer needs an answer"),
        (
            ended(Outcome.ANSWERED_ELSEWHERE, claim=Claim("allow_once", "@owner:example.org")),
            "already closed by client laptop at 10:12 UTC: says it was answered there",
        ),
        (ended(Outcome.UNDELIVERABLE), "already closed at 10:12 UTC"),
    ],
)
def test_who_is_late_is_told_what_happened_when_and_by_whom(question: Question, what: str) -> None:
    body = notices.late(question, reply_to=PERSON)["body"]
    assert body.startswith('K7 "Run the test suite": ')
    assert what in body
    assert body.endswith("Nothing was approved by your message.")
    assert ("@owner" in body) == (question.closing is not None and question.closing.answered_by is not None)


def test_nobody_is_late_for_an_open_question() -> None:
    with pytest.raises(ValueError, match="open question"):
        notices.late(OPEN, reply_to=PERSON)


def test_a_hint_repeats_the_options_as_printed() -> None:
    lines = notices.hint(OPEN, reply_to=PERSON)["body"].split("\n")
    assert lines[1:] == ["1. Allow once", "2. Always allow", "3. Reject", "4. Never allow"]


def test_a_list_names_every_question_by_code_and_shows_titles_on_one_line() -> None:
    for write in (notices.which_one, notices.open_list):
        body = write((OPEN, OTHER), now_ms=NOW, reply_to=PERSON)["body"]
        assert 'K7 "Run the test suite" · asked 5 min ago' in body.split("\n")
        assert 'M3 "Deploy \u201dnow\u201d\\n@room" · asked 5 min ago' in body.split("\n")


def test_who_is_asked_which_though_only_one_is_open_is_told_why() -> None:
    why = "one that closed a moment ago"
    assert why in notices.which_one((OPEN,), now_ms=NOW, reply_to=PERSON)["body"]
    assert why not in notices.which_one((OPEN, OTHER), now_ms=NOW, reply_to=PERSON)["body"]


def test_the_open_list_links_to_each_question_in_the_room() -> None:
    queued = replace(OPEN, event_id=None)
    body = notices.open_list((OPEN, queued), now_ms=NOW, reply_to=PERSON)["body"]
    assert "https://matrix.to/#/%21ops%3Ahs.example/%24question" in body
    assert "not in the room yet" in body
    assert notices.open_list((), now_ms=NOW, reply_to=PERSON)["body"] == "No question is open here."


def test_a_long_list_is_cut_and_says_by_how_much() -> None:
    for write in (notices.which_one, notices.open_list):
        body = write((OPEN,) * 23, now_ms=NOW, reply_to=PERSON)["body"]
        assert body.count("asked 5 min ago") == 20
        assert "and 3 more" in body


def test_the_reason_of_a_refusal_is_said() -> None:
    body = notices.refused(OPEN, "subject.digest is not this question's", reply_to=PERSON)["body"]
    assert "subject.digest is not this question's" in body


def test_keycaps_are_those_of_the_offered_positions() -> None:
    keys = [content["m.relates_to"] for content in notices.keycaps(OPEN)]
    assert [key["key"] for key in keys] == ["1\ufe0f\u20e3", "2\ufe0f\u20e3", "3\ufe0f\u20e3", "4\ufe0f\u20e3"]
    assert {(key["rel_type"], key["event_id"]) for key in keys} == {("m.annotation", "$question")}
    assert notices.keycap(THREAD, 10)["m.relates_to"]["key"] == "\U0001f51f"
    with pytest.raises(ValueError, match="not in the room"):
        notices.keycaps(replace(OPEN, event_id=None))


def test_a_reaction_is_asked_for_only_where_it_counts() -> None:
    said = {keys: notices.undecryptable(OPEN, keys, reply_to=PERSON)["body"] for keys in Keys}
    assert "could not be decrypted" in said[Keys.NONE]
    assert "or react to the question with an option's number" in said[Keys.ALL]
    assert "or reject by reacting" in said[Keys.REJECTING]
    assert "react" not in said[Keys.NONE]


def test_whoever_has_no_verified_device_is_told_how_to_verify_one() -> None:
    body = notices.unheard(OPEN, WhyUnheard.UNVERIFIED, reply_to=PERSON)["body"]
    assert "start a verification of this account in your client" in body
    assert "agentpod-bot verify" in body


@pytest.mark.parametrize("why", WhyUnheard)
def test_what_only_an_unverified_device_is_told_is_for_every_device_and_names_no_question(why: WhyUnheard) -> None:
    content = notices.unheard(OPEN, why, reply_to=PERSON)
    is_unverified = why is WhyUnheard.UNVERIFIED
    assert content.get(FOR_EVERY_DEVICE, False) is is_unverified
    assert (OPEN.asked.title in content["body"]) is not is_unverified
    assert (OPEN.asked.code in content["body"]) is not is_unverified


@pytest.mark.parametrize(
    ("since_ms", "until_ms", "when"),
    [
        (ASKED_MS, NOW, "messages sent from 10:00 UTC until 10:05 UTC were not read"),
        (ASKED_MS, None, "messages sent from 10:00 UTC were not read"),
        (None, NOW, "messages sent until 10:05 UTC were not read"),
        (None, None, "messages were not read"),
    ],
)
def test_a_room_is_told_from_when_until_when_nothing_was_read(
    since_ms: int | None, until_ms: int | None, when: str
) -> None:
    body = notices.not_read(since_ms, until_ms, now_ms=NOW, votes_are_void=False)["body"]
    assert when in body
    assert "Nothing was approved by them." in body
    assert "Votes" not in body
