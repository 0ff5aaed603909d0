"""What the configuration comes to, for a person: every value and where it came from."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr

from agentpod_bot.config import keys, values
from agentpod_bot.config.fault import dotted, printable
from agentpod_bot.config.model import FOREVER
from agentpod_bot.config.source import said
from agentpod_bot.core.policy import Escalation

if TYPE_CHECKING:
    from agentpod_bot.config.fault import Path
    from agentpod_bot.config.load import Loaded

HIDDEN = "***"


def report(loaded: Loaded) -> list[str]:
    """One line for each value: `key = value   (source)`, in the order of the example file; secrets as `***`."""
    return [
        f"{dotted(leaf.at)} = {written(leaf.at, leaf.value)}   ({said(loaded.sources[dotted(leaf.at)])})"
        for leaf in keys.leaves(loaded.settings)
    ]


def written(at: Path, value: Any) -> str:
    """A value as the file would have it, on one line."""
    kind = keys.SECTIONS[str(at[0])]
    attribute, _ = keys.fields(kind.model)[str(at[-1])]
    match value:
        case SecretStr():
            return HIDDEN
        case None if attribute == "retention_ms":
            return FOREVER
        case bool() | None:
            return json.dumps(value)
        case int() if attribute.endswith("_ms"):
            return values.duration_text(value)
        case int() if attribute == "body_limit":
            return values.size_text(value)
        case Escalation(after_ms=after_ms, to=to):
            return f"{{after: {values.duration_text(after_ms)}, to: {to}}}"
        case str() if attribute == "callback_url":
            return printable(values.without_query(value))
        case tuple():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return printable(str(value))
