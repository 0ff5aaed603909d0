"""Between values of `core.model` and the JSON documents that columns keep of them; nothing is judged here."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from agentpod_bot.core.model import (
    DiffPreview,
    FieldPreview,
    Meaning,
    Offered,
    Option,
    Preview,
    Progress,
    Scope,
    TextPreview,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

DOCUMENTS_KEPT = 128
"""Lists of options that stay read: a harness asks with the same few again and again."""


def written_offers(offered: tuple[Offered, ...]) -> list[Any]:
    """What a question offers, as its column holds it."""
    return [written_offered(each) for each in offered]


def written_progress(progress: Progress) -> dict[str, Any]:
    """A progress as it is kept."""
    return {
        "next_index": progress.next_index,
        "completed": list(progress.completed),
        "failed_index": progress.failed_index,
        "failure_reason": progress.failure_reason,
        "status": progress.status,
    }


def written_option(option: Option) -> dict[str, Any]:
    """An option as it is kept."""
    return {"id": option.option_id, "label": option.label, "meaning": option.meaning, "scope": option.scope}


def _read_option(written: Mapping[str, Any]) -> Option:
    scope = written["scope"]
    return Option(
        option_id=written["id"],
        label=written["label"],
        meaning=Meaning(written["meaning"]),
        scope=None if scope is None else Scope(scope),
    )


@lru_cache(maxsize=DOCUMENTS_KEPT)
def read_options(document: str) -> tuple[Option, ...]:
    """A kept list of options."""
    return tuple(_read_option(written) for written in json.loads(document))


def written_offered(offered: Offered) -> dict[str, Any]:
    """An offered option as it is kept."""
    return {
        "position": offered.position,
        "option": written_option(offered.option),
        "printed": offered.printed,
        "names": sorted(offered.names),
        "id_matches": offered.id_matches,
    }


def read_offered(written: Mapping[str, Any]) -> Offered:
    """An offered option that was kept."""
    return Offered(
        position=written["position"],
        option=_read_option(written["option"]),
        printed=written["printed"],
        names=frozenset(written["names"]),
        id_matches=written["id_matches"],
    )


@lru_cache(maxsize=DOCUMENTS_KEPT)
def read_offers(document: str) -> tuple[Offered, ...]:
    """A kept list of offered options."""
    return tuple(read_offered(written) for written in json.loads(document))


def written_preview(preview: Preview) -> dict[str, Any]:
    """A part of a preview as it is kept."""
    match preview:
        case FieldPreview(label, value):
            return {"type": "field", "label": label, "value": value}
        case TextPreview(label, text, None):
            return {"type": "text", "label": label, "text": text}
        case TextPreview(label, text, language):
            return {"type": "text", "label": label, "text": text, "language": language}
        case DiffPreview(path, old, new):
            return {"type": "diff", "path": path, "old": old, "new": new}


def read_preview(written: Mapping[str, Any]) -> Preview:
    """A part of a preview that was kept."""
    match written:
        case {"type": "field", "label": label, "value": value}:
            return FieldPreview(label, value)
        case {"type": "text", "label": label, "text": text}:
            return TextPreview(label, text, written.get("language"))
        case {"type": "diff", "path": path, "old": old, "new": new}:
            return DiffPreview(path, old, new)
        case _:
            raise ValueError(f"a stored preview has the unknown type {written.get('type')!r}")


def read_progress(written: Mapping[str, Any]) -> Progress:
    """A progress that was kept."""
    return Progress(
        next_index=written["next_index"],
        completed=tuple(written["completed"]),
        failed_index=written["failed_index"],
        failure_reason=written["failure_reason"],
        status=written["status"],
    )
