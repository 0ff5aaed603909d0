from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot.api.view import rfc3339, view
from agentpod_bot.core.ids import (
    ClientName,
    Code,
    EventId,
    OptionId,
    RequestId,
    RoomId,
    RouteName,
    Row,
    SessionId,
    UserId,
)
from agentpod_bot.core.model import (
    Claim,
    Closing,
    Key,
    Meaning,
    NewQuestion,
    Offered,
    Option,
    Outcome,
    Question,
    Scope,
    Status,
    Via,
)

LIE = Option(OptionId("always"), "Reject", Meaning.APPROVE, Scope.ALWAYS)
PRINTED = 'Always allow - the agent calls it "Reject"'
OFFERED = Offered(1, LIE, PRINTED, frozenset(), id_matches=False)
ASKED = NewQuestion(
    key=Key(ClientName("laptop"), RequestId("s:1"), 3),
    session_id=SessionId("s"),
    request_seq=1,
    title="t",
    tool_kind=None,
    agent=None,
    options=(LIE,),
    preview=(),
    preview_complete=True,
    route=RouteName("ops"),
    room_id=RoomId("!r"),
    code=Code("K7"),
    salt="ab",
    digest="cd",
    content_key="x",
    offered=(OFFERED,),
    created_at_ms=1,
    expires_at_ms=1_794_047_400_000,
    raw=b"",
)
SELECTED = Closing(
    Outcome.SELECTED,
    2,
    option=OFFERED,
    answered_by=UserId("@owner:example.org"),
    via=Via.REACTION,
    event_id=EventId("$a"),
)
PENDING = Question(Row(1), ASKED, Status.PENDING, event_id=EventId("$q"))


def test_a_label_that_lies_is_shown_as_the_room_showed_it() -> None:
    decision = view(replace(PENDING, status=Status.DECIDED, closing=SELECTED)).decision
    assert decision is not None
    shown = decision.model_dump()
    assert (shown["label"], shown["meaning"], shown["scope"]) == (PRINTED, "approve", "always")


def test_everybody_who_made_a_decision_is_named_where_it_took_several() -> None:
    one, other = UserId("@second:example.org"), UserId("@owner:example.org")
    for voters, said in (((), None), ((one, other), [one, other])):
        decided = replace(PENDING, status=Status.DECIDED, closing=replace(SELECTED, voters=voters))
        decision = view(decided).decision
        assert decision is not None
        assert decision.model_dump()["voters"] == said


def test_a_queued_question_has_no_event_yet() -> None:
    shown = view(replace(PENDING, status=Status.QUEUED, event_id=None))
    assert (shown.status, shown.event_id, shown.decision) == (Status.QUEUED, None, None)
    assert shown.subject.model_dump() == {"id": "s:1", "revision": 3, "digest": "cd", "salt": "ab"}


def test_a_delivery_is_shown() -> None:
    shown = view(replace(PENDING, status=Status.DECIDED, closing=SELECTED, delivered_at_ms=1_794_047_400_123))
    assert shown.delivered_at == "2026-11-07T10:30:00.123Z"


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.SELECTED])
def test_no_outcome_but_a_selection_carries_an_option_a_meaning_or_a_scope(outcome: Outcome) -> None:
    """Not even where the row holds one."""
    closing = replace(SELECTED, outcome=outcome, reason="why", claim=Claim("always", "@owner:example.org"))
    decision = view(replace(PENDING, status=outcome.status, closing=closing)).decision
    assert decision is not None
    shown = decision.model_dump()
    assert shown["outcome"] == outcome
    assert not {"option_id", "label", "meaning", "scope", "answered_by", "via"} & set(shown)


def test_an_open_question_has_no_decision_whatever_else_its_row_holds() -> None:
    assert view(replace(PENDING, closing=SELECTED)).decision is None


@pytest.mark.parametrize(
    "contradiction",
    [
        replace(PENDING, status=Status.DECIDED),
        replace(PENDING, status=Status.EXPIRED, closing=SELECTED),
        replace(PENDING, status=Status.DECIDED, closing=Closing(Outcome.EXPIRED, 1)),
        replace(PENDING, status=Status.DECIDED, closing=replace(SELECTED, option=None)),
        replace(PENDING, status=Status.DECIDED, closing=replace(SELECTED, answered_by=None)),
        replace(PENDING, status=Status.DECIDED, closing=replace(SELECTED, event_id=None)),
        replace(PENDING, status=Status.DECIDED, closing=replace(SELECTED, via=None)),
    ],
)
def test_a_row_that_contradicts_itself_is_never_shown_as_an_answer(contradiction: Question) -> None:
    with pytest.raises(ValueError, match=r"answer|otherwise"):
        view(contradiction)


@pytest.mark.parametrize(
    ("at_ms", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
    ],
)
def test_times_have_milliseconds_and_z(at_ms: int, text: str) -> None:
    assert rfc3339(at_ms) == text
