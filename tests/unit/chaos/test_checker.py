from __future__ import annotations

import copy
import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chaos.checker.checks import CHECKS
from chaos.checker.evidence import KEPT, Audited, keep, kept
from chaos.checker.scene import Scene
from chaos.checker.verdict import judged
from tests.unit.chaos.story import AGENT, BOT, MALLORY, OWNER, SECOND, Story, at, lively

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def story() -> Story:
    return lively()


def found(story: Story) -> dict[str, list[str]]:
    """By sort, what broke a promise."""
    return {
        sort: [f"{what}: {how}" for what, how in broken] for sort, broken in story.verdict().broken.items() if broken
    }


def test_where_everything_went_well_nothing_is_found(story: Story) -> None:
    verdict = story.verdict()
    assert verdict.is_clean, verdict.text()
    assert verdict.text().splitlines()[1:] == ["lost 0", "doubled 0", "wrong 0", "unauthorised 0"]


def test_a_run_of_nothing_proves_nothing() -> None:
    assert not Story().verdict().is_clean


def no_end(story: Story) -> None:
    story.log[:] = [line for line in story.log if (line["did"], line["request_id"]) != ("ended", "r1")]


def not_found_later(story: Story) -> None:
    story.log.append({"did": "refused", "client": "laptop", "request_id": "r1", "status": 404})


def gone_from_the_list(story: Story) -> None:
    del story.listed["r3", 1]


def still_open(story: Story) -> None:
    story.listed["r1", 1] |= {"status": "pending", "decision": None}


def no_outcome_in_the_room(story: Story) -> None:
    story.events[:] = [event for event in story.events if event["content"] is not story.of_bot("outcome.v2")[0]]


def no_question_in_the_room(story: Story) -> None:
    story.events[:] = [event for event in story.events if event["content"] is not story.of_bot("permission.v2")[2]]


def answer_not_heard(story: Story) -> None:
    story.audit[:] = [line for line in story.audit if line.what != "late"]


def try_not_heard(story: Story) -> None:
    story.audit[:] = [line for line in story.audit if line.what != "hint"]


def first_answer_passed_over(story: Story) -> None:
    question = story.asks("r9")
    story.audited("late", "r9", event_id=story.says(OWNER, "2", question))
    story.decided("r9", SECOND, "allow_once", story.says(SECOND, "1", question))


def answer_in_time_and_expired(story: Story) -> None:
    question = story.asks("r9", deadline=story.now + 300_000)
    story.audited("late", "r9", event_id=story.says(OWNER, "2", question))
    story.now += 300_000
    story.ended("r9", 1, {"outcome": "expired", "answered_at": at(story.now), "reason": "…"})


LOST = [
    no_end,
    not_found_later,
    gone_from_the_list,
    still_open,
    no_outcome_in_the_room,
    no_question_in_the_room,
    answer_not_heard,
    try_not_heard,
    first_answer_passed_over,
    answer_in_time_and_expired,
]


@pytest.mark.parametrize("fault", LOST)
def test_what_is_lost_is_found(story: Story, fault: Callable[[Story], None]) -> None:
    fault(story)
    assert "lost" in found(story)


def question_twice(story: Story) -> None:
    story.event(BOT, copy.deepcopy(story.of_bot("permission.v2")[0]))


def audited_twice(story: Story) -> None:
    story.audit.append(next(line for line in story.audit if line.what == "selected"))


def asked_twice_in_the_audit(story: Story) -> None:
    story.audited("asked", "r1")


def told_two_ends(story: Story) -> None:
    line = copy.deepcopy(story.log[1])
    line["view"]["decision"] |= {"option_id": "reject_once", "meaning": "reject"}
    story.log.append(line)


def shown_two_ends(story: Story) -> None:
    content = copy.deepcopy(story.of_bot("outcome.v2")[0]) | {"decided_by": SECOND}
    story.event(BOT, content)


def notice_twice(story: Story) -> None:
    notice = next(event for event in story.events if event["content"].get("msgtype") == "m.notice")
    story.event(BOT, copy.deepcopy(notice["content"]))


DOUBLED = [question_twice, audited_twice, asked_twice_in_the_audit, told_two_ends, shown_two_ends, notice_twice]


@pytest.mark.parametrize("fault", DOUBLED)
def test_what_is_doubled_is_found(story: Story, fault: Callable[[Story], None]) -> None:
    fault(story)
    assert "doubled" in found(story)


def told_of_something_else(story: Story) -> None:
    story.log[1]["view"]["subject"]["digest"] = "0" * 64


def told_of_the_other_revision(story: Story) -> None:
    """A call that asked the first content is answered with the decision on the second."""
    line = next(line for line in story.log if line["did"] == "told" and line["view"]["subject"]["revision"] == 2)
    story.log.append(line | {"version": 1})


def shown_something_else(story: Story) -> None:
    story.of_bot("permission.v2")[0]["subject"]["digest"] = "0" * 64


def other_options_in_the_room(story: Story) -> None:
    story.of_bot("permission.v2")[0]["options"].reverse()


