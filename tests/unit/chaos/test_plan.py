from __future__ import annotations

from random import Random
from typing import Any

import pytest

from chaos import plan
from chaos.checker.answers import Question, read
from chaos.people import contents
from chaos.plan import Form

LABELS = {"allow_once": "approve", "allow_always": "approve", "reject_once": "reject", "reject_always": "reject"}


def many(seed: int = 1, *, encrypted: bool = False) -> tuple[plan.Request, ...]:
    return plan.made(Random(seed), requests=600, rooms=20, asking_s=100.0, encrypted=encrypted)


def question_of(request: plan.Request) -> dict[str, Any]:
    options = [
        {"id": option["id"], "label": option["label"], "meaning": LABELS[option["kind"]]}
        for option in request.body["options"]
    ]
    return {
        "type": "m.room.message",
        "event_id": "$question",
        "origin_server_ts": 1,
        "content": {
            "request_id": request.request_id,
            "code": "K7",
            "options": options,
            "subject": {"digest": "d", "revision": 1, "expires_at": "2026-11-07T10:30:00.000Z"},
        },
    }


def test_the_same_seed_makes_the_same_plan() -> None:
    assert many(3) == many(3)
    assert many(3) != many(4)


def test_a_plan_has_every_form_and_every_story() -> None:
    acts = [act for request in many() for act in (*request.acts, *request.acts_on_new)]
    assert {act.form for act in acts} == set(Form) - set(plan.SEALED)
    assert any(act.late for act in acts)
    assert any(request.cancel_after_s is not None for request in many())
    assert any(request.replace_after_s is not None for request in many())
    assert any(not request.acts for request in many())


def test_a_plan_for_encrypted_rooms_has_what_there_is_only_there() -> None:
    acts = [act for request in many(encrypted=True) for act in (*request.acts, *request.acts_on_new)]
    assert {act.form for act in acts} == set(Form)


def test_both_clients_use_the_same_request_ids_in_rooms_of_their_own() -> None:
    by_client = {client: {r.request_id for r in many() if r.client == client} for client in plan.CLIENTS}
    assert by_client["laptop"] == by_client["desktop"]
    assert all(plan.client_of(request.room) == request.client for request in many())


@pytest.mark.parametrize("encrypted", [False, True])
def test_whatever_is_open_for_long_gets_a_sure_answer_from_an_approver(*, encrypted: bool) -> None:
    """Otherwise a run would wait for an end that nobody means to give."""
    for request in many(encrypted=encrypted):
        if request.ttl_s == plan.LONG_S and request.cancel_after_s is None:
            acts = [
                act
                for act in request.acts_on_new or request.acts
                if act.form in (*plan.SURE, Form.LATE_KEY) or act.again in plan.SURE
            ]
            assert any(act.who in plan.approvers_of(request.room) for act in acts)


def test_what_is_open_for_a_short_time_is_never_answered_in_time_by_an_approver() -> None:
    for request in many():
        if request.ttl_s < plan.LONG_S:
            assert all(act.late for act in request.acts if act.who in plan.approvers_of(request.room))


@pytest.mark.parametrize("form", Form)
def test_the_checker_reads_what_a_person_means(form: Form) -> None:
    for request in many()[:60]:
        event = question_of(request)
        question = Question.of(event, 0)
        for position, (option_id, _, meaning) in enumerate(question.options, 1):
            if form is Form.EDITED or (form is Form.REASON and meaning != "reject"):
                continue
            kind, content = contents(form, position, event)
            reading = read({"type": kind, "content": content}, [question])
            if form in (*plan.SURE, *plan.SEALED):  # of the latter it matters how they come, not what they say
                assert (reading.question, reading.option) == (question, option_id)
            else:
                assert reading.option is None
                assert reading.bare == (form is Form.BARE)


def test_the_checker_reads_no_answer_from_an_edit() -> None:
    question = Question.of(question_of(many()[0]), 0)
    relation = {"rel_type": "m.replace", "event_id": question.event_id}
    content = {"msgtype": "m.text", "body": "1", "m.relates_to": relation, "m.new_content": {"body": "1"}}
    reading = read({"type": "m.room.message", "content": content}, [question])
    assert reading.option is None
    assert not reading.heard
