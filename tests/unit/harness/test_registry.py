from __future__ import annotations

import re

import pytest

from agentpod_bot.harness import native
from agentpod_bot.harness.adapter import End, Manner
from agentpod_bot.harness.registry import ADAPTERS
from tests.unit.harness import hooks


def test_every_harness_is_known_by_its_own_name() -> None:
    assert set(ADAPTERS) == {
        "acp",
        "claude-code",
        "claude-prompt",
        "codex",
        "codex-hook",
        "copilot",
        "cursor",
        "gaia",
        "gemini",
        "langchain",
        "open-science",
        "opencode",
        "qwen",
    }
    assert all(name == adapter.NAME for name, adapter in ADAPTERS.items())


def test_no_harness_takes_the_native_ones_name() -> None:
    assert native.NAME not in ADAPTERS


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_name_can_stand_in_a_path_as_it_is(name: str) -> None:
    assert re.fullmatch("[a-z]+(-[a-z]+)*", name)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_harness_that_goes_on_by_itself_gives_its_patience(name: str) -> None:
    adapter = ADAPTERS[name]
    assert not adapter.HOOK or (adapter.PATIENCE_S or 0) > 0


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("end", hooks.NO_DECISIONS)
def test_nothing_is_allowed_in_a_call_that_cannot_be_read(name: str, end: End) -> None:
    """Nobody answered, and so the command never runs."""
    for call in (None, b"", b"[", b"{}"):
        answer = ADAPTERS[name].refuse(call, end, Manner())
        assert answer
        assert not hooks.allows(answer)
