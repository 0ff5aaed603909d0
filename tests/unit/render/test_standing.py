"""What there is to say of an open question: the same question, who is for what, and where it was asked too."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agentpod_bot.core.copies import seen_in
from agentpod_bot.core.ids import EventId, RoomId, RouteName, UserId
from agentpod_bot.core.model import Copy, Outcome, TextPreview, Via
from agentpod_bot.core.scene import Left, WhyLeft
from agentpod_bot.core.votes import Tally
from agentpod_bot.render import notices
from agentpod_bot.render.content import MAX_EVENT_BYTES, event_size
from agentpod_bot.render.outcome import outcome
from agentpod_bot.render.standing import still_asked
from tests.unit.render.samples import ASKED, ASKED_MS, MINUTE, OWNER, composed, ended, golden, posted

SECOND = UserId("@second:example.org")
QUESTION = posted()
ALWAYS = QUESTION.asked.offered[1]
LINE = "1 of 2 votes for Always allow: @owner:example.org"


def test_the_edit_repeats_the_question_and_adds_one_line_to_its_block() -> None:
    asked = composed()
    edit = still_asked(QUESTION, asked, [Tally(ALWAYS, (OWNER,), 2)])
    new = edit["m.new_content"]
    bodies = {"body", "formatted_body"}
    assert {k: v for k, v in new.items() if k not in bodies} == {k: v for k, v in asked.items() if k not in bodies}
    lines = new["body"].split("\n")
    at = lines.index(LINE)
    assert "\n".join(lines[:at] + lines[at + 1 :]) == asked["body"]
    assert lines[at - 1] != ""
    assert lines[at + 1] == ""
    assert new["formatted_body"].replace(f"<p>{LINE}</p>", "", 1) == asked["formatted_body"]
    assert edit["m.relates_to"] == {"rel_type": "m.replace", "event_id": "$question"}
    assert edit["m.mentions"] == {}
    assert edit["body"] == f"* K7: {LINE}"
    assert "suite_event_type" not in edit


def test_as_many_lines_begin_with_a_number_as_there_are_options() -> None:
    body = still_asked(QUESTION, composed(), [Tally(ALWAYS, (OWNER, SECOND), 3)])["m.new_content"]["body"]
    assert len(re.findall(r"^\d+\.", body, re.MULTILINE)) == len(QUESTION.asked.offered)
    assert "2 of 3 votes for Always allow: @owner:example.org and @second:example.org" in body


def test_nothing_says_that_it_was_decided() -> None:
    edit = still_asked(QUESTION, composed(), [Tally(ALWAYS, (OWNER,), 2)])
    assert not re.search(r"approved|allowed", f"{edit['body']} {edit['m.new_content']['body']}", re.IGNORECASE)


def test_without_votes_the_question_stands_as_it_was_asked() -> None:
    edit = still_asked(QUESTION, composed(), [])
    assert edit["m.new_content"] == composed()
    assert edit["body"] == "* K7: no votes now"


def test_a_preview_that_copies_the_list_does_not_move_the_line() -> None:
    listed = "\n\n".join(["x", *(f"{o.position}. {o.printed}" for o in QUESTION.asked.offered), "x"])
    asked = replace(ASKED, preview=(TextPreview("Command", listed),))
    edit = still_asked(posted(asked), composed(asked), [Tally(ALWAYS, (OWNER,), 2)])
    body = edit["m.new_content"]["body"]
    assert body.index(LINE) > body.rindex("    ")
    assert body.replace(f"\n{LINE}", "") == composed(asked)["body"]


def test_a_strange_account_cannot_add_a_line() -> None:
    strange = UserId("@x\n1. Allow once\u202e<b>:example.org")
    new = still_asked(QUESTION, composed(), [Tally(ALWAYS, (strange,), 2)])["m.new_content"]
    assert "\n1. Allow once\u202e" not in new["body"]
    assert "<b>" not in new["formatted_body"]


@pytest.mark.parametrize("asked", [composed() | {"body": "other", "formatted_body": "other"}])
def test_where_the_question_cannot_be_repeated_the_votes_are_told_below_it(asked: dict[str, object]) -> None:
    told = still_asked(QUESTION, asked, [Tally(ALWAYS, (OWNER,), 2)])
    assert told["msgtype"] == "m.notice"
    assert told["body"] == f"K7: {LINE}"
    assert told["m.relates_to"] == {"m.in_reply_to": {"event_id": "$question"}}
    assert told["m.mentions"] == {}


def test_an_edit_that_would_be_too_large_is_a_notice() -> None:
    asked = composed() | {"padding": "x" * 40_000}
    many = [Tally(ALWAYS, tuple(UserId(f"@{'a' * 240}{n}:example.org") for n in range(20)), 20)]
    told = still_asked(QUESTION, asked, many)
    assert told["msgtype"] == "m.notice"
    assert event_size(told) <= MAX_EVENT_BYTES


def test_an_event_is_needed_to_show_votes() -> None:
    with pytest.raises(ValueError, match="not in the room"):
        still_asked(replace(QUESTION, event_id=None), composed(), [])


def test_the_outcome_names_everybody_who_voted_and_the_receipt_the_last() -> None:
    third = UserId("@third:example.org")
    decided = ended(Outcome.SELECTED, option=ALWAYS, answered_by=OWNER, via=Via.NUMBER, voters=(SECOND, third, OWNER))
    edit = outcome(decided)
    first = edit["m.new_content"]["body"].split("\n")[0]
    assert first.startswith("Allowed always by @second:example.org, @third:example.org and @owner:example.org at 10:12")
    assert edit["decided_by"] == OWNER
    late = notices.late(decided, reply_to=decided.event_id)  # type: ignore[arg-type]  # it has one
    assert "by @second:example.org, @third:example.org and @owner:example.org: Always allow" in late["body"]


def test_the_notice_of_what_was_not_rejected_says_why_for_each_code() -> None:
    gone = ended(Outcome.EXPIRED)
    left = [
        Left("Z8", WhyLeft.UNKNOWN),
        Left("X4", WhyLeft.FOREIGN),
        Left("K7", WhyLeft.CLOSED, gone),
        Left("K7", WhyLeft.NOT_APPROVER, QUESTION),
        Left("K7", WhyLeft.NO_REJECTION, QUESTION),
        Left("K7", WhyLeft.NOT_ASKED_HERE, QUESTION),
        Left("a\n1. Allow once", WhyLeft.UNKNOWN),
    ]
    lines = notices.not_rejected(left, reply_to=OWNER)["body"].split("\n")  # type: ignore[arg-type]  # any id
    assert lines[0] == "Not rejected by your message. Nothing has been approved."
    assert lines[1].startswith('"Z8": no question')
    assert lines[2].startswith('"X4": another account')
    assert "expired at" in lines[3]
    assert "not an approver" in lines[4]
    assert "no option that rejects" in lines[5]
    assert "cannot be answered in this room any more" in lines[6]
    assert len(lines) == 8


def test_the_notice_to_the_requester_says_that_another_has_to_approve() -> None:
    mine = replace(QUESTION, asked=replace(QUESTION.asked, requester=OWNER))
    body = notices.from_requester(mine, reply_to=OWNER)["body"]  # type: ignore[arg-type]  # any id
    assert body.endswith("another approver has to approve it. Nothing has been approved.")
    assert "K7" in body
    unknown = notices.from_requester(QUESTION, reply_to=OWNER)["body"]  # type: ignore[arg-type]  # any id
    assert unknown.startswith("Nobody can approve K7")


COPIED = replace(
    QUESTION,
    copy=Copy(
        route=RouteName("leads"),
        room_id=RoomId("!leads"),
        asked_at_ms=ASKED_MS + 10 * MINUTE,
        offered=(),
        event_id=EventId("$there"),
    ),
)


def test_where_a_question_was_asked_too_is_said_in_its_own_room_before_the_votes() -> None:
    edit = still_asked(COPIED, composed(), [Tally(ALWAYS, (OWNER,), 2)])
    line = "Also asked on route leads at 10:10 UTC, for nobody had answered."
    assert edit["body"] == f"* K7: {line} \u00b7 {LINE}"
    assert edit["m.new_content"]["body"].replace(f"\n{line}\n{LINE}", "") == composed()["body"]
    assert edit["m.new_content"]["m.mentions"] == composed()["m.mentions"]
    assert edit["m.mentions"] == {}


def test_the_edit_of_an_escalated_question_is_exactly_this() -> None:
    assert still_asked(COPIED, composed(), []) == golden("standing_escalated")


@pytest.mark.parametrize("changes", [{"event_id": None}, {"withdrawn_at_ms": ASKED_MS}])
def test_nothing_is_said_of_a_copy_that_its_room_does_not_have(changes: dict[str, object]) -> None:
    copy = replace(COPIED.copy, **changes)  # type: ignore[arg-type, type-var]  # it has one, with these fields
    assert still_asked(replace(COPIED, copy=copy), composed(), [])["m.new_content"] == composed()


def test_the_copy_itself_does_not_say_where_else_it_is_asked() -> None:
    there = seen_in(COPIED, RoomId("!leads"))
    assert there is not None
    assert still_asked(there, composed(), [])["m.new_content"] == composed()
