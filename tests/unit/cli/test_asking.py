from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.cli.asking import Asked, choice, choices, exit_code, field, open_for_s, seconds
from agentpod_bot.core.ids import RequestId
from agentpod_bot.proxy.stopped import ExitCode, Stopped

ASKED = Asked(
    RequestId("ask_1:a"), {}, choices(["yes:allow_once", "ever:allow_always", "no:reject_once", "b:choose:B"])
)
SUBJECT = {"id": "ask_1:a", "revision": 1, "digest": "d1", "salt": "s"}
POSTED: dict[str, Any] = {"request_id": "ask_1:a", "status": "pending", "subject": SUBJECT, "decision": None}


def decided(option_id: str, meaning: str, **other: Any) -> dict[str, Any]:
    decision = {"outcome": "selected", "option_id": option_id, "meaning": meaning, "scope": "once"}
    return POSTED | {"status": "decided", "decision": decision} | other


@pytest.mark.parametrize(
    ("option_id", "meaning", "code"),
    [("yes", "approve", 0), ("ever", "approve", 0), ("b", "choose", 0), ("no", "reject", 1)],
)
def test_an_answer_is_what_its_option_means(option_id: str, meaning: str, code: int) -> None:
    assert exit_code(ASKED, POSTED, decided(option_id, meaning)) == code


def test_the_bots_own_reject_is_a_rejection() -> None:
    assert exit_code(ASKED, POSTED, decided("agentpod.reject", "reject")) is ExitCode.NO


@pytest.mark.parametrize(
    "ended",
    [
        {},
        POSTED,
        POSTED | {"status": "decided"},
        POSTED | {"status": "decided", "decision": {"outcome": "selected", "option_id": "yes"}},
        POSTED | {"status": "expired", "decision": {"outcome": "expired"}},
        POSTED | {"status": "cancelled", "decision": {"outcome": "cancelled"}},
        POSTED | {"status": "superseded", "decision": {"outcome": "superseded"}},
        POSTED | {"status": "undeliverable", "decision": {"outcome": "undeliverable", "reason": "redacted"}},
        POSTED
        | {
            "status": "answered_elsewhere",
            "decision": {"outcome": "answered_elsewhere", "claimed": {"option_id": "yes", "by": "@owner:example.org"}},
        },
        POSTED | {"status": "a status of a later version", "decision": {"outcome": "approved", "option_id": "yes"}},
        decided("yes", "approve") | {"status": "expired"},
        decided("yes", "approve") | {"status": "pending"},
        decided("yes", "reject"),
        decided("no", "approve"),
        decided("agentpod.reject", "approve"),
        decided("never offered", "approve"),
        decided("yes", "approve", request_id="ask_1:b"),
        decided("yes", "approve", subject=SUBJECT | {"revision": 2}),
        decided("yes", "approve", subject=SUBJECT | {"digest": "d2"}),
        decided("yes", "approve", subject=None),
    ],
)
def test_whatever_is_no_approval_of_this_very_question_is_no_answer(ended: dict[str, Any]) -> None:
    """`agentpod-bot ask "Deploy?" && ./deploy.sh` must be safe."""
    assert exit_code(ASKED, POSTED, ended) is ExitCode.NO_ANSWER


def test_a_view_of_the_post_without_a_subject_can_never_be_approved() -> None:
    assert exit_code(ASKED, {"request_id": "ask_1:a"}, decided("yes", "approve")) is ExitCode.NO_ANSWER


def test_without_an_option_the_question_offers_allow_once_and_reject() -> None:
    assert [each.as_json() for each in choices(())] == [
        {"id": "allow_once", "kind": "allow_once"},
        {"id": "reject_once", "kind": "reject_once"},
    ]


def test_a_label_may_hold_colons_and_a_choice_is_sent_with_its_meaning() -> None:
    assert choice("b:choose:Plan: B").as_json() == {"id": "b", "meaning": "choose", "label": "Plan: B"}


@pytest.mark.parametrize(
    "text", ["", "yes", "yes:", "yes:alow_once", "yes:approve", ":allow_once", "b:choose", "b:choose:"]
)
def test_an_option_that_is_not_plain_is_refused(text: str) -> None:
    """A misspelt kind that were taken for `choose` would make a rejection exit 0."""
    with pytest.raises(Stopped) as stopped:
        choice(text)
    assert stopped.value.exit_code is ExitCode.USAGE


def test_two_options_with_one_id_are_refused() -> None:
    with pytest.raises(Stopped, match="same id"):
        choices(["x:allow_once", "x:reject_once"])


def test_a_field_is_split_at_its_first_equals_sign() -> None:
    assert field("Target=a=b") == {"type": "field", "label": "Target", "value": "a=b"}


@pytest.mark.parametrize("text", ["", "Target", "=prod"])
def test_a_field_without_label_or_value_is_refused(text: str) -> None:
    with pytest.raises(Stopped):
        field(text)


@pytest.mark.parametrize(("text", "expected"), [("30s", 30), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)])
def test_durations_have_a_unit(text: str, expected: int) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "30", "m", "-5m", "1.5h", "0s", "30 m", "30M", "٣m"])
def test_any_other_duration_is_refused(text: str) -> None:
    with pytest.raises(Stopped):
        seconds(text)


def test_how_long_a_request_is_open_is_judged_by_the_daemons_clock_alone() -> None:
    view = {"created_at": "2026-11-07T10:00:00.000Z", "expires_at": "2026-11-07T10:30:00.000Z"}
    assert open_for_s(view) == 1_800
    assert open_for_s({"created_at": "soon"}) == 86_400
