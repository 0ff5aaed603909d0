"""What each harness is told, to the letter: `tests/golden/harness/<name>/<case>.json` hold a call and its answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentpod_bot.core.labels import Withhold, offer
from agentpod_bot.harness.registry import ADAPTERS
from tests.unit.harness import hooks
from tests.unit.harness.hooks import DENY, TERMINAL, asked, body_of, picked, told

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "harness"
HARNESSES = ("claude-code", "claude-prompt", "codex-hook", "copilot", "cursor", "gemini", "qwen")
CASES = sorted(path for name in HARNESSES for path in (GOLDEN / name).glob("*.json"))


def test_each_harness_has_its_examples() -> None:
    assert {path.parent.name for path in CASES} == set(HARNESSES)


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_harness_is_told_exactly_this(path: Path) -> None:
    case = json.loads(path.read_text(encoding="utf-8"))
    assert seen(path.parent.name, case["call"]) == case


def seen(name: str, call: Any) -> dict[str, Any]:
    """A call, how it is put to people, and what its harness is told for each way in which that ends."""
    harness = ADAPTERS[name]
    request = asked(harness, call)
    answers = {str(option.option_id): told(harness, call, picked(option)) for option in request.options}
    return {
        "call": call,
        "title": request.title,
        "printed": [each.printed for each in offer(request.options, withhold=Withhold.NOTHING)],
        "preview": [_part(part) for part in request.preview],
        "told": {
            **answers,
            "rejected with a reason": told(harness, call, hooks.REFUSED),
            "the bot's own reject": told(harness, call, hooks.OWN_REJECT),
            "expired": told(harness, call, hooks.EXPIRED),
            "expired, terminal": told(harness, call, hooks.EXPIRED, TERMINAL),
            "cancelled, terminal": told(harness, call, hooks.CANCELLED, TERMINAL),
            "nobody could be asked": harness.refuse(body_of(call), hooks.UNAVAILABLE, DENY),
            "nobody could be asked, terminal": harness.refuse(body_of(call), hooks.UNAVAILABLE, TERMINAL),
        },
    }


def _part(part: Any) -> list[Any]:
    return [part.label, part.value] if hasattr(part, "value") else [part.label, part.text, part.language]
