from __future__ import annotations

from typing import Any

import pytest

from agentpod_bot.core.model import FieldPreview, Hold, TextPreview
from agentpod_bot.errors import Invalid
from agentpod_bot.harness import claude_prompt
from tests.unit.harness import hooks
from tests.unit.harness.hooks import ALLOWED, DENY, PROMPT, TERMINAL, asked, body_of, picked, told


def test_an_allow_goes_on_with_the_input_that_was_asked() -> None:
    assert told(claude_prompt, PROMPT, ALLOWED) == {"behavior": "allow", "updatedInput": {"command": "npm test"}}


def test_the_call_is_known_by_its_tool_use() -> None:
    request = asked(claude_prompt, PROMPT)
    assert request.hold == Hold()
    assert request.request_id != asked(claude_prompt, {**PROMPT, "tool_use_id": "toolu_02"}).request_id
    assert request.preview == (FieldPreview("Tool", "Bash"), TextPreview("Command", "npm test", "bash"))
    assert request.tool_kind == "execute"


def test_a_call_without_an_id_is_known_by_what_it_asks() -> None:
    first, other = ({"tool_name": "Bash", "input": {"command": command}} for command in ("ls", "rm -rf ~"))
    twins = [asked(claude_prompt, call).hold for call in (first, first, other)]
    assert twins[0] == twins[1] != twins[2]


def test_a_question_of_the_agent_is_answered_by_one_of_its_labels() -> None:
    call = {"tool_name": "AskUserQuestion", "input": {"questions": [hooks.QUESTION]}}
    answer = told(claude_prompt, call, picked(asked(claude_prompt, call).options[0]))
    assert answer["updatedInput"]["answers"] == {"Which database should I use?": "SQLite"}
    assert told(claude_prompt, call, ALLOWED)["behavior"] == "deny"


@pytest.mark.parametrize("end", [*hooks.NO_DECISIONS, *hooks.REJECTIONS])
@pytest.mark.parametrize("manner", [DENY, TERMINAL])
def test_every_other_end_is_a_denial_for_no_terminal_could_decide(end: Any, manner: Any) -> None:
    denied = {"behavior": "deny", "message": end.reason}
    assert told(claude_prompt, PROMPT, end, manner) == denied
    assert claude_prompt.refuse(None, end, manner) == denied


@pytest.mark.parametrize("broken", [{"tool_name": ""}, {"tool_name": None}, {"input": None}, {"input": "npm test"}])
def test_a_call_without_tool_or_input_is_not_asked(broken: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        claude_prompt.parse(body_of({**PROMPT, **broken}), DENY)
    assert claude_prompt.answer(body_of({**PROMPT, **broken}), b"", ALLOWED, DENY)["behavior"] == "deny"
