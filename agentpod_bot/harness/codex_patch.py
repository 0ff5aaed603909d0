"""Changes to files as Codex sends them, and its two ways to allow them.

A patch's `fileChanges` are `{path: {type: add | delete, content}}` or `{path: {type: update,
unified_diff, move_path?}}`. An item's `changes` are `[{path, kind, diff}]`, where `kind` is one
of these types or an object `{type, move_path?}`; where a bridge could not keep a diff, it says
`diffBytes` instead, its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.ids import OptionId
from agentpod_bot.core.model import DiffPreview, FieldPreview, TextPreview
from agentpod_bot.harness import tool_input
from agentpod_bot.harness.codex_choices import Choice
from agentpod_bot.harness.options import allow_always, allow_once

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentpod_bot.core.model import Option, Preview

MOST_PATH = 40
"""Characters of a path that stands in a label; a longer one has a field of its own."""
NOT_KEPT = "diffBytes"
"""Instead of `diff`, where a bridge could not keep it: how many bytes it had."""
_NOT_SENT = "Codex did not send them with this question"
_DIFF = "diff"
_MOVED = "Moved to"
_HEADINGS = {"add": "New file", "delete": "Deleted file", "update": "Changes to"}


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes as a preview."""

    paths: tuple[str, ...]
    preview: tuple[Preview, ...]
    is_complete: bool
    """Whether every change could be read."""

    @property
    def headline(self) -> str:
        """What a title says of them."""
        return ", ".join(self.paths)


def approvals(root: Any, once: str, session: str) -> tuple[Choice, Choice]:
    """The choices to allow a change; `once` and `session` are Codex's words for them.

    With a root to grant, both may allow writes under it for the rest of the session, and so
    neither of them is offered as allowing once.
    """
    if root is None:
        options: tuple[Option, Option] = (
            allow_once(option_id=OptionId(once)),
            allow_always("Always allow changes to these files for this session", option_id=OptionId(session)),
        )
    else:
        granted = "writes in the whole folder for this session"
        options = (
            allow_always(f"Always allow: these changes, and {granted}", option_id=OptionId(once)),
            allow_always(
                f"Always allow: changes to these files in this session, and {granted}", option_id=OptionId(session)
            ),
        )
    return Choice(options[0], once), Choice(options[1], session)


def root_of(root: Any) -> tuple[Preview, ...]:
    """Show the folder under which writes would be allowed."""
    return () if root is None else tool_input.fields_of({"Folder to write in": root})


def of_patch(changes: dict[str, Any]) -> Changes:
    """Show the changes of a patch; without any it is not complete."""
    read = [(path, _of_patch(path, change)) for path, change in changes.items()]
    return _changes(read, changes)


def of_item(changes: Any) -> Changes:
    """Show the changes of an item, as they were remembered when it began; without any it is not complete."""
    given = changes if isinstance(changes, list) else []
    read = [(_path(change), _of_item(change)) for change in given]
    return _changes(read, changes)


def _changes(read: list[tuple[str, list[Preview] | None]], sent: Any) -> Changes:
    if not read:
        return Changes((), (FieldPreview("Changes", _NOT_SENT),), is_complete=False)
    items = sent.items() if isinstance(sent, dict) else enumerate(sent)
    preview: list[Preview] = []
    for (_, parts), (name, change) in zip(read, items, strict=True):
        preview += _unread(name, change) if parts is None else parts
    paths = tuple(path for path, _ in read if path)
    return Changes(paths, tuple(preview), is_complete=all(parts is not None for _, parts in read))


def _of_patch(path: str, change: Any) -> list[Preview] | None:
    match change:
        case {"type": "add", "content": str() as content}:
            return [DiffPreview(path, None, content)]
        case {"type": "delete", "content": str() as content}:
            return [DiffPreview(path, content, None)]
        case {"type": "update", "unified_diff": str() as diff}:
            return _text("update", path, diff, change.get("move_path"))
        case _:
            return None


def _of_item(change: Any) -> list[Preview] | None:
    match change:
        case {
            "path": str() as path,
            "kind": {"type": "add" | "delete" | "update" as kind, **more},
            "diff": str() as diff,
        }:
            return _text(kind, path, diff, more.get("move_path"))
        case {"path": str() as path, "kind": "add" | "delete" | "update" as kind, "diff": str() as diff}:
            return _text(kind, path, diff, None)
        case _:
            return None


def _unread(name: Any, change: Any) -> tuple[Preview, ...]:
    """Show a change that is not all there: which file it changes, and how, where that is known."""
    match change:
        case {"path": str() as path, "kind": {"type": "add" | "delete" | "update" as kind, **more}, "diffBytes": size}:
            return _too_large(kind, path, size, more.get("move_path"))
        case {"path": str() as path, "kind": "add" | "delete" | "update" as kind, "diffBytes": size}:
            return _too_large(kind, path, size, None)
        case _:
            return tool_input.fields_of({f"Change {name}": change})


def _too_large(kind: str, path: str, size: Any, move_path: Any) -> tuple[Preview, ...]:
    said = {
        _HEADINGS[kind]: path,
        "Changes" if kind == "update" else "Content": f"too large to show: {tool_input.as_line(size)} bytes",
    }
    return tool_input.fields_of(said if move_path is None else {**said, _MOVED: move_path})


def _text(kind: str, path: str, diff: str, move_path: Any) -> list[Preview]:
    heading = _HEADINGS[kind]
    # What is added or deleted comes as the content itself, not as a diff of it.
    language = _DIFF if kind == "update" else None
    shown: Iterable[Preview] = (
        (TextPreview(f"{heading} {path}", diff, language),)
        if len(path) <= MOST_PATH
        else (FieldPreview(heading, path), TextPreview("Content" if language is None else "Changes", diff, language))
    )
    return [*shown, *(() if move_path is None else tool_input.fields_of({_MOVED: move_path}))]


def _path(change: Any) -> str:
    path = change.get("path") if isinstance(change, dict) else None
    return path if isinstance(path, str) else ""
