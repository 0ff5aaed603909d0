from __future__ import annotations

import json
from typing import Any

import pytest

from agentpod_bot.core.model import Meaning, Outcome, Scope
from agentpod_bot.harness import trials
from agentpod_bot.harness.adapter import Ask, End, Manner
from agentpod_bot.harness.registry import ADAPTERS
from agentpod_bot.harness.snippets_all import SNIPPETS

NONCE = "0123456789abcdef" * 2
OTHER = "f" * 32


def asked(name: str, nonce: str = NONCE) -> Ask:
    """The question that a harness's adapter makes of its trial."""
    door = trials.door_of(name)
    call = ADAPTERS[door].parse(json.dumps(trials.trial(door, nonce)).encode(), Manner())
    assert isinstance(call, Ask)
    return call


@pytest.mark.parametrize("name", SNIPPETS)
def test_every_harness_that_can_be_connected_can_be_tried(name: str) -> None:
    request = asked(name).request
    assert trials.TITLE in repr((request.title, request.preview))
    assert any(option.meaning is Meaning.APPROVE for option in request.options)
    assert not any(option.scope is Scope.ALWAYS for option in request.options)


@pytest.mark.parametrize("name", SNIPPETS)
def test_two_trials_are_two_questions(name: str) -> None:
    def key(nonce: str) -> Any:
        request = asked(name, nonce).request
        return (request.session_id, request.request_id, request.hold)

    assert key(NONCE) == key(NONCE)
    assert key(NONCE) != key(OTHER)


@pytest.mark.parametrize("name", SNIPPETS)
def test_an_answer_to_a_trial_can_be_told_to_its_harness(name: str) -> None:
    adapter, request = ADAPTERS[trials.door_of(name)], asked(name).request
    assert request.raw is not None
    by_meaning = {option.meaning: option for option in request.options}
    yes, no = (
        adapter.answer(
            request.raw, request.raw, End(Outcome.SELECTED, "said in Matrix", by_meaning.get(meaning)), Manner()
        )
        for meaning in (Meaning.APPROVE, Meaning.REJECT)
    )
    assert yes != no
