"""The options of a permission request as ACP has them: read by position, kept to what a room can offer, found again.

Format: https://agentclientprotocol.com/protocol/tool-calls#permission-options
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.labels import MAX_OPTIONS
from agentpod_bot.core.model import FieldPreview, Meaning, Option, Outcome
from agentpod_bot.harness import naming
from agentpod_bot.harness.native import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import End
    from agentpod_bot.harness.strict_json import Loc

LEFT_OUT = "Options left out"


@dataclass(frozen=True, slots=True)
class Sent:
    """One option as it came: its own strings, and what they mean."""

    option_id: str
    """As the agent calls it, which goes back to it verbatim."""
    name: str
    option: Option


def read(value: Any, at: Loc, faults: list[tuple[Loc, str]], *, any_case: bool = False) -> tuple[Sent, ...]:
    """Read a list of `{optionId, name, kind}`, all of them required; what cannot be read becomes a fault.

    Labels are the names, of any length.
    A kind that is none of the four is a choice. `any_case` reads the four in any case.
    """
    if not isinstance(value, list):
        faults.append((at, "is required, and must be a list"))
        return ()
    options: list[Sent] = []
    for index, item in enumerate(value):
        match item:
            case {"optionId": str() as option_id, "name": str() as name, "kind": str() as kind}:
                sense = KINDS.get(kind.lower() if any_case else kind)
                option = Option(
                    naming.option_id(option_id, index),
                    name,
                    Meaning.CHOOSE if sense is None else sense.meaning,
                    None if sense is None else sense.scope,
                )
                options.append(Sent(option_id, name, option))
            case _:
                faults.append(((*at, index), "must have optionId, name and kind, each a text"))
    ids = [sent.option.option_id for sent in options]
    if len(set(ids)) != len(ids):
        faults.append((at, "two options have one optionId"))
    return tuple(options)


def kept(options: Sequence[Sent]) -> tuple[Sent, ...]:
    """Return as many options as a room can offer, in their order, with labels of a length that can be shown.

    Those that reject stay before all others.
    """
    rejecting = [sent for sent in options if sent.option.meaning is Meaning.REJECT][:MAX_OPTIONS]
    room = MAX_OPTIONS - max(1, len(rejecting))  # one place is the bot's own rejection's
    others = [sent for sent in options if sent.option.meaning is not Meaning.REJECT][:room]
    offered = [sent for sent in options if sent in rejecting or sent in others]
    return tuple(
        replace(sent, option=replace(sent.option, label=naming.label_of(sent.option.label))) for sent in offered
    )


def what_is_missing(options: Sequence[Sent], offered: Sequence[Sent]) -> tuple[Preview, ...]:
    """Say in a preview how many options are not offered, and the whole name of each that is shortened."""
    whole = {sent.option_id: sent.option.label for sent in options}
    parts = [
        FieldPreview(f"Option {sent.option.option_id}", sent.name)
        for sent in offered
        if sent.option.label != whole[sent.option_id]
    ]
    left_out = len(options) - len(offered)
    return (*parts, FieldPreview(LEFT_OUT, str(left_out))) if left_out else tuple(parts)


def selected(offered: Sequence[Sent], end: End) -> str | None:
    """Return the agent's own id of the option that a person selected; None where that is none of `offered`."""
    if end.outcome is not Outcome.SELECTED or end.option is None:
        return None
    for sent in offered:
        option = sent.option
        if (option.option_id, option.meaning, option.scope) == (
            end.option.option_id,
            end.option.meaning,
            end.option.scope,
        ):
            return sent.option_id
    return None
