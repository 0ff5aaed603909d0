"""Overrides from the environment: `AGENTPOD_BOT_SECTION__KEY`, `AGENTPOD_BOT_ROUTES__NAME__KEY`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentpod_bot.config import keys, values
from agentpod_bot.config.fault import Fault, Path, nearest
from agentpod_bot.config.source import InEnvironment

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from pydantic.fields import FieldInfo

PREFIX = "AGENTPOD_BOT_"
SEPARATOR = "__"
CONFIG = "AGENTPOD_BOT_CONFIG"
"""Names the configuration file."""
NOT_SETTINGS = frozenset({CONFIG, *(PREFIX + name for name in ("URL", "SOCKET", "TOKEN", "TOKEN_FILE"))})
"""Variables of our own that are no settings: the file's path, and what `ask`, `list` and `cancel` read."""
SERVICE_LINK = re.compile(r"AGENTPOD_BOT_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)")
"""What Kubernetes sets in every pod beside a service that is called agentpod-bot; nobody wrote these."""


@dataclass(frozen=True, slots=True)
class Override:
    """One variable that gives the value of one key."""

    at: Path
    variable: str
    text: str = field(repr=False)
    value: Any = field(repr=False)

    @property
    def source(self) -> InEnvironment:
        """The variable as a source."""
        return InEnvironment(self.variable)


def overrides(
    environ: Mapping[str, str], names: Mapping[str, Collection[str]]
) -> tuple[dict[Path, Override], list[Fault]]:
    """What the environment overrides, and what is wrong with it.

    `names` are the clients and routes that the file has, by section; a variable for a
    name that is not among them makes a new one, in lower case.
    """
    found: dict[Path, Override] = {}
    faults: list[Fault] = []
    for variable, text in sorted(environ.items()):
        if not is_ours(variable):
            continue
        at = path_of(variable, names)
        source = InEnvironment(variable)
        if at is None:
            parts = tuple(variable[len(PREFIX) :].lower().split(SEPARATOR))
            faults.append(Fault(parts, f"unknown key{nearest(variable, known(names))}", source))
        elif at in found:
            faults.append(
                Fault(at, f"is given by {found[at].variable} too; the two differ only in case or dashes", source)
            )
        else:
            kind = keys.SECTIONS[str(at[0])]
            _, of = keys.fields(kind.model)[str(at[-1])]
            try:
                found[at] = Override(at, variable, text, typed(text, of))
            except ValueError as error:
                faults.append(Fault(at, str(error), source))
    return found, faults


def is_ours(variable: str) -> bool:
    """Whether a variable speaks of settings at all."""
    upper = variable.upper()
    return upper.startswith(PREFIX) and upper not in NOT_SETTINGS and not SERVICE_LINK.fullmatch(upper)


def path_of(variable: str, names: Mapping[str, Collection[str]]) -> Path | None:
    """The path of the key that a variable names; None where there is no such key."""
    match variable[len(PREFIX) :].lower().split(SEPARATOR):
        case [section, key] if section in keys.SECTIONS and not keys.SECTIONS[section].named:
            at: Path = (section, key)
        case [section, name, key] if section in keys.SECTIONS and keys.SECTIONS[section].named:
            by_fold = {folded(existing): existing for existing in names.get(section, ())}
            if not values.NAME.fullmatch(name):
                return None
            at = (section, by_fold.get(folded(name), name), key)
        case _:
            return None
    return at if key in keys.fields(keys.SECTIONS[section].model) else None


def variable_of(at: Path) -> str:
    """The variable that overrides a key."""
    return PREFIX + SEPARATOR.join(folded(str(part)) for part in at).upper()


def folded(name: str) -> str:
    """A name as variables can write it: without case, and with `_` for `-`."""
    return name.lower().replace("-", "_")


def known(names: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Every variable that would be understood."""
    for section, kind in keys.SECTIONS.items():
        for key in keys.fields(kind.model):
            for name in names.get(section, ()) if kind.named else (None,):
                yield variable_of((section, key) if name is None else (section, name, key))


def typed(text: str, of: FieldInfo) -> Any:
    """The text of a variable as the file would have given it; what does not fit stays a text, to be refused."""
    if keys.is_secret(of):
        return None
    if keys.is_list(of):
        return items(text)
    if keys.may_be_null(of) and text in {"", "null"}:
        return None
    if of.annotation is bool and text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if of.annotation is int and re.fullmatch(r"[-+]?[0-9]{1,18}", text):
        return int(text)
    return text


def items(text: str) -> Any:
    """A list, as JSON or with commas between its items."""
    if text.lstrip().startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("begins like a JSON list and is none") from None
    return [item.strip() for item in text.split(",")] if text.strip() else []
