"""The usual options of a question, where a harness knows only yes and no, or gives its choices without kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import ALLOW_ALWAYS, ALLOW_ONCE, REJECT_ALWAYS, REJECT_ONCE
from agentpod_bot.core.model import Meaning, Option

if TYPE_CHECKING:
    from agentpod_bot.core.labels import Kind

ALLOW = OptionId("allow_once")
ALWAYS = OptionId("allow_always")
REJECT = OptionId("reject_once")
NEVER = OptionId("reject_always")


def allow_once(label: str = ALLOW_ONCE.standard, *, option_id: OptionId = ALLOW) -> Option:
    """An option that approves once."""
    return _option(ALLOW_ONCE, option_id, label)


def allow_always(label: str = ALLOW_ALWAYS.standard, *, option_id: OptionId = ALWAYS) -> Option:
    """An option that approves for more than this once."""
    return _option(ALLOW_ALWAYS, option_id, label)


def reject_once(label: str = REJECT_ONCE.standard, *, option_id: OptionId = REJECT) -> Option:
    """An option that rejects once."""
    return _option(REJECT_ONCE, option_id, label)


def reject_always(label: str = REJECT_ALWAYS.standard, *, option_id: OptionId = NEVER) -> Option:
    """An option that rejects for more than this once."""
    return _option(REJECT_ALWAYS, option_id, label)


def choose(label: str, *, option_id: OptionId) -> Option:
    """An option that neither approves nor rejects."""
    return Option(option_id, label, Meaning.CHOOSE, None)


def _option(kind: Kind, option_id: OptionId, label: str) -> Option:
    return Option(option_id, label, kind.meaning, kind.scope)
