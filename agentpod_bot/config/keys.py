"""Which keys there are, read off the models, so that no list of them can go stale."""

from __future__ import annotations

from dataclasses import dataclass
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from pydantic import SecretStr

from agentpod_bot.config.model import Chosen, Section, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pydantic.fields import FieldInfo

    from agentpod_bot.config.fault import Path


@dataclass(frozen=True, slots=True)
class Shape:
    """A section: the model of its values, and whether they stand under names of a person's choosing."""

    model: type[Section]
    named: bool


def shape(field: FieldInfo) -> Shape:
    """How a section is built."""
    match get_args(field.annotation):
        case (_, model):
            return Shape(model, named=True)
        case _:
            model = field.annotation
            if not (isinstance(model, type) and issubclass(model, Section)):
                raise TypeError(f"{model} is no section")
            return Shape(model, named=False)


SECTIONS: Mapping[str, Shape] = {name: shape(field) for name, field in Settings.model_fields.items()}
"""Every section by its key, in the order of the example file."""


def fields(model: type[Section]) -> dict[str, tuple[str, FieldInfo]]:
    """Every key of a section with the attribute and the field behind it, secrets too, in order."""
    return {field.alias or attribute: (attribute, field) for attribute, field in model.model_fields.items()}


def written_keys(model: type[Section]) -> tuple[str, ...]:
    """The keys that may stand in the file."""
    return tuple(key for key, (_, field) in fields(model).items() if not is_secret(field))


def secret_keys(model: type[Section]) -> tuple[str, ...]:
    """The keys that must not stand in the file; each has a neighbour `<key>_file` that may."""
    return tuple(key for key, (_, field) in fields(model).items() if is_secret(field))


def secret_file_keys(model: type[Section]) -> tuple[str, ...]:
    """The keys that name a secret's file; by mistake the secret itself may stand there."""
    return tuple(f"{key}_file" for key in secret_keys(model))


def is_secret(field: FieldInfo) -> bool:
    """Whether a field holds a secret."""
    return field.annotation in {SecretStr, SecretStr | None}


def is_chosen(field: FieldInfo) -> bool:
    """Whether a secret is one that a person chose."""
    return any(isinstance(mark, Chosen) for mark in field.metadata)


def is_list(field: FieldInfo) -> bool:
    """Whether a field holds a list."""
    return get_origin(field.annotation) is tuple


def may_be_null(field: FieldInfo) -> bool:
    """Whether a field may say that there is nothing."""
    return NoneType in get_args(field.annotation)


@dataclass(frozen=True, slots=True)
class Leaf:
    """One value of the settings, at its key's path."""

    at: Path
    value: Any


def leaves(settings: Settings) -> Iterator[Leaf]:
    """Every single value, in the order of the example file; clients and routes in their own order."""
    for section, kind in SECTIONS.items():
        inside = getattr(settings, section)
        parts: dict[Path, Section] = (
            {(section, name): part for name, part in inside.items()} if kind.named else {(section,): inside}
        )
        for at, part in parts.items():
            for key, (attribute, _) in fields(kind.model).items():
                yield Leaf((*at, key), getattr(part, attribute))