def decided_as_something_else(story: Story) -> None:
    for text in ("9", "maybe", "2", "1 please"):
        question = story.asks(f"r{text}")
        answer = story.says(OWNER, text, question)
        story.decided(f"r{text}", OWNER, "allow_once", answer)


def decided_by_an_edit(story: Story) -> None:
    question = story.asks("r9")
    relation = {"rel_type": "m.replace", "event_id": story.says(OWNER, "let me think")}
    edit = story.event(
        OWNER, {"msgtype": "m.text", "body": "* 1", "m.relates_to": relation, "m.new_content": {"body": "1"}}
    )
    story.decided("r9", OWNER, "allow_once", edit)
    assert question


def decided_by_an_answer_to_another(story: Story) -> None:
    one, other = story.asks("r8"), story.asks("r9")
    answer = story.says(OWNER, "1", one)
    story.decided("r9", OWNER, "allow_once", answer)
    story.decided("r8", OWNER, "reject_once", story.says(OWNER, "2", other))


def decided_by_a_bare_answer_beside_another(story: Story) -> None:
    story.now += 60_000
    story.asks("r8")
    other = story.asks("r9")
    answer = story.says(OWNER, "1")
    story.decided("r8", OWNER, "allow_once", answer)
    story.decided("r9", OWNER, "reject_once", story.says(OWNER, "2", other))


def decided_by_a_bare_answer_just_after_another(story: Story) -> None:
    story.now += 60_000
    other = story.asks("r8", deadline=story.now + 2_000)
    story.now += 2_000
    story.ended("r8", 1, {"outcome": "expired", "answered_at": at(story.now), "reason": "…"})
    story.asks("r9")
    story.decided("r9", OWNER, "allow_once", story.says(OWNER, "1"))
    assert other


def decided_by_a_bare_answer_just_after_the_own_answer_to_another(story: Story) -> None:
    story.now += 60_000
    one = story.asks("r8")
    story.asks("r9")
    answers = story.says(OWNER, "1", one), story.says(OWNER, "1")
    for request_id, answer in zip(("r8", "r9"), answers, strict=True):
        story.decided(request_id, OWNER, "allow_once", answer)


def decided_by_a_bare_answer_beside_what_somebody_else_answered(story: Story) -> None:
    story.now += 60_000
    one = story.asks("r8")
    story.asks("r9")
    answers = story.says(SECOND, "1", one), story.says(OWNER, "1")
    story.decided("r8", SECOND, "allow_once", answers[0])
    story.decided("r9", OWNER, "allow_once", answers[1])


def decided_too_late(story: Story) -> None:
    question = story.asks("r9", deadline=story.now + 1_500)
    story.now += 5_000
    story.decided("r9", OWNER, "allow_once", story.says(OWNER, "1", question))


def another_reason(story: Story) -> None:
    question = story.asks("r9")
    answer = story.says(OWNER, "2: because", question)
    story.decided("r9", OWNER, "reject_once", answer, comment="for nothing")


def expired_early(story: Story) -> None:
    story.asks("r9")
    story.ended("r9", 1, {"outcome": "expired", "answered_at": at(story.now), "reason": "…"})


def cancelled_by_nobody(story: Story) -> None:
    story.asks("r9")
    story.ended("r9", 1, {"outcome": "cancelled", "answered_at": at(story.now), "reason": None})


def replaced_by_nothing(story: Story) -> None:
    story.asks("r9")
    story.ended("r9", 1, {"outcome": "superseded", "answered_at": at(story.now), "reason": None})
    story.log.append(story.log[-1] | {"did": "ended"})


def undeliverable(story: Story) -> None:
    story.asks("r9")
    story.ended("r9", 1, {"outcome": "undeliverable", "answered_at": at(story.now), "reason": "M_FORBIDDEN"})


def list_says_otherwise(story: Story) -> None:
    story.listed["r1", 1]["decision"] |= {"option_id": "reject_once", "meaning": "reject"}


def audit_says_otherwise(story: Story) -> None:
    place = next(n for n, line in enumerate(story.audit) if line.what == "selected")
    story.audit[place] = Audited("expired", "laptop", "r1", 1, None, None, None)


def audit_has_another_option(story: Story) -> None:
    place = next(n for n, line in enumerate(story.audit) if line.what == "selected")
    story.audit[place] = replace(story.audit[place], option_id="reject_once")


def room_says_otherwise(story: Story) -> None:
    for content in story.of_bot("outcome.v2")[:1]:
        content |= {"option_id": "reject_once", "meaning": "reject"}


def room_says_allowed_of_an_expiry(story: Story) -> None:
    content = next(content for content in story.of_bot("outcome.v2") if content["outcome"] == "expired")
    content["m.new_content"]["body"] = "Allowed once by …"


def notice_says_approved(story: Story) -> None:
    story.event(BOT, {"msgtype": "m.notice", "body": "Approved!"})


