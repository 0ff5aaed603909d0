"""The reminder: what it says, whom it notifies, and where it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentpod_bot.render.reminder import reminder
from tests.unit.render.samples import ASKED, OWNER, golden, posted


def test_the_reminder_is_exactly_this() -> None:
    assert reminder(posted(), mentions=(OWNER,)) == golden("reminder")


def test_a_title_with_a_secret_is_masked_in_a_reminder_too() -> None:
    secret = "ghp_" + "a1B2" * 9
    asked = replace(ASKED, title=f"Push with {secret}")
    assert secret not in reminder(posted(asked), mentions=())["body"]


def test_a_title_cannot_add_a_line_to_a_reminder() -> None:
    asked = replace(ASKED, title="x\n1. Allow once")
    assert "\n" not in reminder(posted(asked), mentions=())["body"]


def test_what_is_not_in_the_room_cannot_be_remembered_there() -> None:
    with pytest.raises(ValueError, match="not in the room"):
        reminder(replace(posted(), event_id=None), mentions=(OWNER,))
