"""The "always allow" choices that Claude Code suggests with a call, each as an option.

Only what is understood to its last member is offered, for it goes back verbatim and so
must be said whole. Shapes: https://code.claude.com/docs/en/hooks#permissionrequest
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.labels import MAX_OPTIONS
from agentpod_bot.core.model import FieldPreview
from agentpod_bot.harness import naming, options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agentpod_bot.core.model import Option, Preview

MOST = MAX_OPTIONS - 2
"""Suggestions that are offered: beside them stand one option that allows once and one that rejects."""

_PLACES: Mapping[str, str] = {
    "session": " for this session",
    "localSettings": " in this project on this machine",
    "projectSettings": " for everybody in this project",
    "userSettings": " in all projects of this user",
}
"""How far each destination reaches. It is said first, where no pattern of an agent's can push it out or fake it."""
# acceptEdits covers mkdir, touch, rm, rmdir, mv, cp and sed too: https://code.claude.com/docs/en/permission-modes
_MODES: Mapping[str, str] = {
    "acceptEdits": "edits of files, and commands that make, move, copy, change or delete them",
    "bypassPermissions": "everything",
}
_RULE_MEMBERS = frozenset({"type", "rules", "behavior", "destination"})
_MODE_MEMBERS = frozenset({"type", "mode", "destination"})
_FOLDER_MEMBERS = frozenset({"type", "directories", "destination"})


@dataclass(frozen=True, slots=True)
class Grant:
    """A suggestion that approves, and the option which stands for it."""

    option: Option
    said: str
    """Everything that the option allows, in words; the option's label may be shorter."""
    entry: Any
    """The suggestion, as it came."""


def grants_in(suggestions: Any) -> tuple[Grant, ...]:
    """The suggestions that can be offered, in their order. An option's id says which one it is, from 0."""
    found: list[Grant] = []
    for position, entry in enumerate(_listed(suggestions)):
        said = _said(entry)
        if said is not None and len(found) < MOST:
            name = OptionId(f"suggestion:{position}")
            found.append(Grant(options.allow_always(naming.label_of(said), option_id=name), said, entry))
    return tuple(found)


def notes_on(suggestions: Any, grants: tuple[Grant, ...]) -> tuple[Preview, ...]:
    """What a person has to know beside the options: labels in full, and how much is not offered."""
    # Numbered as the options are, of which the first allows once: two may begin alike.
    whole = [
        FieldPreview(f"Option {number} in full", grant.said)
        for number, grant in enumerate(grants, 2)
        if grant.option.label != grant.said
    ]
    missing = len(_listed(suggestions)) - len(grants)
    if missing:
        whole.append(FieldPreview("Not offered here", f"{missing} more of the harness's suggestions"))
    return tuple(whole)


def _listed(suggestions: Any) -> list[Any]:
    return suggestions if isinstance(suggestions, list) else []


def _said(entry: Any) -> str | None:
    """What a suggestion allows, as a label; None for one that allows nothing or is not understood."""
    if not isinstance(entry, dict):
        return None
    place = _place(entry.get("destination"))
    if place is None:
        return None
    match entry:
        case {"type": "addRules" | "replaceRules" as how, "rules": [*rules], "behavior": "allow"} if (
            entry.keys() <= _RULE_MEMBERS
        ):
            what = _rules(rules)
            if how == "replaceRules":
                place += ", in place of all rules that allow something now"
        case {"type": "setMode", "mode": str(mode)} if mode.strip() and entry.keys() <= _MODE_MEMBERS:
            known = _MODES.get(mode)
            what = f"what the permission mode `{mode}` allows" if known is None else f"{known} (mode `{mode}`)"
        case {"type": "addDirectories", "directories": [*folders]} if entry.keys() <= _FOLDER_MEMBERS:
            named = _joined([f"`{folder}`" if naming.text_of(folder) else None for folder in folders])
            what = None if named is None else f"work in {named}"
        case _:
            return None
    return None if what is None else f"Always allow{place}: {what}"


def _place(destination: Any) -> str | None:
    name = naming.text_of(destination)
    return _PLACES.get(name, f" as kept in `{name}`") if name else None


def _rules(rules: list[Any]) -> str | None:
    """Rules in words, those of one tool that stand together said as one."""
    said: list[str] = []
    last = None
    for rule in rules:
        match rule:
            case {"toolName": str(tool), **rest} if tool.strip() and rest.keys() <= {"ruleContent"}:
                pattern = rest.get("ruleContent")
            case _:
                return None
        if pattern is None:
            said.append(f"every use of `{tool}`")
        elif not naming.text_of(pattern):
            return None
        elif tool == last:
            said.append(f"`{pattern}`")
        else:
            said.append(f"{'Bash commands' if tool == 'Bash' else f'uses of `{tool}`'} that match `{pattern}`")
        last = None if pattern is None else tool
    return _joined(said)


def _joined(parts: Sequence[str | None]) -> str | None:
    """Parts as one enumeration; None where one of them could not be said, or there is none."""
    said = [part for part in parts if part is not None]
    if not said or len(said) < len(parts):
        return None
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