WRONG = [
    told_of_something_else,
    told_of_the_other_revision,
    shown_something_else,
    other_options_in_the_room,
    decided_as_something_else,
    decided_by_an_edit,
    decided_by_an_answer_to_another,
    decided_by_a_bare_answer_beside_another,
    decided_by_a_bare_answer_just_after_another,
    decided_by_a_bare_answer_just_after_the_own_answer_to_another,
    decided_by_a_bare_answer_beside_what_somebody_else_answered,
    decided_too_late,
    another_reason,
    expired_early,
    cancelled_by_nobody,
    replaced_by_nothing,
    undeliverable,
    list_says_otherwise,
    audit_says_otherwise,
    audit_has_another_option,
    room_says_otherwise,
    room_says_allowed_of_an_expiry,
    notice_says_approved,
]


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_found(story: Story, fault: Callable[[Story], None]) -> None:
    fault(story)
    assert "wrong" in found(story)


def decided_by_mallory(story: Story) -> None:
    question = story.asks("r9")
    story.decided("r9", MALLORY, "allow_once", story.says(MALLORY, "1", question))


def decided_by_an_agent(story: Story) -> None:
    question = story.asks("r9")
    story.decided("r9", AGENT, "allow_once", story.says(AGENT, "1", question))


def decided_in_anothers_name(story: Story) -> None:
    question = story.asks("r9")
    story.decided("r9", OWNER, "allow_once", story.says(MALLORY, "1", question))


def allowed_without_an_event(story: Story) -> None:
    story.asks("r9")
    story.decided("r9", OWNER, "allow_once", "$nowhere")


def allowed_to_the_harness_alone(story: Story) -> None:
    line = next(line for line in story.log if line["did"] == "ended" and line["request_id"] == "r3")
    line["view"]["decision"] = {"outcome": "selected", "meaning": "approve", "answered_by": None}


def allowed_in_the_room_alone(story: Story) -> None:
    content = next(content for content in story.of_bot("outcome.v2") if content["outcome"] == "expired")
    content |= {"outcome": "selected", "meaning": "approve", "decided_by": MALLORY}


def audited_for_mallory(story: Story) -> None:
    story.audited("selected", "r3", sender=MALLORY)


UNAUTHORISED = [
    decided_by_mallory,
    decided_by_an_agent,
    decided_in_anothers_name,
    allowed_without_an_event,
    allowed_to_the_harness_alone,
    allowed_in_the_room_alone,
    audited_for_mallory,
]


@pytest.mark.parametrize("fault", UNAUTHORISED)
def test_what_nobody_allowed_is_found(story: Story, fault: Callable[[Story], None]) -> None:
    fault(story)
    assert "unauthorised" in found(story)


def test_a_bare_answer_to_what_was_alone_is_right(story: Story) -> None:
    story.now += 60_000
    one = story.asks("r8")
    story.asks("r9")
    answer = story.says(OWNER, "1", one)
    story.now += 2_000
    bare = story.says(OWNER, "1")  # the room still shows the other as open, but this person answered it
    story.decided("r8", OWNER, "allow_once", answer)
    story.decided("r9", OWNER, "allow_once", bare)
    assert story.verdict().is_clean, story.verdict().text()


def test_a_bare_answer_long_after_the_time_that_another_question_names_is_right(story: Story) -> None:
    deadline = story.now + 5_000
    story.asks("r8", deadline=deadline)
    story.now += 60_000
    story.asks("r9")
    answer = story.says(OWNER, "1")  # the edit that closes the other comes late
    story.ended("r8", 1, {"outcome": "expired", "answered_at": at(deadline), "reason": "…"})
    story.decided("r9", OWNER, "allow_once", answer)
    assert story.verdict().is_clean, story.verdict().text()


def test_each_check_finds_something_in_these_tests() -> None:
    finding = set()
    for fault in (*LOST, *DOUBLED, *WRONG, *UNAUTHORISED):
        story = lively()
        fault(story)
        scene = Scene(story.evidence())
        finding |= {check.__name__ for checks in CHECKS.values() for check in checks if any(True for _ in check(scene))}
    assert finding == {check.__name__ for checks in CHECKS.values() for check in checks}


def test_evidence_that_was_kept_is_judged_alike(story: Story, tmp_path: Path) -> None:
    decided_by_mallory(story)
    keep(story.evidence(), tmp_path / KEPT)
    assert judged(kept(tmp_path / KEPT)) == story.verdict()


def test_the_ids_of_what_is_broken_are_printed(story: Story) -> None:
    decided_by_mallory(story)
    text = story.verdict().text()
    assert "    laptop/r9 revision 1: was decided by @mallory:hs" in text.splitlines()
    assert "unauthorised 0" not in text


def test_the_checker_shares_no_code_with_what_it_checks() -> None:
    look = "import sys, json, chaos.checker.__main__; print(json.dumps(sorted({n.split('.')[0] for n in sys.modules})))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", look], capture_output=True, check=True).stdout)
    outside = {"agentpod_bot", "nio", "aiohttp", "sqlalchemy", "pydantic", "tests"}
    assert outside & set(loaded) == set()
