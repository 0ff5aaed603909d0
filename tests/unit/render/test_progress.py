from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import Meaning, Option, Progress, Question
from agentpod_bot.render.outcome import closed_message, outcome
from tests.examples import ALLOW, REJECT
from tests.unit.render.samples import ASKED, selected

ALLOWED = "Allowed once by @owner:example.org at 10:12 UTC: Run the test suite"


def lines(progress: Progress, question: Question | None = None) -> list[str]:
    """The outcome line and what is said after it, before the question's own block."""
    content = outcome(replace(question or selected(1), progress=progress))
    said: str = content["m.new_content"]["body"]
    assert content["body"] == f"* {said.splitlines()[0]}"
    return said.split("\n\n", maxsplit=1)[0].splitlines()


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        (Progress(next_index=0), ["Next step: 1"]),
        (Progress(next_index=2, completed=(0, 1)), ["Steps done: 1, 2", "Next step: 3"]),
        (Progress(next_index=1, status="running"), ["Next step: 2", "The agent reports: running"]),
        (Progress(completed=tuple(range(12))), ["Steps done: 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 and 2 more"]),
        (
            Progress(completed=(0,), failed_index=1, failure_reason="disk\nfull", status="stopped"),
            ["Steps done: 1", r"Failed at step 2: disk\nfull", "The agent reports: stopped"],
        ),
        (Progress(failed_index=0), ["Failed at step 1"]),
        (Progress(failure_reason="no disk"), ["Failed: no disk"]),
        (
            Progress(status="EXECUTED", completed=(0, 1)),
            ["Steps done: 1, 2", "The agent reports: EXECUTED (it was run)"],
        ),
        (Progress(status="CONSUMED"), ["The agent reports: CONSUMED (all of it was used)"]),
        (Progress(status="NOOP"), ["The agent reports: NOOP (there was nothing to do)"]),
        (Progress(status="REVERTED"), ["The agent reports: REVERTED (it was run, and then undone)"]),
        (
            Progress(status="FAILED", failed_index=0, failure_reason="exit 1"),
            ["Failed at step 1: exit 1", "The agent reports: FAILED (it failed)"],
        ),
    ],
)
def test_progress_says_in_plain_words_what_became_of_each_step_counted_from_one(
    progress: Progress, said: list[str]
) -> None:
    assert lines(progress) == [ALLOWED, *said]


@pytest.mark.parametrize(
    "progress",
    [
        Progress(next_index=1, failed_index=1),
        Progress(next_index=1, failure_reason="exit 1"),
        *[Progress(next_index=2, status=status) for status in ("EXECUTED", "FAILED", "NOOP", "REVOKED", "REVERTED")],
        Progress(next_index=2, status=" revoked\n"),
    ],
)
def test_no_step_is_announced_where_one_failed_or_all_has_ended(progress: Progress) -> None:
    assert "Next step" not in "\n".join(lines(progress))


@pytest.mark.parametrize(
    ("status", "meant"),
    [
        ("REVOKED", "it was revoked, and no further step may run"),
        ("revoked", "it was revoked, and no further step may run"),
        ("EXPIRED", "its time ran out, and no further step may run"),
    ],
)
def test_what_was_revoked_later_says_first_that_it_is_no_longer_allowed(status: str, meant: str) -> None:
    assert lines(Progress(completed=(0,), next_index=1, status=status)) == [
        f"No longer allowed, as the agent reports · {ALLOWED}",
        "Steps done: 1",
        f"The agent reports: {status} ({meant})",
    ]


@pytest.mark.parametrize("status", ["REVOKED", "EXPIRED"])
def test_a_rejection_that_is_revoked_does_not_read_as_if_something_had_been_allowed(status: str) -> None:
    first = lines(Progress(status=status), selected(3))[0]
    assert first == "Rejected by @owner:example.org at 10:12 UTC: Run the test suite"


def test_a_choice_that_is_revoked_says_so_first() -> None:
    staging = Option(OptionId("staging"), "Use staging", Meaning.CHOOSE, None)
    choice = selected(2, replace(ASKED, options=(ALLOW, staging, REJECT)))
    assert lines(Progress(status="revoked"), choice)[0].startswith("No longer allowed, as the agent reports · Answered")


@pytest.mark.parametrize("status", ["REVOKED!", "not revoked", "EXECUTED", ""])
def test_any_other_status_is_quoted_and_changes_nothing_else(status: str) -> None:
    assert lines(Progress(status=status))[0] == ALLOWED


def test_a_closed_question_as_a_message_of_its_own_says_the_same() -> None:
    message = closed_message(replace(selected(1), progress=Progress(status="REVOKED")))
    assert message["body"].startswith("No longer allowed")
