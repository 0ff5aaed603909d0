from __future__ import annotations

import json
from typing import Any

import pytest

from agentpod_bot.harness.hook_exits import COMMANDS, NO_HOOK, exit_of
from agentpod_bot.harness.registry import ADAPTERS
from tests.unit.harness import hooks
from tests.unit.harness.hooks import DENY

STOP = {"continue": False, "stopReason": "Nobody was asked."}


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.parametrize("answer", [{}, {"permission": "ask"}, {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}])
def test_an_answer_is_printed_and_the_code_is_that_of_success(name: str, answer: Any) -> None:
    """Exit code 2 is no answer to Claude Code's permission request, and Qwen Code prints nothing of it."""
    stdout, stderr, code = exit_of(name, answer)
    assert json.loads(stdout) == answer
    assert stdout.endswith(b"\n")
    assert (stderr, code) == ("", 0)


def test_codex_reads_the_end_of_the_agent_from_the_exit_code() -> None:
    """In its answer that would be a member too many, and the tool might run."""
    assert exit_of("codex-hook", STOP) == (b"", "Nobody was asked.\n", 2)
    assert exit_of("codex-hook", {"continue": False}).stderr


@pytest.mark.parametrize("name", sorted(COMMANDS - {"codex-hook"}))
def test_the_others_read_it_from_the_answer(name: str) -> None:
    assert json.loads(exit_of(name, STOP).stdout) == STOP


@pytest.mark.parametrize("name", ["native", "acp", "gaia", "", "claude"])
def test_a_harness_without_a_command_is_denied(name: str) -> None:
    assert exit_of(name, {"behavior": "allow"}) == (b"", NO_HOOK, 2)


def test_what_is_printed_reads_the_same_in_every_encoding() -> None:
    stdout = exit_of("gemini", {"decision": "deny", "reason": "später – 🔑"}).stdout
    assert stdout.isascii()
    assert json.loads(stdout)["reason"] == "später – 🔑"


def test_a_number_that_is_no_json_is_not_printed() -> None:
    with pytest.raises(ValueError, match="JSON"):
        exit_of("qwen", {"n": float("inf")})


@pytest.mark.parametrize("name", sorted(COMMANDS))
@pytest.mark.parametrize("call", [None, b"", b"{", b'{"tool_name": "Bash"}'])
def test_a_call_that_cannot_be_read_ends_in_a_no(name: str, call: bytes | None) -> None:
    adapter = ADAPTERS[name]
    ends = exit_of(name, adapter.refuse(call, hooks.NOT_READABLE, DENY))
    said = ends.stdout.decode() + ends.stderr
    assert hooks.NOT_READABLE.reason in said
    assert ends.code == 2 or '"deny"' in said or '"continue": false' in said


def test_every_command_belongs_to_a_hook() -> None:
    assert {name for name, adapter in ADAPTERS.items() if adapter.HOOK} == COMMANDS
