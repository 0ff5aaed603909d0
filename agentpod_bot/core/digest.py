"""What binds a decision to exactly what was asked: digests over canonical JSON (RFC 8785)."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, assert_never

import rfc8785

from agentpod_bot.core.model import DiffPreview, FieldPreview, TextPreview
from agentpod_bot.errors import Invalid

if TYPE_CHECKING:
    from agentpod_bot.core.ids import RequestId, RouteName
    from agentpod_bot.core.model import Option, PermissionRequest, Preview

SUBJECT_SCHEMA = "harness-permission/v1"


def digest(asked: PermissionRequest, *, request_id: RequestId, revision: int, salt: str) -> str:
    """Return the subject's digest: lower-case hex SHA-256 over the harness's own full, uncut strings.

    The salt keeps it from giving away a guessable text to those who see the room. Raises
    `Invalid` for a lone surrogate, which no JSON can carry.
    """
    subject = {"schema": SUBJECT_SCHEMA, "id": request_id, "revision": revision, "salt": salt}
    return _sha256(subject | _content(asked))


def content_key(asked: PermissionRequest, route: RouteName) -> str:
    """Return what two requests with one id share where they ask the same: the digest's fields, and the route.

    Left out are id and revision, which name the request, the salt, deadlines, and what is
    only claimed or shown beside it (agent, `preview_complete`). Raises as `digest` does.
    """
    return _sha256({"route": route} | _content(asked))


def _content(asked: PermissionRequest) -> dict[str, Any]:
    return {
        "session_id": asked.session_id,
        "title": asked.title,
        "tool_kind": asked.tool_kind,
        "options": [_option(option) for option in asked.options],
        "preview": [_preview(preview) for preview in asked.preview],
    }


def _option(option: Option) -> dict[str, Any]:
    scope = None if option.scope is None else option.scope.value
    return {"id": option.option_id, "label": option.label, "meaning": option.meaning.value, "scope": scope}


def _preview(preview: Preview) -> dict[str, Any]:
    match preview:
        case FieldPreview(label=label, value=value):
            return {"type": "field", "label": label, "value": value}
        case TextPreview(label=label, text=text):
            return {"type": "text", "label": label, "text": text}
        case DiffPreview(path=path, old=old, new=new):
            return {"type": "diff", "path": path, "old_text": old, "new_text": new}
        case _:
            assert_never(preview)


def _sha256(fields: dict[str, Any]) -> str:
    try:
        canonical = rfc8785.dumps(fields)
    except rfc8785.CanonicalizationError as fault:
        raise Invalid((), "holds a lone surrogate, which JSON cannot carry") from fault
    return hashlib.sha256(canonical).hexdigest()
