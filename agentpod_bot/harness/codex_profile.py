"""Permissions beyond the sandbox, as Codex asks for them: which paths, and whether the network."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from agentpod_bot.core.model import FieldPreview
from agentpod_bot.harness import tool_input
from agentpod_bot.harness.codex_message import Shape

if TYPE_CHECKING:
    from agentpod_bot.core.model import Preview

_ACCESS = {"read": "May read", "write": "May write", "deny": "Must not access"}
_FILES = "fileSystem"
_NETWORK = "network"
_DEPTH = "globScanMaxDepth"


class _Path(Shape):
    type: Literal["path"]
    path: str


class _Pattern(Shape):
    type: Literal["glob_pattern"]
    pattern: str


class _Place(Shape):
    kind: Literal["root", "minimal", "project_roots", "tmpdir", "slash_tmp"]
    subpath: str | None = None


class _UnknownPlace(Shape):
    kind: Literal["unknown"]
    path: str
    subpath: str | None = None


class _Special(Shape):
    type: Literal["special"]
    value: Annotated[_Place | _UnknownPlace, Field(discriminator="kind")]


class _Entry(Shape):
    access: Literal["read", "write", "deny"]
    path: Annotated[_Path | _Pattern | _Special, Field(discriminator="type")]


class _FileSystem(Shape):
    read: list[str] | None = None
    write: list[str] | None = None
    entries: list[_Entry] | None = None
    glob_scan_max_depth: Annotated[int, Field(ge=1)] | None = None


class _Network(Shape):
    enabled: bool | None = None


class Profile(Shape):
    """Permissions of which every part is of a known kind, and can be granted as it was asked for."""

    file_system: _FileSystem | None = None
    network: _Network | None = None


def profile(value: Any) -> tuple[Preview, ...]:
    """Show a profile; whatever in it is not as expected is shown as JSON."""
    if value is None:
        return ()
    if not isinstance(value, dict):
        return tool_input.fields_of({"Permissions": value})
    shown: list[Preview] = []
    for name, member in value.items():
        match name, member:
            case _, None:
                pass
            case "fileSystem", dict():
                shown += _files(member)
            case "network", {"enabled": bool() as enabled}:
                shown.append(FieldPreview("Network access", "yes" if enabled else "no"))
                shown += _other({name: each for name, each in member.items() if name != "enabled"})
            case _:
                shown += _other({name: member})
    return tuple(shown)


def asks_for_nothing(value: dict[str, Any]) -> bool:
    """Whether nothing at all would be granted."""
    files, network = value.get(_FILES) or {}, value.get(_NETWORK) or {}
    others = (member for name, member in value.items() if name not in {_FILES, _NETWORK})
    granted = (member for name, member in files.items() if name != _DEPTH)
    return not (any(granted) or any(network.values()) or any(others))


def _files(files: dict[str, Any]) -> list[Preview]:
    shown: list[Preview] = []
    for name, member in files.items():
        match name, member:
            case _, None | []:
                pass
            case "read" | "write", [*paths] if all(isinstance(path, str) for path in paths):
                shown += [FieldPreview(_ACCESS[name], path) for path in paths]
            case "entries", [*entries]:
                for entry in entries:
                    shown += _entry(entry)
            case "globScanMaxDepth", int() as depth:
                shown.append(FieldPreview("Levels of folders that patterns look into", str(depth)))
            case _:
                shown += _other({name: member})
    return shown


def _entry(entry: Any) -> list[Preview]:
    match entry:
        case {"access": "read" | "write" | "deny" as access, "path": {"type": "path", "path": str() as path}} if (
            len(entry) == len(entry["path"]) == 2  # noqa: PLR2004 - the two members that stand in the pattern
        ):
            return [FieldPreview(_ACCESS[access], path)]
        case {"access": "read" | "write" | "deny" as access, "path": place, **rest} if not rest:
            return [FieldPreview(_ACCESS[access], json.dumps(place, ensure_ascii=False))]
        case _:
            return _other({"Entry": entry})


def _other(members: dict[str, Any]) -> list[Preview]:
    return list(tool_input.fields_of(members))
