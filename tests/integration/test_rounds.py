from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.integration import said

if TYPE_CHECKING:
    from tests.integration.conftest import Place

pytestmark = pytest.mark.synapse

ROUNDS = 300


class Given(NamedTuple):
    """An answer, and what has to come back of it."""

    text: str
    option_id: str
    comment: str | None


ANSWERS = (
    Given("1", "allow_once", None),
    Given("Reject", "reject_once", None),
    Given("2: use the staging database", "reject_once", "use the staging database"),
)


@pytest.mark.timeout(300)  # about 70 s where nothing else runs
async def test_of_three_hundred_questions_in_a_row_each_gets_the_answer_that_was_given_to_it(place: Place) -> None:
    came: dict[str, tuple[Given, str, dict[str, Any]]] = {}
    for number in range(ROUNDS):
        request_id, given = f"round-{number}", ANSWERS[number % len(ANSWERS)]
        if number % 2:
            waiting = asyncio.create_task(place.harness.ask(wait_s=30, request_id=request_id, title=f"Step {number}"))
            question = await said.question(place.owner, place.room_id, request_id)
            answer_id = await place.owner.reply(place.room_id, question["event_id"], given.text)
            view = (await waiting).body
        else:  # asks first, and comes for the answer when it may be there already
            await place.harness.asked(request_id=request_id, title=f"Step {number}")
            question = await said.question(place.owner, place.room_id, request_id)
            answer_id = await place.owner.reply(place.room_id, question["event_id"], given.text)
            view = await place.harness.view(request_id, wait_s=30)
        place.owner.seen.clear()  # what was seen of earlier rounds is looked at below
        assert view["status"] == "decided", view
        came[request_id] = (given, answer_id, view)

    last = came[f"round-{ROUNDS - 1}"][2]["event_id"]
    await said.outcome(place.owner, place.room_id, last)
    events = await place.owner.history(place.room_id)
    assert [event["content"]["request_id"] for event in said.questions(events)] == list(came)
    receipts = {event["content"]["request_id"]: event["content"] for event in events if said.is_outcome(event)}
    for request_id, (given, answer_id, view) in came.items():
        decision, receipt = view["decision"], receipts[request_id]
        assert (decision["option_id"], decision["comment"], decision["event_id"]) == (
            given.option_id,
            given.comment,
            answer_id,
        )
        assert receipt["option_id"] == given.option_id
        assert receipt["m.relates_to"]["event_id"] == view["event_id"]
        assert receipt["subject"]["digest"] == view["subject"]["digest"]
    assert said.notices(events) == []
