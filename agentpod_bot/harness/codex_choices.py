"""The choices of one question of Codex: each an option for the room, and the JSON value that says it to Codex."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import MAX_OPTIONS, Withhold, offer
from agentpod_bot.core.model import FieldPreview, Meaning, Option, Scope
from agentpod_bot.core.text import fits, visible_line
from agentpod_bot.harness.naming import MOST_LABEL, label_of
from agentpod_bot.harness.options import allow_always, choose, reject_always

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agentpod_bot.core.model import Preview
    from agentpod_bot.harness.adapter import End

REJECT_AND_STOP = "Reject and stop the turn"
LEFT_OUT = "Choices left out"


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to answer."""

    option: Option
    says: Any
    """What Codex is told where a person takes it; None for the plain no."""
    spelled: Preview | None = None
    """What its label has no room for, or cannot say plainly."""


def chosen(choices: Iterable[Choice], end: End) -> Choice | None:
    """Return the choice that a person took; None where nobody did, or it is not among `choices`.

    It must mean what the person was shown: an id alone is not enough.
    """
    # An option of a question that did not end with a decision is nobody's answer.
    if end.option is None or not (end.approves or end.rejects or end.chooses):
        return None
    taken = (end.option.option_id, end.option.meaning, end.option.scope)
    for choice in choices:
        if (choice.option.option_id, choice.option.meaning, choice.option.scope) == taken:
            return choice
    return None


def kept(choices: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return those that fit into one question, in their order; the ones that reject stay before all others."""
    first = sorted(range(len(choices)), key=lambda index: (_rank(choices[index].option), index))[:MAX_OPTIONS]
    return tuple(choices[index] for index in sorted(first))


def options_of(choices: Iterable[Choice]) -> tuple[Option, ...]:
    """What the room is offered."""
    return tuple(choice.option for choice in choices)


def spelled_out(choices: Iterable[Choice], *, left_out: int = 0) -> list[Preview]:
    """What the preview has to say of the choices: what no label holds, and how many are not offered."""
    said = [choice.spelled for choice in choices if choice.spelled is not None]
    return [*said, FieldPreview(LEFT_OUT, f"{left_out} that Codex offers")] if left_out else said


def command_rule(position: int, words: Any, says: Any) -> Choice | None:
    """The choice to allow, from now on, all commands with a beginning; None where none is given.

    Each word is quoted: `"npm" "test"` and `"npm test"` are two different rules.
    """
    # A rule without words would be the beginning of every command.
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        return None
    spelling = " ".join(json.dumps(word, ensure_ascii=False) for word in words)
    rule = f"Rule {position + 1}"
    option_id = OptionId(f"amendment:{position}")
    whole = allow_always(f"Always allow commands that start with {spelling}", option_id=option_id)
    if is_printed_plainly(whole):
        return Choice(whole, says)
    short = allow_always(f"Always allow commands that start as {rule} says", option_id=option_id)
    return Choice(short, says, FieldPreview(rule, f"commands that start with {spelling}"))


def network_rule(position: int, amendment: Any, says: Any) -> Choice | None:
    """The choice to allow, or to refuse, all connections to a host from now on; None where none is given."""
    match amendment:
        # Whatever else stands in it may reach further than the host.
        case {"host": str() as host, "action": "allow" | "deny" as action, **more} if host.strip() and not more:
            pass
        case _:
            return None
    make, verb = (allow_always, "Always") if action == "allow" else (reject_always, "Never")
    spelling = json.dumps(host, ensure_ascii=False)
    rule = f"Rule {position + 1}"
    option_id = OptionId(f"amendment:{position}")
    whole = make(f"{verb} allow connections to {spelling}", option_id=option_id)
    if is_printed_plainly(whole):
        return Choice(whole, says)
    short = make(f"{verb} allow connections to the host of {rule}", option_id=option_id)
    return Choice(short, says, FieldPreview(rule, f"connections to {spelling}"))


def one_of(position: int, label: str, says: Any) -> Choice:
    """One of several choices that neither approve nor reject; a long label stands whole in the preview."""
    short = label_of(label)
    whole = None if short == label else FieldPreview(f"Choice {position + 1}", label)
    return Choice(choose(short, option_id=OptionId(f"choice:{position}")), says, whole)


def is_printed_plainly(option: Option) -> bool:
    """Whether a label is short, and printed without a remark on what the option really does."""
    if not fits(option.label, MOST_LABEL):
        return False
    return offer((option,), withhold=Withhold.NOTHING)[0].printed == visible_line(option.label)


def _rank(option: Option) -> int:
    if option.meaning is Meaning.REJECT:
        return 1 if option.scope is Scope.ALWAYS else 0
    return 2
